package runtime_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime"
	"muster/runtime/natstest"
	"muster/runtime/store"
	"muster/wire"
)

// follower keeps what was seen of a key.
type follower struct {
	mu     sync.Mutex
	sights []runtime.Sight
	stop   context.CancelFunc
	ended  chan struct{}
}

// follow follows key on a bus of its own until the test ends. held, if not nil, holds up every sight.
func follow(t *testing.T, bus *runtime.Bus, key string, held func()) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		bus.Follow(ctx, testBucket.Name, key, func(s runtime.Sight) {
			if held != nil {
				held()
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.sights = append(f.sights, s)
		})
	}()
	t.Cleanup(f.end)
	return f
}

func (f *follower) end() {
	f.stop()
	<-f.ended
}

func (f *follower) all() []runtime.Sight {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]runtime.Sight(nil), f.sights...)
}

func (f *follower) last() (s runtime.Sight, seen bool) {
	all := f.all()
	if len(all) == 0 {
		return runtime.Sight{}, false
	}
	return all[len(all)-1], true
}

// sees waits until the last sight is of a value; "" for a key that holds nothing.
func (f *follower) sees(t *testing.T, limit time.Duration, value string) store.Revision {
	t.Helper()
	natstest.Eventually(t, limit, fmt.Sprintf("the follower sees %q", value), func() bool {
		s, seen := f.last()
		return seen && s.Blind == nil && s.Revision.Absent() == (value == "") && (value == "" || string(s.Revision.Value) == value)
	})
	s, _ := f.last()
	return s.Revision
}

func (f *follower) wasBlind() bool {
	for _, s := range f.all() {
		if s.Blind != nil {
			return true
		}
	}
	return false
}

// followed is a bucket with an operator beside the follower.
type followed struct {
	node *natstest.Node
	bus  *runtime.Bus
	nc   *nats.Conn
	kv   jetstream.KeyValue
}

func newFollowed(t *testing.T) *followed {
	t.Helper()
	f := &followed{node: natstest.Start(t)}
	f.bus = connect(t, f.node.URL(), 1)
	bucketOf(t, f.bus, testBucket)
	f.nc = natstest.Connect(t, f.node.URL())
	f.kv = keyValue(t, f.nc, testBucket.Name)
	return f
}

func (f *followed) put(t *testing.T, key, value string) uint64 {
	t.Helper()
	var revision uint64
	natstest.Eventually(t, limit, "put "+key, func() bool { // after a restart the first may fail
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var err error
		revision, err = f.kv.PutString(ctx, key, value)
		return err == nil
	})
	return revision
}

func TestFollowSeesThePresentFirst(t *testing.T) {
	t.Parallel()
	b := newFollowed(t)
	b.put(t, "key", "1")
	revision := b.put(t, "key", "2")
	f := follow(t, b.bus, "key", nil)
	r := f.sees(t, limit, "2")
	if all := f.all(); len(all) != 1 || r.Revision != revision || r.Key != "key" || r.Time.IsZero() {
		t.Errorf("saw %+v, want revision %d alone", all, revision)
	}
}

func TestFollowSeesAbsenceAndChanges(t *testing.T) {
	t.Parallel()
	b := newFollowed(t)
	f := follow(t, b.bus, "key", nil)
	if r := f.sees(t, limit, ""); r.Revision != 0 {
		t.Errorf("a key never stored is seen at revision %d", r.Revision)
	}
	b.put(t, "another", "x")
	b.put(t, "key.below", "x")
	b.put(t, "_req.set.key.id", "x")
	for i, remove := range []func() error{
		func() error { return b.kv.Delete(within(t), "key") },
		func() error { return b.kv.Purge(within(t), "key") },
	} {
		revision := b.put(t, "key", fmt.Sprint(i))
		if r := f.sees(t, limit, fmt.Sprint(i)); r.Revision != revision {
			t.Errorf("seen at revision %d, stored at %d", r.Revision, revision)
		}
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		if r := f.sees(t, limit, ""); !r.Marker || r.Revision <= revision {
			t.Errorf("the removal is seen as %+v", r)
		}
	}
	if all := f.all(); len(all) != 5 || f.wasBlind() {
		t.Errorf("saw %+v, want nothing, a value, nothing, a value, nothing", all)
	}
}

