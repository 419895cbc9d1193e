package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/functions/join"
	"muster/wire"
)

// takeover is how long what a dead replica or coordinator had in hand may lie, by the contract.
const (
	replicaTakeover     = 15 * time.Second
	coordinatorTakeover = 10 * time.Second
)

// slack is what a busy machine may add to a time that the contract gives.
const slack = 5 * time.Second

// The only replica is killed while a rack stands at each place of a join. The next one goes on from the records.
func TestJoinFault_ReplicaKilledAtEveryStep(t *testing.T) { onEach(t, replicaKilledAtEveryStep) }

func replicaKilledAtEveryStep(t *testing.T, copies int) {
	f := newFleetOn(t, copies)
	f.run(allSleds()...)
	replica := f.serve("join")
	f.everywhere()
	replica.signal(syscall.SIGKILL)
	replica.waitExit(startLimit)
	killed := time.Now()
	f.letGo()
	f.serve("join")
	for _, p := range places {
		f.until(replicaTakeover+slack, p.name, "goes on", func(s join.Status) bool {
			return s.State == join.AwaitingCompletion || s.State == join.Completed
		})
	}
	t.Logf("all have gone on %v after the kill", time.Since(killed).Round(time.Millisecond))
	for _, p := range places {
		if g := f.completes(p.name, p.sleds()...); g != 1 {
			t.Errorf("%s: generation %d", p.name, g)
		}
	}
}

// The coordinator is killed while a rack stands at each place of a join. As long as its epoch is not being committed another
// takes over with a higher one; when it is back, all join.
func TestJoinFault_CoordinatorKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	coordinators := map[string]*sledProcess{}
	launched := func(serial string) {
		coordinators[serial] = startSled(t, f.sled(serial).line.URL(), serial, f.sled(serial).dir)
	}
	for _, p := range places {
		launched(p.sleds()[0])
		f.run(p.sleds()[1:]...)
		f.identity(p.sleds()[0])
	}
	f.serve("join")
	f.everywhere()
	for _, c := range coordinators {
		c.signal(syscall.SIGKILL)
	}
	killed := time.Now()
	for _, p := range places {
		if p.state != join.Reconfiguring && p.state != join.Preparing {
			continue
		}
		s := f.until(coordinatorTakeover+slack, p.name, "has another coordinator", func(s join.Status) bool {
			return s.State == join.Preparing && s.Config.Epoch > 1
		})
		if s.Config.Coordinator == board(p.sleds()[0]) {
			t.Errorf("%s: epoch %d is coordinated by a dead sled", p.name, s.Config.Epoch)
		}
	}
	t.Logf("others had taken over %v after the kill", time.Since(killed).Round(time.Millisecond))
	for serial, c := range coordinators {
		c.waitExit(startLimit)
		launched(serial)
	}
	f.letGo()
	for _, p := range places {
		if g := f.completes(p.name, p.sleds()...); g != 1 {
			t.Errorf("%s: generation %d", p.name, g)
		}
	}
}

// The broker is restarted while a rack stands at each place of a join.
func TestJoinFault_BrokerRestartedAtEveryStep(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run(allSleds()...)
	f.serve("join")
	f.everywhere()
	f.node.Restart()
	f.letGo()
	for _, p := range places {
		if g := f.completes(p.name, p.sleds()...); g != 1 {
			t.Errorf("%s: generation %d", p.name, g)
		}
	}
}

