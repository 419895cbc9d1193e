package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"muster/runtime/store"
	"muster/wire"
)

// Many writers of one key.
var groupCases = conformance{
	"WhatWaitsIsWrittenOnce":         writtenOnce,
	"EachOfAGroupGetsItsOwnResult":   ownResults,
	"EachAloneIsToldItsOwnDocument":  aloneResults,
	"ManyWritersLoseNothing":         manyWriters,
	"TwoReplicasLoseNothing":         twoReplicas,
	"ALostRaceIsNotTheCallers":       lostRace,
	"GivesUpAsContendedAfterALoss":   contended,
	"WritersOfOtherKeysDoNotWait":    otherKeys,
	"GroupIsBoundedAndNothingIsLeft": bounded,
}

func writtenOnce(t *testing.T, p *place, key string) {
	s, writes := heldWrites(p.replicas[0])
	var done []<-chan answer
	done = append(done, begin(within(t), s, key, store.Origin{}, add("first")))
	writes.await(t)
	for range 63 {
		done = append(done, begin(within(t), s, key, store.Origin{}, add("later")))
	}
	writes.open()
	for _, d := range done {
		if a := outcome(t, d); a.err != nil {
			t.Errorf("one of the group failed: %v", a.err)
		}
	}
	revs := history(t, p.replicas[0], key)
	if len(revs) != 2 {
		t.Fatalf("%d revisions, want the first and one for all that waited behind it", len(revs))
	}
	if changes := wantChain(t, revs); changes != 64 {
		t.Errorf("the revisions say that they carry %d changes, want 64", changes)
	}
	if got := string(revs[1].Value); got != `{"first":1,"later":63}` {
		t.Errorf("stored %s", got)
	}
}

func ownResults(t *testing.T, p *place, key string) {
	s, writes := heldWrites(p.replicas[0])
	no := wire.Errorf(wire.AgentDestroyed, "no")
	first := begin(within(t), s, key, store.Origin{}, set("a", 1))
	writes.await(t)
	changed := begin(within(t), s, key, store.Origin{}, set("b", 1))
	same := begin(within(t), s, key, store.Origin{}, set("a", 1))
	refused := begin(within(t), s, key, store.Origin{}, addUnless("a", 1, no))
	seesEarlier := begin(within(t), s, key, store.Origin{}, addUnless("b", 1, no))
	last := begin(within(t), s, key, store.Origin{}, set("c", 1))
	writes.open()
	wantChanged(t, outcome(t, first).Result, tally{"a": 1})
	all := tally{"a": 1, "b": 1, "c": 1}
	rev := wantChanged(t, outcome(t, changed).Result, all)
	if a := outcome(t, same); a.err != nil || a.Changed || a.Revision != rev {
		t.Errorf("what was so already: changed %t at %d, %v; want unchanged at %d", a.Changed, a.Revision, a.err, rev)
	}
	for _, d := range []<-chan answer{refused, seesEarlier} {
		if a := outcome(t, d); !errors.Is(a.err, no) {
			t.Errorf("the refused change got %v, want its own error", a.err)
		}
	}
	if got := wantChanged(t, outcome(t, last).Result, all); got != rev {
		t.Errorf("one group gave revisions %d and %d", rev, got)
	}
}

// Changes that are alone are told of nobody else's, nor are their retries, however many wait together.
func aloneResults(t *testing.T, p *place, key string) {
	alone := codec
	alone.Alone = true
	s := store.New(p.replicas[0], alone, store.Config{})
	const n = 24
	var done []<-chan answer
	from := func(i int) store.Origin {
		if i%2 == 0 {
			return store.Origin{}
		}
		return request(key, fmt.Sprintf("id%d", i), "body")
	}
	take := func(i int) store.Change[tally] {
		return func(d tally, _ uint64) (bool, error) {
			clear(d)
			d["holder"] = i + 1
			return true, nil
		}
	}
	for i := range n {
		done = append(done, begin(within(t), s, key, from(i), take(i)))
	}
	revisions := map[uint64]bool{}
	for i, d := range done {
		a := outcome(t, d)
		if a.err != nil {
			t.Fatal(a.err)
		}
		revisions[wantChanged(t, a.Result, tally{"holder": i + 1})] = true
		if i%2 == 1 {
			wantSame(t, "a retry", a.Result, update(t, newStore(p.replicas[1]), key, from(i), take(n)))
		}
	}
	if len(revisions) != n {
		t.Errorf("%d changes are %d revisions", n, len(revisions))
	}
}

