package runtime_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/runtime/natstest"
	"muster/runtime/store"
	"muster/wire"
)

// Views are confirmed for all readers at once where that can be done. They must not be older for it.
var viewCases = conformance{
	"ViewIsNeverOlderThanWhatWasAcknowledged": neverOlder,
	"ViewSeesHandsAtOnce":                     seesHands,
}

func neverOlder(t *testing.T, p *place, key string) {
	writers := [2]*store.Store[tally]{newStore(p.replicas[0]), newStore(p.replicas[1])}
	const callers, rounds = 8, 60
	var all errgroup.Group
	for c := range callers {
		wrote, seen, own := writers[c%2], writers[(c+1)%2], fmt.Sprintf("%s-%d", key, c/4)
		all.Go(func() error {
			for range rounds {
				r, err := wrote.Update(within(t), own, store.Origin{}, add("a"))
				if err != nil {
					return err
				}
				v, err := seen.View(within(t), own)
				if err != nil {
					return err
				}
				if v.Revision < r.Revision || v.Doc["a"] < r.Doc["a"] {
					return fmt.Errorf("one replica acknowledged revision %d, %v, then the other showed %d, %v", r.Revision, r.Doc, v.Revision, v.Doc)
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}

func seesHands(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	for i := range 30 {
		update(t, s, key, store.Origin{}, set("a", -1))
		view(t, s, key)
		p.put(t, key, fmt.Sprintf(`{"a":%d}`, i))
		wantDoc(t, view(t, s, key), tally{"a": i})
		p.remove(t, key, i%2 == 0)
		if r := view(t, s, key); r.Revision != 0 || len(r.Doc) != 0 {
			t.Fatalf("round %d: removed by hand, and still shown at revision %d: %v", i, r.Revision, r.Doc)
		}
	}
}

// confirms returns when views of the key are confirmed without a read of it.
func (l *line) confirms(t *testing.T, key string) {
	t.Helper()
	var reads atomic.Int64
	l.proxy.OnClientBytes(func(b []byte) {
		if bytes.Contains(b, []byte(wire.APIMessageGet(wire.BucketStream(testBucket.Name)))) {
			reads.Add(1)
		}
	})
	natstest.Eventually(t, limit, "views are confirmed without a read", func() bool {
		before := reads.Load()
		view(t, l.store, key)
		return reads.Load() == before
	})
	l.proxy.OnClientBytes(nil)
}

func TestViewWhenJetStreamGoes(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	l := newLine(t, node.URL(), 1)
	update(t, l.store, "known", store.Origin{}, add("a"))
	l.afterLook(t)
	l.confirms(t, "known")
	node.DisableJetStream()
	began := time.Now()
	_, err := l.store.View(t.Context(), "known")
	wantError(t, err, wire.Unavailable, "reason", wire.JetStreamUnavailable)
	wantSoon(t, began)
}

// An operator purges the bucket's stream: no revision says so.
func TestViewAfterTheStreamWasPurged(t *testing.T) {
	t.Parallel()
	l := newLine(t, natstest.Start(t).URL(), 1)
	stream, err := jetStream(t, l.operator).Stream(within(t), wire.BucketStream(testBucket.Name))
	if err != nil {
		t.Fatal(err)
	}
	update(t, l.store, "known", store.Origin{}, add("a"))
	l.confirms(t, "known")
	if err := stream.Purge(within(t)); err != nil {
		t.Fatal(err)
	}
	if r := view(t, l.store, "known"); r.Revision != 0 {
		t.Errorf("the bucket is empty, and revision %d is shown: %v", r.Revision, r.Doc)
	}
}

// The bucket is made anew between two looks at it.
func TestViewOfABucketMadeAnew(t *testing.T) {
	t.Parallel()
	l := newLine(t, natstest.Start(t).URL(), 1)
	js := jetStream(t, l.operator)
	for range 3 {
		update(t, l.store, "known", store.Origin{}, add("a"))
	}
	l.confirms(t, "known")
	kv := makeBucket(t, js, deleteBucket(t, l, js))
	for i := range 5 {
		if _, err := kv.PutString(within(t), "known", fmt.Sprintf(`{"new":%d}`, i)); err != nil {
			t.Fatal(err)
		}
		if r, err := l.store.View(within(t), "known"); err != nil {
			wantError(t, err, wire.Unavailable) // that is honest, too
		} else if r.Doc["new"] != i || r.Doc["a"] != 0 {
			t.Errorf("the new bucket holds %d, shown is %v at revision %d", i, r.Doc, r.Revision)
		}
	}
}

// What hears of changes is taken away: nothing is confirmed by it any more, and nobody waits for long.
func TestViewWithoutItsConsumer(t *testing.T) {
	t.Parallel()
	l := newLine(t, natstest.Start(t).URL(), 1)
	other := newStore(bucketOf(t, connect(t, l.operator.ConnectedUrl(), 1), testBucket))
	stream, err := jetStream(t, l.operator).Stream(within(t), wire.BucketStream(testBucket.Name))
	if err != nil {
		t.Fatal(err)
	}
	update(t, l.store, "known", store.Origin{}, add("a"))
	l.confirms(t, "known")
	for name := range stream.ConsumerNames(within(t)).Name() {
		if err := stream.DeleteConsumer(within(t), name); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		r := update(t, other, "known", store.Origin{}, add("a"))
		began := time.Now()
		wantDoc(t, view(t, l.store, "known"), r.Doc)
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("a view took %v", took)
		}
	}
}

// Where a key has as many revisions as the bucket keeps, each write of it removes one. That is everyday, and no reason to
// read everything else again.
func TestViewsAreConfirmedBesideAFullHistory(t *testing.T) {
	t.Parallel()
	l := newLine(t, natstest.Start(t).URL(), 1)
	for range 300 {
		update(t, l.store, "written", store.Origin{}, add("a"))
	}
	update(t, l.store, "read", store.Origin{}, add("a"))
	l.confirms(t, "read")
	var reads atomic.Int64
	l.proxy.OnClientBytes(func(b []byte) {
		if bytes.Contains(b, []byte(wire.APIMessageGet(wire.BucketStream(testBucket.Name)))) {
			reads.Add(1)
		}
	})
	const rounds = 50
	for range rounds {
		update(t, l.store, "written", store.Origin{}, add("a"))
		view(t, l.store, "read")
	}
	l.proxy.OnClientBytes(nil)
	if n := reads.Load(); n > 5 { // the first few: that the history is full has to be learnt
		t.Errorf("%d views beside as many writes of another key took %d reads", rounds, n)
	}
}
