package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/edge/sled"
	"muster/functions/join"
	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

// board is the sled of a serial number.
func board(serial string) wire.Baseboard {
	return wire.Baseboard{PartNumber: "913-0000019", SerialNumber: serial}
}

// fleet is real sleds in this process, each on a line of its own that a test can hold, and a caller.
type fleet struct {
	t      *testing.T
	node   *natstest.Node
	copies int // of what is stored
	nc     *nats.Conn
	log    *output
	sleds  map[string]*fleetSled // by serial number
}

type fleetSled struct {
	serial  string
	dir     string
	line    *natstest.Proxy
	onStart string
	halt    func() // nil while it does not run here
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	return newFleetOn(t, 1)
}

// newFleetOn is newFleet on several servers.
func newFleetOn(t *testing.T, copies int) *fleet {
	t.Helper()
	n := startNodes(t, copies)
	f := &fleet{t: t, node: n, copies: copies, nc: natstest.Connect(t, n.URL()), log: &output{}, sleds: map[string]*fleetSled{}}
	t.Cleanup(func() {
		var all sync.WaitGroup
		for _, s := range f.sleds {
			all.Go(func() { f.stop(s.serial) })
		}
		all.Wait()
		if strings.Contains(f.log.String(), "hush") {
			t.Error("a sled's log holds a secret")
		}
		if t.Failed() {
			t.Logf("the sleds logged:\n%s", tail(f.log.String(), 16<<10))
		}
	})
	return f
}

// serve starts a replica as a process.
func (f *fleet) serve(args ...string) *program {
	f.t.Helper()
	return serveProcess(f.t, f.node.URL(), append(args, "--replicas", strconv.Itoa(f.copies))...)
}

// sled is the sled of a serial number, which does not run before it is told to.
func (f *fleet) sled(serial string) *fleetSled {
	if f.sleds[serial] == nil {
		f.sleds[serial] = &fleetSled{serial: serial, dir: f.t.TempDir(), line: natstest.StartProxy(f.t, f.node.URL())}
	}
	return f.sleds[serial]
}

