package store

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// What one atomic batch holds at most: the server takes 1,000 messages.
const (
	batchEntries = 900
	batchBytes   = 2 << 20
)

// batchesAtOnce is how many batches are under way: while the server stores one, the next is sent.
const batchesAtOnce = 2

// batcher writes what is to be stored as one. A single entry goes out by itself. Several need an atomic batch, which
// takes about 2 ms on one server whatever its size, so all that wait are joined in one, across keys; a joined batch
// that fails is taken apart.
type batcher struct {
	log  Log
	crew *crew

	mu      sync.Mutex
	waiting []submission
	running int
}

type submission struct {
	entries []Entry
	then    func(revision uint64, err error)
}

// write stores entries, all or none, and returns the revision of the last one.
func (b *batcher) write(entries []Entry) (uint64, error) {
	if len(entries) == 1 {
		return b.send(entries)
	}
	var last uint64
	var failure error
	done := make(chan struct{})
	b.submit(entries, func(revision uint64, err error) {
		last, failure = revision, err
		close(done)
	})
	<-done
	return last, failure
}

// submit is write for several entries and for those who have many under way: it returns at once and calls then with the
// outcome, on a goroutine that serves others too.
func (b *batcher) submit(entries []Entry, then func(revision uint64, err error)) {
	b.mu.Lock()
	b.waiting = append(b.waiting, submission{entries, then})
	start := b.running < batchesAtOnce
	if start {
		b.running++
	}
	b.mu.Unlock()
	if start {
		b.crew.do(b.run)
	}
}

func (b *batcher) run() {
	for {
		b.mu.Lock()
		if len(b.waiting) == 0 {
			b.running--
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
		subs := slices.Clone(b.waiting[:n])
		b.waiting = append([]submission(nil), b.waiting[n:]...)
		b.mu.Unlock()
		b.join(subs)
	}
}

// join writes submissions as one batch, or, when one of them lost a race or cannot be stored, each half by itself.
func (b *batcher) join(subs []submission) {
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
	b.crew.do(func() { // the next batch need not wait for them
		after := len(all)
		for _, sub := range subs {
			after -= len(sub.entries)
			sub.then(last-uint64(after), err)
		}
	})
}

func (b *batcher) send(entries []Entry) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	return b.log.Write(ctx, entries)
}
