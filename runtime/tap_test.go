package runtime_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"muster/runtime/store"
)

// tap is a log whose traffic a test holds up, loses and gets between. A hook that is nil lets everything pass.
type tap struct {
	store.Log
	onRead  func(key string) error                                                                // before Last
	onFind  func(key string) error                                                                // before After
	onWrite func(entries []store.Entry, pass func() (uint64, error)) (revision uint64, err error) // around Write and Send
}

func (l *tap) Last(ctx context.Context, key string) (store.Revision, error) {
	if l.onRead != nil {
		if err := l.onRead(key); err != nil {
			return store.Revision{}, err
		}
	}
	return l.Log.Last(ctx, key)
}

func (l *tap) After(ctx context.Context, key string, rev uint64) (store.Revision, error) {
	if l.onFind != nil {
		if err := l.onFind(key); err != nil {
			return store.Revision{}, err
		}
	}
	return l.Log.After(ctx, key, rev)
}

func (l *tap) Write(ctx context.Context, entries []store.Entry) (uint64, error) {
	if l.onWrite == nil {
		return l.Log.Write(ctx, entries)
	}
	return l.onWrite(entries, func() (uint64, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit) // a test may have held it long
		defer cancel()
		return l.Log.Write(ctx, entries)
	})
}

func (l *tap) Send(entry store.Entry, then func(uint64, error)) {
	if l.onWrite == nil {
		l.Log.Send(entry, then)
		return
	}
	go func() { then(l.Write(context.Background(), []store.Entry{entry})) }()
}

// stop is a place where a call waits until the test lets it go on.
type stop struct {
	reached chan struct{} // closed when the first call is there
	goOn    chan struct{}
	once    sync.Once
}

func newStop() *stop { return &stop{reached: make(chan struct{}), goOn: make(chan struct{})} }

// wait holds the caller up; once open was called, for no time.
func (s *stop) wait() {
	s.once.Do(func() { close(s.reached) })
	<-s.goOn
}

func (s *stop) open() { close(s.goOn) }

// await returns when a call waits.
func (s *stop) await(t testing.TB) {
	t.Helper()
	select {
	case <-s.reached:
	case <-time.After(limit):
		t.Fatalf("no call came within %v", limit)
	}
}

// heldWrites is a store on log whose writes wait at the stop.
func heldWrites(log store.Log) (*store.Store[tally], *stop) {
	s := newStop()
	return newStore(&tap{Log: log, onWrite: func(_ []store.Entry, pass func() (uint64, error)) (uint64, error) {
		s.wait()
		return pass()
	}}), s
}

// heldReads is a store on log whose reads of last revisions wait at the stop.
func heldReads(log store.Log) (*store.Store[tally], *stop) {
	s := newStop()
	return newStore(&tap{Log: log, onRead: func(string) error {
		s.wait()
		return nil
	}}), s
}
