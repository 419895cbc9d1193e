package runtime

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// sweepEvery is how precise deadlines are. One goroutine sweeps the requests under way, since a timer for each costs more
// than serving it.
const sweepEvery = 5 * time.Millisecond

// deadlines ends the contexts of the requests under way in time.
type deadlines struct {
	mu   sync.Mutex
	head *deadline // all under way, in no order
	wake chan struct{}
	quit chan struct{}
}

// deadline is the context of one request. It ends at soft; at hard, its owner is told if it was not removed by then.
type deadline struct {
	soft, hard time.Time
	done       atomic.Pointer[chan struct{}] // made when somebody asks for it
	ended      atomic.Bool
	after      atomic.Pointer[func()] // called when it ends
	owner      interface{ late() }
	prev, next *deadline
}

func newDeadlines() *deadlines {
	d := &deadlines{wake: make(chan struct{}, 1), quit: make(chan struct{})}
	go d.sweep()
	return d
}

func (d *deadlines) stop() { close(d.quit) }

func (d *deadlines) add(c *deadline) {
	d.mu.Lock()
	first := d.head == nil
	if c.next = d.head; c.next != nil {
		c.next.prev = c
	}
	d.head = c
	d.mu.Unlock()
	if first {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// remove forgets a request that is answered, and ends its context.
func (d *deadlines) remove(c *deadline) {
	d.mu.Lock()
	d.unlink(c)
	d.mu.Unlock()
	c.end()
}

// unlink takes c off the list; a second time it does nothing. d.mu is held.
func (d *deadlines) unlink(c *deadline) {
	switch {
	case c.prev != nil:
		c.prev.next = c.next
	case d.head == c:
		d.head = c.next
	default:
		return
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
}

func (c *deadline) end() {
	if c.ended.CompareAndSwap(false, true) {
		if done := c.done.Swap(&closed); done != nil {
			close(*done)
		}
		if f := c.after.Swap(nil); f != nil {
			go (*f)()
		}
	}
}

// AfterFunc arranges for f to be called when the context ends, for one caller at a time; see [context.AfterFunc].
func (c *deadline) AfterFunc(f func()) (stop func() bool) {
	p := &f
	if !c.after.CompareAndSwap(nil, p) {
		return context.AfterFunc(struct{ context.Context }{c}, f) // the one place is taken
	}
	stop = func() bool { return c.after.CompareAndSwap(p, nil) }
	if c.ended.Load() && stop() {
		go f()
	}
	return stop
}

func (d *deadlines) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.quit:
			return
		case <-tick.C:
		}
		now := time.Now()
		var late []*deadline
		d.mu.Lock()
		idle := d.head == nil
		for c := d.head; c != nil; {
			next := c.next
			if now.After(c.soft) {
				c.end()
			}
			if now.After(c.hard) {
				d.unlink(c)
				late = append(late, c)
			}
			c = next
		}
		d.mu.Unlock()
		for _, c := range late {
			c.owner.late()
		}
		if idle {
			select {
			case <-d.quit:
				return
			case <-d.wake:
			}
		}
	}
}

// Deadline implements [context.Context], as do the following.
func (c *deadline) Deadline() (time.Time, bool) { return c.soft, true }

// Done is closed at the deadline, and once the request is answered.
func (c *deadline) Done() <-chan struct{} {
	if done := c.done.Load(); done != nil {
		return *done
	}
	fresh := make(chan struct{})
	if c.done.CompareAndSwap(nil, &fresh) {
		return fresh
	}
	return *c.done.Load()
}

// closed stands in for a channel that nobody asked for in time.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Err tells which of the two it was.
func (c *deadline) Err() error {
	switch {
	case !c.ended.Load():
		return nil
	case time.Now().After(c.soft):
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// Value holds nothing.
func (c *deadline) Value(any) any { return nil }
