package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/runtime/natstest"
	"muster/wire"
)

// late is what a busy machine may add to a limit of the contract.
const late = 500 * time.Millisecond

// Two replicas. One registration with a ttl of 2 s, then silence: it shows while it lasts, and is gone by 4 s.
func TestField_B030_SilentBackendIsGone(t *testing.T) {
	t.Parallel()
	r := newResolvers(t)
	register(t, r.nc, r.a, "mgs", "stays", "1h")
	began := time.Now()
	register(t, r.nc, r.a, "mgs", "silent", "2s")
	registered := time.Now()
	watches := []*watching{}
	for _, at := range []*replica{r.a, r.b} {
		becomes(t, r.nc, at, "mgs", "fresh silent stays", time.Second+late)
		watches = append(watches, watchLookups(t, r.nc, at, "mgs", 20*time.Millisecond, nil))
	}
	for _, at := range []*replica{r.a, r.b} {
		becomes(t, r.nc, at, "mgs", "fresh stays", 10*time.Second)
		if gone := time.Since(registered); gone > 4*time.Second+late {
			t.Errorf("%s showed it for %v", at.name, gone)
		}
	}
	for i, w := range watches {
		w.stop()
		for _, s := range w.all() {
			if early := s.answered.Sub(began) < 2*time.Second; early && s.String() != "fresh silent stays" {
				t.Errorf("replica %d, %v after registering: %s", i, s.at.Sub(began), s)
			}
		}
	}
	becomes(t, r.nc, r.b, "mgs", "fresh stays", late)
}

