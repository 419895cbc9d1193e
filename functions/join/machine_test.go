package join

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"muster/functions/join/quorum"
	"muster/wire"
)

// joinOf is a request with these sleds and that network config.
func joinOf(config int, peers ...string) *wire.JoinRequest {
	return &wire.JoinRequest{TrustQuorumPeers: sledsNamed(strings.Join(peers, ",")), RackNetworkConfig: configNumber(config)}
}

// worldOf is one with sleds of these names.
func worldOf(t failer, sleds ...string) *world {
	return newWorld(t, sledsNamed(strings.Join(sleds, ","))...)
}

// situations are all that a rack can be in when a request comes, each with how it got there; nil sleds for none yet.
var situations = []struct {
	name string
	get  func(w *world)
}{
	{"nothing", func(*world) {}},
	{"requested", func(w *world) { w.join("a", "b", "c") }},
	{"starting", func(w *world) { w.join("a", "b", "c"); w.silence("a", "b", "c"); w.step(1) }},
	{"reconfiguring", func(w *world) { w.join("a", "b", "c"); w.until(Reconfiguring) }},
	{"preparing", func(w *world) { w.join("a", "b", "c"); w.silence("c"); w.until(Preparing) }},
	{"committing, no ack", func(w *world) { w.join("a", "b", "c"); w.until(Committing) }},
	{"committing, too few", func(w *world) { w.join("a", "b", "c"); w.until(Committing); w.silence("b", "c"); w.step(1) }},
	{"committing, enough", func(w *world) { w.join("a", "b", "c"); w.until(Committing); w.silence("c"); w.step(1) }},
	{"starting agents", func(w *world) { w.join("a", "b", "c"); w.until(StartingAgents) }},
	{"configuring, the first config", func(w *world) { w.join("a", "b", "c"); w.until(ConfiguringNetwork) }},
	{"configuring, a later config", func(w *world) { w.join("a", "b", "c"); w.until(AwaitingCompletion); w.update2() }},
	{"awaiting completion", func(w *world) { w.join("a", "b", "c"); w.until(AwaitingCompletion) }},
	{"sealed, preparing", func(w *world) { w.join("a", "b", "c"); w.silence("c"); w.until(Preparing); w.complete() }},
	{"sealed, configuring", func(w *world) { w.join("a", "b", "c"); w.until(ConfiguringNetwork); w.complete() }},
	{"completed", func(w *world) { w.join("a", "b", "c"); w.until(AwaitingCompletion); w.complete() }},
	{"completed by an older writer", func(w *world) {
		w.join("a", "b", "c")
		w.until(AwaitingCompletion)
		w.rec = w.rec.clone()
		w.rec.State = Completed
	}},
	{"failed", func(w *world) { w.join("a", "b", "c"); w.until(Committing); w.join("a", "b", "d") }},
	{"wrong size", func(w *world) { w.join("a", "b") }},
	{"being reset", func(w *world) { w.join("a", "b", "c"); w.until(Reconfiguring); w.silence("c"); w.reset(false) }},
	{"completed, being reset", func(w *world) {
		w.join("a", "b", "c")
		w.until(AwaitingCompletion)
		w.complete()
		w.silence("c")
		w.reset(false)
	}},
	{"initialize requested", func(w *world) { w.initialize("a", "b", "c") }},
	{"initialize preparing", func(w *world) { w.initialize("a", "b", "c"); w.silence("c"); w.until(Preparing) }},
	{"initialized", func(w *world) { w.initialize("a", "b", "c"); w.until(Initialized) }},
	{"initialize failed", func(w *world) {
		w.initialize("a", "b", "c")
		w.rec = w.rec.clone()
		w.rec.State, w.rec.Message = Failed, "no room"
	}},
	{"initialize, wrong size", func(w *world) { w.initialize("a", "b") }},
	{"initialize being reset", func(w *world) { w.initialize("a", "b", "c"); w.until(Reconfiguring); w.silence("c"); w.reset(false) }},
}

func (w *world) join(peers ...string) {
	w.t.Helper()
	if _, _, err := w.begin(w.ask(byJoin, joinOf(1, peers...))); err != nil {
		w.t.Fatalf("start: %v", err)
	}
}

func (w *world) initialize(peers ...string) {
	w.t.Helper()
	if _, _, err := w.begin(w.ask(byInitialize, joinOf(1, peers...))); err != nil {
		w.t.Fatalf("initialize: %v", err)
	}
}