// A rack is reset at each place of a join, while the sleds that hold it there are silent: they are named, and the rack stays.
// What they were asked before arrives late. The reset repeated leaves nothing, and all join anew.
func TestJoinFault_ResetAtEveryStep(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run(allSleds()...)
	f.serve("join")
	f.everywhere(wire.SledReset)
	first := map[string]string{}
	answers := together(t, f.nc, len(places), func(i int) request {
		first[places[i].name] = f.status(places[i].name).ID
		return request{subject: "muster.join.reset." + places[i].name, body: `{"confirm":"` + places[i].name + `"}`}
	})
	for i, p := range places {
		if p.op == "" || p.state == join.Starting { // nobody is silent; nobody was ever asked
			answers[i].into(t, &wire.RackWasReset{})
			continue
		}
		e := answers[i].refused(t, wire.Unavailable)
		if got := fmt.Sprint(e.Details["unreachable"]); !strings.Contains(got, p.sleds()[p.who[0]]) || strings.Count(got, "serial_number") != 1 {
			t.Errorf("%s: unreachable %s", p.name, got)
		}
		ask(t, f.nc, "muster.join.start."+p.name, joinBody("172.20.15.22", p.sleds()...)).refused(t, wire.MultirackJoinInProgress)
	}
	f.letGo()
	for _, p := range places {
		f.reset(p.name)
		for _, serial := range p.sleds() {
			if id := f.identity(serial); id.RackID != nil || id.PreparedEpoch != nil || id.CommittedEpoch != nil || id.Started || id.NetworkGeneration != 0 {
				t.Errorf("after the reset of %s its sled %s is %+v", p.name, serial, id)
			}
		}
		if s := f.start(p.name, "172.20.15.23", p.sleds()...); s.ID == first[p.name] || !s.Changed {
			t.Errorf("%s begins anew as %+v", p.name, s)
		}
	}
	for _, p := range places {
		f.completes(p.name, p.sleds()...)
	}
}

// madness is what a sled may answer that has lost its mind.
var madness = []string{
	"null", "{}", strings.Repeat("[", 10000), "\xff\xfe\x00",
	`{"baseboard":{"part_number":"913-0000019","serial_number":"other"},"exchange_key":"X"}`,
	`{"status":"committed","config":{},"generation":18446744073709551615}`,
}

// One sled of each rack answers garbage, a kind of it in each rack, and is the first of its rack, which would coordinate:
// to everything, or to everything but the question who it is. It is never taken for anything else than a sled that is
// missing; others are not disturbed. Replaced by a sane one, the join goes through.
func TestJoinFault_SledAnswersGarbage(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	replica := f.serve("join")
	type madRack struct {
		name, text, mad, sane string
		others                []string
		acks                  bool // an object that is no error acks a prepare, whatever is in it
	}
	var racks []madRack
	for i, text := range madness {
		for _, kind := range []string{"all", "most"} {
			r := madRack{name: fmt.Sprintf("%s%02d", kind, i), text: text, acks: kind == "most" && text[0] == '{'}
			r.mad, r.sane, r.others = r.name+"a", r.name+"s", []string{r.name + "b", r.name + "c"}
			racks = append(racks, r)
			f.run(r.others...)
			who := f.identity(r.others[0])
			who.Baseboard = board(r.mad)
			self, err := json.Marshal(who)
			if err != nil {
				t.Fatal(err)
			}
			sub, err := f.nc.Subscribe(wire.SledSubject(board(r.mad), "*"), func(m *nats.Msg) {
				answer := []byte(text)
				if kind == "most" && m.Subject == wire.SledSubject(board(r.mad), wire.SledIdentity) {
					answer = self
				}
				_ = m.Respond(answer) // whoever asked may have gone
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = sub.Unsubscribe() })
			f.start(r.name, "172.20.15.22", append(r.others, r.mad)...)
		}
	}
	f.run("sane1", "sane2", "sane3")
	f.start("sane", "172.20.15.22", "sane1", "sane2", "sane3")
	if g := f.completes("sane", "sane1", "sane2", "sane3"); g != 1 {
		t.Errorf("a rack beside those: generation %d", g)
	}
	for _, r := range racks {
		f.until(coordinatorTakeover+slack, r.name, fmt.Sprintf("goes on without the sled that answers %.40q", r.text), func(s join.Status) bool {
			if !slices.Equal(s.Missing, []wire.Baseboard{board(r.mad)}) {
				return false
			}
			if r.acks {
				return s.State == join.Committing || s.State == join.ConfiguringNetwork
			}
			return s.State == join.Preparing && s.Config.Coordinator != board(r.mad)
		})
		if n := len(f.history(r.name)); n > 30 {
			t.Errorf("%d revisions for a sled that answers %.40q", n, r.text)
		}
	}
	for _, r := range racks {
		if !r.acks {
			f.run(r.sane)
			f.start(r.name, "172.20.15.22", append(r.others, r.sane)...)
			f.completes(r.name, append(r.others, r.sane)...)
		}
	}
	if strings.Contains(replica.err.String(), "panic") {
		t.Error("the replica panicked")
	}
}

