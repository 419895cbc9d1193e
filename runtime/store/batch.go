package store

import (
	"context"
	"errors"
	"sync"
)

// What one atomic batch holds at most: the server takes 1,000 messages.
const (
	batchEntries = 900
	batchBytes   = 2 << 20
)

// batcher writes what is to be stored as one. A single entry goes out by itself. Several need an atomic batch, which
// takes about 2 ms on one server whatever its size, so all that wait are joined in one, across keys; a joined batch
// that fails is taken apart.
type batcher struct {
	log Log

	mu      sync.Mutex
	waiting []*submission
	running bool
}

type submission struct {
	entries []Entry
	last    uint64
	err     error
	done    chan struct{}
}

// write stores entries, all or none, and returns the revision of the last one.
func (b *batcher) write(entries []Entry) (uint64, error) {
	if len(entries) == 1 {
		return b.send(entries)
	}
	sub := &submission{entries: entries, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, sub)
	start := !b.running
	b.running = true
	b.mu.Unlock()
	if start {
		go b.run()
	}
	<-sub.done
	return sub.last, sub.err
}

func (b *batcher) run() {
	for {
		b.mu.Lock()
		if len(b.waiting) == 0 {
			b.running = false
			b.mu.Unlock()
			return
		}
		n, entries, bytes := 0, 0, 0
		for ; n < len(b.waiting); n++ {
			entries += len(b.waiting[n].entries)
			for _, e := range b.waiting[n].entries {
				bytes += len(e.Value)
			}
			if n > 0 && (entries > batchEntries || bytes > batchBytes) {
				break
			}
		}
		subs := append([]*submission(nil), b.waiting[:n]...)
		b.waiting = b.waiting[n:]
		b.mu.Unlock()
		b.join(subs)
	}
}

// join writes submissions as one batch, or, when one of them lost a race or cannot be stored, each half by itself.
func (b *batcher) join(subs []*submission) {
	var all []Entry
	for _, sub := range subs {
		all = append(all, sub.entries...)
	}
	last, err := b.send(all)
	if _, lost := errors.AsType[*Conflict](err); (lost || isFinal(err)) && len(subs) > 1 {
		b.join(subs[:len(subs)/2])
		b.join(subs[len(subs)/2:])
		return
	}
	after := len(all)
	for _, sub := range subs {
		after -= len(sub.entries)
		sub.last, sub.err = last-uint64(after), err
		close(sub.done)
	}
}

func (b *batcher) send(entries []Entry) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	return b.log.Write(ctx, entries)
}
