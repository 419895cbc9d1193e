package runtime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"muster/runtime/store"
	"muster/wire"
)

// How a mirror hears. Unlike a follower it is asked how sure it is, so its watch gives signs of life more often.
const (
	mirrorHeartbeat = 300 * time.Millisecond
	mirrorSilence   = 1500 * time.Millisecond // without a sign it is not sure of anything
	mirrorRetry     = 250 * time.Millisecond
	mirrorGrace     = 4 * time.Second // what a bucket that was made anew does not hold is doubtful that long
	mirrorPending   = 256 << 20       // bytes that were sent and not taken yet
	mirrorBehind    = 2 * time.Second // what the leader had so long ago must have been heard; a follower hears within 1 s
)

// Mirror is what a bucket holds, as this process sees it: kept in memory, parsed, and read without waiting. Keys are
// grouped by their first name. It tells how sure it is; see [Mirror.Doubt]. What is read is the last that was heard, never
// less: while the bucket cannot be seen, all stays as it was.
type Mirror[T any] struct {
	bus    *Bus
	bucket *Bucket
	parse  func([]byte) (T, error)
	heard  func(group string) // called when something about a group has changed; it must not wait
	keep   bool               // keys that are gone stay, marked so

	groups sync.Map // name to []Item[T], never changed once stored

	told atomic.Pointer[verdict] // the last verdict, for a moment

	mu    sync.Mutex
	sight sight
}

// Item is one key as a mirror knows it.
type Item[T any] struct {
	Key      string
	Value    T
	Err      error // Value could not be parsed
	Revision uint64
	Stored   time.Time // when, by this process's clock: a time that survives steps of any clock
	Gone     bool      // the key is there no more; Value is what it was

	round   uint64
	arrived time.Time // by the server's clock: what tells revisions of a bucket made anew from those before
}

// NewMirror makes a mirror of a bucket. It sees nothing before it runs.
func NewMirror[T any](b *Bus, spec BucketSpec, parse func([]byte) (T, error), heard func(group string), keep bool) *Mirror[T] {
	return &Mirror[T]{bus: b, bucket: b.Bucket(spec), parse: parse, heard: heard, keep: keep}
}

// Group returns the keys of a group in order. The slice is shared and must not be changed.
func (m *Mirror[T]) Group(name string) []Item[T] {
	if g, ok := m.groups.Load(name); ok {
		return g.([]Item[T])
	}
	return nil
}

// Groups lists the names of all groups, in order.
func (m *Mirror[T]) Groups() []string {
	var names []string
	m.groups.Range(func(name, _ any) bool { names = append(names, name.(string)); return true })
	slices.Sort(names)
	return names
}

// Run keeps the mirror until ctx ends.
func (m *Mirror[T]) Run(ctx context.Context) {
	links := m.bus.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED)
	defer m.bus.nc.RemoveStatusListener(links)
	deleted := make(chan *nats.Msg, 4)
	advised, err := m.bus.nc.ChanSubscribe(wire.StreamDeleted(m.bucket.stream), deleted)
	if err == nil { // without it a deleted bucket is noticed a little later, when it gives no sign of life
		defer advised.Unsubscribe() //nolint:errcheck // the connection is gone then, and the subscription with it
	}
	for ctx.Err() == nil {
		err := m.watch(ctx, links, deleted)
		if err == nil {
			continue
		}
		m.lost(err)
		select {
		case <-ctx.Done():
		case <-links:
		case <-deleted:
		case <-time.After(mirrorRetry):
		}
	}
}

// lost makes the mirror doubtful: what it is to hear it may not have heard.
func (m *Mirror[T]) lost(why error) {
	m.mu.Lock()
	m.sight.synced, m.sight.why = false, why
	m.mu.Unlock()
}

var errStreamDeleted = errors.New("the bucket was deleted")

