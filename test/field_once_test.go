package test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
	"muster/wire"
)

func TestField_B005_OneCreateWins(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	a, b := pair(t, s.URL(), s.URL(), 1)
	oneCreateWins(t, natstest.Connect(t, s.URL()), a, b, 100)
}

// Fewer rounds than on one server: each takes as long as 32 votes and a deletion do.
func TestField_B005_OneCreateWinsOnThreeNodes(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t, 3)
	a, b := pair(t, c.Node(0).URL(), c.Node(1).URL(), 3)
	oneCreateWins(t, natstest.Connect(t, c.Node(2).URL()), a, b, 25)
}

func oneCreateWins(t *testing.T, nc *nats.Conn, a, b *replica, rounds int) {
	kv := wanted(t, nc)
	states := []string{"up", "offline", "paused"}
	ask(t, nc, a.subject("set.h1.a"), state("up")).ok(t)
	for round := range rounds {
		kv.remove("h1", round%2 == 1)
		what := func(i int) request {
			return request{
				[]*replica{a, b}[i%2].subject("create.h1.a"), state(states[i%3]),
				[]string{"Muster-Request-Id", fmt.Sprintf("r%d-%d", round, i)},
			}
		}
		answers := together(t, nc, 32, what)
		winner := -1
		for i, got := range answers {
			if !got.ok(t).Changed {
				continue
			}
			if winner >= 0 {
				t.Fatalf("round %d: both %d and %d changed it: %s %s", round, winner, i, answers[winner].raw, got.raw)
			}
			winner = i
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody changed it", round)
		}
		value, rev := kv.value("h1")
		if want := fmt.Sprintf(`{"agents":{"a":{"state":%q}}}`, states[winner%3]); value != want {
			t.Fatalf("round %d: stored %s, the winner was %d: %s", round, value, winner, want)
		}
		for i, got := range answers {
			if string(got.decl.Agents["a"].State) != states[winner%3] || got.decl.Revision != rev {
				t.Fatalf("round %d: answer %d is %s, stored is %s at %d", round, i, got.raw, value, rev)
			}
		}
		if round%10 > 0 {
			continue
		}
		again := together(t, nc, 32, func(i int) request { // a retry, at the other replica, gets the first outcome
			r := what(i)
			r.subject = []*replica{b, a}[i%2].subject("create.h1.a")
			return r
		})
		for i, got := range again {
			if !bytes.Equal(got.raw, answers[i].raw) {
				t.Fatalf("round %d: first answer %s, retried %s", round, answers[i].raw, got.raw)
			}
		}
	}
}

// lossy is a replica behind a proxy that loses all that goes to it for a while, from right after the next publish to
// h1's key was passed on.
func lossy(t *testing.T) (s *natstest.Node, r *replica, lose func(lasts time.Duration)) {
	s = natstest.Start(t)
	p := natstest.StartProxy(t, s.URL())
	r = startReplica(t, p.URL(), "declareA", 1)
	t.Cleanup(p.Cut) // before the replica stops: an end in order would wait for the answers that were lost
	lose = func(lasts time.Duration) {
		p.OnClientBytes(func(b []byte) {
			if words := bytes.Fields(b); len(words) > 1 && bytes.HasSuffix(words[0], []byte("PUB")) &&
				string(words[1]) == "$KV.muster_wanted.h1" {
				p.OnClientBytes(nil)
				p.DropToClient(true)
				time.AfterFunc(lasts, func() { p.DropToClient(false) })
			}
		})
	}
	return s, r, lose
}

func TestField_B010_LostAck(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers []string
		before  string // what h1 holds
		second  bool   // another replica can take the retry
		subject string
		body    string
	}{
		{name: "fresh key", headers: []string{"Muster-Request-Id", "one"}, subject: "create.h1.a", body: state("up")},
		{name: "known key", headers: []string{"Muster-Request-Id", "two"}, before: "paused", subject: "set.h1.a", body: state("up")},
		{name: "retry elsewhere", headers: []string{"Muster-Request-Id", "three"}, before: "paused", second: true, subject: "set.h1.a", body: state("up")},
		{name: "without an id", before: "paused", subject: "set.h1.a", body: state("up")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			lostAck(t, c.before, c.second, c.subject, c.body, c.headers)
		})
	}
}