// What a sled was asked for an epoch that was given up arrives when the next one is under way, and so do its answers.
func TestJoinFault_LateToASupersededEpoch(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.serve("join")
	all := []string{"late1", "late2", "late3", "late4", "late5", "late6", "late7", "late8", "late9"}
	f.run(all...)

	// The prepare of epoch 1 is late, and then so is the commit of epoch 2.
	f.hold("late9", wire.SledPrepare)
	f.start("late", "172.20.15.22", all...)
	f.until(startLimit, "late", "waits for late9", func(s join.Status) bool { return s.State == join.Preparing && len(s.Missing) == 1 })
	f.hold("late8", wire.SledCommit)
	f.start("late", "172.20.15.22", slices.Delete(slices.Clone(all), 0, 1)...) // another coordinator
	f.until(startLimit, "late", "prepares epoch 2", func(s join.Status) bool { return s.State == join.Preparing && s.Config.Epoch == 2 })
	f.hold("late9")
	f.until(startLimit, "late", "waits for late8", func(s join.Status) bool { return s.State == join.Committing && len(s.Missing) == 1 })
	// Seven of eight have committed, six are enough to go on with other members.
	f.hold("late8", wire.SledCommit, wire.SledPrepare)
	f.start("late", "172.20.15.22", all...)
	f.until(startLimit, "late", "prepares epoch 3", func(s join.Status) bool { return s.State == join.Preparing && s.Config.Epoch == 3 })
	f.hold("late8")
	f.completes("late", all...)
	for _, serial := range all {
		if id := f.identity(serial); *id.CommittedEpoch != 3 || *id.PreparedEpoch != 3 {
			t.Errorf("%s: committed %d, prepared %d, want 3", serial, *id.CommittedEpoch, *id.PreparedEpoch)
		}
	}
}

// A sled loses its store and is back under its name: before it has committed the join goes through by itself, afterwards
// it is shown, and a reset is the way out.
func TestJoinFault_SledWipedAndBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.serve("join")
	one, two := []string{"wipe1", "wipe2", "wipe3"}, []string{"gone1", "gone2", "gone3"}
	f.run(append(one, two...)...)
	f.hold("wipe3", wire.SledPrepare)
	f.hold("gone3", wire.SledStart)
	f.start("wipe", "172.20.15.22", one...)
	f.start("gone", "172.20.15.22", two...)
	f.until(startLimit, "wipe", "waits for a prepare", func(s join.Status) bool { return s.State == join.Preparing && len(s.Missing) == 1 })
	f.until(startLimit, "gone", "waits for a start", func(s join.Status) bool { return s.State == join.StartingAgents && len(s.Missing) == 1 })
	for _, serial := range []string{"wipe2", "gone3"} {
		f.stop(serial)
		f.wipe(serial)
		f.run(serial)
	}
	f.hold("wipe3")
	f.hold("gone3")
	f.completes("wipe", one...)
	s := f.until(startLimit, "gone", "shows the sled that was wiped", func(s join.Status) bool {
		return len(s.Problems) == 1 && strings.Contains(s.Problems[0].Problem, "NotPrepared")
	})
	if s.Problems[0].Baseboard != board("gone3") || s.State != join.StartingAgents {
		t.Errorf("the status is %+v", s)
	}
	f.reset("gone")
	f.start("gone", "172.20.15.22", two...)
	f.completes("gone", two...)
}

// Two operators start one rack at once, on two replicas.
func TestJoinFault_TwoStartsAtOnce(t *testing.T) { onEach(t, twoStartsAtOnce) }

