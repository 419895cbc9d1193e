package store

import (
	"context"

	"muster/wire"
)

// reader reads one key for all who ask: everyone who waits is served by one leader read that began after they asked.
type reader[D any] struct {
	next *reading[D] // those that the next read will serve; nil when nobody waits
}

type reading[D any] struct {
	done chan struct{}
	doc  *guess[D]
	err  error
}

// View reads the document under key from the leader. It never returns what is older than any answer given before it was
// called, by any replica. Revision 0: the key holds nothing.
func (s *Store[D]) View(ctx context.Context, key string) (Result[D], error) {
	s.mu.Lock()
	r, running := s.readers[key]
	if !running {
		r = &reader[D]{}
		s.readers[key] = r
	}
	if r.next == nil {
		r.next = &reading[D]{done: make(chan struct{})}
	}
	mine := r.next
	s.mu.Unlock()
	if !running {
		go s.serve(key, r)
	}
	select {
	case <-mine.done:
	case <-ctx.Done():
		return Result[D]{}, wire.Errorf(wire.DeadlineExceeded, "the store did not answer in time").With("outcome", wire.NotApplied)
	}
	if mine.err != nil {
		return Result[D]{}, mine.err
	}
	return Result[D]{Revision: mine.doc.revision, Doc: mine.doc.doc, Time: mine.doc.time}, nil
}

// serve reads until nobody waits.
func (s *Store[D]) serve(key string, r *reader[D]) {
	for {
		s.mu.Lock()
		now := r.next
		r.next = nil
		if now == nil {
			delete(s.readers, key)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		now.doc, now.err = s.read(key)
		close(now.done)
	}
}
