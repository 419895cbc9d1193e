package hive

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"muster/wire"
)

// How long the hive waits after a failed change: 1 s at first, doubled each time, at most 30 s.
const (
	retryFirst = time.Second
	retryMax   = 30 * time.Second
)

// parallel is how many changes run at once.
const parallel = 8

// plan is what the hive knows: what it should run, what it runs, what it is at. It is changed by the functions of this
// file only, which take the time and do nothing else.
type plan struct {
	revision uint64 // of the declaration it follows, 0 for none seen
	agents   map[string]*agent
	running  int // changes under way
}

// agent is one agent of the hive. Its state is unknown until a change succeeded in this process: what ran before a
// restart is not remembered, so everything is set once more.
type agent struct {
	wanted   wire.State // "" when the declared one cannot be read
	state    wire.State
	problem  string
	failures int
	retryAt  time.Time
	busy     bool
}

// action is a change to carry out.
type action struct {
	agent string
	state wire.State
}

func newPlan() *plan { return &plan{agents: map[string]*agent{}} }

// declare takes a declaration. One that cannot be read changes nothing: the hive goes on with what it has. An agent
// whose state cannot be read is left as it is; nothing is ever undone because it is missing.
func (p *plan) declare(revision uint64, record []byte) error {
	var d struct {
		Agents map[string]jsontext.Value `json:"agents"`
	}
	if err := json.Unmarshal(record, &d); err != nil {
		return fmt.Errorf("read declaration of revision %d: %w", revision, err)
	}
	p.revision = revision
	for name, value := range d.Agents {
		a := p.agents[name]
		if a == nil {
			a = &agent{state: wire.StateUnknown}
			p.agents[name] = a
		}
		var declared wire.Agent
		if json.Unmarshal(value, &declared) != nil || !declared.State.Valid() {
			a.wanted, a.problem = "", "the declared state cannot be read"
			continue
		}
		if a.wanted != declared.State {
			a.wanted, a.failures, a.retryAt, a.problem = declared.State, 0, time.Time{}, ""
		}
	}
	return nil
}

// start takes what is to be done now; done must be told how each ended.
func (p *plan) start(now time.Time) []action {
	var actions []action
	for _, name := range slices.Sorted(maps.Keys(p.agents)) {
		a := p.agents[name]
		if p.running >= parallel {
			break
		}
		if a.due() && !now.Before(a.retryAt) {
			a.busy = true
			p.running++
			actions = append(actions, action{name, a.wanted})
		}
	}
	return actions
}

func (a *agent) due() bool { return !a.busy && a.wanted != "" && a.state != a.wanted }

// next is when start has something to do although nothing happens before; zero for never.
func (p *plan) next() time.Time {
	var next time.Time
	for _, a := range p.agents {
		if a.due() && (next.IsZero() || a.retryAt.Before(next)) {
			next = a.retryAt
		}
	}
	return next
}

// done takes the end of an action. A failed change leaves the agent in a state that nobody knows.
func (p *plan) done(did action, problem string, now time.Time) {
	a := p.agents[did.agent]
	a.busy = false
	p.running--
	if a.state = did.state; problem != "" {
		a.state = wire.StateUnknown
	}
	switch {
	case a.wanted != did.state: // the wish has changed meanwhile, and what is said of it stays
	case problem == "":
		a.problem, a.failures = "", 0
	default:
		a.problem = problem
		a.retryAt = now.Add(min(retryFirst<<min(a.failures, 10), retryMax))
		a.failures++
	}
}

// report is what the hive says of itself.
func (p *plan) report(now time.Time) wire.Report {
	r := wire.Report{WantedRevision: p.revision, ReportedAt: now.UTC(), Agents: map[string]wire.ReportAgent{}}
	for name, a := range p.agents {
		r.Agents[name] = wire.ReportAgent{State: a.state, Error: a.problem}
	}
	return r
}
