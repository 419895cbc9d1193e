package declare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

// replica is the function on another replica's store over the same bucket.
func (r *rig) replica(log store.Log) *rig {
	return &rig{wantedLog: r.wantedLog, reportedLog: r.reportedLog, function: &function{
		wanted: store.New(log, codec, store.Config{EventType: runtime.Wanted.EventType}), reported: r.reportedLog, now: time.Now,
	}}
}

// origin is what a request with an id comes from.
func origin(op, hive, agent, id string, s wire.State) store.Origin {
	return store.Origin{RequestID: id, Digest: string(s), MemoKey: wire.MemoKey(op, []string{hive, agent}, id)}
}

// Field report B005, its rules: of many who create the same agent at once, on two replicas, one creates it.
func TestField_B005_OneOfManyCreates(t *testing.T) {
	const rounds, callers = 100, 32
	r := newRig()
	replicas := []*rig{r, r.replica(r.wantedLog)}
	for round := range rounds {
		r.wantedLog.Delete("h", round%2 == 1)
		answers := make([]chan answer, callers)
		states := make([]wire.State, callers)
		for i := range callers {
			states[i] = []wire.State{wire.Up, wire.Offline, wire.Paused}[rand.IntN(3)]
			answers[i] = begin(t, replicas[i%2].create, &runtime.Request[wire.Set]{
				IDs: []string{"h", "a"}, Body: wire.Set{State: states[i]},
				Origin: origin("create", "h", "a", fmt.Sprintf("r%d-%d", round, i), states[i]),
			})
		}
		winner, made := -1, wire.State("")
		for i, a := range answers {
			d, err := wait(t, a)
			switch {
			case err != nil:
				t.Fatalf("round %d: %v", round, err)
			case d.Changed && winner >= 0:
				t.Fatalf("round %d: created by %d and by %d", round, winner, i)
			case d.Changed:
				winner, made = i, states[i]
			}
		}
		d, err := ask(t, r.view, struct{}{}, "h")
		if err != nil || winner < 0 || d.Agents["a"].State != made || len(d.Agents) != 1 {
			t.Fatalf("round %d: winner %d made it %s, stored is %+v, %v", round, winner, made, d, err)
		}
	}
}

func TestWriters_OnOneHiveAllSucceedAndNoneIsLost(t *testing.T) {
	const callers = 64
	r := newRig()
	replicas := []*rig{r, r.replica(r.wantedLog)}
	var answers []chan answer
	for i := range callers {
		answers = append(answers, begin(t, replicas[i%2].set, &runtime.Request[wire.Set]{
			IDs: []string{"h", fmt.Sprint("a", i)}, Body: wire.Set{State: wire.Up},
		}))
	}
	for i, a := range answers {
		d, err := wait(t, a)
		if err != nil || !d.Changed || d.Agents[fmt.Sprint("a", i)].State != wire.Up {
			t.Fatalf("caller %d: %+v, %v", i, d, err)
		}
	}
	if d, err := ask(t, r.view, struct{}{}, "h"); err != nil || len(d.Agents) != callers {
		t.Errorf("%d of %d agents are there, %v", len(d.Agents), callers, err)
	}
}

// gated is a bucket that a replica's writes reach only once the gate is open, as those of a stopped process do.
type gated struct {
	*store.Memory
	arrived chan struct{} // gets one for each write that waits
	open    chan struct{}
}

func (g gated) pass() {
	g.arrived <- struct{}{}
	<-g.open
}

func (g gated) Write(ctx context.Context, entries []store.Entry) (uint64, error) {
	g.pass()
	return g.Memory.Write(context.WithoutCancel(ctx), entries)
}

func (g gated) Send(e store.Entry, then func(uint64, error)) {
	go func() {
		g.pass()
		g.Memory.Send(e, then)
	}()
}

// Field report B149, its rules, the stopped replica: what it was about to write before the destroy must not come true
// afterwards.
func TestField_B149_AStoppedReplicaBringsNothingBack(t *testing.T) {
	for _, ifRevision := range []bool{false, true} {
		for _, withID := range []bool{false, true} {
			r := newRig()
			base := r.mustSet(t, "h", "a", wire.Up).Revision
			gate := gated{r.wantedLog, make(chan struct{}, 100), make(chan struct{})}
			stopped := r.replica(gate)
			request := &runtime.Request[wire.Set]{IDs: []string{"h", "a"}, Body: wire.Set{State: wire.Paused}}
			if ifRevision {
				request.Body.IfRevision = &base
			}
			if withID {
				request.Origin = origin("set", "h", "a", "r1", wire.Paused)
			}
			late := begin(t, stopped.set, request)
			<-gate.arrived
			r.mustSet(t, "h", "a", wire.Destroyed)
			close(gate.open)
			d, err := wait(t, late)
			want := wire.AgentDestroyed
			if ifRevision {
				want = wire.RevisionMismatch
			}
			if err == nil || err.Code != want {
				t.Errorf("if_revision %v, id %v: %+v, %v, want %s", ifRevision, withID, d, err, want)
			}
			if value, _ := r.stored(t, "h"); value != `{"agents":{"a":{"state":"destroyed"}}}` {
				t.Errorf("if_revision %v, id %v: stored is %s", ifRevision, withID, value)
			}
		}
	}
}

// Field report B149, its rules: after a destroy was acknowledged no redeclare succeeds, however many try.
func TestField_B149_DestroyedStaysDestroyed(t *testing.T) {
	const callers = 16
	r := newRig()
	replicas := []*rig{r, r.replica(r.wantedLog)}
	for round := range 20 {
		name := fmt.Sprint("a", round)
		r.mustSet(t, "h", name, wire.Up)
		var stop sync.WaitGroup
		done := make(chan struct{})
		for i := range callers {
			stop.Go(func() {
				me := replicas[i%2]
				for after := 0; after < 3; {
					select {
					case <-done:
						after++
					default:
					}
					body := wire.Set{State: []wire.State{wire.Up, wire.Paused, wire.Offline}[i%3]}
					if i%4 == 0 {
						d, err := ask(t, me.view, struct{}{}, "h")
						if err != nil {
							t.Errorf("view: %v", err)
							return
						}
						body.IfRevision = &d.Revision
					}
					switch d, err := ask(t, me.set, body, "h", name); {
					case err == nil && after > 0:
						t.Errorf("after the destroy a redeclare succeeds: %+v", d)
						return
					case err != nil && err.Code != wire.AgentDestroyed && err.Code != wire.RevisionMismatch:
						t.Errorf("redeclare: %v", err)
						return
					}
				}
			})
		}
		if d, err := ask(t, replicas[round%2].set, wire.Set{State: wire.Destroyed}, "h", name); err != nil || !d.Changed {
			t.Errorf("destroy: %+v, %v", d, err)
		}
		close(done)
		stop.Wait()
		if d, err := ask(t, r.create, wire.Set{State: wire.Up}, "h", name); err != nil || !d.Changed || d.Agents[name].State != wire.Up {
			t.Errorf("create brings it back: %+v, %v", d, err)
		}
	}
}
