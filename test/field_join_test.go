package test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/functions/join"
	"muster/runtime/natstest"
	"muster/wire"
)

// One replica. A sled of rack A sits on its prepare; rack B with quick sleds and 50 declares are not held up by it.
func TestField_B043_SlowSledHoldsUpNobody(t *testing.T) {
	f := newFleet(t)
	f.serve()
	slow, quick := []string{"slow1", "slow2", "slow3"}, []string{"quick1", "quick2", "quick3"}
	f.run(append(slices.Clone(slow), quick...)...)
	f.hold("slow3", wire.SledPrepare)
	f.start("A", "172.20.15.22", slow...)
	f.until(startLimit, "A", "waits for its slow sled", func(s join.Status) bool { return s.State == join.Preparing && len(s.Missing) == 1 })
	began := time.Now()
	f.start("B", "172.20.15.22", quick...)
	for _, a := range together(t, f.nc, 50, func(i int) request {
		return request{subject: fmt.Sprintf("muster.declare.set.h%d.atlas", i%5), body: state("up")}
	}) {
		a.ok(t)
	}
	f.until(startLimit, "B", "has joined", func(s join.Status) bool { return s.State == join.AwaitingCompletion })
	took := time.Since(began)
	t.Logf("rack B and 50 declares were done after %v", took.Round(time.Millisecond))
	if limit := time.Second; took > limit && len(buildFlags) == 0 {
		t.Errorf("it took %v, more than %v", took, limit)
	}
	if s := f.status("A"); s.State != join.Preparing {
		t.Errorf("A is %s while its sled sits on its prepare", s.State)
	}
	f.hold("slow3")
	f.completes("A", slow...)
}

// sledStates are what join.sleds says of sleds.
func (f *fleet) sledStates() map[string]string {
	f.t.Helper()
	var list wire.Sleds
	ask(f.t, f.nc, "muster.join.sleds", "").into(f.t, &list)
	states := map[string]string{}
	for _, s := range list.Sleds {
		states[s.Baseboard.SerialNumber] = s.State
	}
	return states
}

// Nine sleds, seven have committed, two are silent; the two are replaced. The first coordinator of the new epoch is silent.
func TestField_B067_TwoOfNineReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.serve("join")
	var nine []string
	for i := range 9 {
		nine = append(nine, fmt.Sprintf("s%d", i+1))
	}
	f.run(append(slices.Clone(nine), "x1", "x2")...)
	for _, silent := range []string{"s8", "s9"} {
		f.hold(silent, wire.SledCommit)
	}
	first := f.start("r2", "172.20.15.22", nine...)
	f.until(startLimit, "r2", "has seven commits", func(s join.Status) bool { return s.State == join.Committing && len(s.Missing) == 2 })
	natstest.Eventually(t, startLimit, "seven are members, two are not", func() bool {
		s := f.sledStates()
		return s["s7"] == wire.SledMember && s["s8"] == wire.SledPrepared && s["s9"] == wire.SledPrepared && s["x1"] == wire.SledFree
	})

	f.hold("s1", wire.SledReconfigure, wire.SledCoordinatorStatus)
	for _, newcomer := range []string{"x1", "x2"} {
		f.hold(newcomer, wire.SledCommit)
	}
	seven := append(slices.Clone(nine[:7]), "x1", "x2")
	again := f.start("r2", "172.20.15.22", seven...)
	if again.ID != first.ID || again.Generation != first.Generation || !again.Changed {
		t.Errorf("the correction is %+v after %+v", again, first)
	}
	s := f.until(startLimit, "r2", "begins another epoch", func(s join.Status) bool { return s.State == join.Reconfiguring })
	if s.Epoch < 2 || s.LastCommittedEpoch == nil || *s.LastCommittedEpoch != 1 {
		t.Errorf("the new epoch is %d, after %v", s.Epoch, s.LastCommittedEpoch)
	}
	s = f.until(coordinatorTakeover+slack, "r2", "has another coordinator", func(s join.Status) bool {
		return s.State == join.Committing && s.Epoch > 2 && len(s.Missing) == 2
	})
	if s.Epoch != 3 || s.LastCommittedEpoch == nil || *s.LastCommittedEpoch != 1 {
		t.Errorf("epoch %d, after %v", s.Epoch, s.LastCommittedEpoch)
	}
	natstest.Eventually(t, startLimit, "the newcomers show as prepared", func() bool {
		s := f.sledStates()
		return s["x1"] == wire.SledPrepared && s["x2"] == wire.SledPrepared
	})
	for _, newcomer := range []string{"x1", "x2"} {
		f.hold(newcomer)
	}
	f.hold("s1")
	f.completes("r2", seven...)
	natstest.Eventually(t, startLimit, "the newcomers have started, the two replaced have not", func() bool {
		s := f.sledStates()
		return s["x1"] == wire.SledStarted && s["x2"] == wire.SledStarted && s["s8"] == wire.SledPrepared && s["s9"] == wire.SledPrepared
	})
}

