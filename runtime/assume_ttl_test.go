package runtime_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
)

// FACTS 6.
var assumedOfTTLs = map[string]assumption{
	"MessageWithATTLGoes":         ttlGoes,
	"UpdateDropsTheTTL":           updateDrops,
	"PublishWithATTLRenewsIt":     publishRenews,
	"TTLUnderASecondIsRefused":    shortTTL,
	"NothingStandsBehindAMemo":    nothingBehind,
	"ExpiredKeyIsCreatedFromZero": createdFromZero,
	"ExpiryUncoversWhatWasBefore": uncovers,
}

func (r *raw) waitGone(t *testing.T, key string) {
	t.Helper()
	natstest.Eventually(t, limit, key+" has expired", func() bool { return !r.has(t, key) })
}

func ttlGoes(t *testing.T, r *raw, key string) {
	r.mustPublish(t, key, "1", jetstream.MsgTTLHeader, "1s")
	if !r.has(t, key) {
		t.Error("it is gone at once")
	}
	r.waitGone(t, key)
}

// updateDrops compares with one that was made later and did expire.
func updateDrops(t *testing.T, r *raw, key string) {
	kv := keyValue(t, r.nc, testBucket.Name)
	revision, err := kv.Create(within(t), key, []byte("1"), jetstream.KeyTTL(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Update(within(t), key, []byte("2"), revision); err != nil {
		t.Fatal(err)
	}
	r.mustPublish(t, key+"-later", "1", jetstream.MsgTTLHeader, "1s")
	r.waitGone(t, key+"-later")
	if !r.has(t, key) {
		t.Error("the key expired: kv update keeps the TTL now")
	}
}

func publishRenews(t *testing.T, r *raw, key string) {
	first := r.mustPublish(t, key, "1", jetstream.MsgTTLHeader, "1s")
	r.mustPublish(t, key, "2", append(expecting(first), jetstream.MsgTTLHeader, "3s")...)
	r.mustPublish(t, key+"-later", "1", jetstream.MsgTTLHeader, "1s")
	r.waitGone(t, key+"-later")
	if !r.has(t, key) {
		t.Error("the key expired with its first TTL")
	}
	r.waitGone(t, key)
}

func shortTTL(t *testing.T, r *raw, key string) {
	if _, err := r.publish(t, key, "1", jetstream.MsgTTLHeader, "500ms"); err == nil {
		t.Error("half a second is taken now")
	}
}

// nothingBehind: no marker is left where the bucket has no TTL for markers.
func nothingBehind(t *testing.T, r *raw, key string) {
	seq, err := r.batch(t, r.message("_req."+key, "memo", append(expecting(0), jetstream.MsgTTLHeader, "1s")...), r.message(key, "1"))
	if err != nil {
		t.Fatal(err)
	}
	r.waitGone(t, "_req."+key)
	if _, _, err := r.get(t, r.stream.CachedInfo().Config.Name, `{"next_by_subj":"`+r.subject("_req."+key)+`","seq":1}`); err == nil {
		t.Error("something is left of the memo")
	}
	if last, err := r.batch(t, r.memo(key), r.message(key, "2", expecting(seq)...)); err != nil {
		t.Errorf("the id cannot be used again: %d, %v", last, err)
	}
}

// uncovers: with a history, what expires is the revision, not the key. So keys that expire need a history of 1.
func uncovers(t *testing.T, r *raw, key string) {
	first := r.mustPublish(t, key, "1")
	second := r.mustPublish(t, key, "2", append(expecting(first), jetstream.MsgTTLHeader, "1s")...)
	natstest.Eventually(t, limit, "the second revision has expired", func() bool {
		_, _, err := r.get(t, r.stream.CachedInfo().Config.Name, fmt.Sprintf(`{"seq":%d}`, second))
		return err != nil && err.ErrorCode == 10037
	})
	seq, _, err := r.get(t, r.stream.CachedInfo().Config.Name, `{"last_by_subj":"`+r.subject(key)+`"}`)
	if err != nil || seq != first {
		t.Errorf("the last is now %d, %v; believed is the one before, %d", seq, err, first)
	}
}

func createdFromZero(t *testing.T, r *raw, key string) {
	r.mustPublish(t, key, "1", jetstream.MsgTTLHeader, "1s")
	r.waitGone(t, key)
	r.mustPublish(t, key, "2", expecting(0)...)
}

// markExpiry gives the bucket a TTL for markers.
func (r *raw) markExpiry(t testing.TB, ttl time.Duration) {
	t.Helper()
	config := r.stream.CachedInfo().Config
	config.SubjectDeleteMarkerTTL = ttl
	if _, err := r.js.UpdateStream(within(t), config); err != nil {
		t.Fatal(err)
	}
}

// With a TTL for markers an expiry leaves one: a purge, for those who watch.
func TestAssumeExpiryMarker(t *testing.T) {
	t.Parallel()
	r := newRaw(t, natstest.Start(t).URL(), 1)
	r.markExpiry(t, 2*time.Second)
	watch, err := keyValue(t, r.nc, testBucket.Name).Watch(within(t), "key", jetstream.UpdatesOnly())
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop() //nolint:errcheck // the test is over
	r.mustPublish(t, "key", "1", jetstream.MsgTTLHeader, "2s")
	for _, want := range []jetstream.KeyValueOp{jetstream.KeyValuePut, jetstream.KeyValuePurge} {
		select {
		case e := <-watch.Updates():
			if e == nil || e.Operation() != want {
				t.Fatalf("the watcher saw %v, want %v", e, want)
			}
		case <-time.After(limit):
			t.Fatalf("the watcher saw no %v", want)
		}
	}
	marker, header, apiErr := r.get(t, r.stream.CachedInfo().Config.Name, `{"last_by_subj":"`+r.subject("key")+`"}`)
	if apiErr != nil || header.Get("Nats-Marker-Reason") != "MaxAge" {
		t.Fatalf("the marker: %d, %v, %v", marker, header, apiErr)
	}
	if _, err := r.publish(t, "key", "2", expecting(0)...); !isConflict(err) {
		t.Errorf("a create over the marker got %v", err)
	}
	r.mustPublish(t, "key", "2", expecting(marker)...)
}

// A TTL for markers is also the least TTL of a message: a shorter one is raised to it, without a word.
func TestAssumeMarkerTTLRaisesTTLs(t *testing.T) {
	t.Parallel()
	r := newRaw(t, natstest.Start(t).URL(), 1)
	r.markExpiry(t, time.Minute)
	r.mustPublish(t, "key", "1", jetstream.MsgTTLHeader, "1s")
	_, header, err := r.get(t, r.stream.CachedInfo().Config.Name, `{"last_by_subj":"`+r.subject("key")+`"}`)
	if err != nil || header.Get(jetstream.MsgTTLHeader) != "60" {
		t.Errorf("stored with headers %v, %v", header, err)
	}
}
