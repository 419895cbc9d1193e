package test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
	"muster/wire"
)

// One after the other through both replicas, so that what one of them remembers of the key is old whenever it is used.
func TestField_B001_DeclareOverAMarker(t *testing.T) {
	s := natstest.Start(t)
	a, b := pair(t, s.URL(), s.URL(), 1)
	declareOverAMarker(t, natstest.Connect(t, s.URL()), a, b)
}

func TestField_B001_DeclareOverAMarkerOnThreeNodes(t *testing.T) {
	c := natstest.StartCluster(t, 3)
	a, b := pair(t, c.Node(0).URL(), c.Node(1).URL(), 3)
	declareOverAMarker(t, natstest.Connect(t, c.Node(2).URL()), a, b)
}

func declareOverAMarker(t *testing.T, nc *nats.Conn, a, b *replica) {
	kv := wanted(t, nc)
	ways := []struct {
		op   string
		ids  string
		body string
	}{
		{"set", ".h1.a", `{"state":"up"}`},
		{"create", ".h1.a", `{"state":"up"}`},
		{"apply", ".h1", `{"agents":{"a":{"state":"up"}}}`},
		{"set", ".h1.a", `{"state":"up","if_revision":0}`},
	}
	for _, purge := range []bool{false, true} {
		for _, way := range ways {
			for round := range 5 {
				name := fmt.Sprintf("purge %t, %s %s, round %d", purge, way.op, way.body, round)
				for _, r := range []*replica{a, b} { // both know the hive as it is before
					ask(t, nc, r.subject("set.h1.other"), state("up")).ok(t)
					ask(t, nc, r.subject("view.h1"), "").ok(t)
				}
				marker := kv.remove("h1", purge)
				for _, r := range []*replica{a, b} {
					ask(t, nc, r.subject("view.h1"), "").refused(t, wire.HiveNotDeclared)
				}
				answering := []*replica{a, b}[round%2]
				d := ask(t, nc, answering.subject(way.op)+way.ids, way.body).ok(t)
				if d.Revision <= marker || !d.Changed {
					t.Fatalf("%s: revision %d, changed %t over marker %d", name, d.Revision, d.Changed, marker)
				}
				if len(d.Agents) != 1 || d.Agents["a"].State != wire.Up {
					t.Fatalf("%s: agents %v, want a alone", name, d.Agents)
				}
				if value, rev := kv.value("h1"); value != `{"agents":{"a":{"state":"up"}}}` || rev != d.Revision {
					t.Fatalf("%s: stored %s at %d, answered %d", name, value, rev, d.Revision)
				}
			}
		}
	}
}

// The same kind of fault without a marker: `nats stream purge --subject` leaves none.
func TestField_B001_PurgedWithoutAMarker(t *testing.T) {
	s := natstest.Start(t)
	nc := natstest.Connect(t, s.URL())
	a, b := pair(t, s.URL(), s.URL(), 1)
	kv := wanted(t, nc)
	for round := range 5 {
		for _, r := range []*replica{a, b} {
			ask(t, nc, r.subject("set.h1.other"), state("up")).ok(t)
			for range 3 {
				ask(t, nc, r.subject("view.h1"), "").ok(t)
			}
		}
		if err := kv.stream().Purge(ctx(t), jetstream.WithPurgeSubject("$KV.muster_wanted.h1")); err != nil {
			t.Fatal(err)
		}
		if m := kv.last("h1"); m != nil {
			t.Fatalf("round %d: purge left %v", round, m)
		}
		for _, r := range []*replica{a, b} {
			if got := ask(t, nc, r.subject("view.h1"), ""); got.failure == nil || got.failure.Code != wire.HiveNotDeclared {
				t.Errorf("round %d: %s of a hive whose record is gone: %s", round, got.subject, got.raw)
			}
		}
		before := kv.stream().CachedInfo().State.LastSeq
		d := ask(t, nc, []*replica{a, b}[round%2].subject("set.h1.a"), state("up")).ok(t)
		if d.Revision <= before || !d.Changed || len(d.Agents) != 1 {
			t.Fatalf("round %d: %+v after revision %d", round, d, before)
		}
	}
}

