package sled

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/functions/join/quorum"
	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

// patience is how long anything may take here; it costs nothing when it does not.
const patience = 20 * time.Second

// fleet is sleds on a real server, each with a connection of its own, and a caller.
type fleet struct {
	t      *testing.T
	node   *natstest.Node
	log    *journal
	bus    *runtime.Bus // the caller's
	dirs   map[wire.Baseboard]string
	stops  map[wire.Baseboard]func()
	config func(*Sled) // of each before it runs
}

func newFleet(t *testing.T, n int) *fleet {
	f := &fleet{
		t: t, node: natstest.Start(t), log: &journal{}, dirs: map[wire.Baseboard]string{}, stops: map[wire.Baseboard]func(){},
		config: func(*Sled) {},
	}
	f.bus = f.connect("caller")
	f.bus.Bucket(runtime.Sleds)
	for _, b := range boards(n) {
		f.dirs[b] = t.TempDir()
	}
	t.Cleanup(func() {
		var work sync.WaitGroup
		for b := range f.stops {
			work.Go(f.stops[b])
		}
		work.Wait()
		for _, dir := range f.dirs {
			s, err := loadState(dir)
			if err != nil {
				continue // never run
			}
			hides(t, f.log.String(), s)
		}
	})
	return f
}

func (f *fleet) connect(name string) *runtime.Bus {
	f.t.Helper()
	bus, err := runtime.Connect(runtime.Options{Name: name, Dial: runtime.URL(f.node.URL()), Log: f.log.logger()})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		bus.Close(ctx)
	})
	return bus
}

// up runs sleds, and returns once they answer.
func (f *fleet) up(who ...wire.Baseboard) {
	f.t.Helper()
	for _, b := range who {
		s, err := New(Config{Baseboard: b, Dir: f.dirs[b], Bus: f.connect(b.String()), Log: f.log.logger(), Output: f.log})
		if err != nil {
			f.t.Fatal(err)
		}
		f.config(s)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		f.stops[b] = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				f.t.Errorf("run %v: %v", b, err)
			}
			end, stop := context.WithTimeout(context.Background(), patience)
			defer stop()
			s.Bus.Close(end)
		})
	}
	for _, b := range who {
		natstest.Eventually(f.t, patience, b.String()+" answers", func() bool { return f.ask(b, wire.SledIdentity, nil, nil) == nil })
	}
}

func (f *fleet) down(b wire.Baseboard) { f.stops[b]() }

// ask asks a sled over the bus.
func (f *fleet) ask(to wire.Baseboard, op string, body, reply any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return f.bus.Ask(ctx, wire.SledSubject(to, op), body, reply)
}

func (f *fleet) must(to wire.Baseboard, op string, body, reply any) {
	f.t.Helper()
	if err := f.ask(to, op, body, reply); err != nil {
		f.t.Fatalf("%s of %v: %v", op, to, err)
	}
}

func (f *fleet) identity(b wire.Baseboard) (id wire.Identity) {
	f.t.Helper()
	f.must(b, wire.SledIdentity, nil, &id)
	return id
}

// acked waits until the coordinator has as many acks, and returns its configuration.
func (f *fleet) acked(coordinator wire.Baseboard, n int) quorum.Configuration {
	f.t.Helper()
	var status quorum.CoordinatorStatus
	natstest.Eventually(f.t, patience, fmt.Sprintf("%d acks", n), func() bool {
		return f.ask(coordinator, wire.SledCoordinatorStatus, nil, &status) == nil && len(status.AckedPrepares) >= n
	})
	if len(status.AckedPrepares) != n {
		f.t.Fatalf("acks %v, want %d", status.AckedPrepares, n)
	}
	return status.Config
}

func (f *fleet) commit(epoch uint64, who ...wire.Baseboard) {
	f.t.Helper()
	for _, b := range who {
		var reply quorum.Committed
		f.must(b, wire.SledCommit, quorum.Commit{RackID: rack, Epoch: epoch}, &reply)
		if reply.Status != "committed" {
			f.t.Errorf("commit of %v: %+v", b, reply)
		}
	}
}

// form makes a quorum of all sleds, as the control plane does.
func (f *fleet) form(epoch uint64, last *uint64, coordinator wire.Baseboard, who ...wire.Baseboard) {
	f.t.Helper()
	f.must(coordinator, wire.SledReconfigure, order(epoch, last, who...), nil)
	config := f.acked(coordinator, len(who))
	if config.Epoch != epoch || config.Coordinator != coordinator || len(config.Members) != len(who) {
		f.t.Fatalf("configuration %+v", config)
	}
	f.commit(epoch, who...)
}