func twoStartsAtOnce(t *testing.T, copies int) {
	f := newFleetOn(t, copies)
	f.serve("join")
	f.serve("join")
	patient := []string{"Muster-Timeout", "20s"} // three servers on a busy machine
	for round := range 4 {
		same, other := fmt.Sprintf("same%d", round), fmt.Sprintf("other%d", round)
		sleds := func(rack string) []string { return []string{rack + "a", rack + "b", rack + "c"} }
		f.run(append(sleds(same), sleds(other)...)...)
		answers := together(t, f.nc, 8, func(i int) request {
			if i%2 == 0 {
				return request{subject: "muster.join.start." + same, body: joinBody("172.20.15.22", sleds(same)...), headers: patient}
			}
			return request{subject: "muster.join.start." + other, body: joinBody(fmt.Sprintf("172.20.15.%d", 30+i), sleds(other)...), headers: patient}
		})
		ids, equal, generations, changed := map[string]bool{}, map[uint64]bool{}, map[uint64]bool{}, 0
		for i, a := range answers {
			var s wire.JoinStarted
			a.into(t, &s)
			ids[s.Rack+s.ID] = true
			switch {
			case i%2 == 1:
				generations[s.Generation] = true
			case s.Changed:
				changed++
				fallthrough
			default:
				equal[s.Generation] = true
			}
		}
		if len(ids) != 2 || changed != 1 || len(equal) != 1 || len(generations) != 4 {
			t.Errorf("%d ids for two racks, %d of four equal requests changed it, generations %v and of different ones %v", len(ids), changed, equal, generations)
		}
		if g := f.completes(same, sleds(same)...); !equal[g] { // numbers may skip
			t.Errorf("equal requests: generation %d, accepted were %v", g, equal)
		}
		if keys := wantedOf(t, f.nc, wire.BucketNetworks).keys(same + "."); len(keys) != 1 {
			t.Errorf("equal requests left configs %v", keys)
		}
		last := f.completes(other, sleds(other)...)
		for g := range generations {
			if g > last {
				t.Errorf("completed with %d, accepted were %v", last, generations)
			}
		}
		var shown wire.RackNetwork
		ask(t, f.nc, "muster.join.network."+other, "").into(t, &shown)
		if shown.Generation != last {
			t.Errorf("the network is %d, the completed generation %d", shown.Generation, last)
		}
	}
}

// Complete and a correction of the network config come at once, on two replicas: both together, or complete in the middle
// of the correction, whose config is stored and not yet accepted. One comes before the other; a correction that was
// accepted is what complete answers.
func TestJoinFault_CompleteAndCorrectionAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.serve("join")
	f.serve("join")
	won := map[string]int{}
	for i := range 12 {
		rack := fmt.Sprintf("race%d", i)
		sleds := []string{rack + "a", rack + "b", rack + "c"}
		f.run(sleds...)
		f.start(rack, "172.20.15.22", sleds...)
		if i%2 == 0 {
			f.until(startLimit, rack, "awaits completion", func(s join.Status) bool { return s.State == join.AwaitingCompletion })
		}
		correct := request{subject: "muster.join.start." + rack, body: joinBody("172.20.15.23", sleds...)}
		var complete, correction answer
		if i%4 < 2 {
			both := []request{{subject: "muster.join.complete." + rack}, correct}
			answers := together(t, f.nc, 2, func(n int) request { return both[n] })
			complete, correction = answers[0], answers[1]
		} else {
			stored, err := f.nc.SubscribeSync("$KV.muster_networks." + rack + ".2")
			if err != nil {
				t.Fatal(err)
			}
			answered := make(chan error, 1)
			go func() {
				var err error
				correction, err = try(f.nc, startLimit, correct.subject, correct.body)
				answered <- err
			}()
			if _, err := stored.NextMsg(startLimit); err != nil {
				t.Fatal(err)
			}
			complete = ask(t, f.nc, "muster.join.complete."+rack, "")
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
		}
		final := f.completes(rack, sleds...)
		if correction.failure != nil {
			won["complete"]++
			if c := correction.failure.Code; c != wire.MultirackJoinInProgress && c != wire.MultirackJoinCompleted {
				t.Errorf("the correction: %s", correction.raw)
			}
			if final != 1 {
				t.Errorf("the correction was refused, and %d is completed", final)
			}
		} else {
			won["correction"]++
			var s wire.JoinStarted
			correction.into(t, &s)
			if final != s.Generation {
				t.Errorf("generation %d was accepted, %d is completed", s.Generation, final)
			}
		}
		if complete.failure != nil {
			complete.refused(t, wire.MultirackJoinPendingConfigUpdate)
		} else {
			var c wire.JoinCompleted
			if complete.into(t, &c); c.BootstoreGeneration != final {
				t.Errorf("complete answered %d, and then %d", c.BootstoreGeneration, final)
			}
		}
		if keys := wantedOf(t, f.nc, wire.BucketNetworks).keys(rack + "."); len(keys) != 1 && final == 1 {
			t.Errorf("%s completed with generation 1, and stored are %v", rack, keys)
		}
	}
	t.Logf("came first: %v", won)
}
