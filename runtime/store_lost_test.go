package runtime_test

import (
	"context"
	"testing"
	"time"

	"muster/runtime/store"
	"muster/wire"
)

// Writes without an answer.
var lostCases = conformance{
	"LostAnswerIsFound":             lostAnswer,
	"LostRequestIsSentAgain":        lostRequest,
	"LateCopyCountsOnce":            lateCopy,
	"LostAnswerBehindANewerChange":  lostAnswerNewer,
	"LostRequestBehindANewerChange": lostRequestNewer,
	"PurgeHidesTheOutcome":          purgeHides,
	"CannotLookSaysUnknown":         cannotLook,
	"RefusedForGoodIsNotUnknown":    refusedForGood,
	"LostAnswerOfAMemo":             lostMemo,
}

// origins are a request without an id and one with: the latter's write is an atomic batch.
func origins(key string) map[string]store.Origin {
	return map[string]store.Origin{"without an id": {}, "with an id": request(key, "id", "body")}
}

// each runs a case for a request without an id and one with, on a key each.
func each(t *testing.T, key string, run func(t *testing.T, key string, from store.Origin)) {
	for name, from := range origins(key) {
		t.Run(name, func(t *testing.T) {
			own := key
			if from.MemoKey != "" {
				own += "-id"
			}
			run(t, own, from)
		})
	}
}

func lostAnswer(t *testing.T, p *place, key string) {
	each(t, key, func(t *testing.T, key string, from store.Origin) {
		lose := 1
		s := newStore(&tap{Log: p.replicas[0], onWrite: func(_ []store.Entry, pass func() (uint64, error)) (uint64, error) {
			revision, err := pass()
			if lose--; err == nil && lose >= 0 {
				return 0, store.ErrUnsure
			}
			return revision, err
		}})
		r := update(t, s, key, from, add("a"))
		wantChanged(t, r, tally{"a": 1})
		if revs := history(t, p.replicas[1], key); len(revs) != 1 || revs[0].Revision != r.Revision {
			t.Errorf("stored %+v, want revision %d alone", revs, r.Revision)
		}
		wantChanged(t, update(t, s, key, store.Origin{}, add("a")), tally{"a": 2})
	})
}

func lostRequest(t *testing.T, p *place, key string) {
	each(t, key, func(t *testing.T, key string, from store.Origin) {
		lose := 3
		s := newStore(&tap{Log: p.replicas[0], onWrite: func(_ []store.Entry, pass func() (uint64, error)) (uint64, error) {
			if lose--; lose >= 0 {
				return 0, store.ErrUnsure
			}
			return pass()
		}})
		wantChanged(t, update(t, s, key, from, add("a")), tally{"a": 1})
		wantWrites(t, p.replicas[1], key, 0, 1)
	})
}

// lateCopy: the first copy arrives after the store looked for it and before the second.
func lateCopy(t *testing.T, p *place, key string) {
	each(t, key, func(t *testing.T, key string, from store.Origin) {
		var late func() (uint64, error)
		s := newStore(&tap{Log: p.replicas[0], onWrite: func(_ []store.Entry, pass func() (uint64, error)) (uint64, error) {
			if late == nil {
				late = pass
				return 0, store.ErrUnsure
			}
			if _, err := late(); err != nil {
				t.Errorf("the late copy was refused: %v", err)
			}
			return pass()
		}})
		r := update(t, s, key, from, add("a"))
		wantChanged(t, r, tally{"a": 1})
		if revs := history(t, p.replicas[1], key); len(revs) != 1 || revs[0].Revision != r.Revision {
			t.Errorf("stored %+v, want revision %d alone", revs, r.Revision)
		}
	})
}

func lostAnswerNewer(t *testing.T, p *place, key string) {
	each(t, key, func(t *testing.T, key string, from store.Origin) {
		rival := newStore(p.replicas[1])
		lose := true
		s := newStore(&tap{Log: p.replicas[0], onWrite: func(_ []store.Entry, pass func() (uint64, error)) (uint64, error) {
			revision, err := pass()
			if !lose {
				return revision, err
			}
			lose = false
			update(t, rival, key, store.Origin{}, add("rival"))
			return 0, store.ErrUnsure
		}})
		r := update(t, s, key, from, add("a"))
		wantChanged(t, r, tally{"a": 1})
		if revs := history(t, p.replicas[1], key); len(revs) != 2 || revs[0].Revision != r.Revision {
			t.Errorf("stored %+v, want revision %d and the rival's behind it", revs, r.Revision)
		}
		wantDoc(t, view(t, s, key), tally{"a": 1, "rival": 1})
	})
}

func lostRequestNewer(t *testing.T, p *place, key string) {
	each(t, key, func(t *testing.T, key string, from store.Origin) {
		rival := newStore(p.replicas[1])
		lose := true
		s := newStore(&tap{Log: p.replicas[0], onWrite: func(_ []store.Entry, pass func() (uint64, error)) (uint64, error) {
			if !lose {
				return pass()
			}
			lose = false
			update(t, rival, key, store.Origin{}, add("rival"))
			return 0, store.ErrUnsure
		}})
		wantChanged(t, update(t, s, key, from, add("a")), tally{"a": 1, "rival": 1})
		wantWrites(t, p.replicas[1], key, 0, 2)
	})
}

