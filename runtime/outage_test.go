package runtime_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime"
	"muster/runtime/natstest"
	"muster/runtime/store"
	"muster/wire"
)

// line is a process's bus whose only way to its server is a proxy, and an operator beside it.
type line struct {
	proxy    *natstest.Proxy
	bus      *runtime.Bus
	log      *runtime.Bucket
	store    *store.Store[tally]
	operator *nats.Conn
}

func newLine(t *testing.T, url string, copies int) *line {
	t.Helper()
	l := &line{proxy: natstest.StartProxy(t, url), operator: natstest.Connect(t, url)}
	l.bus = connect(t, l.proxy.URL(), copies)
	l.log = bucketOf(t, l.bus, testBucket)
	l.store = newStore(l.log)
	t.Cleanup(func() { // a client that missed an answer to its pings would take long to drain
		l.proxy.Cut()
		natstest.Eventually(t, limit, "the connection is gone", func() bool { return !l.bus.Conn().IsConnected() })
	})
	return l
}

// afterLook returns when the bucket has just looked at its stream, so that it will not do so again for a while: what a
// test breaks then is met by a request first.
func (l *line) afterLook(t *testing.T) {
	t.Helper()
	looked := make(chan struct{}, 1)
	l.proxy.OnClientBytes(func(b []byte) {
		if bytes.Contains(b, []byte(wire.APIStreamInfo(wire.BucketStream(testBucket.Name)))) {
			select {
			case looked <- struct{}{}:
			default:
			}
		}
	})
	select {
	case <-looked:
	case <-time.After(limit):
		t.Fatal("the bucket is not looked at")
	}
	l.proxy.OnClientBytes(nil)
	view(t, l.store, "nothing") // its answer comes behind that of the look
}

// wantAway checks that a view, an update and one of a key never seen are all refused in time, for the same reason.
func (l *line) wantAway(t *testing.T, reason string, within time.Duration) {
	t.Helper()
	began := time.Now()
	known := begin(t.Context(), l.store, "known", store.Origin{}, add("a"))
	withID := begin(t.Context(), l.store, "known", request("known", "id-away", "body"), add("a"))
	fresh := begin(t.Context(), l.store, "fresh", store.Origin{}, add("a"))
	_, err := l.store.View(t.Context(), "known")
	wantError(t, err, wire.Unavailable, "reason", reason)
	for _, d := range []<-chan answer{known, withID, fresh} {
		wantError(t, outcome(t, d).err, wire.Unavailable, "reason", reason)
	}
	if took := time.Since(began); took > within+busy {
		t.Errorf("it took %v to say %s, want %v", took.Round(time.Millisecond), reason, within)
	}
}

// works checks that the bucket can be used again, by somebody who keeps asking.
func (l *line) works(t *testing.T, key string) store.Result[tally] {
	t.Helper()
	var r store.Result[tally]
	natstest.Eventually(t, limit, "updates work again", func() (ok bool) {
		var err error
		r, err = l.store.Update(t.Context(), key, store.Origin{}, set("back", 1))
		return err == nil
	})
	return r
}

// B010: the answer to a publish is lost on the way. The store finds that it is stored.
func TestStoreFindsALostAnswer(t *testing.T) {
	t.Parallel()
	each(t, "key", func(t *testing.T, key string, from store.Origin) {
		t.Parallel()
		l := newLine(t, natstest.Start(t).URL(), 1)
		before := update(t, l.store, key, store.Origin{}, add("a"))
		l.afterLook(t)
		lost, subject := 0, []byte(wire.KeySubject(testBucket.Name, key)+" ")
		l.proxy.OnClientBytes(func(b []byte) {
			switch {
			case lost == 0 && bytes.Contains(b, subject) && bytes.HasPrefix(b, []byte("HPUB")):
				lost++
				l.proxy.DropToClient(true)
			case bytes.Contains(b, []byte(wire.APIMessageGet(wire.BucketStream(testBucket.Name)))):
				l.proxy.DropToClient(false)
			}
		})
		r := update(t, l.store, key, from, add("a"))
		l.proxy.OnClientBytes(nil)
		if lost != 1 {
			t.Fatal("no answer was lost")
		}
		wantChanged(t, r, tally{"a": 2})
		revs := history(t, l.log, key)
		if len(revs) != 2 || revs[0].Revision != before.Revision || revs[1].Revision != r.Revision {
			t.Errorf("stored %+v, want revisions %d and %d", revs, before.Revision, r.Revision)
		}
		wantChanged(t, update(t, l.store, key, store.Origin{}, add("a")), tally{"a": 3})
	})
}

