package store

import (
	"container/list"
	"sync"
	"time"
)

// guessBytes bounds the documents kept as guesses, by their stored size and entryOverhead each: some 6,000 small ones.
// Decoded they take a few times as much, and a replica is to stay under 60 MB.
const guessBytes = 2 << 20

// guess is the last document seen of a key. It may be old, and is never taken for the truth.
type guess[D any] struct {
	follows  uint64 // the revision that a write must follow: the document's or a marker's
	revision uint64 // the document's, 0 when the key holds none
	doc      D
	size     int
	time     time.Time // when it was stored, zero for one written here
	writeID  string    // which write it came from: revisions of a bucket made anew begin again
	epoch    uint64    // of the log, when it was seen
	lead     lead      // of its key, as of follows
}

// guesses keeps the most recently used ones.
type guesses[D any] struct {
	mu    sync.Mutex
	limit int
	size  int
	byKey map[string]*list.Element
	order *list.List // most recent first
}

type guessEntry[D any] struct {
	key string
	g   *guess[D]
}

func newGuesses[D any](limit int) *guesses[D] {
	return &guesses[D]{limit: limit, byKey: map[string]*list.Element{}, order: list.New()}
}

// get returns the guess of a key as seen in this epoch of the log, or nil.
func (c *guesses[D]) get(key string, epoch uint64) *guess[D] {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[key]
	if !ok {
		return nil
	}
	g := e.Value.(*guessEntry[D]).g
	if g.epoch != epoch {
		c.remove(e)
		return nil
	}
	c.order.MoveToFront(e)
	return g
}

// put keeps g unless a newer one of its epoch is known.
func (c *guesses[D]) put(key string, g *guess[D]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[key]; ok {
		old := e.Value.(*guessEntry[D])
		if old.g.epoch == g.epoch && old.g.follows > g.follows {
			return
		}
		c.size += g.size - old.g.size
		old.g = g
		c.order.MoveToFront(e)
	} else {
		c.size += g.size + entryOverhead
		c.byKey[key] = c.order.PushFront(&guessEntry[D]{key, g})
	}
	for c.size > c.limit && c.order.Len() > 1 {
		c.remove(c.order.Back())
	}
}

// drop forgets the guess of a key: it proved wrong.
func (c *guesses[D]) drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[key]; ok {
		c.remove(e)
	}
}

func (c *guesses[D]) remove(e *list.Element) {
	ge := c.order.Remove(e).(*guessEntry[D])
	delete(c.byKey, ge.key)
	c.size -= ge.g.size + entryOverhead
}

// entryOverhead is about what a kept guess costs beside its document, in bytes.
const entryOverhead = 256
