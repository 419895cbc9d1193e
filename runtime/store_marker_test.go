package runtime_test

import (
	"maps"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
	"muster/runtime/store"
)

// Keys that an operator removed by hand (B001).
var markerCases = conformance{
	"CreatesOverADelete": func(t *testing.T, p *place, key string) { createsOver(t, p, key, false) },
	"CreatesOverAPurge":  func(t *testing.T, p *place, key string) { createsOver(t, p, key, true) },
}

func createsOver(t *testing.T, p *place, key string, purge bool) {
	s := newStore(p.replicas[0])
	for range 5 {
		update(t, s, key, store.Origin{}, add("a"))
		p.remove(t, key, purge)
		revs := history(t, p.replicas[0], key)
		marker := revs[len(revs)-1]
		if !marker.Marker || marker.Purge != purge || purge && len(revs) != 1 {
			t.Fatalf("after the removal the history is %+v", revs)
		}
		if r := view(t, s, key); r.Revision != 0 || len(r.Doc) != 0 {
			t.Errorf("a removed key shows revision %d, %v", r.Revision, r.Doc)
		}
		for _, s := range []*store.Store[tally]{s, newStore(p.replicas[1])} { // one that knew the old record, one that knows nothing
			var shown tally // what the change saw when it counted
			var at uint64
			got := wantChanged(t, update(t, s, key, store.Origin{}, func(d tally, rev uint64) (bool, error) {
				shown, at = maps.Clone(d), rev
				d["a"] = 1
				return true, nil
			}), tally{"a": 1})
			if len(shown) != 0 || at != 0 {
				t.Errorf("behind a marker the change was shown %v at revision %d", shown, at)
			}
			if got <= marker.Revision {
				t.Errorf("revision %d does not follow the marker's, %d", got, marker.Revision)
			}
			p.remove(t, key, purge)
			revs := history(t, p.replicas[0], key)
			marker = revs[len(revs)-1]
		}
	}
}

// A key that expired, in a bucket that keeps markers of that.
func TestStoreCreatesOverAnExpiry(t *testing.T) {
	t.Parallel()
	r := newRaw(t, natstest.Start(t).URL(), 1)
	log := bucketOf(t, connect(t, r.nc.ConnectedUrl(), 1), testBucket)
	s := newStore(log)
	r.markExpiry(t, 2*time.Second)
	r.mustPublish(t, "key", `{"a":5}`, jetstream.MsgTTLHeader, "2s")
	wantDoc(t, view(t, s, "key"), tally{"a": 5})
	var marker store.Revision
	natstest.Eventually(t, limit, "the key has expired", func() bool {
		var err error
		marker, err = log.Last(within(t), "key")
		return err == nil && marker.Marker
	})
	if r := view(t, s, "key"); r.Revision != 0 || len(r.Doc) != 0 {
		t.Errorf("an expired key shows revision %d, %v", r.Revision, r.Doc)
	}
	if got := wantChanged(t, update(t, s, "key", store.Origin{}, add("a")), tally{"a": 1}); got <= marker.Revision {
		t.Errorf("revision %d does not follow the marker's, %d", got, marker.Revision)
	}
}
