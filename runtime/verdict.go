package runtime

import (
	"fmt"
	"time"
)

// verdict is what Doubt said at a time. It counts for doubtEvery: a lookup asks several mirrors, and each question to the
// connection takes a lock that all its messages need.
type verdict struct {
	at, since time.Time
	why       error
}

const doubtEvery = time.Millisecond

// Doubt tells why what is read from the mirror may not be what the bucket holds, and since when; nil when it surely was a
// moment ago. Since is zero when the bucket was never seen.
func (m *Mirror[T]) Doubt(now time.Time) (since time.Time, why error) {
	if v := m.told.Load(); v != nil && now.Sub(v.at).Abs() < doubtEvery {
		return v.since, v.why
	}
	since, why = m.doubt(now)
	m.told.Store(&verdict{now, since, why})
	return since, why
}

func (m *Mirror[T]) doubt(now time.Time) (since time.Time, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.sight
	switch {
	case !m.bus.nc.IsConnected():
		return s.sign, errNotConnected()
	case s.link != m.bus.nc.Stats().Reconnects:
		return s.sign, fmt.Errorf("bucket %s was not read again since the link to NATS was lost", m.bucket.spec.Name)
	case !s.synced && s.why != nil:
		return s.sign, s.why
	case !s.synced:
		return s.sign, fmt.Errorf("bucket %s was not read yet", m.bucket.spec.Name)
	case now.Sub(s.sign) > mirrorSilence:
		return s.sign, fmt.Errorf("nothing is heard of bucket %s", m.bucket.spec.Name)
	case s.behind(now):
		return s.caught, errBehind(m.bucket)
	case now.Sub(s.anew) < mirrorGrace:
		return s.anew, fmt.Errorf("bucket %s was made anew", m.bucket.spec.Name)
	}
	// A server that is cut off from the others goes on giving signs of life, of what it last heard itself.
	if b := m.bucket.state.Load(); b.err != nil {
		return earlier(b.good, s.sign), b.err
	}
	return s.sign, nil
}

func errBehind(b *Bucket) error {
	return fmt.Errorf("what is heard of bucket %s lags behind its leader", b.spec.Name)
}

// Synced tells whether the mirror has ever read the whole bucket.
func (m *Mirror[T]) Synced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.sight.sign.IsZero()
}
