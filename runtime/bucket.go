package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/store"
	"muster/wire"
)

// How often a bucket is looked at: quickly while something is wrong, since the contract wants Unavailable, and its end,
// within 2 s.
const (
	lookEvery   = 500 * time.Millisecond
	lookTrouble = 250 * time.Millisecond
	lookTimeout = 600 * time.Millisecond
)

// Bucket is a JetStream KV bucket as this process sees it, and the [store.Log] of its records.
type Bucket struct {
	bus     *Bus
	spec    BucketSpec
	stream  string
	state   atomic.Pointer[bucketState]
	epochs  atomic.Uint64        // counts the streams seen under this name
	feed    atomic.Pointer[feed] // nil while there is none
	feeding atomic.Bool          // one is there, or being started
	taken   atomic.Uint64        // up to which revision the events were taken
	era     atomic.Uint64        // of the events stream
	again   chan struct{}
	first   chan struct{} // closed after the first look
}

type bucketState struct {
	err     *wire.Error   // why it can not be used; nil: it can
	differs []string      // settings that are not ours
	created time.Time     // of the stream; zero while none was seen
	largest int32         // message that the stream takes, in bytes; -1 for the server's limit
	copies  int           // of the stream
	ahead   time.Duration // of the server's clock before ours
	late    bool          // the last look got no answer in time; a second one in a row counts
	good    time.Time     // when a look last found the bucket in order
	last    uint64        // the leader's last revision then
}

func newBucket(b *Bus, spec BucketSpec) *Bucket {
	k := &Bucket{
		bus: b, spec: spec, stream: wire.BucketStream(spec.Name),
		again: make(chan struct{}, 1), first: make(chan struct{}),
	}
	k.state.Store(&bucketState{err: errNotConnected()})
	k.taken.Store(allTaken)
	return k
}

// allTaken stands for a bucket that no events stream follows.
const allTaken = math.MaxUint64

// Taken implements [store.Followed].
func (k *Bucket) Taken() (revision, era uint64) { return k.taken.Load(), k.era.Load() }

// LookTaken implements [store.Followed].
func (k *Bucket) LookTaken(urgent bool) <-chan struct{} {
	if k.taken.Load() == allTaken {
		return closed
	}
	return k.bus.Stream(Events).lookTaken(urgent)
}

// look makes follow look now.
func (k *Bucket) look() {
	select {
	case k.again <- struct{}{}:
	default:
	}
}

// follow keeps state true until the bus closes.
func (k *Bucket) follow() {
	for seen := false; ; seen = true {
		old := k.state.Load()
		now := k.inspect(k.bus.closing, old)
		k.state.Store(now)
		if !seen {
			close(k.first)
		}
		if !now.created.Equal(old.created) {
			k.epochs.Add(1)
		}
		k.report(old, now)
		wait := lookEvery
		if now.err != nil || now.late {
			wait = lookTrouble
		}
		select {
		case <-k.bus.closing.Done():
			return
		case <-k.again:
		case <-time.After(wait):
		}
	}
}

func (k *Bucket) report(old, now *bucketState) {
	switch {
	case k.bus.closing.Err() != nil: // the look was cut short, which says nothing
		return
	case now.err != nil && (old.err == nil || old.err.Details["reason"] != now.err.Details["reason"]):
		k.bus.log.Warn("bucket unusable", "bucket", k.spec.Name, "reason", now.err.Details["reason"], "cause", now.err)
	case now.err == nil && old.err != nil:
		k.bus.log.Info("bucket usable", "bucket", k.spec.Name)
	}
	if a, b := strings.Join(old.differs, "; "), strings.Join(now.differs, "; "); b != "" && a != b {
		k.bus.log.Warn("bucket has other settings than ours; left as it is", "bucket", k.spec.Name, "differences", b)
	}
}

