package runtime_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
	"muster/runtime/store"
	"muster/wire"
)

// Limits that an operator gave the bucket.

func (r *raw) configure(t *testing.T, change func(*jetstream.StreamConfig)) {
	t.Helper()
	config := r.stream.CachedInfo().Config
	change(&config)
	if _, err := r.js.UpdateStream(within(t), config); err != nil {
		t.Fatal(err)
	}
}

func TestStoreNoRoom(t *testing.T) {
	t.Parallel()
	noRoom(t, newRaw(t, natstest.Start(t).URL(), 1))
}

func TestStoreNoRoomOnCluster(t *testing.T) {
	t.Parallel()
	noRoom(t, newRaw(t, natstest.StartCluster(t, 3).Node(0).URL(), 3))
}

func noRoom(t *testing.T, r *raw) {
	s := newStore(bucketOf(t, connect(t, r.nc.ConnectedUrl(), r.copies), testBucket))
	first := update(t, s, "key", store.Origin{}, add("a"))
	r.configure(t, func(c *jetstream.StreamConfig) { c.MaxBytes = 4 << 10 })
	for name, from := range origins("key") {
		_, err := s.Update(within(t), "key", from, add(strings.Repeat("x", 5<<10)))
		wantError(t, err, wire.Unavailable, "reason", wire.JetStreamUnavailable, "outcome", nil)
		if t.Failed() {
			t.Logf("that was %s", name)
		}
	}
	if r := view(t, s, "key"); r.Revision != first.Revision {
		t.Errorf("revision went from %d to %d", first.Revision, r.Revision)
	}
	r.configure(t, func(c *jetstream.StreamConfig) { c.MaxBytes = -1 })
	name := strings.Repeat("x", 5<<10)
	wantChanged(t, update(t, s, "key", request("key", "id", "body"), add(name)), tally{"a": 1, name: 1})
}

// A record that is too large for the bucket's own limit is too large, and nobody else's matter.
func TestStoreBucketWithASizeLimit(t *testing.T) {
	t.Parallel()
	r := newRaw(t, natstest.Start(t).URL(), 1)
	log := bucketOf(t, connect(t, r.nc.ConnectedUrl(), 1), testBucket)
	r.configure(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 4 << 10 })
	s, writes := heldWrites(log)
	first := begin(within(t), s, "first", request("first", "id", "body"), add("a"))
	writes.await(t)
	large := begin(within(t), s, "large", request("large", "id", "body"), add(strings.Repeat("x", 5<<10)))
	small := begin(within(t), s, "small", request("small", "id", "body"), add("a")) // may be written with it
	writes.open()
	if a := outcome(t, first); a.err != nil {
		t.Error(a.err)
	}
	wantError(t, outcome(t, large).err, wire.TooLarge)
	if a := outcome(t, small); a.err != nil {
		t.Errorf("one beside it got %v", a.err)
	}
	_, err := s.Update(within(t), "first", store.Origin{}, add(strings.Repeat("x", 5<<10)))
	wantError(t, err, wire.TooLarge)
}

// A bucket that an operator made with the settings of any bucket takes what needs no more than that. A request with an id
// does: it is told so, and nothing is changed.
func TestStoreBucketMadeByHand(t *testing.T) {
	t.Parallel()
	r := newRaw(t, natstest.Start(t).URL(), 1)
	if err := r.js.DeleteStream(within(t), wire.BucketStream(testBucket.Name)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.js.CreateKeyValue(within(t), jetstream.KeyValueConfig{Bucket: testBucket.Name, History: 5}); err != nil {
		t.Fatal(err)
	}
	s := newStore(bucketOf(t, connect(t, r.nc.ConnectedUrl(), 1), testBucket))
	_, err := s.Update(within(t), "key", request("key", "id", "body"), add("a"))
	wantError(t, err, wire.Unavailable, "reason", wire.BucketMissing, "outcome", nil)
	wantChanged(t, update(t, s, "key", store.Origin{}, add("b")), tally{"b": 1})
}
