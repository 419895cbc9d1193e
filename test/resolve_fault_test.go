package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/functions/resolve/dns/dnstest"
	"muster/runtime/natstest"
	"muster/wire"
)

// three defines a service of each kind, with backends, and waits until both replicas tell of them.
func (r *resolvers) three(server *dnstest.Server) {
	r.t.Helper()
	server.Zone(zone("named", 1, 2)...)
	defineDNS(r.t, r.nc, r.a.subject, "named", server)
	ask(r.t, r.nc, r.a.subject("define.fixed"), `{"static":{"a":"[fd00::1]:80"}}`).ok(r.t)
	register(r.t, r.nc, r.a, "leased", "b", "1h")
	r.right(startLimit)
}

var rightOf = map[string]string{"named": "fresh mgs0 mgs1", "fixed": "fresh a", "leased": "fresh b"}

// right waits until both replicas tell the truth about all of three.
func (r *resolvers) right(limit time.Duration) {
	r.t.Helper()
	for service, want := range rightOf {
		for _, at := range []*replica{r.a, r.b} {
			becomes(r.t, r.nc, at, service, want, limit)
		}
	}
}

// rightOrStale watches that nothing else is told than the truth, or that nobody knows.
func (r *resolvers) rightOrStale() (stop func()) {
	var watches []*watching
	for service, want := range rightOf {
		for _, at := range []*replica{r.a, r.b} {
			watches = append(watches, watchLookups(r.t, r.nc, at, service, 10*time.Millisecond, func(f found) error {
				names, _ := strings.CutPrefix(want, "fresh ")
				switch {
				case f.code == wire.Unavailable, f.code == wire.NotResolvedYet:
				case f.code != "" || f.names() != names:
					return errors.New("neither right nor stale")
				}
				return nil
			}))
		}
	}
	return func() {
		for _, w := range watches {
			w.stop()
		}
	}
}

func TestResolveAcrossABrokerRestart(t *testing.T) {
	t.Parallel()
	r := newResolvers(t)
	r.three(dnstest.Start(t))
	stop := r.rightOrStale()
	defer stop()
	r.node.Restart()
	up := time.Now()
	r.right(startLimit)
	if took := time.Since(up); took > 5*time.Second+late {
		t.Errorf("right again %v after the restart", took)
	}
	r.node.DisableJetStream()
	for _, at := range []*replica{r.a, r.b} {
		for service := range rightOf {
			natstest.Eventually(t, 2*time.Second+late, "nobody can be sure at "+at.name, func() bool {
				f, err := look(r.nc, at, service, "")
				return err == nil && f.Status == wire.StatusStale && f.Reason != ""
			})
		}
		a := ask(t, r.nc, at.subject("lookup.unknown"), "")
		if e := a.refused(t, wire.Unavailable); e.Details["reason"] != wire.JetStreamUnavailable {
			t.Errorf("an unknown service while nobody knows: %s", a.raw)
		}
	}
	r.node.EnableJetStream()
	r.right(startLimit)
	becomes(t, r.nc, r.a, "unknown", string(wire.ServiceNotFound), 5*time.Second)
}