// A registration of 2 s, renewed each 0.5 s for 3 s: it shows without a gap, on the replica that is asked and on the other.
func TestField_B034_HeartbeatsKeepIt(t *testing.T) {
	t.Parallel()
	r := newResolvers(t)
	l := register(t, r.nc, r.a, "mgs", "mgs0", "2s")
	if l.TTL != "2s" || l.Lease == "" || l.Revision == 0 || time.Until(l.ExpiresAt) > 2*time.Second || time.Until(l.ExpiresAt) < time.Second {
		t.Errorf("got %+v", l)
	}
	var watches []*watching
	for _, at := range []*replica{r.a, r.b} {
		becomes(t, r.nc, at, "mgs", "fresh mgs0", time.Second+late)
		watches = append(watches, watchLookups(t, r.nc, at, "mgs", 20*time.Millisecond, nil))
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var last time.Time
	for i := range 6 { // by turns, as callers come to whichever replica
		<-tick.C
		last = time.Now()
		at := []*replica{r.a, r.b}[i%2]
		var again wire.Lease
		ask(t, r.nc, at.subject("heartbeat.mgs.mgs0"), withLease(l.Lease)).into(t, &again)
		if again.Lease != l.Lease || again.Revision <= l.Revision || !again.ExpiresAt.After(l.ExpiresAt) {
			t.Errorf("renewed as %+v after %+v", again, l)
		}
		l = again
	}
	for _, at := range []*replica{r.a, r.b} {
		becomes(t, r.nc, at, "mgs", "fresh -", 10*time.Second)
		if gone := time.Since(last); gone > 4*time.Second+late {
			t.Errorf("%s showed it for %v after the last heartbeat", at.name, gone)
		}
	}
	for i, w := range watches {
		w.stop()
		for _, s := range w.all() {
			if s.answered.Before(last.Add(2*time.Second)) && s.String() != "fresh mgs0" {
				t.Errorf("replica %d, a gap %v before the last heartbeat: %s", i, last.Sub(s.at), s)
			}
		}
	}
}

func TestField_B034_TTLsThatAreNone(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	startResolve(t, n.URL(), "resolve", 1)
	nc := natstest.Connect(t, n.URL())
	for _, ttl := range []string{
		`"500ms"`, `"0"`, `"0s"`, `"-1"`, `"-1s"`, `"1e12"`, `"999ms"`, `"3601s"`, `"1h0m1s"`, `"ten"`, `"10"`, "500", "0", "-1", "1e12", "1500", "1.5", "true", "{}", `["10s"]`,
	} {
		e := ask(t, nc, "muster.resolve.register.mgs.mgs0", `{"address":"[fd00::1]:80","ttl":`+ttl+`}`).refused(t, wire.InvalidRequest)
		if e.Details["field"] != "ttl" || !strings.Contains(e.Message, "1s to 1h") {
			t.Errorf("ttl %s: field %v, %s", ttl, e.Details["field"], e.Message)
		}
	}
	ask(t, nc, "muster.resolve.lookup.mgs", "").refused(t, wire.ServiceNotFound)
	for _, ttl := range []string{`"1s"`, `"1h"`, "null"} {
		ask(t, nc, "muster.resolve.register.mgs.mgs0", `{"address":"[fd00::1]:80","ttl":`+ttl+`}`).ok(t)
	}
	var l wire.Lease
	ask(t, nc, "muster.resolve.register.mgs.mgs0", `{"address":"[fd00::1]:80"}`).into(t, &l)
	if l.TTL != "30s" {
		t.Errorf("without a ttl it is %s", l.TTL)
	}
}

// The registrant was stopped for longer than its ttl. Its late heartbeat revives nothing, whichever replica gets it,
// however late, with a request id or without.
func TestField_B094_LateHeartbeat(t *testing.T) {
	t.Parallel()
	r := newResolvers(t)
	type beat struct {
		backend string
		lease   wire.Lease
		at      *replica
		after   time.Duration
		headers []string
	}
	var all []beat
	for i, after := range []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second} {
		for j, at := range []*replica{r.a, r.b} {
			for k, headers := range [][]string{nil, {"Muster-Request-Id", fmt.Sprintf("beat-%d-%d", i, j)}} {
				all = append(all, beat{backend: fmt.Sprintf("b%d-%d-%d", i, j, k), at: at, after: after, headers: headers})
			}
		}
	}
	for i := range all {
		all[i].lease = register(t, r.nc, r.a, "mgs", all[i].backend, "3s")
	}
	registered := time.Now()
	for _, l := range all {
		natstest.Eventually(t, startLimit, "it is late enough", func() bool { return time.Since(registered) >= 3*time.Second+l.after })
		for _, op := range []string{"heartbeat", "deregister"} {
			e := ask(t, r.nc, l.at.subject(op+".mgs."+l.backend), withLease(l.lease.Lease), l.headers...).refused(t, wire.LeaseExpired)
			if strings.Contains(e.Message, l.lease.Lease) {
				t.Error("the message holds the lease")
			}
		}
		ask(t, r.nc, l.at.subject("register.mgs."+l.backend), fmt.Sprintf(`{"address":"[fd00::1]:80","lease":%q}`, l.lease.Lease)).refused(t, wire.LeaseExpired)
	}
	for _, at := range []*replica{r.a, r.b} {
		if f := mustLook(t, r.nc, at, "mgs"); f.String() != "fresh -" {
			t.Errorf("%s: %s", at.name, f.raw)
		}
	}
	if again := register(t, r.nc, r.b, "mgs", all[0].backend, "3s"); again.Lease == all[0].lease.Lease {
		t.Error("the old lease was given again")
	}
	becomes(t, r.nc, r.a, "mgs", "fresh "+all[0].backend, time.Second+late)
}

// A new process registers under the name of one that still holds a lease. The old one, which ends now, removes nothing.
func TestOldProcessDeregistersAfterItsSuccessorRegistered(t *testing.T) {
	t.Parallel()
	r := newResolvers(t)
	old := register(t, r.nc, r.a, "mgs", "mgs0", "30s", "Muster-Request-Id", "old")
	successor := register(t, r.nc, r.b, "mgs", "mgs0", "30s")
	if old.Lease == successor.Lease {
		t.Fatal("both hold the same lease")
	}
	w := watchLookups(t, r.nc, r.a, "mgs", 10*time.Millisecond, neverEmpty)
	for _, at := range []*replica{r.a, r.b} {
		for _, op := range []string{"deregister", "heartbeat"} {
			ask(t, r.nc, at.subject(op+".mgs.mgs0"), withLease(old.Lease)).refused(t, wire.LeaseExpired)
		}
	}
	if again := register(t, r.nc, r.b, "mgs", "mgs0", "30s", "Muster-Request-Id", "old"); again != old { // a retry gets its first outcome, and does nothing
		t.Errorf("a retry got %+v, the first attempt %+v", again, old)
	}
	ask(t, r.nc, r.a.subject("heartbeat.mgs.mgs0"), withLease(successor.Lease)).ok(t)
	w.stop()
	ask(t, r.nc, r.a.subject("deregister.mgs.mgs0"), withLease(successor.Lease)).ok(t)
	for _, at := range []*replica{r.a, r.b} {
		becomes(t, r.nc, at, "mgs", "fresh -", time.Second+late)
	}
	ask(t, r.nc, r.b.subject("deregister.mgs.mgs0"), withLease(successor.Lease)).refused(t, wire.LeaseExpired)
}