func (f *fleet) unlock(b wire.Baseboard) Unlocked {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	u, err := Unlock(ctx, f.dirs[b], b, f.bus)
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}

func TestBus_Quorum(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, n)
			f.up(boards(n)...)
			f.form(1, nil, board(1), boards(n)...)
			first := f.unlock(board(2))
			if len(first.From) != quorum.Threshold(n) {
				t.Errorf("%+v", first)
			}
			f.form(2, ptr(uint64(1)), board(3), boards(n)...)
			second := f.unlock(board(1)) // its sled runs meanwhile
			if len(second.Prior) != 1 || second.Prior[0].Fingerprint != first.Fingerprint || second.Fingerprint == first.Fingerprint {
				t.Errorf("%+v after %+v", second, first)
			}
			for _, b := range boards(n) {
				f.must(b, wire.SledStart, startRequest(), nil)
				var written wire.SledNetworkDone
				f.must(b, wire.SledNetwork, networkRequest(7), &written)
				id := f.identity(b)
				if written.Generation != 7 || id.NetworkGeneration != 7 || !id.Started || number(id.CommittedEpoch) != 2 || *id.RackID != rack {
					t.Errorf("%+v, %+v", written, id)
				}
			}
			for _, b := range boards(n) {
				f.must(b, wire.SledReset, wire.SledForget{RackID: rack}, nil)
				f.must(b, wire.SledReset, wire.SledForget{RackID: rack}, nil)
				if id := f.identity(b); id.RackID != nil || id.PreparedEpoch != nil || id.Started || id.NetworkGeneration != 0 {
					t.Errorf("after the reset: %+v", id)
				}
			}
			f.form(1, nil, board(2), boards(n)...)
		})
	}
}

func TestBus_CoordinatorRestartedInTheMiddle(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5)
	f.up(boards(4)...)
	f.must(board(1), wire.SledReconfigure, order(1, nil, boards(5)...), nil)
	config := f.acked(board(1), 4)
	f.down(board(1))
	f.up(board(5))
	f.up(board(1))
	if again := f.acked(board(1), 5); !again.Equal(config) {
		t.Error("after its restart it has another configuration")
	}
	f.commit(1, boards(5)...)
	f.down(board(1))
	f.down(board(2))
	if u := f.unlock(board(5)); u.Epoch != 1 {
		t.Errorf("%+v", u)
	}
}

// The server is gone for a while in the middle: the coordinator goes on, and the sleds announce themselves again.
func TestBus_ServerRestartedInTheMiddle(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	f.up(boards(3)...)
	f.must(board(1), wire.SledReconfigure, order(1, nil, boards(4)...), nil)
	f.acked(board(1), 3)
	f.node.Restart()
	f.up(board(4))
	f.acked(board(1), 4)
	f.commit(1, boards(4)...)
	for _, b := range boards(4) {
		natstest.Eventually(t, patience, b.String()+" is announced as a member", func() bool {
			return strings.Contains(f.announced(b), `"committed_epoch":1`)
		})
	}
}

// announced is what the bucket holds of a sled, "" for nothing.
func (f *fleet) announced(b wire.Baseboard) string {
	js, err := jetstream.New(f.bus.Conn())
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	kv, err := js.KeyValue(ctx, wire.BucketSleds)
	if err != nil {
		return ""
	}
	e, err := kv.Get(ctx, wire.SledKey(b))
	if err != nil {
		return ""
	}
	return string(e.Value())
}

