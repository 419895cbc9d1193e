package natstest

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// limit is for what happens in milliseconds on a machine at rest.
const limit = 20 * time.Second

// bucket returns a KV bucket, made if it isn't there.
func bucket(t *testing.T, nc *nats.Conn, name string, replicas int) jetstream.KeyValue {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket: name, Replicas: replicas, Storage: jetstream.FileStorage,
	})
	if err != nil {
		t.Fatalf("make bucket %s: %v", name, err)
	}
	return kv
}

func put(t *testing.T, kv jetstream.KeyValue, key, value string) {
	t.Helper()
	if _, err := kv.PutString(t.Context(), key, value); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

// eventuallyHas tries again on errors: after a restart the first may fail.
func eventuallyHas(t *testing.T, kv jetstream.KeyValue, key, value string) {
	t.Helper()
	Eventually(t, limit, "key "+key+" reads "+value, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e, err := kv.Get(ctx, key)
		return err == nil && string(e.Value()) == value
	})
}

// echo answers on subject with what it was asked.
func echo(t *testing.T, nc *nats.Conn, subject string) {
	t.Helper()
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	flush(t, nc)
}

func publish(t *testing.T, nc *nats.Conn, subject, data string) {
	t.Helper()
	if err := nc.Publish(subject, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

func flush(t *testing.T, nc *nats.Conn) {
	t.Helper()
	if err := nc.FlushTimeout(limit); err != nil {
		t.Fatal(err)
	}
}

func mustAnswer(t *testing.T, nc *nats.Conn, subject string) {
	t.Helper()
	m, err := nc.Request(subject, []byte("hello"), limit)
	if err != nil || string(m.Data) != "hello" {
		t.Fatalf("request %s: %v", subject, err)
	}
}

// stub is a testing.TB that notes a failure instead of failing, for the helpers'
// own failures. run is a test body that may be ended by it.
type stub struct {
	testing.TB
	failed chan string
}

func failureOf(t *testing.T, run func(t testing.TB)) string {
	t.Helper()
	s := &stub{TB: t, failed: make(chan string, 1)}
	go func() {
		defer close(s.failed)
		run(s)
	}()
	return <-s.failed
}

func (s *stub) Helper() {}

func (s *stub) Fatalf(format string, v ...any) {
	s.failed <- fmt.Sprintf(format, v...)
	runtime.Goexit()
}

func contextWithin(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
