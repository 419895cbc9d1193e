package runtime_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
	"muster/runtime/store"
	"muster/wire"
)

// Requests with an id: a retry, on any replica, gets the first outcome, whatever happened since.
var memoCases = conformance{
	"RetryGetsTheFirstOutcome":           retryGetsFirst,
	"RetryOfANoOpGetsTheFirstOutcome":    retryOfNoOp,
	"RetryIsNotRefusedByWhatCameAfter":   retryNotRefused,
	"RetryOutlivesAnUnreadableHandPut":   retryUnreadable,
	"RetryOutlivesAFullRecord":           retryFull,
	"RetryOfALargeRecord":                retryLarge,
	"RetriesOfAGroup":                    retriesOfGroup,
	"OtherBodyIsRefused":                 otherBody,
	"OtherSubjectIsAnotherId":            otherSubject,
	"SameIdAtOnceOnOneReplica":           sameIDOneReplica,
	"SameIdAtOnceOnTwoReplicas":          sameIDTwoReplicas,
	"FailedRequestIsJudgedAnew":          failedAnew,
	"MemoExpires":                        memoExpires,
	"OldIdInAGroupTakesNobodyDown":       oldIDInGroup,
	"SameIdAtOnceIsRefusedWithItsReason": sameIDRefused,
}

func retryGetsFirst(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	update(t, a, key, store.Origin{}, set("a", 1))
	from := request(key, "id", "body")
	first := update(t, a, key, from, add("a"))
	wantChanged(t, first, tally{"a": 2})
	retry := func(when string) {
		t.Helper()
		before := len(history(t, p.replicas[0], key))
		for replica, s := range map[string]*store.Store[tally]{"same": a, "other": b, "new": newStore(p.replicas[1])} {
			wantSame(t, when+", on the "+replica+" replica", first, update(t, s, key, from, add("a")))
		}
		wantWrites(t, p.replicas[0], key, before, 0)
	}
	retry("at once")
	update(t, b, key, store.Origin{}, set("a", 9))
	retry("after a newer change")
	p.put(t, key, `{"a":5}`)
	retry("after a put by hand")
	wantDoc(t, view(t, a, key), tally{"a": 5})
	p.remove(t, key, false)
	retry("after a delete by hand")
	p.remove(t, key, true)
	retry("after a purge by hand")
	if r := view(t, b, key); r.Revision != 0 {
		t.Errorf("a retry brought the record back: revision %d", r.Revision)
	}
}

func retryOfNoOp(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	update(t, a, key, store.Origin{}, set("a", 1))
	from := request(key, "id", "body")
	first := update(t, a, key, from, set("a", 1))
	if first.Changed {
		t.Fatal("the request changed something")
	}
	second := update(t, b, key, store.Origin{}, set("a", 2))
	before := len(history(t, p.replicas[0], key))
	for _, s := range []*store.Store[tally]{a, b} {
		wantSame(t, "the retry", first, update(t, s, key, from, set("a", 1)))
	}
	wantWrites(t, p.replicas[0], key, before, 0)
	if r := view(t, a, key); r.Revision != second.Revision {
		t.Errorf("the newer change is gone: revision %d, want %d", r.Revision, second.Revision)
	}
}

// retryNotRefused: a request with if_revision is in conflict with its own first attempt, and must not hear of it.
func retryNotRefused(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	base := update(t, a, key, store.Origin{}, set("a", 1))
	mismatch := wire.Errorf(wire.RevisionMismatch, "another revision")
	ifRevision := func(d tally, rev uint64) (bool, error) {
		if rev != base.Revision {
			return false, mismatch
		}
		d["a"]++
		return true, nil
	}
	from := request(key, "id", "body")
	first := update(t, a, key, from, ifRevision)
	for _, s := range []*store.Store[tally]{a, b} {
		wantSame(t, "the retry", first, update(t, s, key, from, ifRevision))
	}
	_, err := a.Update(within(t), key, request(key, "another", "body"), ifRevision)
	wantError(t, err, wire.RevisionMismatch)
}

