package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// bucket is a KV bucket in an operator's hands.
type bucket struct {
	t  testing.TB
	kv jetstream.KeyValue
	js jetstream.JetStream
}

// wanted is muster_wanted as `nats kv` works on it.
func wanted(t testing.TB, nc *nats.Conn) bucket {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatalf("set up JetStream: %v", err)
	}
	kv, err := js.KeyValue(ctx(t), "muster_wanted")
	if err != nil {
		t.Fatalf("bind bucket muster_wanted: %v", err)
	}
	return bucket{t, kv, js}
}

// ctx lasts as long as one call of an operator may take.
func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return c
}

func (b bucket) put(key, value string) uint64 {
	b.t.Helper()
	rev, err := b.kv.Put(ctx(b.t), key, []byte(value))
	if err != nil {
		b.t.Fatalf("put %s by hand: %v", key, err)
	}
	return rev
}

// remove deletes or purges a key by hand and returns the revision of the marker.
func (b bucket) remove(key string, purge bool) uint64 {
	b.t.Helper()
	remove := b.kv.Delete
	if purge {
		remove = b.kv.Purge
	}
	if err := remove(ctx(b.t), key); err != nil {
		b.t.Fatalf("remove %s by hand (purge %t): %v", key, purge, err)
	}
	return b.last(key).Sequence
}

// last is the last message stored for a key, a marker too; nil when there is none.
func (b bucket) last(key string) *jetstream.RawStreamMsg {
	b.t.Helper()
	m, err := b.stream().GetLastMsgForSubject(ctx(b.t), "$KV.muster_wanted."+key)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		b.t.Fatalf("read %s by hand: %v", key, err)
	}
	return m
}

// value is what `nats kv get` prints, and its revision.
func (b bucket) value(key string) (string, uint64) {
	b.t.Helper()
	e, err := b.kv.Get(ctx(b.t), key)
	if err != nil {
		b.t.Fatalf("get %s by hand: %v", key, err)
	}
	return string(e.Value()), e.Revision()
}

// history is every stored revision of a key, the oldest first.
func (b bucket) history(key string) []jetstream.KeyValueEntry {
	b.t.Helper()
	all, err := b.kv.History(ctx(b.t), key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	if err != nil {
		b.t.Fatalf("history of %s: %v", key, err)
	}
	return all
}

// keys are those that begin with a prefix.
func (b bucket) keys(prefix string) (all []string) {
	b.t.Helper()
	list, err := b.kv.ListKeys(ctx(b.t))
	if err != nil {
		b.t.Fatalf("list keys: %v", err)
	}
	for k := range list.Keys() {
		if strings.HasPrefix(k, prefix) {
			all = append(all, k)
		}
	}
	return all
}

func (b bucket) stream() jetstream.Stream {
	b.t.Helper()
	s, err := b.js.Stream(ctx(b.t), "KV_muster_wanted")
	if err != nil {
		b.t.Fatalf("look at the bucket's stream: %v", err)
	}
	return s
}

// equalJSON tells whether two settings are the same to whoever reads them.
func equalJSON(t testing.TB, a, b any) bool {
	t.Helper()
	one, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	other, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(one, other)
}
