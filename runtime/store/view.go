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
	v := &viewer[D]{then: then}
	v.stop = atDeadline(ctx, func() {
		v.answer(Result[D]{}, wire.Errorf(wire.DeadlineExceeded, "the store did not answer in time").With("outcome", wire.NotApplied))
	})
	s.mu.Lock()
	r, running := s.readers[key]
	if !running {
		r = &reader[D]{}
		s.readers[key] = r
	}
	r.waiting = append(r.waiting, v)
	s.mu.Unlock()
	if !running {
		s.crew.do(func() { s.serve(key, r) })
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