func manyWriters(t *testing.T, p *place, key string) {
	revisions := flood(t, []*store.Store[tally]{newStore(p.replicas[0])}, p.replicas[1], key, 64, 10)
	if !p.instant && revisions > 640/8 {
		t.Errorf("640 changes took %d revisions, want far fewer", revisions)
	}
}

func twoReplicas(t *testing.T, p *place, key string) {
	revisions := flood(t, []*store.Store[tally]{newStore(p.replicas[0]), newStore(p.replicas[1])}, p.replicas[1], key, 64, 5)
	if !p.instant && revisions > 320/2 {
		t.Errorf("320 changes took %d revisions, want far fewer", revisions)
	}
}

// flood lets writers, spread over stores, make so many changes each, one after the other. It checks that all succeed and
// nothing is lost, and returns how many revisions that took.
func flood(t *testing.T, stores []*store.Store[tally], log store.Log, key string, writers, each int) int {
	t.Helper()
	var all errgroup.Group
	for w := range writers {
		s, name := stores[w%len(stores)], fmt.Sprintf("w%02d", w)
		all.Go(func() error {
			before := uint64(0)
			for range each {
				r, err := s.Update(within(t), key, store.Origin{}, add(name))
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				if !r.Changed || r.Revision <= before {
					return fmt.Errorf("%s: changed %t, revision %d after %d", name, r.Changed, r.Revision, before)
				}
				before = r.Revision
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	doc := view(t, newStore(log), key).Doc
	for w := range writers {
		if name := fmt.Sprintf("w%02d", w); doc[name] != each {
			t.Errorf("%s is at %d, want %d", name, doc[name], each)
		}
	}
	revs := history(t, log, key)
	changes := wantChain(t, revs)
	if header(revs[0], wire.HeaderCEPrevious) == "0" && changes != writers*each { // else the oldest are gone
		t.Errorf("the revisions carry %d changes, want %d", changes, writers*each)
	}
	return len(revs)
}

// lostRace has the server say "another write in flight" although the revision was right, as three replicas do.
func lostRace(t *testing.T, p *place, key string) {
	losses := 0
	s := newStore(&tap{Log: p.replicas[0], onWrite: func(_ []store.Entry, pass func() (uint64, error)) (uint64, error) {
		if losses++; losses <= 5 {
			return 0, &store.Conflict{}
		}
		return pass()
	}})
	wantChanged(t, update(t, s, key, store.Origin{}, add("a")), tally{"a": 1})
	wantChanged(t, update(t, s, key, request(key, "id", "body"), add("a")), tally{"a": 2})
	wantWrites(t, p.replicas[0], key, 0, 2)
}

func contended(t *testing.T, p *place, key string) {
	rival := newStore(p.replicas[1])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reread := newStop()
	wrote := false
	s := newStore(&tap{
		Log: p.replicas[0],
		onWrite: func(_ []store.Entry, pass func() (uint64, error)) (uint64, error) {
			update(t, rival, key, store.Origin{}, add("rival"))
			wrote = true
			return pass()
		},
		onRead: func(string) error {
			if wrote { // the second look, after the race was lost
				reread.wait()
			}
			return nil
		},
	})
	done := begin(ctx, s, key, store.Origin{}, add("ours"))
	reread.await(t)
	cancel()
	wantError(t, outcome(t, done).err, wire.Contended)
	reread.open()
	update(t, newStore(p.replicas[0]), key, store.Origin{}, add("rival"))
	wantDoc(t, view(t, rival, key), tally{"rival": 2})
}

func otherKeys(t *testing.T, p *place, key string) {
	held := newStop()
	s := newStore(&tap{Log: p.replicas[0], onWrite: func(e []store.Entry, pass func() (uint64, error)) (uint64, error) {
		if e[len(e)-1].Key == key {
			held.wait()
		}
		return pass()
	}})
	done := begin(within(t), s, key, store.Origin{}, add("a"))
	held.await(t)
	wantChanged(t, update(t, s, key+"-other", store.Origin{}, add("a")), tally{"a": 1})
	held.open()
	wantChanged(t, outcome(t, done).Result, tally{"a": 1})
}

// bounded has more waiting than one atomic batch of the server takes.
func bounded(t *testing.T, p *place, key string) {
	s, writes := heldWrites(p.replicas[0])
	done := []<-chan answer{begin(within(t), s, key, store.Origin{}, add("a"))}
	writes.await(t)
	for i := range 1100 {
		done = append(done, begin(within(t), s, key, request(key, fmt.Sprint("id", i), "body"), add("a")))
	}
	writes.open()
	for i, d := range done {
		if a := outcome(t, d); a.err != nil {
			t.Fatalf("change %d failed: %v", i, a.err)
		}
	}
	wantDoc(t, view(t, s, key), tally{"a": 1101})
}