// B010: nothing comes back for longer than the store waits. It says so, and the retry finds the first outcome.
func TestStoreSaysUnknownAndRetryFinds(t *testing.T) {
	t.Parallel()
	l := newLine(t, natstest.Start(t).URL(), 1)
	update(t, l.store, "key", store.Origin{}, add("a"))
	from := request("key", "id", "body")
	subject := []byte(wire.KeySubject(testBucket.Name, "key") + " ")
	l.proxy.OnClientBytes(func(b []byte) {
		if bytes.Contains(b, subject) {
			l.proxy.DropToClient(true)
		}
	})
	_, err := l.store.Update(t.Context(), "key", from, add("a"))
	if e := wire.AsError(err); e.Details["outcome"] != wire.Unknown || !e.Code.Retryable() {
		t.Errorf("got %v with details %v, want one that says the outcome is unknown", err, e.Details)
	}
	l.proxy.OnClientBytes(nil)
	l.proxy.DropToClient(false)
	var r store.Result[tally]
	natstest.Eventually(t, limit, "the retry succeeds", func() bool {
		r, err = l.store.Update(t.Context(), "key", from, add("a"))
		return err == nil
	})
	wantChanged(t, r, tally{"a": 2})
	wantWrites(t, l.log, "key", 0, 2)
}

func TestStoreNotConnected(t *testing.T) {
	t.Parallel()
	l := newLine(t, natstest.Start(t).URL(), 1)
	update(t, l.store, "known", store.Origin{}, add("a"))
	l.proxy.Cut()
	natstest.Eventually(t, limit, "the connection is gone", func() bool { return !l.bus.Conn().IsConnected() })
	l.wantAway(t, wire.NotConnected, 100*time.Millisecond)
	l.proxy.Heal()
	l.works(t, "known")
	wantDoc(t, view(t, l.store, "known"), tally{"a": 1, "back": 1})
}

func TestStoreStartsBeforeItsServer(t *testing.T) {
	t.Parallel()
	node := natstest.Reserve(t)
	log := connect(t, node.URL(), 1).Bucket(testBucket)
	_, err := newStore(log).Update(t.Context(), "key", store.Origin{}, add("a"))
	wantError(t, err, wire.Unavailable, "reason", wire.NotConnected)
	node.Up()
	usable(t, log)
	wantChanged(t, update(t, newStore(log), "key", store.Origin{}, add("a")), tally{"a": 1})
}

func TestStoreJetStreamGoes(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	l := newLine(t, node.URL(), 1)
	update(t, l.store, "known", store.Origin{}, add("a"))
	l.afterLook(t)
	node.DisableJetStream()
	l.wantAway(t, wire.JetStreamUnavailable, 2*time.Second)
	l.wantAway(t, wire.JetStreamUnavailable, 2*time.Second)
	node.EnableJetStream()
	l.works(t, "known")
	wantDoc(t, view(t, l.store, "known"), tally{"a": 1, "back": 1})
}

// The bucket's leader stays, but there is no majority. It takes the leader some seconds to notice that.
func TestStoreQuorumGoes(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t, 3)
	bucketOf(t, connect(t, c.Node(0).URL(), 3), testBucket)
	leader := c.StreamLeader(wire.BucketStream(testBucket.Name))
	l := newLine(t, leader.URL(), 3)
	update(t, l.store, "known", request("known", "before", "body"), add("a"))
	l.afterLook(t)
	for i := range 3 {
		if c.Node(i) != leader {
			c.Node(i).Stop()
		}
	}
	try := func() (store.Result[tally], error) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // a caller's, if he does not say otherwise
		defer cancel()
		return l.store.Update(ctx, "known", request("known", "while-away", "body"), add("a"))
	}
	for i := range 3 {
		began := time.Now()
		_, err := try()
		if e := wire.AsError(err); err == nil || e.Code != wire.Unavailable && e.Details["outcome"] != wire.Unknown {
			t.Errorf("try %d without a majority: got %v, want Unavailable or an unknown outcome", i, err)
		}
		wantSoon(t, began)
	}
	for i := range 3 {
		c.Node(i).Up()
	}
	c.WaitReady()
	var r store.Result[tally]
	natstest.Eventually(t, 2*limit, "the retry succeeds", func() bool {
		var err error
		r, err = try()
		return err == nil
	})
	wantChanged(t, r, tally{"a": 2})
	wantSame(t, "the retry of what was done before", store.Result[tally]{Revision: history(t, l.log, "known")[0].Revision, Changed: true, Doc: tally{"a": 1}},
		update(t, l.store, "known", request("known", "before", "body"), add("a")))
}

