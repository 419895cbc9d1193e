package store

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"muster/wire"
)

// reader reads one key for all who ask: everyone who waits is served by one leader read that began after they asked.
type reader[D any] struct {
	waiting []*viewer[D] // those that the next read will serve
}

// viewer is one who waits for a read.
type viewer[D any] struct {
	key      string
	then     func(Result[D], error)
	stop     func() bool
	answered atomic.Bool
}

// View reads the document under key from the leader. It never returns what is older than any answer given before it was
// called, by any replica. Revision 0: the key holds nothing.
func (s *Store[D]) View(ctx context.Context, key string) (Result[D], error) {
	return wait(func(then func(Result[D], error)) { s.ViewThen(ctx, key, then) })
}

// ViewThen is View for those who have many under way, as [Store.UpdateThen] is Update.
func (s *Store[D]) ViewThen(ctx context.Context, key string, then func(Result[D], error)) {
	v := &viewer[D]{key: key, then: then}
	v.stop = atDeadline(ctx, func() {
		v.answer(Result[D]{}, wire.Errorf(wire.DeadlineExceeded, "the store did not answer in time").With("outcome", wire.NotApplied))
	})
	if s.guesses.get(key, s.log.Epoch()) == nil {
		s.ask(v)
		return
	}
	s.mu.Lock()
	s.unsure = append(s.unsure, v)
	r := s.newRound()
	s.mu.Unlock()
	if r != nil {
		s.confirm(r)
	}
}

// round asks the leader one question after the other, each for all who wait then. One is enough: a second would cost the
// leader more than it saves, unless the question of the first is lost.
type round struct {
	began time.Time // of the question under way
}

const (
	maxRounds = 2
	slowRound = 50 * time.Millisecond // a question that takes longer may be lost
)

func (r *round) slow() bool { return time.Since(r.began) >= slowRound }

// newRound is a round to begin, nil when those under way are enough. s.mu is held.
func (s *Store[D]) newRound() *round {
	if len(s.rounds) == maxRounds || slices.ContainsFunc(s.rounds, func(r *round) bool { return !r.slow() }) {
		return nil
	}
	r := &round{time.Now()}
	s.rounds = append(s.rounds, r)
	return r
}

// confirm answers all whose document is known from before, of whatever key, once the leader has confirmed it.
func (s *Store[D]) confirm(r *round) {
	s.mu.Lock()
	now := s.unsure
	others := slices.ContainsFunc(s.rounds, func(o *round) bool { return o != r && !o.slow() })
	if now == nil || others {
		s.rounds = slices.DeleteFunc(s.rounds, func(o *round) bool { return o == r })
		s.mu.Unlock()
		return
	}
	s.unsure, r.began = nil, time.Now()
	s.mu.Unlock()
	lost := time.AfterFunc(slowRound, s.confirmBeside)
	epoch := s.log.Epoch()
	s.log.Confirm(func(unchanged func(string, uint64) bool) {
		lost.Stop()
		for _, v := range now {
			g := s.guesses.get(v.key, epoch)
			if g == nil || unchanged == nil || s.log.Epoch() != epoch || !unchanged(v.key, g.follows) {
				s.ask(v)
				continue
			}
			v.stop()
			v.answer(Result[D]{Revision: g.revision, Doc: g.doc, Time: g.time}, nil)
		}
		s.crew.do(func() { s.confirm(r) })
	})
}

// confirmBeside serves those who wait behind a question that is slow.
func (s *Store[D]) confirmBeside() {
	s.mu.Lock()
	var r *round
	if s.unsure != nil {
		r = s.newRound()
	}
	s.mu.Unlock()
	if r != nil {
		s.confirm(r)
	}
}

// ask has a viewer served by the leader.
func (s *Store[D]) ask(v *viewer[D]) {
	s.mu.Lock()
	r, running := s.readers[v.key]
	if !running {
		r = &reader[D]{}
		s.readers[v.key] = r
	}
	r.waiting = append(r.waiting, v)
	s.mu.Unlock()
	if !running {
		s.crew.do(func() { s.serve(v.key, r) })
	}
}

// serve reads until nobody waits.
func (s *Store[D]) serve(key string, r *reader[D]) {
	for {
		s.mu.Lock()
		now := r.waiting
		r.waiting = nil
		if now == nil {
			delete(s.readers, key)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		doc, err := s.read(key)
		result := Result[D]{}
		if err == nil {
			result = Result[D]{Revision: doc.revision, Doc: doc.doc, Time: doc.time}
		}
		for _, v := range now {
			v.stop()
			v.answer(result, err)
		}
	}
}

func (v *viewer[D]) answer(r Result[D], err error) {
	if v.answered.CompareAndSwap(false, true) {
		v.then(r, err)
	}
}
