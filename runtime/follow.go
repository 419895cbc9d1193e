package runtime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"muster/runtime/store"
	"muster/wire"
)

// How a key is followed. A watch may fall silent without a sign: for about 20 s after a broker restart, for ever when its
// bucket is made anew. So it has heartbeats, and is replaced at every reconnect and every followPoll whatever it says.
const (
	followPoll      = 20 * time.Second
	followHeartbeat = 2 * time.Second
	followSilence   = 3 * followHeartbeat
	followRetry     = time.Second
	followRestored  = 2 * followPoll // an older revision that stays so long was restored
)

// Sight is what a follower sees of a key.
type Sight struct {
	Revision store.Revision // the last one; Absent when the key holds nothing
	Blind    error          // set: nothing can be seen now, Revision is zero and means nothing
}

// Follow calls see with the present revision of a key, and again whenever there is another one, or when the key cannot be
// seen, until ctx ends. Every call is the whole truth at that time; revisions in between may be left out. It needs no
// more permission than to read that key.
func (b *Bus) Follow(ctx context.Context, bucket, key string, see func(Sight)) {
	links := b.nc.StatusChanged(nats.CONNECTED)
	defer b.nc.RemoveStatusListener(links)
	var last store.Revision
	shown, blind := false, false
	var order inOrder
	show := func(r store.Revision) { // a bucket made anew begins with the same numbers, at another time
		if !order.admit(r, time.Now()) {
			return
		}
		if !shown || blind || r.Revision != last.Revision || !r.Time.Equal(last.Time) {
			last, shown, blind = r, true, false
			see(Sight{Revision: r})
		}
	}
	w := watch{
		bucket: bucket, filter: wire.KeySubject(bucket, key), policy: jetstream.DeliverLastPerSubjectPolicy,
		empty: func() { show(store.Revision{Key: key}) }, show: show,
	}
	for ctx.Err() == nil {
		err := b.watch(ctx, w, links)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if !blind {
			blind = true
			see(Sight{Blind: err})
		}
		select {
		case <-ctx.Done():
		case <-links:
		case <-time.After(followRetry):
		}
	}
}

// inOrder keeps a key's revisions in order: a server that lags behind has older ones. What has lower numbers at later times is
// of a bucket made anew.
type inOrder struct {
	newest store.Revision
	since  time.Time // when an older one was first seen in place of it
}

// admit tells whether a revision is not older than what was seen. One that stays was restored.
func (o *inOrder) admit(r store.Revision, now time.Time) bool {
	older := r.Revision != 0 && r.Revision < o.newest.Revision && !r.Time.After(o.newest.Time)
	switch {
	case r.Revision == 0:
		return true
	case older && o.since.IsZero():
		o.since = now
		return false
	case older && now.Sub(o.since) < followRestored:
		return false
	}
	o.newest, o.since = r, time.Time{}
	return true
}

// FollowAll calls see with every revision that is stored in a bucket from now on, until ctx ends. Some may be left out while
// the link is away.
func (b *Bus) FollowAll(ctx context.Context, bucket string, see func(store.Revision)) {
	links := b.nc.StatusChanged(nats.CONNECTED)
	defer b.nc.RemoveStatusListener(links)
	w := watch{bucket: bucket, filter: wire.BucketSubjects(bucket), policy: jetstream.DeliverNewPolicy, show: see}
	for ctx.Err() == nil {
		if err := b.watch(ctx, w, links); err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-links:
		case <-time.After(followRetry):
		}
	}
}

// watch is what one consumer is to show.
type watch struct {
	bucket string
	filter string
	policy jetstream.DeliverPolicy
	empty  func() // called when there was nothing to show until the first heartbeat
	show   func(store.Revision)
}

// watch shows revisions for followPoll, or until the link is made anew; an error when it cannot see.
func (b *Bus) watch(ctx context.Context, w watch, links chan nats.Status) error {
	if !b.nc.IsConnected() {
		return errNotConnected()
	}
	messages := make(chan *nats.Msg, 256)
	inbox := b.nc.NewInbox()
	sub, err := b.nc.ChanSubscribe(inbox, messages)
	if err != nil {
		return fmt.Errorf("subscribe to watch %s: %w", w.filter, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is gone then, and the subscription with it
	asked, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = b.js.CreatePushConsumer(asked, wire.BucketStream(w.bucket), jetstream.ConsumerConfig{
		Name:              "watch-" + nuid.Next(),
		DeliverSubject:    inbox,
		DeliverPolicy:     w.policy,
		FilterSubject:     w.filter,
		AckPolicy:         jetstream.AckNonePolicy,
		IdleHeartbeat:     followHeartbeat,
		InactiveThreshold: 10 * time.Second,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.filter, err)
	}
	poll := time.NewTimer(followPoll + time.Duration(rand.Int64N(int64(followPoll/4))))
	defer poll.Stop()
	silence := time.NewTimer(followSilence)
	defer silence.Stop()
	for seen := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-links:
			return nil
		case <-poll.C:
			return nil
		case <-silence.C:
			return fmt.Errorf("watch %s: no heartbeat", w.filter)
		case m := <-messages:
			silence.Reset(followSilence)
			if n, err := sub.Dropped(); n > 0 || err != nil {
				return err // something was left out: look anew
			}
			if m.Header.Get("Status") != "" {
				// A heartbeat comes when there is nothing to deliver. What a consumer tells when it is made is no such sign:
				// on three servers it may begin behind the leader.
				if w.empty != nil && !seen {
					w.empty()
				}
				continue
			}
			seen = true
			r, err := revision(w.bucket, m)
			if err != nil {
				return err
			}
			w.show(r)
		}
	}
}

// revision reads a message that a consumer of a bucket's stream delivered.
func revision(bucket string, m *nats.Msg) (store.Revision, error) {
	meta, err := m.Metadata()
	if err != nil {
		return store.Revision{}, fmt.Errorf("read metadata of a watched message: %w", err)
	}
	r := store.Revision{
		Key: wire.SubjectKey(bucket, m.Subject), Revision: meta.Sequence.Stream,
		Value: m.Data, Header: m.Header, Time: meta.Timestamp,
	}
	r.Marker, r.Purge = marker(m.Header)
	return r, nil
}

// Put stores a value under a key that has one writer, whatever it held. With a ttl the key is gone that long after the
// last Put; a KV update would make it stay for ever. Less than 1 s counts as none.
func (b *Bus) Put(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error {
	if !b.nc.IsConnected() {
		return errNotConnected()
	}
	msg := &nats.Msg{Subject: wire.KeySubject(bucket, key), Data: value}
	if ttl >= time.Second {
		msg.Header = nats.Header{jetstream.MsgTTLHeader: {ttl.String()}}
	}
	reply, err := b.nc.RequestMsgWithContext(ctx, msg)
	if errors.Is(err, nats.ErrNoResponders) {
		return wire.Errorf(wire.Unavailable, "bucket %s is missing, or JetStream is away", bucket).With("reason", wire.BucketMissing)
	}
	if err != nil {
		return fmt.Errorf("put %s in %s: %w", key, bucket, err)
	}
	var ack pubAck
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return fmt.Errorf("put %s in %s: decode ack: %w", key, bucket, err)
	}
	if ack.Error != nil {
		return fmt.Errorf("put %s in %s: %w", key, bucket, ack.Error)
	}
	return nil
}
