package runtime

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"muster/runtime/store"
	"muster/wire"
)

// How a feed lives. It is started by the first who asks and ends when nobody has for a while.
const (
	feedHeartbeat = time.Second
	feedSilence   = 2500 * time.Millisecond
	feedIdle      = 2 * time.Second
	feedWait      = 50 * time.Millisecond // how long an asker waits for what the leader has and the feed has not yet
	feedKeys      = 100_000               // changed keys a feed remembers before it begins anew
)

// feed hears which keys of a bucket change: a consumer delivers the headers of every revision behind where it began.
// With it a document that was read once is confirmed for all readers at once: the leader tells its last sequence, and
// when the feed has heard everything up to there, what it has not heard of has not changed. It keeps no values.
//
// What is removed without a message, by a purge of the stream or an expiry, is not heard. The leader tells how many messages
// it holds; when it has lost others than those that full histories push out, everything known is read again.
//
// A feed that misses a message, falls silent, or is of another stream by now, ends; nobody is answered from it any more.
type feed struct {
	bucket *Bucket
	inbox  string
	cancel context.CancelFunc

	created time.Time // of the stream

	mu      sync.Mutex
	removed *removals
	heard   uint64            // every revision up to here was heard
	deliver uint64            // the consumer's count of what it delivered
	changed map[string]uint64 // last revision heard of each key
	waiting []feedWaiter
	sign    time.Time // of life
	asked   time.Time
	dead    bool
}

type feedWaiter struct {
	until uint64
	since time.Time
	then  func(ok bool)
}

// Confirm implements [store.Log].
func (k *Bucket) Confirm(then func(unchanged func(key string, rev uint64) bool)) {
	f := k.feed.Load()
	if f == nil || k.usable() != nil {
		k.wantFeed()
		then(nil)
		return
	}
	answer := func(ok bool) {
		if !ok {
			then(nil)
			return
		}
		then(f.unchanged)
	}
	msg := &nats.Msg{Subject: wire.APIStreamInfo(k.stream)}
	k.bus.requests.send(msg, func(reply *nats.Msg, err error) {
		var now position
		switch {
		case err != nil || json.Unmarshal(reply.Data, &now) != nil || now.Error != nil:
			answer(false)
		case !now.Created.Equal(f.created):
			f.end()
			answer(false)
		default:
			f.wait(now.State.LastSeq, func(heard bool) { answer(heard && f.explains(now)) })
		}
	})
}

// position is what a feed takes from the leader's stream info.
type position struct {
	Created time.Time `json:"created"`
	State   struct {
		Messages uint64            `json:"messages"`
		LastSeq  uint64            `json:"last_seq"`
		Subjects map[string]uint64 `json:"subjects"` // of the one key that was asked about
	} `json:"state"`
	Error *jetstream.APIError `json:"error"`
}

// explains tells whether nothing was lost that was not heard of. If something was, everything known is read again.
func (f *feed) explains(now position) bool {
	f.mu.Lock()
	ok, unsure := f.removed.explain(now.State.Messages, now.State.LastSeq)
	f.mu.Unlock()
	if !ok {
		f.bucket.epochs.Add(1)
	}
	for _, key := range unsure {
		f.askFull(key)
	}
	return ok
}

// askFull asks the leader whether a key has as many revisions as the bucket keeps.
func (f *feed) askFull(key string) {
	k := f.bucket
	subject := wire.KeySubject(k.spec.Name, key)
	body, err := json.Marshal(map[string]string{"subjects_filter": subject})
	if err != nil {
		return
	}
	k.bus.requests.send(&nats.Msg{Subject: wire.APIStreamInfo(k.stream), Data: body}, func(reply *nats.Msg, err error) {
		var now position
		if err != nil || json.Unmarshal(reply.Data, &now) != nil || now.Error != nil || now.State.Subjects[subject] < history {
			return
		}
		f.mu.Lock()
		again := f.removed.isFull(key, now.State.Messages, now.State.LastSeq)
		f.mu.Unlock()
		if again {
			k.epochs.Add(1)
		}
	})
}

func (f *feed) unchanged(key string, rev uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.dead && f.changed[key] <= rev
}

// wait calls then once everything up to a sequence was heard, or with false when that takes too long.
func (f *feed) wait(until uint64, then func(bool)) {
	f.mu.Lock()
	now := time.Now()
	f.asked = now
	if f.dead || f.heard >= until {
		ok := !f.dead
		f.mu.Unlock()
		then(ok)
		return
	}
	f.waiting = append(f.waiting, feedWaiter{until, now, then})
	f.mu.Unlock()
}