func retryUnreadable(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	from := request(key, "id", "body")
	first := update(t, a, key, from, add("a"))
	p.put(t, key, `broken by hand`)
	for _, s := range []*store.Store[tally]{a, b} {
		if r, err := s.Update(within(t), key, from, add("a")); err != nil {
			t.Errorf("the retry got %v, want the first outcome", err)
		} else {
			wantSame(t, "the retry", first, r)
		}
	}
	_, err := b.Update(within(t), key, request(key, "new", "body"), add("a"))
	wantError(t, err, wire.CorruptRecord)
}

// retryFull: since the first attempt others have filled the record, so that the change would not fit any more.
func retryFull(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	name := strings.Repeat("n", 1000)
	from := request(key, "id", "body")
	first := update(t, a, key, from, set(name, 1))
	update(t, b, key, store.Origin{}, func(d tally, _ uint64) (bool, error) {
		delete(d, name)
		d[strings.Repeat("x", a.MaxValue()-100)] = 1
		return true, nil
	})
	for _, s := range []*store.Store[tally]{a, b} {
		if r, err := s.Update(within(t), key, from, set(name, 1)); err != nil {
			t.Errorf("the retry got %v, want the first outcome", err)
		} else {
			wantSame(t, "the retry", first, r)
		}
	}
}

// retryLarge has a record that is too large to be kept with the memo: it is read by its revision, as long as that is
// stored.
func retryLarge(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	update(t, a, key, store.Origin{}, set(strings.Repeat("n", 100<<10), 1))
	from := request(key, "id", "body")
	first := update(t, a, key, from, add("a"))
	update(t, b, key, store.Origin{}, add("a"))
	wantSame(t, "the retry", first, update(t, b, key, from, add("a")))
	p.remove(t, key, true)
	r := update(t, b, key, from, add("a"))
	if r.Revision != first.Revision || !r.Changed || !r.Partial || len(r.Doc) != 0 {
		t.Errorf("once the revision is gone the retry got revision %d, changed %t, partial %t, %d members; want revision %d, changed, partial, none",
			r.Revision, r.Changed, r.Partial, len(r.Doc), first.Revision)
	}
}

// retriesOfGroup: requests that were written as one are remembered one by one.
func retriesOfGroup(t *testing.T, p *place, key string) {
	s, writes := heldWrites(p.replicas[0])
	plain := begin(within(t), s, key, store.Origin{}, add("plain"))
	writes.await(t)
	var begun []<-chan answer
	for i := range 5 {
		begun = append(begun, begin(within(t), s, key, request(key, fmt.Sprint("id", i), "body"), set(fmt.Sprint("a", i/2), i/2)))
	}
	writes.open()
	if a := outcome(t, plain); a.err != nil {
		t.Fatal(a.err)
	}
	var firsts []answer
	for i, d := range begun {
		first := outcome(t, d)
		if first.err != nil || first.Changed != (i%2 == 0) {
			t.Errorf("request %d: changed %t, %v", i, first.Changed, first.err)
		}
		firsts = append(firsts, first)
	}
	before := len(history(t, p.replicas[0], key))
	b := newStore(p.replicas[1])
	update(t, b, key, store.Origin{}, add("plain"))
	for i, first := range firsts {
		wantSame(t, fmt.Sprint("the retry of request ", i), first.Result,
			update(t, b, key, request(key, fmt.Sprint("id", i), "body"), add("never")))
	}
	wantWrites(t, p.replicas[0], key, before, 1)
}

