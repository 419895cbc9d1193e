package store

import "sync/atomic"

// crew is goroutines that are kept for the next work: a new one must grow its stack first, which costs more than the
// work.
type crew struct {
	jobs chan func()
	idle atomic.Int64
}

// crewIdle is how many are kept.
const crewIdle = 64

func newCrew() *crew { return &crew{jobs: make(chan func())} }

func (c *crew) do(job func()) {
	select {
	case c.jobs <- job:
	default:
		go c.work(job)
	}
}

func (c *crew) work(job func()) {
	for {
		job()
		if c.idle.Add(1) > crewIdle {
			c.idle.Add(-1)
			return
		}
		job = <-c.jobs
		c.idle.Add(-1)
		if job == nil {
			return
		}
	}
}