// message is the last message of a sled's key, with its headers.
func (f *fleet) message(b wire.Baseboard) *jetstream.RawStreamMsg {
	f.t.Helper()
	js, err := jetstream.New(f.bus.Conn())
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := js.Stream(ctx, wire.BucketStream(wire.BucketSleds))
	if err != nil {
		f.t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(ctx, wire.KeySubject(wire.BucketSleds, wire.SledKey(b)))
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

func TestBus_Announcement(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.up(board(1))
	natstest.Eventually(t, patience, "it is announced", func() bool { return f.announced(board(1)) != "" })
	key := f.identity(board(1)).ExchangeKey
	want := `{"baseboard":{"part_number":"913-0000019","serial_number":"2FAKE001"},"committed_epoch":null,"exchange_key":"` + key +
		`","network_generation":0,"prepared_epoch":null,"rack_id":null,"started":false}`
	if got := f.announced(board(1)); !sameJSON(t, got, want) {
		t.Errorf("announced %s, want %s", got, want)
	}
	if ttl := f.message(board(1)).Header.Get(jetstream.MsgTTLHeader); ttl != "30s" {
		t.Errorf("TTL %q", ttl)
	}
	// A change shows at once, with the same TTL.
	f.must(board(1), wire.SledNetwork, networkRequest(3), nil)
	natstest.Eventually(t, announceEvery/2, "the change is announced", func() bool {
		return strings.Contains(f.announced(board(1)), `"network_generation":3`)
	})
	if ttl := f.message(board(1)).Header.Get(jetstream.MsgTTLHeader); ttl != "30s" {
		t.Errorf("TTL of the change %q", ttl)
	}
}

func TestBus_AnnouncementIsRenewedAndExpires(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.config = func(s *Sled) { s.every, s.ttl = 300*time.Millisecond, 2*time.Second }
	f.up(boards(2)...)
	natstest.Eventually(t, patience, "both are announced", func() bool {
		return f.announced(board(1)) != "" && f.announced(board(2)) != ""
	})
	f.down(board(2))
	gone, began := f.message(board(2)).Time, f.message(board(1)).Sequence
	natstest.Eventually(t, patience, "the one that is gone has expired", func() bool {
		if f.announced(board(1)) == "" {
			t.Fatal("the one that is there has expired, too")
		}
		return f.announced(board(2)) == ""
	})
	if lived := time.Since(gone); lived < 1500*time.Millisecond {
		t.Errorf("it lived for %v only", lived)
	}
	if f.message(board(1)).Sequence <= began {
		t.Error("it is not renewed")
	}
	// The bucket is deleted and made again: the sled is there again by itself.
	js, err := jetstream.New(f.bus.Conn())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := js.DeleteKeyValue(ctx, wire.BucketSleds); err != nil {
		t.Fatal(err)
	}
	other := f.connect("another that makes it")
	other.Bucket(runtime.Sleds)
	natstest.Eventually(t, patience, "it is announced again", func() bool { return f.announced(board(1)) != "" })
}

// A sled comes before its server, and before the bucket.
func TestBus_ComesFirst(t *testing.T) {
	t.Parallel()
	node := natstest.Reserve(t)
	log := &journal{}
	bus, err := runtime.Connect(runtime.Options{Name: "sled", Dial: runtime.URL(node.URL()), Log: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{Baseboard: board(1), Dir: t.TempDir(), Bus: bus, Log: log.logger(), Output: log})
	}()
	natstest.Eventually(t, patience, "it says that it is not announced", func() bool {
		return strings.Contains(log.String(), "not announced")
	})
	node.Up()
	f := &fleet{t: t, node: node, log: log}
	f.bus = f.connect("caller")
	natstest.Eventually(t, patience, "it answers", func() bool { return f.ask(board(1), wire.SledIdentity, nil, nil) == nil })
	f.bus.Bucket(runtime.Sleds)
	natstest.Eventually(t, patience, "it is announced", func() bool { return f.announced(board(1)) != "" })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	end, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	bus.Close(end)
}

// A rack of 32 in one process, as fast as it goes.
func TestBus_ARackOf32(t *testing.T) {
	f := newFleet(t, 32)
	f.up(boards(32)...)
	began := time.Now()
	f.must(board(1), wire.SledReconfigure, order(1, nil, boards(32)...), nil)
	f.acked(board(1), 32)
	t.Logf("32 sleds have prepared after %v", time.Since(began))
	all := func(op string, body any) {
		var work sync.WaitGroup
		for _, b := range boards(32) {
			work.Go(func() {
				if err := f.ask(b, op, body, nil); err != nil {
					t.Errorf("%s of %v: %v", op, b, err)
				}
			})
		}
		work.Wait()
		t.Logf("%s of all after %v", op, time.Since(began))
	}
	all(wire.SledCommit, quorum.Commit{RackID: rack, Epoch: 1})
	all(wire.SledStart, startRequest())
	all(wire.SledNetwork, networkRequest(1))
	if u := f.unlock(board(32)); len(u.From) != 17 {
		t.Errorf("%+v", u)
	}
}