// Each bucket is deleted by hand. Those of leases are made again by the replicas; who registered registers again then.
// muster_services is the operator's to make again.
func TestResolveOfDeletedBuckets(t *testing.T) {
	t.Parallel()
	for _, bucket := range []string{"muster_resolved", "muster_backends", "muster_services"} {
		t.Run(bucket, func(t *testing.T) {
			t.Parallel()
			r := newResolvers(t)
			r.three(dnstest.Start(t))
			js, err := jetstream.New(r.nc, jetstream.WithDefaultTimeout(startLimit))
			if err != nil {
				t.Fatal(err)
			}
			stream, err := js.Stream(ctx(t), "KV_"+bucket)
			if err != nil {
				t.Fatal(err)
			}
			config := stream.CachedInfo().Config
			stop := r.rightOrStale()
			if err := js.DeleteStream(ctx(t), "KV_"+bucket); err != nil {
				t.Fatal(err)
			}
			deleted := time.Now()
			if bucket == "muster_services" {
				natstest.Eventually(t, 3*time.Second, "all is stale", func() bool {
					for service := range rightOf {
						if f, err := look(r.nc, r.b, service, ""); err != nil || f.Status != wire.StatusStale {
							return false
						}
					}
					return true
				})
				if _, err := js.CreateStream(ctx(t), config); err != nil {
					t.Fatal(err)
				}
				deleted = time.Now()
			}
			natstest.Eventually(t, 10*time.Second, "everything can be told again", func() bool {
				a, err := try(r.nc, time.Second, r.a.subject("define.fixed"), `{"static":{"a":"[fd00::1]:80"}}`)
				b, errB := try(r.nc, time.Second, r.a.subject("register.leased.b"), `{"address":"[fd00::1]:80","ttl":"1h"}`)
				return err == nil && errB == nil && a.failure == nil && b.failure == nil
			})
			if bucket == "muster_services" {
				stop() // the definition of the DNS source is lost, and with it the service
				for _, at := range []*replica{r.a, r.b} {
					becomes(t, r.nc, at, "fixed", "fresh a", 10*time.Second)
					becomes(t, r.nc, at, "named", string(wire.ServiceNotFound), 10*time.Second)
				}
			} else {
				r.right(10 * time.Second)
				stop()
			}
			if took := time.Since(deleted); took > 10*time.Second+2*late { // 5 s, and what a busy machine adds
				t.Errorf("right again %v after the bucket was there again", took)
			}
		})
	}
}

// A bucket that `nats kv add` made with its defaults has no TTLs: no lease is ever stored in it that would never end, nobody
// is told that all is well, and the check names it.
func TestResolveOnBucketsMadeByHand(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	nc := natstest.Connect(t, n.URL())
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"muster_services", "muster_backends", "muster_resolved"} {
		if _, err := js.CreateKeyValue(ctx(t), jetstream.KeyValueConfig{Bucket: name}); err != nil {
			t.Fatal(err)
		}
	}
	r := connectResolve(t, n.URL(), "resolve", 1)
	s := dnstest.Start(t)
	s.Zone(zone("named", 1, 2)...)
	ask(t, nc, "muster.resolve.define.fixed", `{"static":{"a":"[fd00::1]:80"}}`).ok(t)
	defineDNS(t, nc, plainSubject, "named", s)
	becomes(t, nc, nil, "fixed", "fresh a", startLimit)
	e := ask(t, nc, "muster.resolve.register.leased.b", `{"address":"[fd00::1]:80"}`).refused(t, wire.Unavailable)
	if !strings.Contains(e.Message, "muster_backends") {
		t.Errorf("which bucket it is is not said: %s", e.Message)
	}
	if f := mustLook(t, nc, nil, "named"); f.code != wire.NotResolvedYet {
		t.Errorf("nobody can resolve: %s", f.raw)
	}
	if got := r.problem(ctx(t)); !strings.Contains(got, "allow_msg_ttl") {
		t.Errorf("not ready because of %q", got)
	}
	if keys, err := bucketNamed(t, nc, "muster_backends").Keys(ctx(t)); err == nil {
		t.Errorf("stored for ever: %v", keys)
	}
}