func otherBody(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	update(t, a, key, request(key, "id", "body"), add("a"))
	for _, change := range []store.Change[tally]{add("a"), set("a", 1), addUnless("a", 1, errNo)} { // changes, changes nothing, is refused
		for _, s := range []*store.Store[tally]{a, b} {
			_, err := s.Update(within(t), key, request(key, "id", "other body"), change)
			wantError(t, err, wire.RequestIDReused)
		}
	}
	wantDoc(t, view(t, a, key), tally{"a": 1})

	s, writes := heldWrites(p.replicas[0]) // and at the same time
	plain := begin(within(t), s, key, store.Origin{}, add("a"))
	writes.await(t)
	first := begin(within(t), s, key, request(key, "id2", "body"), add("a"))
	second := begin(within(t), s, key, request(key, "id2", "other body"), add("a"))
	writes.open()
	outcome(t, plain)
	if a := outcome(t, first); a.err != nil {
		t.Error(a.err)
	}
	wantError(t, outcome(t, second).err, wire.RequestIDReused)
	wantDoc(t, view(t, a, key), tally{"a": 3})
}

func otherSubject(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	for i, from := range []store.Origin{
		{MemoKey: wire.MemoKey("set", []string{key, "x"}, "id"), Digest: "body"},
		{MemoKey: wire.MemoKey("set", []string{key, "y"}, "id"), Digest: "body"},
		{MemoKey: wire.MemoKey("create", []string{key, "x"}, "id"), Digest: "other body"},
	} {
		wantChanged(t, update(t, s, key, from, add("a")), tally{"a": i + 1})
	}
}

func sameIDOneReplica(t *testing.T, p *place, key string) {
	s, writes := heldWrites(p.replicas[0])
	from := request(key, "id", "body")
	begun := []<-chan answer{begin(within(t), s, key, from, add("a"))} // two in one group, and one on its way before them
	writes.await(t)
	begun = append(begun, begin(within(t), s, key, from, add("a")), begin(within(t), s, key, from, add("a")))
	writes.open()
	oneEffect(t, p, key, begun)
}

func sameIDTwoReplicas(t *testing.T, p *place, key string) {
	a, writesA := heldWrites(p.replicas[0])
	b, writesB := heldWrites(p.replicas[1])
	from := request(key, "id", "body")
	begun := []<-chan answer{begin(within(t), a, key, from, add("a")), begin(within(t), b, key, from, add("a"))}
	writesA.await(t) // both have computed their change from the same base
	writesB.await(t)
	writesA.open()
	writesB.open()
	oneEffect(t, p, key, begun)
}

// oneEffect checks that all of one id got the same outcome, of one change.
func oneEffect(t *testing.T, p *place, key string, begun []<-chan answer) {
	t.Helper()
	first := outcome(t, begun[0])
	if first.err != nil {
		t.Fatal(first.err)
	}
	wantChanged(t, first.Result, tally{"a": 1})
	for _, d := range begun[1:] {
		a := outcome(t, d)
		if a.err != nil {
			t.Fatal(a.err)
		}
		wantSame(t, "another of the same id", first.Result, a.Result)
	}
	wantWrites(t, p.replicas[0], key, 0, 1)
}

func sameIDRefused(t *testing.T, p *place, key string) {
	s, writes := heldWrites(p.replicas[0])
	plain := begin(within(t), s, key, store.Origin{}, set("a", 1))
	writes.await(t)
	from := request(key, "id", "body")
	first := begin(within(t), s, key, from, addUnless("a", 1, errNo))
	second := begin(within(t), s, key, from, addUnless("a", 1, errNo))
	writes.open()
	outcome(t, plain)
	wantError(t, outcome(t, first).err, wire.AgentDestroyed)
	wantError(t, outcome(t, second).err, wire.AgentDestroyed)
}

func failedAnew(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	update(t, a, key, store.Origin{}, set("a", 1))
	from := request(key, "id", "body")
	_, err := a.Update(within(t), key, from, addUnless("a", 1, errNo))
	wantError(t, err, wire.AgentDestroyed)
	update(t, b, key, store.Origin{}, set("a", 2))
	first := update(t, b, key, from, addUnless("a", 1, errNo))
	wantChanged(t, first, tally{"a": 3})
	wantSame(t, "the retry of what succeeded", first, update(t, a, key, from, addUnless("a", 1, errNo)))
	_, err = a.Update(within(t), key, request(key, "id2", "body"), addUnless("a", 3, errNo))
	wantError(t, err, wire.AgentDestroyed)
	update(t, a, key, request(key, "id2", "other body"), set("a", 4)) // nothing was remembered, so it may be another one
}