// watch reads the bucket and then hears it until followPoll is over, which is no error, or it cannot.
func (m *Mirror[T]) watch(ctx context.Context, links <-chan nats.Status, deleted <-chan *nats.Msg) (failure error) {
	if !m.bus.nc.IsConnected() {
		return errNotConnected()
	}
	link := m.bus.nc.Stats().Reconnects
	messages, over := make(chan *nats.Msg, 256), make(chan struct{})
	inbox := m.bus.nc.NewInbox()
	sub, err := m.bus.nc.Subscribe(inbox, func(msg *nats.Msg) {
		select {
		case messages <- msg:
		case <-over:
		}
	})
	if err == nil { // all that the bucket holds comes at once
		err = sub.SetPendingLimits(-1, mirrorPending)
	}
	if err != nil {
		return fmt.Errorf("subscribe to bucket %s: %w", m.bucket.spec.Name, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is gone then, and the subscription with it
	defer close(over)
	asked, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	before := time.Now()
	s, err := m.bus.js.Stream(asked, m.bucket.stream)
	if err != nil {
		return fmt.Errorf("look at bucket %s: %w", m.bucket.spec.Name, err)
	}
	c, err := m.bus.js.CreatePushConsumer(asked, m.bucket.stream, jetstream.ConsumerConfig{
		Name:              "mirror-" + nuid.Next(),
		DeliverSubject:    inbox,
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		FilterSubject:     wire.RecordSubjects(m.bucket.spec.Name, m.bucket.spec.names()),
		AckPolicy:         jetstream.AckNonePolicy,
		IdleHeartbeat:     mirrorHeartbeat,
		InactiveThreshold: 10 * time.Second,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		return fmt.Errorf("watch bucket %s: %w", m.bucket.spec.Name, err)
	}
	defer func() {
		if failure != nil { // before anything is asked of NATS
			m.lost(failure)
		}
		m.drop(c.CachedInfo().Name)
	}()
	begun := time.Now()
	ahead := c.CachedInfo().TimeStamp.Sub(begun) // of the server's clock before ours
	if c.CachedInfo().TimeStamp.IsZero() {
		ahead = 0
	}
	m.mu.Lock()
	round := m.sight.begin(tip{created: s.CachedInfo().Created, last: s.CachedInfo().State.LastSeq, asked: before}, link, begun)
	m.mu.Unlock()
	poll := time.NewTimer(followPoll + rand.N(followPoll/4))
	defer poll.Stop()
	silence := time.NewTimer(mirrorSilence)
	defer silence.Stop()
	for next := uint64(1); ; {
		select {
		case <-ctx.Done():
			return nil
		case status := <-links:
			return fmt.Errorf("the link to NATS changed: %s", status)
		case <-deleted:
			return errStreamDeleted
		case <-poll.C:
			return nil
		case <-silence.C:
			return fmt.Errorf("nothing is heard of bucket %s", m.bucket.spec.Name)
		case msg := <-messages:
			silence.Reset(mirrorSilence)
			if n, err := sub.Dropped(); n > 0 || err != nil {
				return fmt.Errorf("bucket %s changes faster than it can be heard", m.bucket.spec.Name)
			}
			if msg.Header.Get("Status") != "" { // a heartbeat: there is nothing more to deliver
				last, err := strconv.ParseUint(msg.Header.Get(wire.HeaderLastConsumer), 10, 64)
				upTo, err2 := strconv.ParseUint(msg.Header.Get(wire.HeaderLastStream), 10, 64)
				if errors.Join(err, err2) != nil || last != next-1 {
					return fmt.Errorf("a revision of bucket %s was lost on its way", m.bucket.spec.Name)
				}
				if err := m.sign(round, upTo, true); err != nil {
					return err
				}
				continue
			}
			meta, err := msg.Metadata()
			if err != nil || meta.Sequence.Consumer != next {
				return fmt.Errorf("a revision of bucket %s was missed", m.bucket.spec.Name)
			}
			next++
			stored := time.Now()
			if !m.whole() { // it may be old
				stored = earlier(stored, begun.Add(meta.Timestamp.Sub(begun)-ahead))
			}
			if err := m.take(msg, round, stored); err != nil {
				return err
			}
			if err := m.sign(round, meta.Sequence.Stream, meta.NumPending == 0); err != nil {
				return err
			}
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// drop deletes a consumer that is no longer needed; if that fails the server does it a little later.
func (m *Mirror[T]) drop(name string) {
	if !m.bus.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_ = m.bus.js.DeleteConsumer(ctx, m.bucket.stream, name)
}

// whole tells whether everything was heard in this round that was there when it began.
func (m *Mirror[T]) whole() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sight.whole
}

// sign takes a sign of life in a round, by which everything up to a revision was heard, and perhaps all there is. What was
// not heard when the round becomes complete is gone. What a bucket that was made anew does not hold goes when that is certain.
func (m *Mirror[T]) sign(round, upTo uint64, all bool) error {
	look := m.bucket.state.Load()
	now := time.Now()
	m.mu.Lock()
	completed := m.sight.hear(upTo, all, tip{created: look.created, last: look.last, asked: look.good}, now)
	doubtful := now.Sub(m.sight.anew) < mirrorGrace
	behind := all && m.sight.behind(now) // else more is on its way
	if behind {
		m.sight.sign = m.sight.caught // the last that was sure
		m.sight.synced, m.sight.why = false, errBehind(m.bucket)
	}
	m.mu.Unlock()
	switch {
	case behind:
		return errBehind(m.bucket)
	case completed && doubtful:
		time.AfterFunc(mirrorGrace, func() { m.sweep(round) })
	case completed:
		m.sweep(round)
	}
	return nil
}

// sweep removes what was last heard before a round.
func (m *Mirror[T]) sweep(round uint64) {
	for _, group := range m.Groups() {
		m.change(group, func(items []Item[T]) []Item[T] {
			if !slices.ContainsFunc(items, func(i Item[T]) bool { return i.round < round && !i.Gone }) {
				return nil
			}
			items = slices.Clone(items)
			if !m.keep {
				return slices.DeleteFunc(items, func(i Item[T]) bool { return i.round < round })
			}
			for i := range items {
				items[i].Gone = items[i].Gone || items[i].round < round
			}
			return items
		})
	}
}

// take takes one revision.
func (m *Mirror[T]) take(msg *nats.Msg, round uint64, stored time.Time) error {
	r, err := revision(m.bucket.spec.Name, msg)
	if err != nil {
		return err
	}
	if strings.HasPrefix(r.Key, "_") { // none of the names that callers give
		return nil
	}
	group, _, _ := strings.Cut(r.Key, ".")
	if m.again(group, r, round, stored) || m.outdated(r) {
		return nil
	}
	it := Item[T]{Key: r.Key, Revision: r.Revision, Stored: stored, Gone: r.Marker, round: round, arrived: r.Time}
	if !r.Marker {
		it.Value, it.Err = m.parse(r.Value)
	}
	m.change(group, func(items []Item[T]) []Item[T] {
		i, found := slices.BinarySearchFunc(items, r.Key, func(i Item[T], key string) int { return strings.Compare(i.Key, key) })
		switch {
		case !found && r.Marker:
			return nil
		case !found:
			return slices.Insert(slices.Clone(items), i, it)
		case r.Marker && !m.keep:
			return slices.Delete(slices.Clone(items), i, i+1)
		}
		items = slices.Clone(items)
		if r.Marker { // what was there, and when: its age goes on
			it.Value, it.Err, it.Stored = items[i].Value, items[i].Err, items[i].Stored
		}
		items[i] = it
		return items
	})
	return nil
}

// again takes a revision that is known already, which is no news. It was stored at the earlier of the times that are known
// of it, so that looking again makes nothing younger.
func (m *Mirror[T]) again(group string, r store.Revision, round uint64, stored time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.Group(group)
	i, found := slices.BinarySearchFunc(items, r.Key, func(i Item[T], key string) int { return strings.Compare(i.Key, key) })
	if !found || items[i].Gone || r.Marker || items[i].Revision != r.Revision || !items[i].arrived.Equal(r.Time) {
		return false
	}
	items = slices.Clone(items)
	items[i].round, items[i].Stored = round, earlier(items[i].Stored, stored)
	m.groups.Store(group, items)
	return true
}

// outdated tells that a revision is not what is known, although everything was heard up to it: a server that lags behind has it.
func (m *Mirror[T]) outdated(r store.Revision) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sight.known.has(r.Revision, r.Time) {
		return true
	}
	if r.Time.After(m.sight.newest.time) {
		m.sight.newest.time = r.Time
	}
	return false
}

// change replaces a group's items by what f makes of them; nil when nothing changes.
func (m *Mirror[T]) change(group string, f func([]Item[T]) []Item[T]) {
	m.mu.Lock()
	items := f(m.Group(group))
	switch {
	case items == nil:
		m.mu.Unlock()
		return
	case len(items) == 0:
		m.groups.Delete(group)
	default:
		m.groups.Store(group, items)
	}
	m.mu.Unlock()
	if m.heard != nil {
		m.heard(group)
	}
}
