package join

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"muster/functions/join/quorum"
	"muster/wire"
)

// A sled that fails in ever new words does not have the record written as often as it answers.
func TestAbsorb_WritesProblemsNowAndThen(t *testing.T) {
	a, b, c := wire.Baseboard{PartNumber: "p", SerialNumber: "a"}, wire.Baseboard{PartNumber: "p", SerialNumber: "b"}, wire.Baseboard{PartNumber: "p", SerialNumber: "c"}
	words := 0
	fails := func(who wire.Baseboard) answer {
		words++
		return answer{From: who, Op: wire.SledStart, Err: wire.Errorf(wire.Internal, "failure %d", words)}
	}
	acks := func(who wire.Baseboard) answer { return answer{From: who, Op: wire.SledStart} }
	r := &record{State: StartingAgents, Peers: []wire.Baseboard{a, b, c}, Sleds: []sled{{Baseboard: a}, {Baseboard: b}, {Baseboard: c}}}
	for i, x := range []struct {
		age     time.Duration
		answers []answer
		written bool
	}{
		{0, []answer{fails(a)}, false},
		{problemAfter - 1, []answer{fails(a)}, false},
		{problemAfter, []answer{fails(a)}, true},
		{problemAfter, []answer{fails(a)}, false},          // other words
		{0, []answer{fails(a), fails(b)}, false},           // another sled, too
		{problemAfter, []answer{fails(a), fails(b)}, true}, //
		{restateAfter - 1, []answer{fails(b), fails(a)}, false},
		{restateAfter, []answer{fails(a), fails(b)}, true},
		{0, []answer{fails(a), fails(b), acks(c)}, true}, // progress
		{0, []answer{fails(a), acks(b)}, true},
	} {
		before := string(encodeRecord(r))
		changed := absorb(r.clone(), r, x.answers, time.Time{}, nil, x.age)
		if changed != x.written {
			t.Errorf("%d: written %t, want %t: %s", i, changed, x.written, encodeRecord(r))
		}
		if same := before == string(encodeRecord(r)); same == changed {
			t.Errorf("%d: it says that it changed the record %t, and it is the same %t", i, changed, same)
		}
	}
}

// clocks are what a clock may show of the time that passes, and those of the replicas that look in turn.
var clocks = map[string]func(d time.Duration) time.Time{
	"right":     func(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) },
	"set back":  func(d time.Duration) time.Time { return time.Unix(1000, 0).Add(-d * 3600) },
	"set ahead": func(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d * 3600) },
	"two clocks an hour apart": func(d time.Duration) time.Time {
		return time.Unix(1000, 0).Add(d + time.Hour*(d/time.Second%2))
	},
}

// A coordinator whose answers are of no use is replaced like a silent one; one that is at work is not. What clocks show does
// not matter.
func TestAbsorb_ReplacesACoordinatorThatIsOfNoUse(t *testing.T) {
	peers := []wire.Baseboard{{PartNumber: "p", SerialNumber: "a"}, {PartNumber: "p", SerialNumber: "b"}, {PartNumber: "p", SerialNumber: "c"}}
	for name, x := range map[string]struct {
		answer   answer
		replaced bool
	}{
		"silent":           {silent(ask{To: peers[0], Op: wire.SledCoordinatorStatus}), true},
		"garbage":          {answer{Err: wire.Errorf(wire.Internal, "a reply that cannot be read was answered")}, true},
		"an unknown code":  {answer{Err: wire.Errorf("NoSuchCode", "")}, true},
		"of another epoch": {answer{Status: &quorum.CoordinatorStatus{Config: quorum.Configuration{RackID: "r", Epoch: 1}}}, true},
		"no configuration": {answer{Status: &quorum.CoordinatorStatus{Config: quorum.Configuration{RackID: "r", Epoch: 2}}}, true},
		"it is busy":       {answer{Err: wire.Errorf(wire.Busy, "")}, false},
		"it is recovering": {answer{Err: wire.Errorf(wire.Unavailable, "the secret is being recovered")}, false},
	} {
		for step, clock := range clocks {
			t.Run(name+", "+step, func(t *testing.T) {
				x.answer.From, x.answer.Op = peers[0], wire.SledCoordinatorStatus
				r := &record{State: Reconfiguring, RackID: "r", Epoch: 2, Peers: peers, Coordinator: &peers[0], Told: true}
				replaced := time.Duration(-1)
				for d := time.Duration(0); d < 2*coordinatorSilence && replaced < 0; d += time.Second {
					absorb(r.clone(), r, []answer{x.answer}, clock(d), nil, d)
					if r.State == Starting {
						replaced = d
					}
				}
				if x.replaced != (replaced == coordinatorSilence) || !x.replaced && replaced >= 0 {
					t.Errorf("replaced after %v: %s", replaced, encodeRecord(r))
				}
				if r.refused() {
					t.Error("it counts as refused at once")
				}
			})
		}
	}
}

// What of an answer counts as an ack.
func TestAskOne_TakesNoGarbageForAnAck(t *testing.T) {
	board, other := wire.Baseboard{PartNumber: "p", SerialNumber: "s"}, wire.Baseboard{PartNumber: "p", SerialNumber: "o"}
	for i, x := range []struct {
		op    string
		body  any
		reply string
		ok    bool
	}{
		{wire.SledIdentity, nil, fmt.Sprintf(`{"baseboard":{"part_number":"%s","serial_number":"%s"}}`, board.PartNumber, board.SerialNumber), true},
		{wire.SledIdentity, nil, fmt.Sprintf(`{"baseboard":{"part_number":"%s","serial_number":"%s"}}`, other.PartNumber, other.SerialNumber), false},
		{wire.SledIdentity, nil, `{}`, false},
		{wire.SledCommit, quorum.Commit{Epoch: 1}, `{"status":"committed"}`, true},
		{wire.SledCommit, quorum.Commit{Epoch: 1}, `{"status":"pending"}`, false},
		{wire.SledCommit, quorum.Commit{Epoch: 1}, `{}`, false},
		{wire.SledNetwork, wire.SledNetworkConfig{Generation: 2}, `{"generation":2}`, true},
		{wire.SledNetwork, wire.SledNetworkConfig{Generation: 2}, `{"generation":1}`, false},
		{wire.SledNetwork, wire.SledNetworkConfig{Generation: 2}, `{}`, false},
		{wire.SledStart, wire.StartSled{}, `{}`, true},
	} {
		f := &function{Deps: Deps{Ask: answering(x.reply)}}
		a := f.askOne(t.Context(), ask{board, x.op, x.body})
		if (a.Err == nil) != x.ok || a.Silent || (a.Identity != nil) != (x.ok && x.op == wire.SledIdentity) {
			t.Errorf("%d, %s %s: %+v", i, x.op, x.reply, a)
		}
	}
}

// answering is a sled that has one answer.
func answering(reply string) func(context.Context, wire.Baseboard, string, any, any) error {
	return func(_ context.Context, _ wire.Baseboard, _ string, _, into any) error {
		if into == nil {
			return nil
		}
		return json.Unmarshal([]byte(reply), into)
	}
}
