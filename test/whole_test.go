package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
	"muster/wire"
)

// TestWhole has callers of every kind work on three servers and two replicas while one fault follows the other, and then
// looks at what is stored: nothing acknowledged is missing, nothing is there twice, and all that callers were told fits
// together. With SOAK=1h in the environment the faults go on for an hour, in any order.
func TestWhole(t *testing.T) {
	soak, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil && os.Getenv("SOAK") != "" {
		t.Fatalf("SOAK: %v", err)
	}
	if soak == 0 {
		t.Parallel()
	}
	w := startWhole(t)
	if soak > 0 {
		w.throughput()
	}
	for name, work := range map[string]func() error{
		"declare": w.declares, "leases": w.leases, "keeper": w.keepsLease, "rack a": w.racks("a"), "rack b": w.racks("b"),
		"triggers": w.triggers,
	} {
		w.begin(name, work)
	}
	for i := range 6 {
		w.begin(fmt.Sprintf("stubborn %d", i), w.stubborn(i))
	}
	for i := range 2 {
		w.begin(fmt.Sprintf("lookups %d", i), w.lookups(i))
	}
	w.begin("probe", w.probe.run)
	natstest.Eventually(t, wholeLimit, "all kinds of work have begun", func() bool { return w.failed() || w.busy() })
	order := slices.Clone(faults)
	for end, n := time.Now().Add(soak), 0; !w.failed() && (n < len(order) || time.Now().Before(end)); n++ {
		if n > 0 && n%len(order) == 0 {
			rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		w.inject(order[n%len(order)])
	}
	w.end()
	w.check()
	w.report()
}

// whole is the product on three servers, and all who use it.
type whole struct {
	t        *testing.T
	servers  []*natsProcess
	replicas [2]*program
	conns    []*nats.Conn
	url      string
	tally    *tally
	probe    *probe
	fleet    *fleet // for what is stored of racks

	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup
	broken atomic.Bool

	windows  []window
	injected map[string]int
	gaps     map[string]time.Duration // longest unavailability for writers, by fault
	blind    map[string]time.Duration // and for lookups

	callers   []*stubborn
	keeper    keeper
	triggered int // triggers that were stored
	events    int

	mu                            sync.Mutex
	histories, operations, joined int
}

func startWhole(t *testing.T) *whole {
	t.Helper()
	w := &whole{
		t: t, servers: startServers(t, 3), tally: newTally(), injected: map[string]int{},
		gaps: map[string]time.Duration{}, blind: map[string]time.Duration{},
	}
	w.url = urlOf(w.servers)
	for i := range w.replicas {
		w.replicas[i] = w.replica()
	}
	for i := range 4 { // each at home at another server, and knowing all
		urls := make([]string, len(w.servers))
		for j := range urls {
			urls[j] = w.servers[(i+j)%len(urls)].url
		}
		w.conns = append(w.conns, natstest.Connect(t, strings.Join(urls, ","), nats.DontRandomize(), nats.PingInterval(time.Second)))
	}
	w.fleet = &fleet{t: t, nc: w.conns[0], log: &output{}}
	w.probe = &probe{w: w}
	w.ctx, w.stop = context.WithCancel(context.Background())
	t.Cleanup(func() {
		w.stop()
		w.wg.Wait()
	})
	return w
}

// replica starts a replica of all functions. It is ready once the events run, which may take a while behind a server's death.
func (w *whole) replica() *program {
	w.t.Helper()
	p := launch(w.t, "serve", "--nats", w.url, "--http", "127.0.0.1:0", "--replicas", "3")
	natstest.Eventually(w.t, wholeLimit, "a replica is ready", func() bool { return readyLine.MatchString(p.out.String()) || !p.running() })
	p.waitReady()
	return p
}

func (w *whole) nc(i int) *nats.Conn { return w.conns[i%len(w.conns)] }

// begin runs a piece of work until it fails or all is stopped.
func (w *whole) begin(name string, work func() error) {
	w.wg.Go(func() {
		if err := work(); err != nil {
			w.broken.Store(true)
			w.t.Errorf("%s: %v", name, err)
		}
	})
}

// each calls f with 0, 1, … until it fails or all is stopped.
func (w *whole) each(pause time.Duration, f func(n int) error) error {
	for n := 0; ; n++ {
		if err := f(n); err != nil {
			return err
		}
		select {
		case <-w.ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (w *whole) failed() bool { return w.broken.Load() || w.t.Failed() }

// busy tells whether every kind of work was done once.
func (w *whole) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.histories > 2 && w.joined > 0 && w.keeper.answers.Load() > 0
}

// end lets everybody finish what is under way.
func (w *whole) end() {
	w.stop()
	w.wg.Wait()
}

// check looks at what is stored when all is done.
func (w *whole) check() {
	t := w.t
	w.tally.mu.Lock()
	wrong := errors.Join(w.tally.wrong...)
	w.tally.mu.Unlock()
	if wrong != nil {
		t.Errorf("answers that are none: %v", wrong)
	}
	for i, u := range w.tally.lost(w.windows) {
		if i == 10 {
			t.Error("and more")
			break
		}
		t.Errorf("nobody answered %v", u)
	}
	kv := wanted(t, w.nc(0))
	for _, c := range w.callers {
		c.check(t, kv)
	}
	for _, rack := range []string{"a", "b"} {
		w.fleet.sound(rack)
	}
	w.checkEvents()
}

// checkEvents reads all events from the first one on: each revision is there, in order, and each trigger was applied once.
//
// When the leader of the events stream dies or stands still, nats-server (2.15.2) may take once more what it had taken
// shortly before. It must know these by their message ids and leave them out.
func (w *whole) checkEvents() {
	t, b := w.t, busOf(w.t, w.url)
	natstest.Eventually(t, wholeLimit, "all triggers are done", func() bool { return b.left() == 0 })
	if dead := b.dead(); len(dead) > 0 {
		t.Errorf("%d triggers failed for good, the first with %v", len(dead), dead[0].Header)
	}
	kv, heard := wanted(t, w.nc(0)), hearEvents(t, w.url)
	natstest.Eventually(t, wholeLimit, "all events are read", func() bool {
		n := 0
		heard.mu.Lock()
		for _, of := range heard.count {
			n += of
		}
		heard.mu.Unlock()
		w.events = n
		return uint64(n) >= b.state(wire.StreamEvents).Msgs
	})
	heard.mu.Lock()
	for subject, n := range heard.repeated { // no more is written
		t.Errorf("%d events of %s came twice", n, subject)
	}
	if heard.unnamed > 0 {
		t.Errorf("%d events without a message id", heard.unnamed)
	}
	heard.mu.Unlock()
	last := kv.last("probe").Sequence
	heard.until("muster.event.hive.probe", last)
	for _, c := range w.callers {
		subject := "muster.event.hive." + c.hive
		heard.until(subject, kv.last(c.hive).Sequence)
		if n := heard.onceOf(subject); n != len(c.acked) {
			t.Errorf("hive %s: %d events of %d changes", c.hive, n, len(c.acked))
		}
	}
	for hive := 0; hive*perTriggerHive < w.triggered; hive++ {
		name := fmt.Sprintf("triggered%d", hive)
		want := min(perTriggerHive, w.triggered-hive*perTriggerHive)
		heard.until("muster.event.hive."+name, kv.last(name).Sequence)
		if n := heard.changesOf("muster.event.hive." + name); n != want {
			t.Errorf("hive %s: %d changes by %d triggers", name, n, want)
		}
		if d := ask(t, w.nc(0), "muster.declare.view."+name, "").ok(t); len(d.Agents) != want {
			t.Errorf("hive %s: %d agents by %d triggers", name, len(d.Agents), want)
		}
	}
}

// report tells the numbers.
func (w *whole) report() {
	w.t.Logf("%v", w.tally)
	w.t.Logf("%d lookups, %d of them stale", w.keeper.answers.Load(), w.keeper.stale.Load())
	w.t.Logf("%d histories with %d operations are linearizable, %d racks joined", w.histories, w.operations, w.joined)
	total := 0
	var names []string
	for name, n := range w.injected {
		total += n
		names = append(names, name)
	}
	slices.Sort(names)
	w.t.Logf("%d faults:", total)
	for _, name := range names {
		w.t.Logf("%4d × %-34s longest without a write %v, without a lookup %v", w.injected[name], name,
			w.gaps[name].Round(time.Millisecond), w.blind[name].Round(time.Millisecond))
	}
	acked := 0
	for _, c := range w.callers {
		acked += len(c.acked)
	}
	if !w.t.Failed() {
		w.t.Logf("%d changes acknowledged on hives of their own, %d triggers: 0 lost, 0 applied twice", acked, w.triggered)
		w.t.Logf("%d events: 0 missing, 0 twice", w.events)
	}
}