// A restart is seen by no watcher for about 20 s. The follower is, in 5 s.
func TestFollowAfterAServerRestart(t *testing.T) {
	t.Parallel()
	b := newFollowed(t)
	b.put(t, "key", "1")
	f := follow(t, b.bus, "key", nil)
	f.sees(t, limit, "1")
	b.node.Restart()
	b.put(t, "key", "2")
	f.sees(t, 5*time.Second, "2")
	b.put(t, "key", "3")
	f.sees(t, 5*time.Second, "3")
}

// A bucket that was deleted and made anew is followed again within 30 s.
func TestFollowABucketMadeAnew(t *testing.T) {
	t.Parallel()
	b := newFollowed(t)
	b.put(t, "key", "1")
	f := follow(t, b.bus, "key", nil)
	f.sees(t, limit, "1")
	b.remake(t)
	if revision := b.put(t, "key", "2"); revision != 1 {
		t.Fatalf("the new bucket begins at %d", revision)
	}
	f.sees(t, 30*time.Second, "2")
	b.put(t, "key", "3")
	f.sees(t, 5*time.Second, "3")
}

// remake deletes the bucket and makes it again.
func (f *followed) remake(t *testing.T) {
	t.Helper()
	js := jetStream(t, f.nc)
	s, err := js.Stream(within(t), wire.BucketStream(testBucket.Name))
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(within(t), s.CachedInfo().Config.Name); err != nil {
		t.Fatal(err)
	}
	f.kv = makeBucket(t, js, s.CachedInfo().Config)
}

// The bucket is made anew while the follower is away, and its revision is the one last seen, of another bucket.
func TestFollowABucketMadeAnewBehindItsBack(t *testing.T) {
	t.Parallel()
	b := newFollowed(t)
	proxy := natstest.StartProxy(t, b.node.URL())
	bus := connect(t, proxy.URL(), 1)
	natstest.Eventually(t, limit, "connected", bus.Conn().IsConnected)
	revision := b.put(t, "key", "1")
	f := follow(t, bus, "key", nil)
	f.sees(t, limit, "1")
	proxy.Cut()
	natstest.Eventually(t, limit, "the connection is gone", func() bool { return !bus.Conn().IsConnected() })
	b.remake(t)
	if again := b.put(t, "key", "2"); again != revision {
		t.Fatalf("the new bucket begins at %d", again)
	}
	proxy.Heal()
	f.sees(t, 5*time.Second, "2")
}

// While it cannot see the follower says so, once.
func TestFollowSaysThatItIsBlind(t *testing.T) {
	t.Parallel()
	node := natstest.Reserve(t)
	bus := connect(t, node.URL(), 1)
	f := follow(t, bus, "key", nil)
	natstest.Eventually(t, limit, "the follower says that it is blind", f.wasBlind)
	node.Up()
	bucketOf(t, bus, testBucket)
	f.sees(t, 5*time.Second, "")
	if all := f.all(); len(all) != 2 {
		t.Errorf("saw %+v, want blindness and then absence", all)
	}
}

// Whoever is told of a sight may take his time. What was last stored is seen nevertheless.
func TestFollowASlowReader(t *testing.T) {
	t.Parallel()
	b := newFollowed(t)
	b.put(t, "key", "0")
	held := newStop()
	f := follow(t, b.bus, "key", held.wait)
	held.await(t)
	for i := range 500 {
		if _, err := b.kv.PutString(within(t), "key", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, limit, "all of it has arrived", func() bool { return b.bus.Conn().Stats().InMsgs >= 500 })
	if err := b.bus.Conn().FlushTimeout(limit); err != nil {
		t.Fatal(err)
	}
	held.open()
	f.sees(t, 5*time.Second, "499")
}

func TestFollowLeavesNoConsumers(t *testing.T) {
	t.Parallel()
	b := newFollowed(t)
	b.put(t, "key", "1")
	stream, err := jetStream(t, b.nc).Stream(within(t), wire.BucketStream(testBucket.Name))
	if err != nil {
		t.Fatal(err)
	}
	consumers := func() int {
		info, err := stream.Info(within(t))
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Consumers
	}
	var all []*follower
	for range 5 {
		f := follow(t, b.bus, "key", nil)
		f.sees(t, limit, "1")
		all = append(all, f)
	}
	if n := consumers(); n != len(all) {
		t.Errorf("%d followers have %d consumers", len(all), n)
	}
	for _, f := range all {
		f.end()
	}
	natstest.Eventually(t, limit, "no consumer is left", func() bool { return consumers() == 0 })
}