func (w *world) update2() {
	w.t.Helper()
	if _, _, err := w.begin(w.ask(byJoin, joinOf(2, "a", "b", "c"))); err != nil {
		w.t.Fatalf("start: %v", err)
	}
}

func (w *world) silence(names ...string) {
	for _, n := range names {
		w.sleds[sledNamed(n)].silent = true
	}
}

// until makes steps until the rack is in a state.
func (w *world) until(s State) {
	w.t.Helper()
	for n := 0; w.rec.State != s; n++ {
		if n > 20 {
			w.t.Fatalf("the rack does not get to %s but is in %s", s, w.rec.State)
		}
		w.step(1)
	}
}

// What each request comes to in each situation: the code that it is refused with, "same" when it changes nothing, "waits" or
// the generation of complete, or the state that it leads to.
var outcomes = `
situation                     | start     | other config | other sleds | initialize | other initialize | complete
nothing                       | requested | requested | requested | requested | requested | MultirackJoinNotStarted
requested                     | same | requested | requested | MultirackJoinInProgress | MultirackJoinInProgress | waits
starting                      | same | starting | requested | MultirackJoinInProgress | MultirackJoinInProgress | waits
reconfiguring                 | same | trust_quorum_reconfigure | requested | MultirackJoinInProgress | MultirackJoinInProgress | waits
preparing                     | same | trust_quorum_preparing | requested | MultirackJoinInProgress | MultirackJoinInProgress | waits
committing, no ack            | same | trust_quorum_committing | failed | MultirackJoinInProgress | MultirackJoinInProgress | waits
committing, too few           | same | trust_quorum_committing | failed | MultirackJoinInProgress | MultirackJoinInProgress | waits
committing, enough            | same | trust_quorum_committing | requested | MultirackJoinInProgress | MultirackJoinInProgress | waits
starting agents               | same | start_sled_agents | MembershipChangeNoLongerAllowed | MultirackJoinInProgress | MultirackJoinInProgress | waits
configuring, the first config | same | configuring_network | MembershipChangeNoLongerAllowed | MultirackJoinInProgress | MultirackJoinInProgress | waits
configuring, a later config   | same | configuring_network | MembershipChangeNoLongerAllowed | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinPendingConfigUpdate
awaiting completion           | same | configuring_network | MembershipChangeNoLongerAllowed | MultirackJoinInProgress | MultirackJoinInProgress | 1
sealed, preparing             | same | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress | waits
sealed, configuring           | same | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress | waits
completed                     | MultirackJoinCompleted | MultirackJoinCompleted | MultirackJoinCompleted | MultirackJoinCompleted | MultirackJoinCompleted | 1
completed by an older writer  | MultirackJoinCompleted | MultirackJoinCompleted | MultirackJoinCompleted | MultirackJoinCompleted | MultirackJoinCompleted | MultirackJoinGenerationUnavailable
failed                        | MultirackJoinFailed | MultirackJoinFailed | MultirackJoinFailed | MultirackJoinFailed | MultirackJoinFailed | MultirackJoinFailed
wrong size                    | same | invalid_membership_size | requested | MultirackJoinInProgress | MultirackJoinInProgress | waits
being reset                   | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress
completed, being reset        | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress | 1
initialize requested          | StillInitializing | StillInitializing | StillInitializing | same | StillInitializing | StillInitializing
initialize preparing          | StillInitializing | StillInitializing | StillInitializing | same | StillInitializing | StillInitializing
initialized                   | AlreadyInitialized | AlreadyInitialized | AlreadyInitialized | same | AlreadyInitialized | AlreadyInitialized
initialize failed             | InitializationFailed | InitializationFailed | InitializationFailed | InitializationFailed | InitializationFailed | InitializationFailed
initialize, wrong size        | StillInitializing | StillInitializing | StillInitializing | same | StillInitializing | StillInitializing
initialize being reset        | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress | MultirackJoinInProgress | StillInitializing
`

func TestRequests_InEverySituation(t *testing.T) {
	want := map[string][]string{}
	for line := range strings.Lines(strings.TrimSpace(outcomes)) {
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		want[cells[0]] = cells[1:]
	}
	requests := want["situation"]
	if len(want) != len(situations)+1 {
		t.Errorf("%d situations, %d rows", len(situations), len(want)-1)
	}
	for _, s := range situations {
		for i, request := range requests {
			w := worldOf(t, "a", "b", "c", "d")
			s.get(w)
			if got := w.outcome(request); len(want[s.name]) <= i || got != want[s.name][i] {
				t.Errorf("%s, %s: got %s", s.name, request, got)
			}
		}
	}
}

