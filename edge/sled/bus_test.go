package sled

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/functions/join/quorum"
	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

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
	prepares, err := f.bus.Conn().SubscribeSync(wire.SledSubjects(wire.SledPrepare))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.bus.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	f.must(board(1), wire.SledReconfigure, order(1, nil, boards(5)...), nil)
	config := f.acked(board(1), 4)
	f.down(board(1))
	f.up(board(5))
	f.up(board(1))
	if again := f.acked(board(1), 5); !again.Equal(config) {
		t.Error("after its restart it has another configuration")
	}
	seen := map[string]int{} // by commitments
	for range 4 {            // the coordinator asks itself without the bus
		m, err := prepares.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		seen[m.Header.Get(wire.HeaderCommitments)]++
	}
	if err := prepares.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 1 || seen[""] > 0 {
		t.Errorf("prepares of one deal came with %d commitments: %v", len(seen), seen)
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