// run runs sleds and returns once they answer.
func (f *fleet) run(serials ...string) {
	f.t.Helper()
	log := slog.New(slog.NewTextHandler(f.log, nil))
	for _, serial := range serials {
		s := f.sled(serial)
		bus, err := runtime.Connect(runtime.Options{Name: "sled " + serial, Dial: runtime.URL(s.line.URL()), Log: log})
		if err != nil {
			f.t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		c := sled.Config{Baseboard: board(serial), Dir: s.dir, OnStart: s.onStart, Bus: bus, Log: log, Output: f.log}
		go func() { done <- sled.Run(ctx, c) }()
		s.halt = func() {
			cancel()
			if err := <-done; err != nil {
				f.t.Errorf("sled %s: %v", serial, err)
			}
			end, cancel := context.WithTimeout(context.Background(), startLimit)
			defer cancel()
			bus.Close(end)
		}
	}
	for _, serial := range serials {
		f.identity(serial)
	}
}

func (f *fleet) stop(serial string) {
	if s := f.sleds[serial]; s.halt != nil {
		s.halt()
		s.halt = nil
	}
}

// wipe takes a stopped sled's store away.
func (f *fleet) wipe(serial string) { f.sled(serial).dir = f.t.TempDir() }

func (f *fleet) identity(serial string) (id wire.Identity) {
	f.t.Helper()
	waitIdentity(f.t, f.nc, serial, "answers", func(got wire.Identity) bool { id = got; return true })
	return id
}

// hold keeps back what a sled is asked with these ops, until it is called with none: then it arrives, late.
func (f *fleet) hold(serial string, ops ...string) {
	f.sled(serial).line.HoldToClient(func(msg []byte) bool {
		line, _, _ := bytes.Cut(msg, []byte("\r\n"))
		return slices.ContainsFunc(ops, func(op string) bool {
			return bytes.Contains(line, []byte("MSG "+wire.SledSubject(board(serial), op)+" "))
		})
	})
}

// start starts a join and fails the test unless it is accepted.
func (f *fleet) start(rack, infraLast string, serials ...string) (s wire.JoinStarted) {
	f.t.Helper()
	ask(f.t, f.nc, "muster.join.start."+rack, joinBody(infraLast, serials...)).into(f.t, &s)
	return s
}

func (f *fleet) status(rack string) (s join.Status) {
	f.t.Helper()
	natstest.Eventually(f.t, startLimit, "the status of "+rack, func() bool {
		a, err := try(f.nc, 5*time.Second, "muster.join.status."+rack, "")
		if err != nil || a.failure != nil {
			return false
		}
		s = join.Status{}
		a.into(f.t, &s)
		return true
	})
	return s
}

// until waits until a rack's status is as wanted.
func (f *fleet) until(limit time.Duration, rack, what string, is func(join.Status) bool) (s join.Status) {
	f.t.Helper()
	natstest.Eventually(f.t, limit, rack+" "+what, func() bool {
		s = f.status(rack)
		return is(s)
	})
	return s
}

// reset resets a rack whose sleds all answer, though perhaps not at once.
func (f *fleet) reset(rack string) {
	f.t.Helper()
	natstest.Eventually(f.t, startLimit, rack+" is reset", func() bool {
		a := ask(f.t, f.nc, "muster.join.reset."+rack, `{"confirm":"`+rack+`"}`)
		return a.failure == nil || a.failure.Code == wire.RackNotFound
	})
}

// completes completes a rack, which may take a while, and holds what became of it to the contract.
func (f *fleet) completes(rack string, serials ...string) (generation uint64) {
	f.t.Helper()
	var done wire.JoinCompleted
	natstest.Eventually(f.t, startLimit, rack+" completes", func() bool {
		a, err := try(f.nc, 10*time.Second, "muster.join.complete."+rack, "")
		if err != nil || a.failure != nil && a.failure.Retryable {
			return false
		}
		a.into(f.t, &done)
		return true
	})
	for _, serial := range serials {
		id := f.identity(serial)
		if id.CommittedEpoch == nil || !id.Started || id.NetworkGeneration != done.BootstoreGeneration {
			f.t.Errorf("%s is completed with generation %d, and sled %s is %+v", rack, done.BootstoreGeneration, serial, id)
		}
	}
	f.sound(rack)
	return done.BootstoreGeneration
}

// revision is what a stored revision of a rack says that must hold over all of them.
type revision struct {
	ID, State  string
	Generation uint64
	Written    uint64 `json:"written_generation"`
	Epoch      uint64
	Config     json.RawMessage
	Acked      []wire.Baseboard `json:"acked_prepares"`
}

// history is every stored revision of a rack since it was last reset.
func (f *fleet) history(rack string) (all []revision) {
	f.t.Helper()
	for _, e := range wantedOf(f.t, f.nc, wire.BucketRacks).history(rack) {
		if len(e.Value()) == 0 {
			all = nil
			continue
		}
		var r revision
		if err := json.Unmarshal(e.Value(), &r); err != nil {
			f.t.Fatalf("revision %d of %s: %v", e.Revision(), rack, err)
		}
		all = append(all, r)
	}
	return all
}

// sound fails the test unless a rack's revisions hold together: one configuration for an epoch, nothing goes back.
func (f *fleet) sound(rack string) {
	f.t.Helper()
	configs, last := map[uint64]string{}, revision{}
	for i, r := range f.history(rack) {
		if i > 0 && r.ID != last.ID || r.Generation < last.Generation || r.Written < last.Written || r.Epoch < last.Epoch {
			f.t.Errorf("%s went from %+v to %+v", rack, last, r)
		}
		if c := string(r.Config); c != "" {
			if configs[r.Epoch] != "" && configs[r.Epoch] != c {
				f.t.Errorf("%s has two configurations of epoch %d", rack, r.Epoch)
			}
			configs[r.Epoch] = c
		}
		last = r
	}
}

// place is where a join can be held: what is held back, and the state that shows that it came there.
type place struct {
	name  string
	state join.State
	op    string // that is held back
	who   []int  // from which of the rack's three sleds
}

// places are all of a join, each with three sleds of its own.
var places = []place{
	{"starting", join.Starting, wire.SledIdentity, []int{0, 1, 2}},
	{"preparing", join.Preparing, wire.SledPrepare, []int{2}},
	{"committing", join.Committing, wire.SledCommit, []int{2}},
	{"agents", join.StartingAgents, wire.SledStart, []int{2}},
	{"network", join.ConfiguringNetwork, wire.SledNetwork, []int{2}},
	{"completing", join.ConfiguringNetwork, wire.SledNetwork, []int{2}}, // completion is asked for, too
	{"awaiting", join.AwaitingCompletion, "", nil},
	{"reconfigure", join.Reconfiguring, wire.SledReconfigure, []int{0}}, // last: another takes over after a while
}

// sleds are the serial numbers of a place's sleds.
func (p place) sleds() (all []string) {
	for i := range 3 {
		all = append(all, fmt.Sprintf("%s%d", p.name, i+1))
	}
	return all
}

// everywhere brings a rack to each place and holds it there. The racks are named after the places. also is held back from
// the same sleds.
func (f *fleet) everywhere(also ...string) {
	f.t.Helper()
	for _, p := range places {
		for _, i := range p.who {
			f.hold(p.sleds()[i], append(also, p.op)...)
		}
		f.start(p.name, "172.20.15.22", p.sleds()...)
		if p.name == "completing" {
			f.startCompletion(p.name)
		}
	}
	for _, p := range places {
		f.until(startLimit, p.name, "is "+string(p.state), func(s join.Status) bool {
			return s.State == p.state && (p.state != join.Preparing || len(s.Missing) == 1)
		})
	}
}

// startCompletion asks for completion and does not wait for the answer.
func (f *fleet) startCompletion(rack string) {
	f.t.Helper()
	if err := f.nc.PublishRequest("muster.join.complete."+rack, f.nc.NewInbox(), nil); err != nil {
		f.t.Fatal(err)
	}
}

// letGo lets all racks go on.
func (f *fleet) letGo() {
	for _, p := range places {
		for _, i := range p.who {
			f.sled(p.sleds()[i]).line.HoldToClient(nil)
		}
	}
}

// allSleds are the serial numbers of the sleds of all places.
func allSleds() (all []string) {
	for _, p := range places {
		all = append(all, p.sleds()...)
	}
	return all
}