// outcome makes a request and says in a word what came of it.
func (w *world) outcome(request string) string {
	if request == "complete" {
		generation, done, err := w.complete()
		switch {
		case err != nil:
			return code(err)
		case !done:
			return "waits"
		}
		return fmt.Sprint(generation)
	}
	j := joinOf(1, "a", "b", "c")
	if w.rec.exists() {
		j = &wire.JoinRequest{TrustQuorumPeers: w.rec.Peers, RackNetworkConfig: w.configs[w.rec.Accepted]}
	}
	kind := byJoin
	switch request {
	case "other config":
		j.RackNetworkConfig = configNumber(7)
	case "other sleds":
		j.TrustQuorumPeers = sledsNamed("b,c,d")
	case "initialize":
		kind = byInitialize
	case "other initialize":
		kind, j.TrustQuorumPeers = byInitialize, sledsNamed("b,c,d")
	}
	out, changed, err := w.begin(w.ask(kind, j))
	switch {
	case err != nil:
		return code(err)
	case out.ID == "" || out.Generation == 0:
		return "an answer without id or generation"
	case !changed:
		return "same"
	}
	return string(w.rec.State)
}

// A refusal tells what stands against it in words, without repeating the request.
func TestRefusals_SayWhatStandsAgainstThem(t *testing.T) {
	for _, c := range []struct{ situation, request, says string }{
		{"failed", "start", "only 0 of the 2 sleds needed had committed"},
		{"failed", "complete", "reset the rack to begin anew"},
		{"initialize failed", "initialize", "no room"},
		{"being reset", "start", "repeat the reset"},
		{"configuring, a later config", "complete", "network config 2 is accepted and not written yet"},
	} {
		w := worldOf(t, "a", "b", "c", "d")
		for _, s := range situations {
			if s.name == c.situation {
				s.get(w)
			}
		}
		var err error
		if c.request == "complete" {
			_, _, err = w.complete()
		} else {
			kind := map[string]string{"start": byJoin, "initialize": byInitialize}[c.request]
			_, _, err = begin(w.rec.clone(), kind, normal(joinOf(7, "a", "b", "c")), 7, fresh{})
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s, %s: %v, want %q", c.situation, c.request, err, c.says)
		}
	}
}

// After commits began another epoch may follow once threshold + tolerance have committed, whatever the size.
func TestCorrection_WhileCommitting_ForEverySize(t *testing.T) {
	for n := quorum.MinMembers; n <= quorum.MaxMembers; n++ {
		peers := sledsNamed("s01.." + fmt.Sprintf("s%02d", n))
		tolerance := slices.IndexFunc([]int{4, 8, 15, 23, 32}, func(most int) bool { return n <= most })
		enough := n/2 + 1 + tolerance
		for _, committed := range []int{0, enough - 1, enough, n - 1} {
			r := &record{
				Kind: byJoin, ID: "1", RackID: "2", State: Committing, Peers: peers, Accepted: 1, Epoch: 5, Committed: peers[:committed],
				Config: &quorum.Configuration{Epoch: 5, Threshold: n/2 + 1},
			}
			for _, b := range peers {
				r.Config.Members = append(r.Config.Members, quorum.Member{Baseboard: b})
			}
			others := append(slices.Clone(peers[:n-1]), sledNamed("x"))
			changed, _, err := begin(r, byJoin, &wire.JoinRequest{TrustQuorumPeers: others, RackNetworkConfig: configNumber(1)}, 0, fresh{})
			if err != nil || !changed {
				t.Fatalf("%d sleds: %v", n, err)
			}
			ok := r.State == Failed && r.LastCommitted == nil && slices.Equal(r.Peers, peers) && strings.Contains(r.Message, fmt.Sprintf("only %d of the %d", committed, enough))
			if committed >= enough {
				ok = r.State == Requested && *r.LastCommitted == 5 && slices.Equal(r.Peers, others) && r.Message == ""
			}
			if !ok {
				t.Errorf("%d of %d sleds had committed: %s", committed, n, encodeRecord(r))
			}
		}
	}
}
