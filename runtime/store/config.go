package store

import (
	"math/rand/v2"
	"time"

	"github.com/nats-io/nuid"
)

// MemoTTL is how long the outcome of a request with an id is remembered.
const MemoTTL = 10 * time.Minute

// How long the store waits for one answer of the log, and for several together, before it says that the log is away.
// The contract wants Unavailable within 2 s.
const (
	attemptTimeout = 600 * time.Millisecond
	patience       = 1400 * time.Millisecond
	retryEvery     = 20 * time.Millisecond
)

func (c Config) withDefaults() Config {
	if c.MemoTTL == 0 {
		c.MemoTTL = MemoTTL
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = nuid.Next
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	return c
}