func memoExpires(t *testing.T, p *place, key string) {
	s := store.New(p.replicas[0], codec, store.Config{EventType: testBucket.EventType, MemoTTL: time.Second})
	from, noOp := request(key, "id", "body"), request(key, "id2", "body")
	first := update(t, s, key, from, add("a"))
	wantSame(t, "the retry in time", first, update(t, s, key, from, add("a")))
	update(t, s, key, noOp, set("a", 1))
	for _, memo := range []string{from.MemoKey, noOp.MemoKey} {
		natstest.Eventually(t, limit, memo+" is gone", func() bool {
			r, err := p.replicas[1].Last(within(t), memo)
			return err == nil && r.Revision == 0
		})
	}
	wantChanged(t, update(t, s, key, from, add("a")), tally{"a": 2})
	wantChanged(t, update(t, s, key, noOp, add("a")), tally{"a": 3})
}

// oldIDInGroup: a group that holds a retry is refused by the server as a whole, and must come through nevertheless.
func oldIDInGroup(t *testing.T, p *place, key string) {
	first := update(t, newStore(p.replicas[1]), key, request(key, "old", "body"), add("a"))
	s, writes := heldWrites(p.replicas[0])
	begun := []<-chan answer{begin(within(t), s, key, store.Origin{}, add("a"))}
	writes.await(t)
	begun = append(begun, begin(within(t), s, key, request(key, "new", "body"), add("a")))
	old := begin(within(t), s, key, request(key, "old", "body"), add("a"))
	begun = append(begun, begin(within(t), s, key, store.Origin{}, add("a")))
	writes.open()
	for _, d := range begun {
		if a := outcome(t, d); a.err != nil || !a.Changed {
			t.Errorf("one beside the retry: changed %t, %v", a.Changed, a.err)
		}
	}
	wantSame(t, "the retry", first, outcome(t, old).Result)
	wantDoc(t, view(t, s, key), tally{"a": 4})
}

// A memo lies beside the record: with a TTL of its own, and out of the way of who reads the bucket by hand.
func TestMemoIsOutOfTheWay(t *testing.T) {
	t.Parallel()
	r := newRaw(t, natstest.Start(t).URL(), 1)
	s := newStore(bucketOf(t, connect(t, r.nc.ConnectedUrl(), 1), testBucket))
	from, noOp := request("key", "id", "body"), request("key", "id2", "body")
	first := update(t, s, "key", from, add("a"))
	update(t, s, "key", noOp, set("a", 1))
	for _, memo := range []string{from.MemoKey, noOp.MemoKey} {
		m, err := r.stream.GetLastMsgForSubject(within(t), r.subject(memo))
		if err != nil {
			t.Errorf("the memo %s: %v", memo, err)
		} else if ttl := m.Header.Get(jetstream.MsgTTLHeader); ttl != store.MemoTTL.String() {
			t.Errorf("the memo %s is stored with TTL %q, want %v", memo, ttl, store.MemoTTL)
		}
	}
	kv := keyValue(t, r.nc, testBucket.Name)
	if e, err := kv.Get(within(t), "key"); err != nil || e.Revision() != first.Revision || string(e.Value()) != `{"a":1}` {
		t.Errorf("kv get: %v, %v", e, err)
	}
	if all, err := kv.History(within(t), "key"); err != nil || len(all) != 1 {
		t.Errorf("kv history: %v, %v", all, err)
	}
	watch, err := kv.Watch(within(t), "*") // what a follower of all records asks for
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop() //nolint:errcheck // the test is over
	if e := <-watch.Updates(); e == nil || e.Key() != "key" {
		t.Errorf("watched: %v", e)
	}
	if e := <-watch.Updates(); e != nil {
		t.Errorf("watched beside the record: %v", e)
	}
}