// wantFeed starts a feed unless one is there or being started.
func (k *Bucket) wantFeed() {
	if !k.spec.Record || k.feeding.Load() {
		return
	}
	k.bus.mu.Lock()
	defer k.bus.mu.Unlock()
	if k.bus.feeding.Err() != nil || !k.feeding.CompareAndSwap(false, true) {
		return
	}
	k.bus.feeds.Go(func() {
		defer k.feeding.Store(false)
		if err := k.runFeed(k.bus.feeding); err != nil && k.bus.feeding.Err() == nil {
			k.bus.log.Debug("feed ended", "bucket", k.spec.Name, "cause", err)
			select { // not at once again: until then every reader asks the leader for itself
			case <-time.After(time.Second):
			case <-k.bus.feeding.Done():
			}
		}
	})
}

// endFeeds ends all feeds for good; readers ask the leader.
func (b *Bus) endFeeds() {
	b.mu.Lock()
	b.stopFeeds()
	b.mu.Unlock()
	b.feeds.Wait()
}

// runFeed runs a feed until it ends.
func (k *Bucket) runFeed(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked, done := context.WithTimeout(ctx, 2*time.Second)
	defer done()
	s, err := k.bus.js.Stream(asked, k.stream)
	if err != nil {
		return fmt.Errorf("look at stream: %w", err)
	}
	info := s.CachedInfo()
	begin := info.State.LastSeq
	f := &feed{
		bucket: k, inbox: k.bus.nc.NewInbox(), cancel: cancel, created: info.Created, removed: newRemovals(info.State.Msgs, begin),
		heard: begin, changed: map[string]uint64{}, sign: time.Now(), asked: time.Now(),
	}
	sub, err := k.bus.nc.Subscribe(f.inbox, f.receive)
	if err != nil {
		return fmt.Errorf("subscribe to feed: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is gone then, and the subscription with it
	_, err = k.bus.js.CreatePushConsumer(asked, k.stream, jetstream.ConsumerConfig{
		Name:              "feed-" + nuid.Next(),
		DeliverSubject:    f.inbox,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       begin + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		IdleHeartbeat:     feedHeartbeat,
		InactiveThreshold: 10 * time.Second,
		HeadersOnly:       true,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		return fmt.Errorf("make feed: %w", err)
	}
	k.epochs.Add(1) // what is known from before the feed began is not confirmed by it
	k.feed.Store(f)
	defer k.feed.Store(nil)
	defer f.end()
	links := k.bus.links.Load()
	tick := time.NewTicker(feedWait / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-tick.C:
			if k.bus.links.Load() != links {
				return errNotConnected()
			}
			if err := f.look(now); err != nil {
				return err
			}
		}
	}
}

// look fails those who waited too long, and the feed when it shows no sign of life or nobody needs it.
func (f *feed) look(now time.Time) error {
	f.mu.Lock()
	var late []feedWaiter
	keep := f.waiting[:0]
	for _, w := range f.waiting {
		if now.Sub(w.since) > feedWait {
			late = append(late, w)
		} else {
			keep = append(keep, w)
		}
	}
	f.waiting = keep
	silent, idle, full := now.Sub(f.sign) > feedSilence, now.Sub(f.asked) > feedIdle, len(f.changed) > feedKeys
	f.mu.Unlock()
	for _, w := range late {
		w.then(false)
	}
	switch {
	case silent:
		return fmt.Errorf("no heartbeat for %v", feedSilence)
	case idle, full:
		return fmt.Errorf("no longer needed (idle %t, full %t)", idle, full)
	}
	return nil
}

// receive hears a revision, or a heartbeat.
func (f *feed) receive(m *nats.Msg) {
	f.mu.Lock()
	f.sign = time.Now()
	if m.Header.Get("Status") != "" {
		f.mu.Unlock()
		return
	}
	meta, err := m.Metadata()
	if err != nil || meta.Sequence.Consumer != f.deliver+1 {
		f.mu.Unlock()
		f.end()
		return
	}
	f.deliver, f.heard = meta.Sequence.Consumer, meta.Sequence.Stream
	key := wire.SubjectKey(f.bucket.spec.Name, m.Subject)
	f.changed[key] = meta.Sequence.Stream
	f.removed.hear(key, meta.Sequence.Stream, m.Header.Get(jetstream.MsgRollup) != "")
	var ready []feedWaiter
	keep := f.waiting[:0]
	for _, w := range f.waiting {
		if w.until <= f.heard {
			ready = append(ready, w)
		} else {
			keep = append(keep, w)
		}
	}
	f.waiting = keep
	f.mu.Unlock()
	for _, w := range ready {
		w.then(true)
	}
}

// end makes sure that nobody is answered from this feed any more.
func (f *feed) end() {
	f.mu.Lock()
	f.dead = true
	waiting := f.waiting
	f.waiting = nil
	f.mu.Unlock()
	f.cancel()
	for _, w := range waiting {
		w.then(false)
	}
}

var _ store.Log = (*Bucket)(nil)