// What an operator puts by hand and cannot be read is never taken for absent, written over, or a reason to say that nothing
// is there.
func TestResolveOfWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := newResolvers(t)
	register(t, r.nc, r.a, "mgs", "good", "1h")
	put := func(bucket, key string) {
		if _, err := bucketNamed(t, r.nc, bucket).PutString(ctx(t), key, "not json"); err != nil {
			t.Fatal(err)
		}
	}
	put("muster_backends", "mgs.bad")
	put("muster_backends", "only.bad")
	put("muster_services", "broken")
	for _, at := range []*replica{r.a, r.b} {
		natstest.Eventually(t, startLimit, "the other backend still serves", func() bool {
			f, err := look(r.nc, at, "mgs", "")
			return err == nil && f.String() == "fresh good" && !f.Complete && strings.Contains(f.Reason, "bad")
		})
		becomes(t, r.nc, at, "only", string(wire.CorruptRecord), startLimit)
		becomes(t, r.nc, at, "broken", string(wire.CorruptRecord), startLimit)
		for op, body := range map[string]string{
			"lookup.broken": "", "remove.broken": "", "define.broken": `{"leases":{}}`, "register.broken.a": `{"address":"[fd00::1]:80"}`,
			"register.mgs.bad": `{"address":"[fd00::1]:80"}`, "heartbeat.mgs.bad": withLease("x"), "deregister.mgs.bad": withLease("x"),
		} {
			e := ask(t, r.nc, at.subject(op), body).refused(t, wire.CorruptRecord)
			if e.Details["bucket"] == nil || e.Details["key"] == nil || detail(e, "revision") <= 0 {
				t.Errorf("%s: details %v", op, e.Details)
			}
		}
		var list wire.Services
		ask(t, r.nc, at.subject("services"), "").into(t, &list)
		line := slices.IndexFunc(list.Services, func(l wire.ServiceLine) bool { return l.Service == "broken" })
		if line < 0 || list.Services[line].Error != wire.CorruptRecord {
			t.Errorf("listed as %+v", list.Services)
		}
	}
	put("muster_resolved", "mgs") // the copy is the resolver's own: it is written again
	natstest.Eventually(t, startLimit, "the copy can be read again", func() bool {
		e, err := bucketNamed(t, r.nc, "muster_resolved").Get(ctx(t), "mgs")
		return err == nil && json.Valid(e.Value())
	})
	if e, err := bucketNamed(t, r.nc, "muster_services").Get(ctx(t), "broken"); err != nil || string(e.Value()) != "not json" {
		t.Errorf("the broken record is %v, %v", e, err)
	}
}

// DNS answers differently each time: every answer is one of those given, whole, and each change is one revision.
func TestDNSAnswersDifferentlyEachTime(t *testing.T) {
	t.Parallel()
	r := newResolvers(t)
	s := dnstest.Start(t)
	all := zone("mgs", 1, 4)
	s.Zone(all...)
	var srv []string
	for i := range 4 {
		srv = append(srv, all[2*i])
	}
	s.Script("_mgs._tcp.rack.internal.", "SRV", // a subset, the same in another order, and another subset
		dnstest.Records(srv[0], srv[1]), dnstest.Records(srv[1], srv[0]), dnstest.Records(srv[2], srv[3]), dnstest.Records(srv[3], srv[2]),
		dnstest.Records(srv[0], srv[1], srv[2], srv[3]), dnstest.Records(srv[3], srv[0], srv[2], srv[1]))
	defineDNS(t, r.nc, r.a.subject, "mgs", s)
	watch := watchLookups(t, r.nc, r.b, "mgs", 10*time.Millisecond, func(f found) error {
		if got := f.String(); !slices.Contains([]string{string(wire.NotResolvedYet), "fresh mgs0 mgs1", "fresh mgs2 mgs3", "fresh mgs0 mgs1 mgs2 mgs3"}, got) && f.Status != wire.StatusStale {
			return errors.New("an answer that was never given")
		}
		return nil
	})
	becomes(t, r.nc, r.b, "mgs", "fresh mgs0 mgs1 mgs2 mgs3", startLimit)
	natstest.Eventually(t, startLimit, "it is asked again", func() bool { return s.Count("_mgs._tcp.rack.internal.", "SRV") > 7 })
	watch.stop()
	history, err := bucketNamed(t, r.nc, "muster_services").History(ctx(t), "mgs")
	if err != nil {
		t.Fatal(err)
	}
	if len(history) != 4 { // defined, and three sets
		for _, e := range history {
			t.Logf("revision %d: %s", e.Revision(), e.Value())
		}
		t.Errorf("%d revisions, want 4: order is no change and a refresh is none", len(history))
	}
}

