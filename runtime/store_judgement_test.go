package runtime_test

import (
	"errors"
	"testing"

	"muster/runtime/store"
	"muster/wire"
)

// Answers that write nothing. A store's guess may be old; it is never the ground of such an answer.
var judgementCases = conformance{
	"NoOpWritesNothing":               noOpWritesNothing,
	"StaleGuessGivesNoNoOp":           staleNoOp,
	"StaleGuessFindsTheNoOp":          staleFindsNoOp,
	"StaleGuessGivesNoRefusal":        staleRefusal,
	"StaleGuessFindsTheRefusal":       staleFindsRefusal,
	"RemovedKeyGivesNoNoOp":           removedNoOp,
	"NoOpOfNothingIsRevisionZero":     noOpOfNothing,
	"RefusedChangeWritesNothing":      refusedWritesNothing,
	"ChangeThatFailsLeavesDocAlone":   failedLeavesDoc,
	"JudgementOfAGroupIsTheLeaders":   groupJudgement,
	"NoOpNamesTheLeadersRevision":     noOpRevision,
	"HandPutIsSeenByTheNextJudgement": handPutSeen,
}

var errNo = wire.Errorf(wire.AgentDestroyed, "no")

func noOpWritesNothing(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	first := update(t, s, key, store.Origin{}, set("a", 1))
	for _, s := range []*store.Store[tally]{s, newStore(p.replicas[1])} {
		if r := update(t, s, key, store.Origin{}, set("a", 1)); r.Changed || r.Revision != first.Revision {
			t.Errorf("got changed %t at %d, want unchanged at %d", r.Changed, r.Revision, first.Revision)
		}
	}
	wantWrites(t, p.replicas[0], key, 0, 1)
}

func staleNoOp(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	update(t, a, key, store.Origin{}, set("a", 1))
	update(t, b, key, store.Origin{}, set("a", 2))
	wantChanged(t, update(t, a, key, store.Origin{}, set("a", 1)), tally{"a": 1}) // a's guess says that it is so
	wantWrites(t, p.replicas[0], key, 0, 3)
}

func staleFindsNoOp(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	update(t, a, key, store.Origin{}, set("a", 1))
	second := update(t, b, key, store.Origin{}, set("a", 2))
	if r := update(t, a, key, store.Origin{}, set("a", 2)); r.Changed || r.Revision != second.Revision {
		t.Errorf("got changed %t at %d, want unchanged at %d", r.Changed, r.Revision, second.Revision)
	}
	wantWrites(t, p.replicas[0], key, 0, 2)
}

func staleRefusal(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	update(t, a, key, store.Origin{}, set("a", 1))
	update(t, b, key, store.Origin{}, set("a", 2))
	wantChanged(t, update(t, a, key, store.Origin{}, addUnless("a", 1, errNo)), tally{"a": 3})
}

func staleFindsRefusal(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	update(t, a, key, store.Origin{}, set("a", 1))
	update(t, b, key, store.Origin{}, set("a", 2))
	if _, err := a.Update(within(t), key, store.Origin{}, addUnless("a", 2, errNo)); !errors.Is(err, errNo) {
		t.Errorf("got %v, want the change's own refusal", err)
	}
	wantDoc(t, view(t, b, key), tally{"a": 2})
}

func removedNoOp(t *testing.T, p *place, key string) {
	for _, purge := range []bool{false, true} {
		s := newStore(p.replicas[0])
		update(t, s, key, store.Origin{}, add("a"))
		update(t, s, key, store.Origin{}, set("a", 1))
		p.remove(t, key, purge)
		wantChanged(t, update(t, s, key, store.Origin{}, set("a", 1)), tally{"a": 1})
		p.remove(t, key, purge)
	}
}

func noOpOfNothing(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	nothing := func(tally, uint64) (bool, error) { return false, nil }
	for _, from := range []store.Origin{{}, request(key, "id", "body")} {
		if r := update(t, s, key, from, nothing); r.Changed || r.Revision != 0 {
			t.Errorf("got changed %t at %d, want unchanged at 0", r.Changed, r.Revision)
		}
	}
	wantWrites(t, p.replicas[0], key, 0, 0)
}

func refusedWritesNothing(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	if _, err := s.Update(within(t), key, store.Origin{}, addUnless("a", 0, errNo)); !errors.Is(err, errNo) {
		t.Errorf("got %v, want the change's own refusal", err)
	}
	wantWrites(t, p.replicas[0], key, 0, 0)
}

func failedLeavesDoc(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	update(t, s, key, store.Origin{}, set("a", 1))
	for range 3 { // the last two are judged on the guess
		_, err := s.Update(within(t), key, store.Origin{}, addUnless("a", 1, errNo))
		wantError(t, err, wire.AgentDestroyed)
	}
	wantDoc(t, view(t, s, key), tally{"a": 1})
	wantChanged(t, update(t, s, key, store.Origin{}, add("b")), tally{"a": 1, "b": 1})
}

// groupJudgement has a group of nothing but no-ops and refusals in the eyes of a stale guess.
func groupJudgement(t *testing.T, p *place, key string) {
	held := newStop()
	a := newStore(&tap{Log: p.replicas[0], onWrite: func(e []store.Entry, pass func() (uint64, error)) (uint64, error) {
		revision, err := pass()
		held.wait()
		return revision, err
	}})
	first := begin(within(t), a, key, store.Origin{}, set("a", 1))
	held.await(t)
	update(t, newStore(p.replicas[1]), key, store.Origin{}, set("a", 2)) // before a knows that its own is stored
	again := begin(within(t), a, key, store.Origin{}, set("a", 1))
	refused := begin(within(t), a, key, store.Origin{}, addUnless("a", 1, errNo))
	held.open()
	if a := outcome(t, first); a.err != nil {
		t.Fatal(a.err)
	}
	wantChanged(t, outcome(t, again).Result, tally{"a": 1})
	if a := outcome(t, refused); !errors.Is(a.err, errNo) { // it stands behind the one that made it so again
		t.Errorf("got %v, want the refusal", a.err)
	}
	wantDoc(t, view(t, a, key), tally{"a": 1})
}

func noOpRevision(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	update(t, a, key, store.Origin{}, set("a", 1))
	second := update(t, b, key, store.Origin{}, set("b", 1))
	r := update(t, a, key, store.Origin{}, set("a", 1)) // so at both, but the guess's revision is not the last
	if r.Changed || r.Revision != second.Revision {
		t.Errorf("got changed %t at %d, want unchanged at %d", r.Changed, r.Revision, second.Revision)
	}
	wantDoc(t, r, tally{"a": 1, "b": 1})
}

func handPutSeen(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	update(t, s, key, store.Origin{}, set("a", 1))
	p.put(t, key, `{"a":5}`)
	wantChanged(t, update(t, s, key, store.Origin{}, set("a", 1)), tally{"a": 1})
	p.put(t, key, `{"a":5}`)
	wantChanged(t, update(t, s, key, store.Origin{}, add("a")), tally{"a": 6})
}
