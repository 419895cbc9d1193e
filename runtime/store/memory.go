package store

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/wire"
)

// Memory is a bucket in memory, for tests of what is built on the store. Its rules are those of JetStream with a history
// of 256; the conformance suite holds both to them.
type Memory struct {
	mu       sync.Mutex
	bucket   string
	revision uint64
	byKey    map[string][]stored
	now      func() time.Time
	fault    func(op string, key string) error
}

type stored struct {
	Revision
	expires time.Time
}

const memoryHistory = 256

// NewMemory makes an empty bucket.
func NewMemory(bucket string) *Memory {
	return &Memory{bucket: bucket, byKey: map[string][]stored{}, now: time.Now}
}

// Fault makes calls fail: f is asked with "last", "after", "at", "write", or "acked" for a write that is stored but whose
// answer may be lost.
func (m *Memory) Fault(f func(op, key string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

func (m *Memory) fail(op, key string) error {
	if m.fault == nil {
		return nil
	}
	return m.fault(op, key)
}

// Bucket implements [Log].
func (m *Memory) Bucket() string { return m.bucket }

// Epoch implements [Log].
func (m *Memory) Epoch() uint64 { return 0 }

// MaxValue implements [Log].
func (m *Memory) MaxValue() int { return 1<<20 - 16<<10 }

func (m *Memory) live(key string) []stored {
	revs := slices.DeleteFunc(m.byKey[key], func(r stored) bool { return !r.expires.IsZero() && m.now().After(r.expires) })
	if revs != nil {
		m.byKey[key] = revs
	}
	return revs
}

// Confirm implements [Log].
func (m *Memory) Confirm(then func(func(string, uint64) bool)) {
	go then(func(key string, rev uint64) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		revs := m.live(key)
		return m.fail("last", key) == nil && len(revs) > 0 && revs[len(revs)-1].Revision.Revision == rev
	})
}

// Last implements [Log].
func (m *Memory) Last(_ context.Context, key string) (Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fail("last", key); err != nil {
		return Revision{}, err
	}
	if revs := m.live(key); len(revs) > 0 {
		return revs[len(revs)-1].Revision, nil
	}
	return Revision{}, nil
}

// After implements [Log].
func (m *Memory) After(_ context.Context, key string, rev uint64) (Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fail("after", key); err != nil {
		return Revision{}, err
	}
	for _, r := range m.live(key) {
		if r.Revision.Revision > rev {
			return r.Revision, nil
		}
	}
	return Revision{}, nil
}

// At implements [Log].
func (m *Memory) At(_ context.Context, rev uint64) (Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fail("at", ""); err != nil {
		return Revision{}, err
	}
	for key := range m.byKey {
		for _, r := range m.live(key) {
			if r.Revision.Revision == rev {
				return r.Revision, nil
			}
		}
	}
	return Revision{}, ErrGone
}

// Write implements [Log].
func (m *Memory) Write(_ context.Context, entries []Entry) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fail("write", entries[len(entries)-1].Key); err != nil {
		return 0, err
	}
	for _, e := range entries {
		last := uint64(0)
		if revs := m.live(e.Key); len(revs) > 0 {
			last = revs[len(revs)-1].Revision.Revision
		}
		if last != e.Follows {
			return 0, &Conflict{Found: last}
		}
	}
	for _, e := range entries {
		r := stored{Revision: Revision{Key: e.Key, Value: e.Value, Header: e.Header}}
		operation := r.Revision.header(wire.HeaderKVOperation)
		r.Marker, r.Purge = operation != "", operation == wire.KVPurge
		if r.Purge {
			m.byKey[e.Key] = nil
		}
		if e.TTL > 0 {
			r.expires = m.now().Add(e.TTL)
		}
		m.append(r)
	}
	return m.revision, m.fail("acked", entries[len(entries)-1].Key)
}

// Send implements [Log].
func (m *Memory) Send(e Entry, then func(uint64, error)) {
	go func() { then(m.Write(context.Background(), []Entry{e})) }()
}

func (m *Memory) append(r stored) {
	m.revision++
	r.Revision.Revision, r.Time = m.revision, m.now()
	revs := append(m.live(r.Key), r)
	if len(revs) > memoryHistory {
		revs = slices.Clone(revs[len(revs)-memoryHistory:])
	}
	m.byKey[r.Key] = revs
}

// Put stores a value as an operator would by hand.
func (m *Memory) Put(key string, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.append(stored{Revision: Revision{Key: key, Value: value}})
}

// Delete removes a key as an operator would by hand, with its history if purge is set.
func (m *Memory) Delete(key string, purge bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if purge {
		m.byKey[key] = nil
	}
	m.append(stored{Revision: Revision{Key: key, Marker: true, Purge: purge}})
}

// Keys implements [Log].
func (m *Memory) Keys(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	for key := range m.byKey {
		if len(m.live(key)) > 0 && !strings.ContainsRune(key, '.') {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}
