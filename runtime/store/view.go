package store

import (
	"context"
	"sync/atomic"

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
	start := s.confirming < confirmRounds
	if start {
		s.confirming++
	}
	s.mu.Unlock()
	if start {
		s.confirm()
	}
}

// confirm answers all whose document is known from before, of whatever key, once the leader has confirmed it.
func (s *Store[D]) confirm() {
	s.mu.Lock()
	now := s.unsure
	s.unsure = nil
	if now == nil {
		s.confirming--
	}
	s.mu.Unlock()
	if now == nil {
		return
	}
	epoch := s.log.Epoch()
	s.log.Confirm(func(unchanged func(string, uint64) bool) {
		for _, v := range now {
			g := s.guesses.get(v.key, epoch)
			if g == nil || unchanged == nil || s.log.Epoch() != epoch || !unchanged(v.key, g.follows) {
				s.ask(v)
				continue
			}
			v.stop()
			v.answer(Result[D]{Revision: g.revision, Doc: g.doc, Time: g.time}, nil)
		}
		s.crew.do(s.confirm)
	})
}

// confirmRounds is how many rounds of confirming are under way at most. The second one serves those who came just behind
// the first; more would cost the leader more than they save.
const confirmRounds = 1

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
