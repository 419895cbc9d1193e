package sled

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

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
