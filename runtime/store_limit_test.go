package runtime_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"muster/runtime/store"
	"muster/wire"
)

// busy is what a test machine may add to a limit of time.
const busy = 50 * time.Millisecond

// Sizes and deadlines.
var limitCases = conformance{
	"TooLargeChangesNothing":         tooLarge,
	"TooLargeFailsAlone":             tooLargeAlone,
	"LargestFits":                    largest,
	"DeadlineBeforeAnythingWasSent":  deadlineBefore,
	"DeadlineInLine":                 deadlineInLine,
	"DeadlinePassedLongAgo":          deadlinePassed,
	"DeadlineWhileOnItsWay":          deadlineOnTheWay,
	"DeadlineOfAView":                deadlineOfView,
	"GoneCallerIsNotWrittenForLater": goneCaller,
}

func tooLarge(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	before := update(t, s, key, store.Origin{}, add("a"))
	size := s.MaxValue() + 1
	name := strings.Repeat("x", size-len(`{"a":1,"":1}`))
	for _, from := range []store.Origin{{}, request(key, "id", "body")} {
		_, err := s.Update(within(t), key, from, add(name))
		wantError(t, err, wire.TooLarge, "size", size, "limit", s.MaxValue())
	}
	if r := view(t, s, key); r.Revision != before.Revision {
		t.Errorf("revision went from %d to %d", before.Revision, r.Revision)
	}
	wantChanged(t, update(t, s, key, request(key, "id", "body"), add("a")), tally{"a": 2}) // at once, and the id is free
	wantChanged(t, update(t, s, key+"-other", store.Origin{}, add("a")), tally{"a": 1})
}

func tooLargeAlone(t *testing.T, p *place, key string) {
	s, writes := heldWrites(p.replicas[0])
	first := begin(within(t), s, key, store.Origin{}, add("a"))
	writes.await(t)
	before := begin(within(t), s, key, store.Origin{}, add("b"))
	large := begin(within(t), s, key, store.Origin{}, add(strings.Repeat("x", s.MaxValue())))
	largeID := begin(within(t), s, key, request(key, "id", "body"), add(strings.Repeat("y", s.MaxValue())))
	after := begin(within(t), s, key, request(key, "id2", "body"), add("c"))
	again := begin(within(t), s, key, request(key, "id2", "body"), add("c"))
	writes.open()
	for _, d := range []<-chan answer{first, before, after, again} {
		if a := outcome(t, d); a.err != nil || !a.Changed {
			t.Errorf("beside one that is too large: changed %t, %v", a.Changed, a.err)
		}
	}
	wantError(t, outcome(t, large).err, wire.TooLarge, "limit", s.MaxValue())
	wantError(t, outcome(t, largeID).err, wire.TooLarge, "limit", s.MaxValue())
	wantDoc(t, view(t, s, key), tally{"a": 1, "b": 1, "c": 1})
}

// largest writes a record of exactly the limit, with the longest headers that are allowed, in a batch with its memo.
func largest(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	name := strings.Repeat("x", s.MaxValue()-len(`{"":1}`))
	from := request(key, strings.Repeat("i", 64), "body")
	from.Cause, from.Trace = strings.Repeat("c", 4<<10), strings.Repeat("t", 512)
	first := update(t, s, key, from, add(name))
	wantChanged(t, first, tally{name: 1})
	wantSame(t, "the retry", first, update(t, newStore(p.replicas[1]), key, from, add(name)))
}

func deadlineBefore(t *testing.T, p *place, key string) {
	s, reads := heldReads(p.replicas[0])
	ctx, cancel := context.WithCancel(t.Context())
	done := begin(ctx, s, key, request(key, "id", "body"), add("a"))
	reads.await(t)
	cancel()
	wantError(t, outcome(t, done).err, wire.DeadlineExceeded, "outcome", wire.NotApplied)
	reads.open()
	wantChanged(t, update(t, s, key, request(key, "id", "body"), add("b")), tally{"b": 1})
	wantWrites(t, p.replicas[0], key, 0, 1)
}

func deadlinePassed(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	update(t, s, key, store.Origin{}, add("a"))
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for range 100 {
		_, err := s.Update(over, key, store.Origin{}, add("a"))
		wantError(t, err, wire.DeadlineExceeded, "outcome", wire.NotApplied)
		if t.Failed() {
			break
		}
	}
	wantChanged(t, update(t, s, key, store.Origin{}, add("a")), tally{"a": 2})
}

func deadlineInLine(t *testing.T, p *place, key string) {
	s, writes := heldWrites(p.replicas[0])
	first := begin(within(t), s, key, store.Origin{}, add("a"))
	writes.await(t)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := begin(ctx, s, key, store.Origin{}, add("never"))
	cancel()
	wantError(t, outcome(t, waiting).err, wire.DeadlineExceeded, "outcome", wire.NotApplied)
	writes.open()
	wantChanged(t, outcome(t, first).Result, tally{"a": 1})
	wantChanged(t, update(t, s, key, store.Origin{}, add("a")), tally{"a": 2})
}

func deadlineOnTheWay(t *testing.T, p *place, key string) {
	s, writes := heldWrites(p.replicas[0])
	ctx, cancel := context.WithCancel(t.Context())
	done := begin(ctx, s, key, store.Origin{}, add("a"))
	writes.await(t)
	cancel()
	wantError(t, outcome(t, done).err, wire.DeadlineExceeded, "outcome", wire.Unknown)
	writes.open()
	wantChanged(t, update(t, s, key, store.Origin{}, add("a")), tally{"a": 2}) // it was stored, and is not lost
}

func deadlineOfView(t *testing.T, p *place, key string) {
	s, reads := heldReads(p.replicas[0])
	defer reads.open()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.View(ctx, key)
	wantError(t, err, wire.DeadlineExceeded, "outcome", wire.NotApplied)
}

// goneCaller: a race is lost after the caller's deadline; nothing is tried for it again.
func goneCaller(t *testing.T, p *place, key string) {
	held := newStop()
	s := newStore(&tap{Log: p.replicas[0], onWrite: func(_ []store.Entry, pass func() (uint64, error)) (uint64, error) {
		held.wait()
		return pass()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := begin(ctx, s, key, store.Origin{}, add("gone"))
	held.await(t)
	cancel()
	wantError(t, outcome(t, done).err, wire.DeadlineExceeded, "outcome", wire.Unknown)
	update(t, newStore(p.replicas[1]), key, store.Origin{}, add("rival"))
	held.open()
	wantChanged(t, update(t, s, key, store.Origin{}, add("a")), tally{"a": 1, "rival": 1})
	wantWrites(t, p.replicas[0], key, 0, 2)
}