// What remove leaves is nothing: not for the next remove, not for a lease of before.
func TestRemoveService(t *testing.T) {
	t.Parallel()
	r := newResolvers(t)
	l := register(t, r.nc, r.a, "mgs", "mgs0", "30s")
	becomes(t, r.nc, r.b, "mgs", "fresh mgs0", time.Second+late)
	ask(t, r.nc, r.b.subject("remove.mgs"), "").ok(t)
	ask(t, r.nc, r.a.subject("heartbeat.mgs.mgs0"), withLease(l.Lease)).refused(t, wire.LeaseExpired)
	for _, at := range []*replica{r.a, r.b} {
		becomes(t, r.nc, at, "mgs", string(wire.ServiceNotFound), time.Second+late)
		ask(t, r.nc, at.subject("remove.mgs"), "").refused(t, wire.ServiceNotFound)
	}
	ask(t, r.nc, r.a.subject("define.mgs"), `{"static":{"a":"[fd00::1]:80"}}`).ok(t)
	for _, at := range []*replica{r.a, r.b} {
		becomes(t, r.nc, at, "mgs", "fresh a", time.Second+late)
	}
	ask(t, r.nc, r.a.subject("register.mgs.mgs0"), `{"address":"[fd00::1]:80"}`).refused(t, wire.InvalidRequest)
	ask(t, r.nc, r.a.subject("remove.mgs"), "").ok(t)
	natstest.Eventually(t, startLimit, "its copy is gone", func() bool {
		_, err := bucketNamed(t, r.nc, "muster_resolved").Get(ctx(t), "mgs")
		return err != nil
	})
	register(t, r.nc, r.b, "mgs", "mgs0", "30s")
	becomes(t, r.nc, r.a, "mgs", "fresh mgs0", time.Second+late)
}

// A remove and a registration at once: either the registrant is told by its next heartbeat, or its backend is there, and
// when it has ended the service is known to be empty.
func TestRemoveRacesRegister(t *testing.T) {
	t.Parallel()
	r := newResolvers(t)
	kept := 0
	for i := range 30 {
		service := fmt.Sprintf("s%d", i)
		register(t, r.nc, r.a, service, "first", "1h")
		answers := together(t, r.nc, 3, func(j int) request {
			if j == 1 {
				return request{r.a.subject("remove." + service), "", nil}
			}
			return request{r.b.subject(fmt.Sprintf("register.%s.b%d", service, j)), `{"address":"[fd00::1]:80"}`, nil}
		})
		answers[1].ok(t)
		var left []string
		leases := map[string]string{}
		for _, j := range []int{0, 2} {
			var l wire.Lease
			answers[j].into(t, &l)
			backend := fmt.Sprintf("b%d", j)
			if a := ask(t, r.nc, r.a.subject("heartbeat."+service+"."+backend), withLease(l.Lease)); a.failure != nil {
				a.refused(t, wire.LeaseExpired)
				continue
			}
			left, leases[backend] = append(left, backend), l.Lease
		}
		if len(left) == 0 {
			continue
		}
		kept++
		for _, at := range []*replica{r.a, r.b} {
			becomes(t, r.nc, at, service, "fresh "+strings.Join(left, " "), time.Second+late)
		}
		for backend, lease := range leases {
			ask(t, r.nc, r.a.subject("deregister."+service+"."+backend), withLease(lease)).ok(t)
		}
		for _, at := range []*replica{r.a, r.b} {
			becomes(t, r.nc, at, service, "fresh -", time.Second+late)
		}
	}
	t.Logf("%d of 30 registered after the remove", kept)
}