func TestStoreNotPermitted(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t, natstest.With(func(o *server.Options) {
		o.Users = []*server.User{{Username: "all", Password: "p"}, {Username: "some", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{wire.BucketSubjects(testBucket.Name)}},
		}}}
	}))
	url := func(user string) string { return "nats://" + user + ":p@" + node.URL()[len("nats://"):] }
	update(t, newStore(bucketOf(t, connect(t, url("all"), 1), testBucket)), "key", store.Origin{}, add("a"))
	s := newStore(bucketOf(t, connect(t, url("some"), 1), testBucket))
	for _, from := range origins("key") {
		began := time.Now()
		_, err := s.Update(t.Context(), "key", from, add("a"))
		wantError(t, err, wire.Unavailable, "reason", wire.PermissionDenied)
		wantSoon(t, began)
	}
	wantDoc(t, view(t, s, "key"), tally{"a": 1})
}

func TestStoreBucketDeleted(t *testing.T) {
	t.Parallel()
	bucketDeleted(t, natstest.Start(t).URL(), 1)
}

func TestStoreBucketDeletedOnCluster(t *testing.T) {
	t.Parallel()
	bucketDeleted(t, natstest.StartCluster(t, 3).Node(0).URL(), 3)
}

func bucketDeleted(t *testing.T, url string, copies int) {
	l := newLine(t, url, copies)
	js := jetStream(t, l.operator)
	for range 10 {
		update(t, l.store, "known", request("known", nuidNext(), "body"), add("a"))
	}
	config := deleteBucket(t, l, js)
	l.wantAway(t, wire.BucketMissing, 2*time.Second)
	l.wantAway(t, wire.BucketMissing, 100*time.Millisecond) // it is known now

	makeBucket(t, js, config)
	usable(t, l.log)
	if r := view(t, l.store, "known"); r.Revision != 0 {
		t.Errorf("the bucket made anew shows revision %d", r.Revision)
	}
	wantChanged(t, update(t, l.store, "known", store.Origin{}, add("b")), tally{"b": 1})
}

// deleteBucket deletes the bucket by hand, as soon as its settings tell how to make it again.
func deleteBucket(t *testing.T, l *line, js jetstream.JetStream) jetstream.StreamConfig {
	t.Helper()
	stream := wire.BucketStream(testBucket.Name)
	s, err := js.Stream(within(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	l.afterLook(t)
	if err := js.DeleteStream(within(t), stream); err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config
}

func makeBucket(t *testing.T, js jetstream.JetStream, config jetstream.StreamConfig) jetstream.KeyValue {
	t.Helper()
	natstest.Eventually(t, limit, "the bucket is made anew", func() bool { // the server may still be at the old one's files
		_, err := js.CreateStream(within(t), config)
		return err == nil
	})
	kv, err := js.KeyValue(within(t), testBucket.Name)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// A bucket is made anew, with revisions that begin again, after the process has seen that it was gone.
func TestStoreBucketMadeAnew(t *testing.T) {
	t.Parallel()
	l := newLine(t, natstest.Start(t).URL(), 1)
	js := jetStream(t, l.operator)
	old := update(t, l.store, "key", store.Origin{}, set("old", 1))
	config := deleteBucket(t, l, js)
	natstest.Eventually(t, limit, "the bucket is known to be missing", func() bool {
		_, err := l.store.View(t.Context(), "key")
		return wire.AsError(err).Details["reason"] == wire.BucketMissing
	})
	kv := makeBucket(t, js, config)
	if revision, err := kv.PutString(within(t), "key", `{"new":1}`); err != nil || revision != old.Revision {
		t.Fatalf("put: revision %d, %v; the test needs revision %d again", revision, err, old.Revision)
	}
	usable(t, l.log)
	wantChanged(t, update(t, l.store, "key", store.Origin{}, set("more", 1)), tally{"new": 1, "more": 1})
}
