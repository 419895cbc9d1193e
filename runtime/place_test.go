package runtime_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime"
	"muster/runtime/natstest"
	"muster/runtime/store"
	"muster/wire"
)

// limit is for what happens in milliseconds on a machine at rest.
const limit = 30 * time.Second

// testBucket is a bucket of record like the product's.
var testBucket = runtime.BucketSpec{
	Name: "muster_test", Record: true, EventType: "muster.test.changed.v1", Description: "the store's tests",
}

// place is a bucket that the conformance suite runs on, as two replicas see it, and an operator's hands on it.
type place struct {
	replicas [2]store.Log
	put      func(t *testing.T, key, value string)
	remove   func(t *testing.T, key string, purge bool)
	instant  bool // writes take no time, so nothing gathers behind one
}

func inMemory(*testing.T) *place {
	m := store.NewMemory(testBucket.Name)
	return &place{
		replicas: [2]store.Log{m, m},
		put:      func(_ *testing.T, key, value string) { m.Put(key, []byte(value)) },
		remove:   func(_ *testing.T, key string, purge bool) { m.Delete(key, purge) },
		instant:  true,
	}
}

func onServer(t *testing.T) *place {
	node := natstest.Start(t)
	return onNodes(t, 1, node.URL(), node.URL())
}

func onCluster(t *testing.T) *place {
	c := natstest.StartCluster(t, 3)
	return onNodes(t, 3, c.Node(0).URL(), c.Node(1).URL())
}

func onNodes(t *testing.T, copies int, urlA, urlB string) *place {
	a := bucketOf(t, connect(t, urlA, copies), testBucket)
	b := bucketOf(t, connect(t, urlB, copies), testBucket)
	kv := keyValue(t, natstest.Connect(t, urlB), testBucket.Name)
	return &place{
		replicas: [2]store.Log{a, b},
		put: func(t *testing.T, key, value string) {
			t.Helper()
			if _, err := kv.PutString(within(t), key, value); err != nil {
				t.Fatalf("put %s by hand: %v", key, err)
			}
		},
		remove: func(t *testing.T, key string, purge bool) {
			t.Helper()
			remove := kv.Delete
			if purge {
				remove = kv.Purge
			}
			if err := remove(within(t), key); err != nil {
				t.Fatalf("remove %s by hand: %v", key, err)
			}
		},
	}
}

// connect joins the bus as a process of the product would, and stays with that one server.
func connect(t testing.TB, url string, copies int) *runtime.Bus {
	t.Helper()
	bus, err := runtime.Connect(runtime.Options{
		Name: t.Name(), Replicas: copies, Log: slog.New(slog.DiscardHandler),
		Dial: func(o ...nats.Option) (*nats.Conn, error) {
			return nats.Connect(url, append(o, nats.IgnoreDiscoveredServers())...)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := bus.Close(ctx); err != nil {
			t.Errorf("close the bus: %v", err)
		}
	})
	return bus
}

// bucketOf returns a bucket once it can be used.
func bucketOf(t testing.TB, bus *runtime.Bus, spec runtime.BucketSpec) *runtime.Bucket {
	t.Helper()
	bucket := bus.Bucket(spec)
	usable(t, bucket)
	return bucket
}

func usable(t testing.TB, log store.Log) {
	t.Helper()
	natstest.Eventually(t, 2*limit, "bucket "+log.Bucket()+" is usable", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := log.Last(ctx, "nothing")
		return err == nil
	})
}

func jetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// keyValue is the bucket as `nats kv` sees it.
func keyValue(t testing.TB, nc *nats.Conn, bucket string) jetstream.KeyValue {
	t.Helper()
	kv, err := jetStream(t, nc).KeyValue(within(t), bucket)
	if err != nil {
		t.Fatalf("bind bucket %s: %v", bucket, err)
	}
	return kv
}

// within is a context for one step of a test.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// newStore is a replica's store on log.
func newStore(log store.Log) *store.Store[tally] {
	return store.New(log, codec, store.Config{EventType: testBucket.EventType})
}

// request is where a change with a request id comes from.
func request(key, id, body string) store.Origin {
	return store.Origin{RequestID: id, MemoKey: wire.MemoKey("set", []string{key}, id), Digest: body}
}

// history reads every stored revision of a key, markers included.
func history(t testing.TB, log store.Log, key string) []store.Revision {
	t.Helper()
	var revs []store.Revision
	for at := uint64(0); ; at = revs[len(revs)-1].Revision {
		var r store.Revision
		natstest.Eventually(t, limit, "the history of "+key+" can be read", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // right behind a restart an answer may be lost
			defer cancel()
			var err error
			r, err = log.After(ctx, key, at)
			return err == nil
		})
		if r.Revision == 0 {
			return revs
		}
		revs = append(revs, r)
	}
}

func header(r store.Revision, name string) string { return strings.Join(r.Header[name], ", ") }
