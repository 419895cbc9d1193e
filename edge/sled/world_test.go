package sled

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"muster/functions/join/quorum"
	"muster/runtime"
	"muster/wire"
)

// world is sleds that talk to each other without a bus. It runs in a bubble, where time passes only when all wait.
type world struct {
	t    *testing.T
	log  *journal
	dirs map[wire.Baseboard]string

	mu     sync.Mutex
	sleds  map[wire.Baseboard]*Sled
	ends   map[wire.Baseboard]func()
	silent map[wire.Baseboard]bool                                   // take nothing in
	spy    func(to wire.Baseboard, op string, body any) (stop error) // sees every request before it is delivered
	seen   map[uint64]map[string]bool                                // configurations seen by sleds, by epoch
}

func newWorld(t *testing.T, n int) *world {
	w := &world{
		t: t, log: &journal{}, dirs: map[wire.Baseboard]string{}, sleds: map[wire.Baseboard]*Sled{}, ends: map[wire.Baseboard]func(){},
		silent: map[wire.Baseboard]bool{}, seen: map[uint64]map[string]bool{},
	}
	for _, b := range boards(n) {
		w.dirs[b] = t.TempDir()
		w.up(b)
	}
	return w
}

// up starts a sled on what is in its directory.
func (w *world) up(b wire.Baseboard) {
	s := newSled(w.t, w.dirs[b], b, w.log)
	s.ask = w.ask
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { s.coordinate(ctx) })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sleds[b] = s
	w.ends[b] = func() { cancel(); work.Wait(); s.Close() }
}

// down kills a sled.
func (w *world) down(b wire.Baseboard) {
	w.mu.Lock()
	end := w.ends[b]
	delete(w.ends, b)
	delete(w.sleds, b)
	w.mu.Unlock()
	if end != nil {
		end()
	}
}

func (w *world) stop() {
	for b := range w.dirs {
		w.down(b)
	}
}

func (w *world) silence(silent bool, who ...wire.Baseboard) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range who {
		w.silent[b] = silent
	}
}

// ask delivers a request and its answer, through JSON as the bus does.
func (w *world) ask(ctx context.Context, to wire.Baseboard, op string, body, reply any) error {
	w.mu.Lock()
	s, silent, spy := w.sleds[to], w.silent[to], w.spy
	if p, ok := body.(quorum.Prepare); ok {
		if w.seen[p.Config.Epoch] == nil {
			w.seen[p.Config.Epoch] = map[string]bool{}
		}
		w.seen[p.Config.Epoch][p.Config.Digest().String()] = true
	}
	w.mu.Unlock()
	if spy != nil {
		if err := spy(to, op, body); err != nil {
			return err
		}
	}
	if s == nil {
		return runtime.ErrSilent
	}
	if silent {
		<-ctx.Done()
		return runtime.ErrSilent
	}
	answer, err := dispatch(ctx, s, op, body)
	if err != nil {
		return err
	}
	data, err := json.Marshal(answer)
	if err != nil || reply == nil {
		return err
	}
	return json.Unmarshal(data, reply)
}

func dispatch(ctx context.Context, s *Sled, op string, body any) (any, error) {
	switch r := body.(type) {
	case quorum.Prepare:
		return s.prepare(ctx, &runtime.Request[quorum.Prepare]{Body: r})
	case quorum.ShareRequest:
		return s.share(ctx, &runtime.Request[quorum.ShareRequest]{Body: r})
	case quorum.Reconfigure:
		return s.reconfigure(ctx, &runtime.Request[quorum.Reconfigure]{Body: r})
	case quorum.Commit:
		return s.commit(ctx, &runtime.Request[quorum.Commit]{Body: r})
	case wire.SledForget:
		return s.reset(ctx, &runtime.Request[wire.SledForget]{Body: r})
	case nil:
		if op == wire.SledIdentity {
			return s.identity(ctx, nil)
		}
		return s.coordinatorStatus(ctx, nil)
	}
	return nil, fmt.Errorf("no op %s", op)
}

// do asks a sled as the control plane does.
func (w *world) do(to wire.Baseboard, body any) {
	w.t.Helper()
	var reply any
	if err := w.ask(context.Background(), to, "", body, &reply); err != nil {
		w.t.Fatalf("%v: %v", to, err)
	}
}

// acks waits for the coordinator's work to rest and returns the serial numbers of those that have acked.
func (w *world) acked(coordinator wire.Baseboard) string {
	w.t.Helper()
	synctest.Wait()
	var status quorum.CoordinatorStatus
	if err := w.ask(context.Background(), coordinator, wire.SledCoordinatorStatus, nil, &status); err != nil {
		return string(code(err))
	}
	var out []string
	for _, b := range status.AckedPrepares {
		out = append(out, fmt.Sprint(number3(b)))
	}
	return strings.Join(out, "")
}

func (w *world) commit(epoch uint64, who ...wire.Baseboard) {
	w.t.Helper()
	for _, b := range who {
		w.do(b, quorum.Commit{RackID: rack, Epoch: epoch})
	}
}

// unlock recovers the secret at a sled from its disk and the others, and returns its fingerprint and those before.
func (w *world) unlock(b wire.Baseboard) (Unlocked, error) {
	s, err := loadState(w.dirs[b])
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.unlock(ctx, w.ask)
}

// story runs a test in a bubble with n sleds, and afterwards checks what holds in every story.
func story(t *testing.T, n int, tell func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, n)
		tell(t, w)
		w.mu.Lock()
		for epoch, configs := range w.seen {
			if len(configs) > 1 {
				t.Errorf("sleds saw %d configurations for epoch %d", len(configs), epoch)
			}
		}
		w.mu.Unlock()
		w.stop()
		for _, dir := range w.dirs {
			s, err := loadState(dir)
			if err != nil {
				t.Fatal(err)
			}
			hides(t, w.log.String(), s)
		}
	})
}