// inspect looks at the stream behind the bucket, and makes it if there never was one.
func (k *Bucket) inspect(ctx context.Context, old *bucketState) *bucketState {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	state := &bucketState{
		created: old.created, differs: old.differs, largest: old.largest, copies: old.copies, ahead: old.ahead, good: old.good, last: old.last,
	}
	if !k.bus.nc.IsConnected() {
		state.err = errNotConnected()
		return state
	}
	began := time.Now()
	want := k.spec.stream(k.bus.replicas)
	s, err := k.bus.js.Stream(ctx, k.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if !old.created.IsZero() && !k.spec.Leases { // an empty bucket in its place would say "there is nothing", which nobody knows
			state.err = k.missing("it was there before; make it again with its contents, or start this process anew to begin with an empty one")
			return state
		}
		s, err = k.bus.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // made by another replica at the same time
			s, err = k.bus.js.Stream(ctx, k.stream)
		}
		if err != nil && k.bus.refused(wire.APIStreamCreate(k.stream), began) {
			state.err = k.missing("and this process may not make it: no permission to publish to " + wire.APIStreamCreate(k.stream))
			return state
		}
	}
	if errors.Is(err, context.DeadlineExceeded) && old.err == nil && !old.late { // busy, perhaps; requests find out themselves
		state.late = true
		return state
	}
	if err != nil {
		state.err = k.unavailable(err, wire.APIStreamInfo(k.stream), began)
		return state
	}
	info := s.CachedInfo()
	state.created, state.last, state.good = info.Created, info.State.LastSeq, began
	state.ahead = ahead(began, time.Now(), info.TimeStamp)
	state.largest, state.copies = info.Config.MaxMsgSize, info.Config.Replicas
	state.differs = differences(want, info.Config)
	return state
}

// ahead is by how much the server's clock is before ours, when its answer to a question that took from began to ended says
// its time. Less than the answer took is nothing.
func ahead(began, ended, server time.Time) time.Duration {
	if server.IsZero() || !server.Before(began) && !server.After(ended) {
		return 0
	}
	return server.Sub(began.Add(ended.Sub(began) / 2))
}

// Now is the time by the clock of the server that has the bucket, as of the last look: what the times of revisions are to be
// held against. A replica's own clock may be wrong.
func (k *Bucket) Now() time.Time { return time.Now().Add(k.state.Load().ahead) }

func (k *Bucket) missing(why string) *wire.Error {
	return wire.Errorf(wire.Unavailable, "bucket %s is missing: %s", k.spec.Name, why).With("reason", wire.BucketMissing)
}

// unavailable says why a call that began at a time and failed with err could not be served.
func (k *Bucket) unavailable(err error, subject string, began time.Time) *wire.Error {
	switch {
	case !k.bus.nc.IsConnected():
		return errNotConnected().Because(err)
	case k.bus.refused(subject, began):
		return wire.Errorf(wire.Unavailable, "this process is not permitted to use bucket %s", k.spec.Name).
			With("reason", wire.PermissionDenied).Because(fmt.Errorf("publish to %s refused: %w", subject, err))
	}
	return wire.Errorf(wire.Unavailable, "JetStream does not answer").With("reason", wire.JetStreamUnavailable).Because(err)
}

// Bucket implements [store.Log].
func (k *Bucket) Bucket() string { return k.spec.Name }

// Epoch implements [store.Log].
func (k *Bucket) Epoch() uint64 { return k.bus.links.Load()<<32 | k.epochs.Load() }

// MaxValue implements [store.Log].
func (k *Bucket) MaxValue() int { return k.bus.maxValue() }

// usable returns why the bucket cannot be used now, nil if it can.
func (k *Bucket) usable() error {
	if !k.bus.nc.IsConnected() {
		return errNotConnected()
	}
	if err := k.state.Load().err; err != nil {
		return err
	}
	return nil
}

// failed sorts the failure of a call: final errors as [*wire.Error], others to be tried again.
func (k *Bucket) failed(err error, subject string, began time.Time) error {
	k.look()
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return store.TooLarge("the message", 0, k.MaxValue()).Because(err)
	case !k.bus.nc.IsConnected(), k.bus.refused(subject, began):
		return k.unavailable(err, subject, began)
	}
	return fmt.Errorf("ask %s: %w", subject, err)
}

// Store makes the store of a bucket of record.
func Store[D any](k *Bucket, codec store.Codec[D]) *store.Store[D] {
	return store.New(store.Log(k), codec, store.Config{EventType: k.spec.EventType})
}