// purgeHides: an operator removes the trace before the store looks for it.
func purgeHides(t *testing.T, p *place, key string) {
	each(t, key, func(t *testing.T, key string, from store.Origin) {
		lose := true
		s := newStore(&tap{Log: p.replicas[0], onWrite: func(_ []store.Entry, pass func() (uint64, error)) (uint64, error) {
			revision, err := pass()
			if lose {
				lose = false
				p.remove(t, key, true)
				return 0, store.ErrUnsure
			}
			return revision, err
		}})
		r, err := s.Update(within(t), key, from, add("a"))
		if from.MemoKey != "" && err == nil { // the memo tells
			wantChanged(t, r, tally{"a": 1})
			return
		}
		wantError(t, err, wire.DeadlineExceeded, "outcome", wire.Unknown)
		if from.MemoKey != "" {
			wantChanged(t, update(t, s, key, from, add("a")), tally{"a": 1})
		}
		if r := view(t, s, key); r.Revision != 0 {
			t.Errorf("written again behind the purge: revision %d, %v", r.Revision, r.Doc)
		}
	})
}

func cannotLook(t *testing.T, p *place, key string) {
	each(t, key, func(t *testing.T, key string, from store.Origin) {
		gone := wire.Errorf(wire.Unavailable, "gone").With("reason", wire.NotConnected)
		blind := true
		s := newStore(&tap{
			Log: p.replicas[0],
			onWrite: func(_ []store.Entry, pass func() (uint64, error)) (uint64, error) {
				revision, err := pass()
				if blind {
					return 0, store.ErrUnsure
				}
				return revision, err
			},
			onFind: func(string) error {
				if blind {
					return gone
				}
				return nil
			},
		})
		_, err := s.Update(within(t), key, from, add("a"))
		wantError(t, err, wire.Unavailable, "reason", wire.NotConnected, "outcome", wire.Unknown)
		if len(gone.Details) != 1 {
			t.Errorf("the log's own error was written to: %v", gone.Details)
		}
		blind = false
		if from.MemoKey != "" {
			wantChanged(t, update(t, s, key, from, add("a")), tally{"a": 1})
		}
		wantDoc(t, view(t, s, key), tally{"a": 1})
	})
}

func refusedForGood(t *testing.T, p *place, key string) {
	each(t, key, func(t *testing.T, key string, from store.Origin) {
		refuse := true
		s := newStore(&tap{Log: p.replicas[0], onWrite: func(_ []store.Entry, pass func() (uint64, error)) (uint64, error) {
			if refuse {
				return 0, wire.Errorf(wire.Unavailable, "no room").With("reason", wire.JetStreamUnavailable)
			}
			return pass()
		}})
		_, err := s.Update(within(t), key, from, add("a"))
		wantError(t, err, wire.Unavailable, "reason", wire.JetStreamUnavailable, "outcome", nil)
		wantWrites(t, p.replicas[0], key, 0, 0)
		refuse = false
		wantChanged(t, update(t, s, key, from, add("a")), tally{"a": 1})
	})
}

// lostMemo: a request that changes nothing writes its memo alone; the answer to that is lost.
func lostMemo(t *testing.T, p *place, key string) {
	first := update(t, newStore(p.replicas[1]), key, store.Origin{}, set("a", 1))
	lose := 2
	s := newStore(&tap{Log: p.replicas[0], onWrite: func(_ []store.Entry, pass func() (uint64, error)) (uint64, error) {
		revision, err := pass()
		if lose--; lose >= 0 {
			return 0, store.ErrUnsure
		}
		return revision, err
	}})
	from := request(key, "id", "body")
	r := update(t, s, key, from, set("a", 1))
	if r.Changed || r.Revision != first.Revision {
		t.Errorf("got changed %t at %d, want unchanged at %d", r.Changed, r.Revision, first.Revision)
	}
	update(t, s, key, store.Origin{}, set("a", 2))
	wantSame(t, "the retry", r, update(t, newStore(p.replicas[1]), key, from, set("a", 1)))
}

// A write that is never answered, and of which no trace is ever found, is unknown; in 2 s, as the contract has it.
func TestStoreNeverAnswered(t *testing.T) {
	t.Parallel()
	each(t, "key", func(t *testing.T, key string, from store.Origin) {
		t.Parallel()
		m := store.NewMemory(testBucket.Name)
		s := newStore(&tap{Log: m, onWrite: func([]store.Entry, func() (uint64, error)) (uint64, error) {
			<-time.After(100 * time.Millisecond)
			return 0, store.ErrUnsure
		}})
		began := time.Now()
		_, err := s.Update(within(t), key, from, add("a"))
		wantError(t, err, wire.DeadlineExceeded, "outcome", wire.Unknown)
		wantSoon(t, began)
	})
}

// A log that does not answer reads is unavailable, in 2 s.
func TestStoreReadsNeverAnswered(t *testing.T) {
	t.Parallel()
	s := newStore(silent{store.NewMemory(testBucket.Name)})
	began := time.Now()
	done := begin(within(t), s, "key", request("key", "id", "body"), add("a"))
	_, err := s.View(within(t), "other")
	wantError(t, err, wire.Unavailable, "reason", wire.JetStreamUnavailable)
	wantError(t, outcome(t, done).err, wire.Unavailable, "reason", wire.JetStreamUnavailable)
	wantSoon(t, began)
}

// silent answers no read.
type silent struct{ store.Log }

func (s silent) Last(ctx context.Context, _ string) (store.Revision, error) {
	<-ctx.Done()
	return store.Revision{}, ctx.Err()
}

// wantSoon checks that what began then ended within the contract's 2 s, and a little for a busy machine.
func wantSoon(t testing.TB, began time.Time) {
	t.Helper()
	if took := time.Since(began); took > 2*time.Second+5*busy {
		t.Errorf("it took %v, the contract says 2s", took.Round(time.Millisecond))
	}
}
