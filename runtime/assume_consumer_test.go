package runtime_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"muster/runtime/natstest"
	"muster/wire"
)

// What [runtime.Bus.Follow] and the confirmation of views lean on.
var assumedOfConsumers = map[string]assumption{
	"NewConsumerTellsThatNothingIsThere": tellsNothing,
	"NewConsumerBringsTheLastOfAKey":     bringsLast,
	"FeedIsWithoutGaps":                  withoutGaps,
	"HeartbeatHasAStatus":                heartbeat,
	"ConsumerGoesWithItsSubscription":    goesWithSubscription,
	"SourcedIdIsStoredOnce":              sourcedOnce,
}

// push makes a consumer like the product's and returns what it delivers.
func (r *raw) push(t *testing.T, change func(*jetstream.ConsumerConfig)) (*jetstream.ConsumerInfo, *nats.Subscription) {
	t.Helper()
	inbox := r.nc.NewInbox()
	sub, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	config := jetstream.ConsumerConfig{
		Name: "assume-" + nuid.Next(), DeliverSubject: inbox,
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckNonePolicy,
		IdleHeartbeat: time.Second, InactiveThreshold: 10 * time.Second, MemoryStorage: true, Replicas: 1,
	}
	change(&config)
	c, err := r.js.CreatePushConsumer(within(t), r.stream.CachedInfo().Config.Name, config)
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo(), sub
}

// next is the next message that is no heartbeat.
func next(t *testing.T, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	for {
		m, err := sub.NextMsgWithContext(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if m.Header.Get("Status") == "" {
			return m
		}
	}
}

func tellsNothing(t *testing.T, r *raw, key string) {
	info, _ := r.push(t, func(c *jetstream.ConsumerConfig) { c.FilterSubject = r.subject(key) })
	if info.NumPending != 0 || info.Delivered.Consumer != 0 {
		t.Errorf("pending %d, delivered %d", info.NumPending, info.Delivered.Consumer)
	}
}

func bringsLast(t *testing.T, r *raw, key string) {
	r.mustPublish(t, key, "1")
	seq := r.mustPublish(t, key, "2")
	for range 20 { // on three servers a consumer may begin a little behind, and its first info may say that nothing is there
		_, sub := r.push(t, func(c *jetstream.ConsumerConfig) { c.FilterSubject = r.subject(key) })
		for {
			m := next(t, sub)
			meta, err := m.Metadata()
			if err != nil || meta.Sequence.Stream > seq {
				t.Fatalf("delivered was %s, %+v, %v; the last is %d", m.Data, meta, err, seq)
			}
			if meta.Sequence.Stream == seq {
				break
			}
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}

// withoutGaps: a consumer from a sequence delivers every later revision of every key, in order, counted without a gap,
// and its headers only if that was asked for.
func withoutGaps(t *testing.T, r *raw, key string) {
	begin, err := r.stream.Info(within(t))
	if err != nil {
		t.Fatal(err)
	}
	_, sub := r.push(t, func(c *jetstream.ConsumerConfig) {
		c.DeliverPolicy, c.OptStartSeq, c.HeadersOnly = jetstream.DeliverByStartSequencePolicy, begin.State.LastSeq+1, true
	})
	last := uint64(0)
	for range 100 {
		last = r.mustPublish(t, key, "value", "X-Test", "1")
	}
	before := begin.State.LastSeq
	for count := uint64(1); before < last; count++ {
		m := next(t, sub)
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		if meta.Sequence.Consumer != count || meta.Sequence.Stream <= before {
			t.Fatalf("delivery %d is number %d, sequence %d after %d", count, meta.Sequence.Consumer, meta.Sequence.Stream, before)
		}
		if m.Subject == r.subject(key) && (len(m.Data) != 0 || m.Header.Get("X-Test") != "1") {
			t.Fatalf("delivered %q with headers %v", m.Data, m.Header)
		}
		before = meta.Sequence.Stream
	}
}

func heartbeat(t *testing.T, r *raw, key string) {
	_, sub := r.push(t, func(c *jetstream.ConsumerConfig) { c.FilterSubject = r.subject(key) })
	m, err := sub.NextMsgWithContext(within(t))
	if err != nil || m.Header.Get("Status") != "100" || len(m.Data) != 0 {
		t.Errorf("got %v, %v", m, err)
	}
}

func goesWithSubscription(t *testing.T, r *raw, key string) {
	info, sub := r.push(t, func(c *jetstream.ConsumerConfig) {
		c.FilterSubject, c.InactiveThreshold = r.subject(key), time.Second
	})
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, limit, "the consumer is gone", func() bool {
		_, err := r.stream.Consumer(within(t), info.Name)
		return errors.Is(err, jetstream.ErrConsumerNotFound)
	})
}

// sourcedOnce: a stream that takes others' messages leaves out those whose message id it has, and goes on behind them.
func sourcedOnce(t *testing.T, r *raw, _ string) {
	create := func(c jetstream.StreamConfig) jetstream.Stream {
		c.Replicas, c.Storage = r.copies, jetstream.MemoryStorage
		s, err := r.js.CreateStream(within(t), c)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var sources []*jetstream.StreamSource
	for _, name := range []string{"once-a", "once-b"} {
		create(jetstream.StreamConfig{Name: name, Subjects: []string{name}, Duplicates: 100 * time.Millisecond})
		sources = append(sources, &jetstream.StreamSource{Name: name})
		for _, id := range []string{"1", "2", name} {
			m := &nats.Msg{Subject: name, Header: nats.Header{jetstream.MsgIDHeader: {id}}}
			if _, err := r.js.PublishMsg(within(t), m); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := create(jetstream.StreamConfig{Name: "once", Sources: sources, Duplicates: time.Minute})
	natstest.Eventually(t, limit, "both are taken to their ends", func() bool {
		info, err := all.Info(within(t))
		if err != nil {
			t.Fatal(err)
		}
		ends := 0
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			if m, err := all.GetMsg(within(t), seq); err == nil && m.Header.Get(jetstream.MsgIDHeader) == m.Subject {
				ends++
			}
		}
		return ends == 2
	})
	info, err := all.Info(within(t))
	if err != nil || info.State.Msgs != 4 {
		t.Errorf("%d messages, %v; there are 4 ids", info.State.Msgs, err)
	}
}

// FACTS 7: with its stream the consumer is gone, and who listens is told nothing.
func TestAssumeDeletedStreamIsSilent(t *testing.T) {
	t.Parallel()
	r := newRaw(t, natstest.Start(t).URL(), 1)
	r.mustPublish(t, "key", "1")
	info, sub := r.push(t, func(c *jetstream.ConsumerConfig) { c.FilterSubject = r.subject("key") })
	next(t, sub)
	config := r.stream.CachedInfo().Config
	if err := r.js.DeleteStream(within(t), config.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := r.js.CreateStream(within(t), config); err != nil {
		t.Fatal(err)
	}
	if seq := r.mustPublish(t, "key", "2"); seq != 1 {
		t.Errorf("the new stream begins at %d", seq)
	}
	if _, err := r.js.PushConsumer(within(t), config.Name, info.Name); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("the old consumer: %v", err)
	}
	if m, err := sub.NextMsg(2500 * time.Millisecond); err == nil {
		t.Errorf("the listener got %v: it is told now", m.Header)
	}
	if s, err := r.js.Stream(within(t), wire.BucketStream(testBucket.Name)); err != nil || !s.CachedInfo().Created.After(r.stream.CachedInfo().Created) {
		t.Errorf("the time it was made does not tell the new stream from the old: %v", err)
	}
}