func lostAck(t *testing.T, before string, second bool, subject, body string, headers []string) {
	s, r, lose := lossy(t)
	nc := natstest.Connect(t, s.URL())
	kv := wanted(t, nc)
	revisions := 0
	if before != "" {
		ask(t, nc, r.subject("set.h1.a"), state(before)).ok(t)
		revisions++
	}
	lose(3 * time.Second)
	first := ask(t, nc, r.subject(subject), body, headers...)
	stored := kv.last("h1").Sequence
	if first.failure == nil {
		t.Fatalf("answered %s while nothing reached the function", first.raw)
	}
	if first.failure.Details["outcome"] != string(wire.Unknown) {
		t.Errorf("an unknown outcome is not said to be unknown: %s", first.raw)
	}
	retryAt := r.subject(subject)
	if second {
		retryAt = startReplica(t, s.URL(), "declareB", 1).subject(subject)
	}
	var again answer
	natstest.Eventually(t, 20*time.Second, "the retry succeeds", func() bool {
		var err error
		again, err = try(nc, time.Second, retryAt, body, headers...)
		return err == nil && again.failure == nil
	})
	if again.decl.Revision != stored {
		t.Errorf("the retry got revision %d, the first attempt was stored at %d", again.decl.Revision, stored)
	}
	if changed := headers != nil; again.decl.Changed != changed { // without an id it is a new request, which changes nothing
		t.Errorf("the retry got %s, want changed %t", again.raw, changed)
	}
	if h := kv.history("h1"); len(h) != revisions+1 { // each revision is an event
		t.Errorf("%d revisions, want %d", len(h), revisions+1)
	}
}

// A line that is lost for less than the function has patience: it finds its own write, and nobody needs to retry.
func TestField_B010_OwnWriteIsFound(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string][]string{"without an id": nil, "with an id": {"Muster-Request-Id", "one"}} {
		t.Run(name, func(t *testing.T) {
			s, r, lose := lossy(t)
			nc := natstest.Connect(t, s.URL())
			kv := wanted(t, nc)
			ask(t, nc, r.subject("set.h1.a"), state("paused")).ok(t)
			lose(time.Second)
			d := ask(t, nc, r.subject("set.h1.a"), state("up"), headers...).ok(t)
			if !d.Changed || d.Revision != kv.last("h1").Sequence || d.Agents["a"].State != wire.Up {
				t.Errorf("answered %+v, stored is revision %d", d, kv.last("h1").Sequence)
			}
			if h := kv.history("h1"); len(h) != 2 {
				t.Errorf("%d revisions, want 2", len(h))
			}
		})
	}
}

// A change by somebody else between the attempts stays, and the retry still gets its own outcome.
func TestField_B010_NewerChangeStays(t *testing.T) {
	t.Parallel()
	s, r, lose := lossy(t)
	nc := natstest.Connect(t, s.URL())
	other := startReplica(t, s.URL(), "declareB", 1)
	ask(t, nc, r.subject("set.h1.a"), state("paused")).ok(t)
	lose(3 * time.Second)
	id := []string{"Muster-Request-Id", "one"}
	ask(t, nc, r.subject("set.h1.a"), state("up"), id...).refused(t, wire.Unavailable)
	first := wanted(t, nc).last("h1").Sequence
	newer := ask(t, nc, other.subject("set.h1.a"), state("offline")).ok(t)
	for _, at := range []*replica{other, r} {
		var again answer
		natstest.Eventually(t, 20*time.Second, "the retry is answered", func() bool {
			var err error
			again, err = try(nc, time.Second, at.subject("set.h1.a"), state("up"), id...)
			return err == nil && again.failure == nil
		})
		if d := again.decl; d.Revision != first || !d.Changed || d.Agents["a"].State != wire.Up {
			t.Errorf("the retry at %s got %s, its own revision is %d", at.name, again.raw, first)
		}
	}
	if d := ask(t, nc, other.subject("view.h1"), "").ok(t); d.Revision != newer.Revision || d.Agents["a"].State != wire.Offline {
		t.Errorf("the newer change is gone: %+v", d)
	}
}