// A sled acks its prepare and its commit, and its start fails three times. Start is repeated meanwhile.
func TestField_B068_StartOfASledFails(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.serve("join")
	sleds := []string{"sick1", "sick2", "sick3"}
	dir := t.TempDir()
	tries, cure := filepath.Join(dir, "tries"), filepath.Join(dir, "cure")
	f.sled("sick2").onStart = fmt.Sprintf("echo try >>%s; echo no power at $(date +%%N) >&2; test -e %s", tries, cure)
	f.run(sleds...)
	var first wire.JoinStarted
	body := joinBody("172.20.15.22", sleds...)
	ask(t, f.nc, "muster.join.start.r1", body, "Muster-Request-Id", "one").into(t, &first)
	s := f.until(startLimit, "r1", "shows why the start failed", func(s join.Status) bool {
		return s.State == join.StartingAgents && len(s.Sleds) == 3 && s.Sleds[1].StartState.LastError != ""
	})
	if got := s.Sleds[1].StartState; got.Type != "in_progress" || !strings.Contains(got.LastError, "no power") || len(s.Missing) != 1 {
		t.Errorf("the status is %+v", s)
	}
	for i, headers := range [][]string{{"Muster-Request-Id", "one"}, {"Muster-Request-Id", "two"}, nil} {
		var again wire.JoinStarted
		ask(t, f.nc, "muster.join.start.r1", body, headers...).into(t, &again)
		if again.ID != first.ID || again.Generation != first.Generation || again.Changed != (i == 0) { // the first one's outcome
			t.Errorf("start again with %v: %+v after %+v", headers, again, first)
		}
	}
	natstest.Eventually(t, startLimit, "three starts have failed", func() bool { return len(lines(t, tries)) >= 3 })
	if s := f.status("r1"); s.State != join.StartingAgents {
		t.Errorf("the join has gone back to %s", s.State)
	}
	if got := f.sledStates()["sick2"]; got != wire.SledMember {
		t.Errorf("a sled that has committed and not started shows as %s", got)
	}
	if id := f.identity("sick2"); id.Started || id.CommittedEpoch == nil || *id.CommittedEpoch != 1 {
		t.Errorf("it says %+v", id)
	}
	if err := os.WriteFile(cure, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.until(startLimit, "r1", "has joined", func(s join.Status) bool { return s.State == join.AwaitingCompletion })
	f.completes("r1", sleds...)
	// Each failure says something else, which must not become a revision each.
	if n := len(f.history("r1")); n > 20 {
		t.Errorf("%d revisions", n)
	}
}

// Complete is asked for over and over, its reply is lost, and its replica is killed in the middle: one outcome, one change.
func TestField_B074_CompleteOverAndOver(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	replica := f.serve("join")
	sleds := []string{"done1", "done2", "done3"}
	f.run(sleds...)
	f.hold("done3", wire.SledNetwork)
	f.start("r1", "172.20.15.22", sleds...)
	f.until(startLimit, "r1", "waits for a network config to be written", func(s join.Status) bool {
		return s.State == join.ConfiguringNetwork && len(s.Missing) == 1
	})
	f.startCompletion("r1") // its reply is lost
	var sealed bool
	natstest.Eventually(t, startLimit, "completion is recorded", func() bool {
		_, err := f.nc.Request("muster.join.status.r1", nil, time.Second)
		if err != nil {
			return false
		}
		for _, e := range wantedOf(t, f.nc, wire.BucketRacks).history("r1") {
			sealed = sealed || bytes.Contains(e.Value(), []byte(`"sealed":true`))
		}
		return sealed
	})
	ask(t, f.nc, "muster.join.complete.r1", "", "Muster-Timeout", "300ms").refused(t, wire.DeadlineExceeded)
	ask(t, f.nc, "muster.join.start.r1", joinBody("172.20.15.23", sleds...)).refused(t, wire.MultirackJoinInProgress)
	var waiting atomic.Int32
	sub, err := f.nc.Subscribe("lost", func(*nats.Msg) { waiting.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection ends
	if err := f.nc.PublishRequest("muster.join.complete.r1", "lost", nil); err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	replica.signal(syscall.SIGKILL)
	replica.waitExit(startLimit)
	f.hold("done3")
	f.serve("join")
	f.serve("join")
	want := f.completes("r1", sleds...)
	answers := together(t, f.nc, 10, func(int) request { return request{subject: "muster.join.complete.r1"} })
	for range 2 {
		answers = append(answers, ask(t, f.nc, "muster.join.complete.r1", ""))
	}
	for _, a := range answers {
		var got wire.JoinCompleted
		if a.into(t, &got); got.BootstoreGeneration != want || want != 1 {
			t.Errorf("generation %d, then %d", want, got.BootstoreGeneration)
		}
	}
	completed := 0
	for _, r := range f.history("r1") {
		if r.State == string(join.Completed) {
			completed++
		}
	}
	if completed != 1 {
		t.Errorf("%d revisions are completed, want one: each is an event", completed)
	}
	if n := waiting.Load(); n != 0 {
		t.Errorf("a killed replica answered %d times", n)
	}
}

// Only legal memberships pass, the rule is named, and no sled is contacted for a request that is refused.
func TestField_B085_Memberships(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.serve("join")
	f.run("m1", "m2", "m3")
	contacts := make(chan string, 10000)
	if _, err := f.nc.Subscribe("muster.sled.>", func(m *nats.Msg) { contacts <- m.Subject }); err != nil {
		t.Fatal(err)
	}
	contacted := func() (all []string) {
		if err := f.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		for {
			select {
			case s := <-contacts:
				all = append(all, s)
			default:
				return all
			}
		}
	}
	many := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("none%d", i))
		}
		return all
	}
	for name, x := range map[string]struct {
		serials []string
		rule    string
	}{
		"duplicates": {[]string{"m1", "m2", "m2"}, "trust_quorum_peers[2]"},
		"no serial":  {[]string{"m1", "m2", ""}, "trust_quorum_peers[2].serial_number"},
	} {
		e := ask(t, f.nc, "muster.join.start.refused", joinBody("172.20.15.22", x.serials...)).refused(t, wire.InvalidRequest)
		if got := fmt.Sprint(e.Details["problems"]); !strings.Contains(got, x.rule) {
			t.Errorf("%s: problems %s, want %s", name, got, x.rule)
		}
	}
	for rack, n := range map[string]int{"two": 2, "thirtythree": 33} {
		f.start(rack, "172.20.15.22", many(n)...)
		s := f.until(startLimit, rack, "waits for a correction", func(s join.Status) bool { return s.State == join.InvalidMembershipSize })
		if !strings.Contains(s.Message, fmt.Sprint(n)) || !strings.Contains(s.Message, "3 to 32") {
			t.Errorf("%d sleds: %q", n, s.Message)
		}
	}
	if all := contacted(); len(all) > 0 {
		t.Errorf("sleds were contacted for what was refused: %v", all)
	}
	f.start("thirtytwo", "172.20.15.22", many(32)...)
	f.until(startLimit, "thirtytwo", "looks for its sleds", func(s join.Status) bool { return s.State == join.Starting && len(s.Missing) == 32 })
	f.start("two", "172.20.15.22", "m1", "m2", "m3")
	f.completes("two", "m1", "m2", "m3")
	if all := contacted(); len(all) == 0 {
		t.Error("the spy sees nothing")
	}

	// What a sled itself takes, in a rack that has committed epoch 1.
	id := f.identity("m1")
	order := func(rack, epoch, last, threshold string, serials ...string) string {
		body := joinBody("", serials...)
		peers := body[strings.Index(body, "["):strings.Index(body, `,"rack_network_config"`)]
		return fmt.Sprintf(`{"rack_id":"%s","epoch":%s,"last_committed_epoch":%s,"threshold":%s,"members":%s}`, rack, epoch, last, threshold, peers)
	}
	five := []string{"m1", "m2", "m3", "m4", "m5"}
	for name, x := range map[string]struct {
		body, rule string
		code       wire.Code
	}{
		"threshold 0":         {order(*id.RackID, "2", "1", "0", five...), "threshold", wire.InvalidRequest},
		"threshold 1":         {order(*id.RackID, "2", "1", "1", five...), "threshold", wire.InvalidRequest},
		"threshold n":         {order(*id.RackID, "2", "1", "5", five...), "threshold", wire.InvalidRequest},
		"two members":         {order(*id.RackID, "2", "1", "2", "m1", "m2"), "membership_size", wire.InvalidRequest},
		"a member twice":      {order(*id.RackID, "2", "1", "2", "m1", "m2", "m2"), "duplicate_member", wire.InvalidRequest},
		"coordinator outside": {order(*id.RackID, "2", "1", "2", "m2", "m3", "m4"), "", wire.NotMember},
		"another rack":        {order("other", "2", "1", "2", "m1", "m2", "m3"), "", wire.WrongRack},
		"epoch 0":             {order(*id.RackID, "0", "null", "2", "m1", "m2", "m3"), "epoch", wire.InvalidRequest},
		"epoch 2^63":          {order(*id.RackID, "9223372036854775808", "1", "2", "m1", "m2", "m3"), "epoch", wire.InvalidRequest},
		"equal epoch, others": {order(*id.RackID, "1", "null", "3", five...), "", wire.EpochConflict},
		"wrong last":          {order(*id.RackID, "3", "2", "2", "m1", "m2", "m3"), "", wire.LastCommittedEpochMismatch},
		"no last":             {order(*id.RackID, "3", "null", "2", "m1", "m2", "m3"), "", wire.LastCommittedEpochMismatch},
	} {
		m, err := f.nc.Request(wire.SledSubject(board("m1"), wire.SledReconfigure), []byte(x.body), startLimit)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(m.Data); !strings.Contains(text, `"error_code":"`+string(x.code)+`"`) || !strings.Contains(text, x.rule) {
			t.Errorf("%s: %s, want %s and rule %q", name, text, x.code, x.rule)
		}
	}
	if after := f.identity("m1"); *after.PreparedEpoch != 1 || *after.CommittedEpoch != 1 {
		t.Errorf("it took something of that: %+v", after)
	}
}
