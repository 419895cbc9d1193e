package test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"muster/edge/sled"
	"muster/functions/join"
	"muster/runtime"
	"muster/wire"
)

// linear takes a history that must be linearizable.
func (w *whole) linear(what string, model porcupine.Model, all []porcupine.Operation) error {
	if got := porcupine.CheckOperationsTimeout(model, all, 30*time.Second); got != porcupine.Ok {
		slices.SortFunc(all, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		text := ""
		for _, o := range all {
			text += fmt.Sprintf("\n%v to %v, caller %d: %s", time.Duration(o.Call), time.Duration(o.Return), o.ClientId, model.DescribeOperation(o.Input, o.Output))
		}
		return fmt.Errorf("%s: %d operations are %s, not linearizable:%s", what, len(all), got, text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.histories++
	w.operations += len(all)
	return nil
}

// declares has four callers set and view one hive after the other.
func (w *whole) declares() error {
	return w.each(20*time.Millisecond, func(n int) error {
		hive := fmt.Sprintf("shared%d", n)
		a, err := w.tally.insist(w.nc(n), "muster.declare.apply."+hive, `{"agents":{"a":{"state":"up"},"b":{"state":"up"},"c":{"state":"up"}}}`, wire.HeaderRequestID, "first")
		if err != nil || a.failure != nil {
			return fmt.Errorf("%s: %w %s", hive, err, a.raw)
		}
		first, began := record{a.decl.Revision, [3]wire.State{"up", "up", "up"}}, time.Now()
		histories, errs := make([][]porcupine.Operation, 4), make([]error, 4)
		var wg sync.WaitGroup
		for id := range histories {
			wg.Go(func() {
				c := linearClient{
					nc: w.nc(id), via: []*replica{{name: wire.Declare}}, hive: hive, id: id, seen: first.revision, patient: true, tally: w.tally,
					rand: rand.New(rand.NewPCG(uint64(n), uint64(id))),
				}
				histories[id], errs[id] = c.run(25, began)
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("%s: %w", hive, err)
		}
		return w.linear(hive, declareModel(first), slices.Concat(histories...))
	})
}

// leases has callers take one backend after the other from each other.
func (w *whole) leases() error {
	return w.each(20*time.Millisecond, func(n int) error {
		backend := fmt.Sprintf("b%d", n)
		all, err := leases(w.nc(n), w.tally, backend, 4, 12)
		if err != nil {
			return fmt.Errorf("%s: %w", backend, err)
		}
		return w.linear("backend "+backend, leaseModel, all)
	})
}

// stubborn is a caller on a hive of its own, who changes his mind when he gets no answer.
func (w *whole) stubborn(i int) func() error {
	c := &stubborn{nc: w.nc(i), hive: fmt.Sprintf("own%d", i), tally: w.tally}
	w.callers = append(w.callers, c)
	return func() error { return w.each(20*time.Millisecond, c.round) }
}

// racks has three sleds join as a rack, over and over.
func (w *whole) racks(rack string) func() error {
	return func() error {
		serials := []string{rack + "1", rack + "2", rack + "3"}
		log := slog.New(slog.NewTextHandler(w.fleet.log, nil))
		run, stop := context.WithCancel(context.Background())
		var sleds sync.WaitGroup
		defer sleds.Wait()
		defer stop()
		for _, serial := range serials {
			bus, err := runtime.Connect(runtime.Options{Name: "sled " + serial, Dial: runtime.URL(w.url), Log: log})
			if err != nil {
				return err
			}
			c := sled.Config{Baseboard: board(serial), Dir: w.t.TempDir(), Bus: bus, Log: log, Output: w.fleet.log}
			sleds.Go(func() {
				if err := sled.Run(run, c); err != nil {
					w.t.Errorf("sled %s: %v", serial, err)
				}
				end, cancel := context.WithTimeout(context.Background(), startLimit)
				defer cancel()
				_ = bus.Close(end) // it has answered all
			})
		}
		return w.each(50*time.Millisecond, func(n int) error {
			if n > 0 {
				a, err := w.tally.insist(w.nc(n), "muster.join.reset."+rack, `{"confirm":"`+rack+`"}`)
				if err != nil || a.failure != nil && a.failure.Code != wire.RackNotFound {
					return fmt.Errorf("reset: %w %s", err, a.raw)
				}
			}
			all, completed, err := w.joins(rack, serials...)
			if err != nil {
				return err
			}
			for _, serial := range serials {
				a, err := w.tally.insist(w.nc(n), wire.SledSubject(board(serial), wire.SledIdentity), "")
				var id wire.Identity
				if err == nil {
					err = json.Unmarshal(a.raw, &id)
				}
				if err != nil || id.CommittedEpoch == nil || !id.Started || id.NetworkGeneration != completed {
					return fmt.Errorf("generation %d is completed, and sled %s is %s: %w", completed, serial, a.raw, err)
				}
			}
			if err := w.linear("rack "+rack, rackModel, all); err != nil {
				return err
			}
			a, err := w.tally.insist(w.nc(n), "muster.join.status."+rack, "")
			var s join.Status
			if err == nil {
				err = json.Unmarshal(a.raw, &s)
			}
			if err != nil || s.State != join.Completed || s.Generation != completed {
				return fmt.Errorf("generation %d is completed, and the status is %s: %w", completed, a.raw, err)
			}
			w.mu.Lock()
			w.joined++
			w.mu.Unlock()
			return nil
		})
	}
}

// keeper is a backend that renews its lease every second.
type keeper struct {
	heard   atomic.Pointer[time.Time] // from then on every replica has heard of it
	sure    atomic.Pointer[time.Time] // until then at least its lease holds
	answers atomic.Int64              // that lookups got
	stale   atomic.Int64              // of them
}

// keeperTTL is the keeper's, and keeperLag how long others may not hear of a heartbeat: a mirror that hears nothing for that
// long says so. A new backend is heard of sooner, or the mirror says by then that it hears nothing.
const (
	keeperTTL  = 20 * time.Second
	keeperLag  = 5 * time.Second
	keeperNews = 4 * time.Second
)

func (w *whole) keepsLease() error {
	lease := ""
	return w.each(time.Second, func(n int) error {
		op, body := "heartbeat", fmt.Sprintf(`{"lease":%q}`, lease)
		if lease == "" {
			op, body = "register", fmt.Sprintf(`{"address":"[fd00::7]:80","ttl":"%v"}`, keeperTTL)
		}
		asked := time.Now()
		a, err := w.tally.try(w.nc(n), wholeWait, "muster.resolve."+op+".kept.k", body)
		switch {
		case err != nil || a.failure != nil && a.failure.Retryable:
			return nil // the next one may come through
		case a.failure != nil && a.failure.Code == wire.LeaseExpired:
			if sure := w.keeper.sure.Load(); sure != nil && asked.Before(*sure) {
				return fmt.Errorf("%v before its time: %s", time.Until(*sure), a.raw)
			}
			lease = ""
			return nil
		case a.failure != nil:
			return fmt.Errorf("%s: %s", op, a.raw)
		}
		var l wire.Lease
		if err := json.Unmarshal(a.raw, &l); err != nil {
			return err
		}
		if lease == "" {
			heard := time.Now().Add(keeperNews)
			w.keeper.heard.Store(&heard)
		}
		lease = l.Lease
		until := asked.Add(keeperTTL)
		w.keeper.sure.Store(&until)
		return nil
	})
}

// lookups asks for the keeper. While its lease holds, no answer says surely that there is none.
func (w *whole) lookups(i int) func() error {
	return func() error {
		return w.each(15*time.Millisecond, func(n int) error {
			sure, heard := w.keeper.sure.Load(), w.keeper.heard.Load()
			asked := time.Now()
			a, err := w.tally.try(w.nc(i+n), wholeWait, "muster.resolve.lookup.kept", "")
			answered := time.Now()
			switch {
			case err != nil || sure == nil || a.failure != nil && a.failure.Retryable:
				return nil
			case a.failure != nil:
				return fmt.Errorf("lookup: %s", a.raw)
			}
			var got wire.Answer
			if err := json.Unmarshal(a.raw, &got); err != nil {
				return err
			}
			w.keeper.answers.Add(1)
			if got.Status == wire.StatusStale {
				w.keeper.stale.Add(1)
			}
			if got.Status == wire.StatusFresh && len(got.Backends) != 1 && asked.After(*heard) && answered.Before(sure.Add(-keeperLag)) {
				return fmt.Errorf("the lease holds for %v, and a lookup says %s", sure.Sub(answered), a.raw)
			}
			return nil
		})
	}
}

// probe writes and looks up all the time, to see how long it cannot.
type probe struct {
	w      *whole
	writes gap
	looks  gap
}

// gap is the longest time between two successes.
type gap struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
	n       int
}

func (g *gap) success() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.longest = max(g.longest, now.Sub(g.last))
	g.last = now
	g.n++
}

// reset begins anew, and tells how many successes there were ever.
func (g *gap) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.longest, g.last = 0, time.Now()
}

func (g *gap) seen() (n int, longest time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n, g.longest
}

func (p *probe) run() error {
	p.writes.reset()
	p.looks.reset()
	return p.w.each(10*time.Millisecond, func(n int) error {
		// Several at once, each by another server, so that one that is lost does not count as long as one waits for it.
		var wg sync.WaitGroup
		for _, nc := range p.w.conns[:3] {
			wg.Go(func() {
				a, err := try(nc, 300*time.Millisecond, fmt.Sprintf("muster.declare.set.probe.p%d", n%3), state([]string{"up", "paused"}[n/3%2]), wire.HeaderTimeout, "300ms")
				if err == nil && a.failure == nil {
					p.writes.success()
				}
			})
			wg.Go(func() {
				a, err := try(nc, 300*time.Millisecond, "muster.resolve.lookup.kept", "", wire.HeaderTimeout, "300ms")
				if err == nil && a.failure == nil {
					p.looks.success()
				}
			})
		}
		wg.Wait()
		return nil
	})
}
