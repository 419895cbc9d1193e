package store

import (
	"sync"
	"time"
)

// maxGroup bounds a group, so that its batch stays under the server's 1,000 messages.
const maxGroup = 400

// cell commits the changes of one key, one group after the other. It lives while there are any.
type cell[D any] struct {
	mu      sync.Mutex
	waiting []*waiter[D]

	// Only the committer uses these.
	losses    int       // races lost in a row
	lostOn    uint64    // the revision that they were lost on
	lostSince time.Time // when the first was lost on that
}

// enqueue adds a waiter to its key's cell, and starts the cell if there was none.
func (s *Store[D]) enqueue(key string, w *waiter[D]) {
	s.mu.Lock()
	c, running := s.cells[key]
	if !running {
		c = &cell[D]{}
		s.cells[key] = c
	}
	c.mu.Lock()
	s.mu.Unlock()
	c.waiting = append(c.waiting, w)
	c.mu.Unlock()
	if !running {
		s.run(key, c)
	}
}

// run commits groups until nothing waits. It returns when a write is on its way; its answer goes on.
func (s *Store[D]) run(key string, c *cell[D]) {
	group := s.next(key, c)
	if group == nil || s.quick(key, group, func(lost []*waiter[D]) { s.goOn(key, c, lost) }) {
		return
	}
	s.crew.do(func() { s.goOn(key, c, s.commit(key, group)) })
}

// goOn goes on after a group: at once, or after a pause with those that lost a race.
func (s *Store[D]) goOn(key string, c *cell[D], lost []*waiter[D]) {
	if len(lost) == 0 {
		c.losses, c.lostSince = 0, time.Time{}
		s.run(key, c)
		return
	}
	c.mu.Lock() // they go on together with what came meanwhile, and before it
	c.waiting = append(lost, c.waiting...)
	c.mu.Unlock()
	c.losses++
	wait := time.Duration(s.cfg.Rand() * float64(pause(c.losses)))
	s.crew.do(func() {
		time.Sleep(wait)
		s.run(key, c)
	})
}

// stuck tells whether races have been lost on one revision for as long as a request may wait: nobody's write is completed,
// as on a cluster without a majority.
func (c *cell[D]) stuck(follows uint64) bool {
	if c.lostSince.IsZero() || c.lostOn != follows {
		c.lostOn, c.lostSince = follows, time.Now()
		return false
	}
	return time.Since(c.lostSince) > patience
}

// pause is the longest wait after so many races lost in a row. The first is for free: reading again takes as long as the
// winner's next write.
func pause(losses int) time.Duration {
	if losses <= 1 {
		return 0
	}
	return min(time.Millisecond<<min(losses-2, 5), 20*time.Millisecond)
}

// next takes the group that waits, or ends the cell and returns nil.
func (s *Store[D]) next(key string, c *cell[D]) []*waiter[D] {
	for {
		s.mu.Lock()
		c.mu.Lock()
		if len(c.waiting) == 0 {
			delete(s.cells, key)
			c.mu.Unlock()
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		n := min(len(c.waiting), maxGroup)
		group := make([]*waiter[D], 0, n)
		for _, w := range c.waiting[:n] {
			if w.take() {
				group = append(group, w)
			}
		}
		c.waiting = append([]*waiter[D](nil), c.waiting[n:]...)
		c.mu.Unlock()
		if len(group) > 0 {
			return group
		}
	}
}
