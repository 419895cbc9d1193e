package resolve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"muster/runtime"
	"muster/wire"
)

// What Backends returns beside backends when these are not known to be right.
var (
	// ErrClosed: the Watcher was closed, or its context has ended.
	ErrClosed = errors.New("closed")
	// ErrNobody: no replica resolves the service; it may not be defined, or all replicas are gone.
	ErrNobody = errors.New("nobody is resolving")
	// ErrNotYet: nothing was heard of the service so far, or its source has not answered yet.
	ErrNotYet = errors.New("not resolved yet")
)

// StaleError says since when backends may be wrong, and why.
type StaleError struct {
	Since  time.Time
	Reason string
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("stale since %s: %s", e.Since.UTC().Format(time.RFC3339), e.Reason)
}

// Watcher knows the backends of one service at any time, or why it does not. Make it with [Watch].
type Watcher struct {
	service string
	nc      *nats.Conn
	ctx     context.Context //nolint:containedctx // its end closes the Watcher, whenever it is asked
	cancel  context.CancelFunc
	changes chan struct{}
	ended   chan struct{}
	heard   atomic.Pointer[heardOf]
	cut     atomic.Pointer[time.Time] // when the link went away; nil while it is there
}

// heardOf is the last that a Watcher heard. A new one takes its place as a whole.
type heardOf struct {
	copied *copied   // last answer; nil for none so far
	at     time.Time // when it came
	stored time.Time // when it was stored, by our clock
	err    error     // set: that is no longer, or not yet, an answer
}

// Watch follows the backends of a service over a connection, until ctx ends or the Watcher is closed. It returns at once;
// until the first answer is there, Backends says [ErrNotYet]. The connection stays the caller's, who needs no more
// permissions than to read the key <service> of bucket muster_resolved.
func Watch(ctx context.Context, nc *nats.Conn, service string) (*Watcher, error) {
	if err := wire.CheckName("service", service); err != nil {
		return nil, err
	}
	bus, err := runtime.Over(nc)
	if err != nil {
		return nil, err
	}
	w := &Watcher{service: service, nc: nc, changes: make(chan struct{}, 1), ended: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.heard.Store(&heardOf{err: ErrNotYet})
	go w.run(bus)
	return w, nil
}

// Backends returns the backends that serve the service now, in the order of their names. With an error they are the last
// that were known, perhaps none, and may be wrong: [ErrNobody], [ErrNotYet], a [*StaleError], or [ErrClosed], with which
// none come. No backends and no error means that the service has none.
func (w *Watcher) Backends() ([]wire.Backend, error) {
	if w.ctx.Err() != nil || w.nc.IsClosed() {
		return nil, ErrClosed
	}
	now, h := time.Now(), w.heard.Load()
	if h.copied == nil {
		return nil, h.err
	}
	backends := make([]wire.Backend, len(h.copied.Backends))
	for i, b := range h.copied.Backends {
		backends[i] = b.Backend
	}
	return backends, w.judge(h, now)
}

// judge tells what stands against the last answer.
func (w *Watcher) judge(h *heardOf, now time.Time) error {
	observed := h.stored.Add(-time.Duration(h.copied.AgeMS) * time.Millisecond)
	cut := w.cut.Load()
	switch {
	case cut != nil:
		return &StaleError{*cut, "the link to NATS is down"}
	case h.err != nil:
		return h.err
	case h.copied.Status == wire.StatusUnresolved:
		return fmt.Errorf("%w: %s", ErrNotYet, h.copied.Reason)
	case now.Sub(h.stored) > copyTTL: // the server would have told; but it is not known what the server does
		return ErrNobody
	case h.copied.Status == wire.StatusStale:
		return &StaleError{observed.Add(h.copied.ttl), h.copied.Reason}
	case h.copied.Source == wire.SourceDNS && now.Sub(observed) > h.copied.ttl+freshFor:
		return &StaleError{observed.Add(h.copied.ttl), "no newer answer came"}
	}
	return nil
}

// Changes has a signal whenever Backends may return something else than before, and is closed with the Watcher.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Close ends it. Backends returns [ErrClosed] from then on. It may be called more than once.
func (w *Watcher) Close() {
	w.cancel()
	<-w.ended
}

// watchEvery is how often is looked whether time alone has changed the answer.
const watchEvery = 250 * time.Millisecond

func (w *Watcher) run(bus *runtime.Bus) {
	defer close(w.ended)
	links := w.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	defer w.nc.RemoveStatusListener(links)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		bus.Follow(w.ctx, wire.BucketResolved, w.service, w.see)
	}()
	defer func() { <-followed; close(w.changes) }()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-links:
		case <-tick.C:
		}
		w.look()
		if said := w.said(); said != last {
			last = said
			select {
			case w.changes <- struct{}{}:
			default:
			}
		}
		if w.nc.IsClosed() {
			w.cancel()
			return
		}
	}
}

// look notes whether the link is there. After it was away an answer counts again once it was heard anew.
func (w *Watcher) look() {
	cut := w.cut.Load()
	switch {
	case w.nc.IsConnected() && cut != nil && w.heard.Load().at.After(*cut):
		w.cut.Store(nil)
	case !w.nc.IsConnected() && cut == nil:
		now := time.Now()
		w.cut.Store(&now)
	}
}

// said is what Backends says, for comparison.
func (w *Watcher) said() string {
	backends, err := w.Backends()
	for i := range backends {
		backends[i].ExpiresAt = nil
	}
	return fmt.Sprint(backends, err)
}

// see takes what the follower sees.
func (w *Watcher) see(s runtime.Sight) {
	now, last := time.Now(), w.heard.Load()
	next := &heardOf{copied: last.copied, at: now, stored: last.stored}
	switch {
	case s.Blind != nil:
		next.at = last.at
		next.err = &StaleError{now, s.Blind.Error()}
		if last.err != nil && last.copied != nil {
			next.err = last.err
		}
		if last.copied == nil {
			next.err = fmt.Errorf("%w: %w", ErrNotYet, s.Blind)
		}
	case s.Revision.Absent():
		next.err = ErrNobody
	default:
		c, err := decodeCopied(s.Revision.Value)
		if err != nil {
			next.err = &StaleError{now, "the answer that is stored cannot be read"}
			break
		}
		slices.SortFunc(c.Backends, compareNames)
		// The first one may be as old as a refresh; an older one would be gone soon, and we told.
		next.copied, next.stored, next.err = c, now.Add(-min(max(now.Sub(s.Revision.Time), 0), copyRefresh)), nil
	}
	w.heard.Store(next)
	w.look()
	select {
	case w.changes <- struct{}{}:
	default:
	}
}