// And the whole bucket deleted and made anew: nothing is declared any more, from the first moment.
func TestField_B001_BucketMadeAnew(t *testing.T) {
	s := natstest.Start(t)
	nc := natstest.Connect(t, s.URL())
	a, b := pair(t, s.URL(), s.URL(), 1)
	for _, r := range []*replica{a, b} {
		for range 3 {
			ask(t, nc, r.subject("set.h1.other"), state("up")).ok(t)
			ask(t, nc, r.subject("view.h1"), "").ok(t)
		}
	}
	kv := wanted(t, nc)
	config := kv.stream().CachedInfo().Config
	if err := kv.js.DeleteStream(ctx(t), config.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.js.CreateStream(ctx(t), config); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*replica{a, b} {
		got := ask(t, nc, r.subject("view.h1"), "")
		if got.failure == nil || got.failure.Code != wire.HiveNotDeclared && got.failure.Code != wire.Unavailable {
			t.Errorf("%s of a bucket that was made anew: %s", got.subject, got.raw)
		}
	}
	natstest.Eventually(t, startLimit, "the bucket made anew takes a declaration of both replicas", func() bool {
		return succeeds(nc, a.subject("set.h1.a"), state("up")) && succeeds(nc, b.subject("set.h1.b"), state("up"))
	})
	d := ask(t, nc, a.subject("view.h1"), "").ok(t)
	if len(d.Agents) != 2 {
		t.Errorf("agents %v, want a and b", d.Agents)
	}
}

// succeeds tells whether a request is answered with a success.
func succeeds(nc *nats.Conn, subject, body string) bool {
	a, err := try(nc, startLimit, subject, body)
	return err == nil && a.failure == nil
}

func TestField_B002_IfRevisionOfTwoWritesAgo(t *testing.T) {
	s := natstest.Start(t)
	nc := natstest.Connect(t, s.URL())
	a, b := pair(t, s.URL(), s.URL(), 1)
	kv := wanted(t, nc)
	replicas := []*replica{a, b}
	mismatch := func(subject, body string, current uint64) {
		t.Helper()
		e := ask(t, nc, subject, body).refused(t, wire.RevisionMismatch)
		if detail(e, "revision") != int64(current) {
			t.Errorf("%s %s: details %v, the current revision is %d", subject, body, e.Details, current)
		}
	}
	// All that takes if_revision, on that revision of h1.
	conditional := func(rev uint64) map[string]string {
		return map[string]string{
			"set.h1.a":    fmt.Sprintf(`{"state":"up","if_revision":%d}`, rev),
			"set.h1.b":    fmt.Sprintf(`{"state":"offline","if_revision":%d}`, rev),
			"create.h1.a": fmt.Sprintf(`{"state":"up","if_revision":%d}`, rev),
			"create.h1.n": fmt.Sprintf(`{"state":"up","if_revision":%d}`, rev),
			"apply.h1":    fmt.Sprintf(`{"agents":{"a":{"state":"up"}},"if_revision":%d}`, rev),
		}
	}
	dry := `{"agents":{"a":{"state":"up"}},"dry_run":true,"if_revision":%d}`

	for subject, body := range conditional(7) { // not declared yet
		mismatch(a.subject(subject), body, 0)
	}
	mismatch(b.subject("apply.h1"), fmt.Sprintf(dry, 7), 0)

	var revs []uint64
	states := []string{"up", "paused", "up", "offline", "up"}
	for i, st := range states {
		revs = append(revs, ask(t, nc, replicas[i%2].subject("set.h1.a"), state(st)).ok(t).Revision)
	}
	current := revs[len(revs)-1]
	for _, old := range []uint64{revs[len(revs)-3], revs[len(revs)-2], 0, current + 1, 1<<64 - 1} {
		for _, r := range replicas {
			for subject, body := range conditional(old) {
				mismatch(r.subject(subject), body, current)
			}
			mismatch(r.subject("apply.h1"), fmt.Sprintf(dry, old), current)
		}
	}
	if _, rev := kv.value("h1"); rev != current {
		t.Fatalf("refused requests moved the revision from %d to %d", current, rev)
	}

	marker := kv.remove("h1", false) // a marker's revision is nobody's to name
	for subject, body := range conditional(marker) {
		mismatch(a.subject(subject), body, 0)
		mismatch(b.subject(subject), body, 0)
	}
	mismatch(b.subject("apply.h1"), fmt.Sprintf(dry, marker), 0)
	ask(t, nc, b.subject("set.h1.a"), `{"state":"up","if_revision":0}`).ok(t)
}

// The kind of the fault under load: while both replicas write the hive, a condition that has passed is still told apart
// from a failure, and one that holds wins at most once for a revision.
func TestField_B002_IfRevisionWhileOthersWrite(t *testing.T) {
	s := natstest.Start(t)
	a, b := pair(t, s.URL(), s.URL(), 1)
	ifRevisionWhileOthersWrite(t, natstest.Connect(t, s.URL()), a, b)
}

func TestField_B002_IfRevisionWhileOthersWriteOnThreeNodes(t *testing.T) {
	c := natstest.StartCluster(t, 3)
	a, b := pair(t, c.Node(0).URL(), c.Node(1).URL(), 3)
	ifRevisionWhileOthersWrite(t, natstest.Connect(t, c.Node(2).URL()), a, b)
}

func ifRevisionWhileOthersWrite(t *testing.T, nc *nats.Conn, a, b *replica) {
	rev := ask(t, nc, a.subject("set.h1.count"), state("up")).ok(t).Revision
	for round := range 40 {
		body := fmt.Sprintf(`{"state":%q,"if_revision":%d}`, []string{"paused", "up"}[round%2], rev)
		answers := together(t, nc, 16, func(i int) request {
			return request{[]*replica{a, b}[i%2].subject("set.h1.count"), body, nil}
		})
		won := 0
		for _, got := range answers {
			if got.failure == nil {
				won++
				rev = got.decl.Revision
				continue
			}
			got.refused(t, wire.RevisionMismatch)
		}
		for _, got := range answers {
			if got.failure != nil && detail(*got.failure, "revision") != int64(rev) {
				t.Fatalf("round %d: %s, the current revision is %d", round, got.raw, rev)
			}
		}
		if won != 1 {
			t.Fatalf("round %d: %d of 16 requests on one revision succeeded", round, won)
		}
	}
}
