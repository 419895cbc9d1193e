package test

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"muster/wire"
)

// What porcupine is told of one rack from its first start to its completion: the accepted network config, and whether
// completion was asked for, from where on it stays.

type rackAsked struct {
	start  bool   // else complete
	config string // the last address of its network config
}

type rackTold struct {
	refused    wire.Code // "" for a success
	id         string    // of a start
	generation uint64
	changed    bool
}

type rackState struct {
	id, config string // "" before the first start
	generation uint64
	sealed     bool
}

var rackModel = porcupine.Model{
	Init: func() any { return rackState{} },
	Step: func(was, input, output any) (bool, any) {
		now, in, out := was.(rackState), input.(rackAsked), output.(rackTold)
		exists, same := now.id != "", in.config == now.config
		switch {
		case !in.start && out.refused != "":
			return out.refused == wire.MultirackJoinNotStarted && !exists, now
		case !in.start:
			ok := exists && out.generation == now.generation
			now.sealed = true
			return ok, now
		case out.refused == wire.MultirackJoinInProgress: // a correction that comes too late
			return exists && now.sealed && !same, now
		case out.refused == wire.MultirackJoinCompleted:
			return exists && now.sealed, now
		case out.refused != "":
			return false, now
		case !exists:
			return out.changed && out.generation > 0, rackState{id: out.id, config: in.config, generation: out.generation}
		case same:
			return !out.changed && out.id == now.id && out.generation == now.generation, now
		}
		ok := !now.sealed && out.changed && out.id == now.id && out.generation > now.generation
		now.config, now.generation = in.config, out.generation
		return ok, now
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

// joins has two operators start and correct one rack and three complete it, and returns what they were told and the
// generation that was completed.
func (w *whole) joins(rack string, sleds ...string) (all []porcupine.Operation, completed uint64, err error) {
	began := time.Now()
	var mu sync.Mutex
	ask := func(client int, id string, in rackAsked) {
		o := porcupine.Operation{ClientId: client, Input: in, Call: time.Since(began).Nanoseconds()}
		subject, body := "muster.join.complete."+rack, ""
		if in.start {
			subject, body = "muster.join.start."+rack, joinBody(in.config, sleds...)
		}
		a, failed := w.tally.insist(w.nc(client), subject, body, wire.HeaderRequestID, id)
		o.Return = time.Since(began).Nanoseconds()
		var out rackTold
		switch {
		case failed != nil:
		case a.failure != nil:
			out.refused = a.failure.Code
		case in.start:
			var s wire.JoinStarted
			failed = json.Unmarshal(a.raw, &s)
			out = rackTold{id: s.ID, generation: s.Generation, changed: s.Changed}
		default:
			var c wire.JoinCompleted
			failed = json.Unmarshal(a.raw, &c)
			out.generation = c.BootstoreGeneration
		}
		o.Output = out
		mu.Lock()
		defer mu.Unlock()
		all = append(all, o)
		if !in.start && out.refused == "" {
			completed = out.generation
		}
		if failed != nil {
			err = failed
		}
	}
	unique := fmt.Sprintf("%s-%d", rack, began.UnixNano())
	ask(0, unique+"-first", rackAsked{true, "172.20.15.22"})
	var wg sync.WaitGroup
	for client := range 5 {
		wg.Go(func() {
			if client > 1 { // some corrections come first
				<-time.After(time.Duration(client) * 50 * time.Millisecond)
			}
			for n := range 3 {
				id := fmt.Sprintf("%s-%d-%d", unique, client, n)
				if client < 2 {
					ask(client, id, rackAsked{true, fmt.Sprintf("172.20.15.%d", 22+(client+2*n)%5)})
				} else {
					ask(client, id, rackAsked{})
				}
			}
		})
	}
	wg.Wait()
	return all, completed, err
}