// Defined again and again, equal and otherwise, while DNS is asked: the answer is always of the present source.
func TestDefinedAgainWhileDNSIsAsked(t *testing.T) {
	t.Parallel()
	r := newResolvers(t)
	s, slow := dnstest.Start(t), dnstest.Start(t)
	s.Zone(zone("mgs", 1, 2)...)
	slow.All(dnstest.Silent())
	defineDNS(t, r.nc, r.a.subject, "mgs", s)
	becomes(t, r.nc, r.b, "mgs", "fresh mgs0 mgs1", startLimit)
	define := func(body string) (d wire.ServiceDefined) {
		ask(t, r.nc, r.b.subject("define.mgs"), body).into(t, &d)
		return d
	}
	same := fmt.Sprintf(`{"dns":{"name":"_mgs._tcp.rack.internal","servers":[%q]}}`, s.Addr())
	if a, b := define(same), define(same); a != b {
		t.Errorf("defined equally at revision %d and %d", a.Revision, b.Revision)
	}
	w := watchLookups(t, r.nc, r.b, "mgs", 5*time.Millisecond, neverEmpty)
	for i := range 5 {
		defineDNS(t, r.nc, r.a.subject, "mgs", slow)
		becomes(t, r.nc, r.b, "mgs", string(wire.NotResolvedYet), time.Second+late)
		define(fmt.Sprintf(`{"static":{"s%d":"[fd00::1]:80"}}`, i))
		becomes(t, r.nc, r.a, "mgs", fmt.Sprintf("fresh s%d", i), time.Second+late)
	}
	define(same)
	becomes(t, r.nc, r.b, "mgs", "fresh mgs0 mgs1", startLimit)
	w.stop()
	if n, _, _ := s.Busiest(); n > 1 {
		t.Errorf("%d queries within a second", n)
	}
}

// Two replicas on three servers, one of which dies: that of the streams' leader.
func TestResolveOnThreeNodes(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t, 3)
	nc := natstest.Connect(t, c.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	a, b := startResolve(t, c.URL(), "resolveA", 3), startResolve(t, c.URL(), "resolveB", 3)
	r := &resolvers{t: t, nc: nc, a: a, b: b}
	s := dnstest.Start(t)
	r.three(s)
	stop := r.rightOrStale()
	dead := c.StreamLeader("KV_muster_backends")
	dead.Stop()
	r.right(2 * startLimit)
	l := register(t, nc, r.a, "late", "x", "2s")
	becomes(t, nc, r.b, "late", "fresh x", 2*time.Second)
	natstest.Eventually(t, startLimit, "it is renewed", func() bool {
		got, err := try(nc, 2*time.Second, r.b.subject("heartbeat.late.x"), withLease(l.Lease))
		return err == nil && (got.failure == nil || got.failure.Code == wire.LeaseExpired)
	})
	becomes(t, nc, r.a, "late", "fresh -", startLimit)
	dead.Up()
	c.WaitReady()
	r.right(startLimit)
	stop()
	if n, name, _ := s.Busiest(); n > 1 {
		t.Errorf("%d queries within a second for %s", n, name)
	}
}

// Replicas are stopped in good order and begun again, in turn: no lookup is lost, and none is told less than before.
func TestResolveInARoll(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	nc := natstest.Connect(t, n.URL())
	s := dnstest.Start(t)
	s.Zone(zone("named", 10, 2)...)
	replicas := []*program{serveProcess(t, n.URL(), "resolve"), serveProcess(t, n.URL(), "resolve")}
	defineDNS(t, nc, plainSubject, "named", s)
	ask(t, nc, "muster.resolve.define.fixed", `{"static":{"a":"[fd00::1]:80"}}`).ok(t)
	register(t, nc, nil, "leased", "b", "1h")
	var watches []*watching
	for service, want := range rightOf {
		becomes(t, nc, nil, service, want, startLimit)
		for range 2 {
			watches = append(watches, watchLookups(t, nc, nil, service, 2*time.Millisecond, func(f found) error {
				if f.String() != want {
					return fmt.Errorf("not %s", want)
				}
				return nil
			}))
		}
	}
	for i := range 4 {
		old := replicas[i%2]
		old.signal(syscall.SIGTERM)
		if code := old.waitExit(startLimit); code != 0 {
			t.Errorf("exit code %d", code)
		}
		replicas[i%2] = serveProcess(t, n.URL(), "resolve")
	}
	asked := 0
	for _, w := range watches {
		w.stop()
		for _, seen := range w.all() {
			asked++
			if seen.String() == " -" {
				t.Error("a lookup was lost")
			}
		}
	}
	if asked < 200 {
		t.Errorf("%d lookups show little", asked)
	}
	if most, name, _ := s.Busiest(); most > 1 {
		t.Errorf("%d queries within a second for %s", most, name)
	}
}
