package runtime_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

// A bucket is sent as a whole, faster than it is read.
func TestMirrorOfALargeBucket(t *testing.T) {
	t.Parallel()
	l := newLine(t, natstest.Start(t).URL(), 1)
	js := jetStream(t, l.operator)
	const keys = 20_000
	for i := range keys {
		if _, err := js.PublishAsync(wire.KeySubject(testBucket.Name, fmt.Sprintf("k%d", i)), []byte("v"), jetstream.WithStallWait(limit)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(limit):
		t.Fatal("the bucket is not filled")
	}
	m := runtime.NewMirror(l.bus, testBucket, func(b []byte) (string, error) {
		for began := time.Now(); time.Since(began) < 20*time.Microsecond; {
		}
		return string(b), nil
	}, nil, false)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { m.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	natstest.Eventually(t, limit, "the mirror is sure", func() bool { return !doubtful(m) })
	if n := len(m.Groups()); n != keys {
		t.Errorf("it sees %d keys of %d", n, keys)
	}
}

// A consumer on a server that lags behind gives signs of life, but they say how far it has come.
func TestMirrorKnowsThatItLagsBehind(t *testing.T) {
	t.Parallel()
	l := newLine(t, natstest.Start(t).URL(), 1)
	m := newMirror(t, l, false)
	m.put(t, "key", "old")
	m.sees(t, soon, "key", "old")
	js := jetStream(t, l.operator)
	stream, err := js.Stream(within(t), wire.BucketStream(testBucket.Name))
	if err != nil {
		t.Fatal(err)
	}
	var of *jetstream.ConsumerInfo
	for c := range stream.ListConsumers(within(t)).Info() {
		if strings.HasPrefix(c.Name, "mirror-") {
			of = c
		}
	}
	if of == nil {
		t.Fatal("the mirror has no consumer")
	}
	if err := stream.DeleteConsumer(within(t), of.Name); err != nil {
		t.Fatal(err)
	}
	behind := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // in its place a server speaks that hears nothing new
		sign := &nats.Msg{Subject: of.Config.DeliverSubject, Header: nats.Header{
			"Status": {"100"}, wire.HeaderLastConsumer: {fmt.Sprint(of.Delivered.Consumer)}, wire.HeaderLastStream: {fmt.Sprint(of.Delivered.Stream)},
		}}
		for {
			if err := l.operator.PublishMsg(sign); err != nil {
				t.Error(err)
			}
			select {
			case <-behind:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	began := time.Now()
	m.put(t, "key", "new")
	m.unsure(t, soon)
	since, why := m.Doubt(time.Now())
	if !strings.Contains(fmt.Sprint(why), "lags behind") || since.After(began.Add(time.Second)) {
		t.Errorf("unsure since %v after the change, for %v", since.Sub(began), why)
	}
	close(behind)
	wg.Wait()
	m.sees(t, soon, "key", "new")
	m.sure(t, soon)
}
