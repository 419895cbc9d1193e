package declare

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"muster/wire"
)

// model is the whole of section 3 of the contract on one hive, in maps.
type model struct {
	agents   map[string]wire.State
	revision uint64 // 0: not declared
	last     uint64 // of the bucket
}

// change is what one request wants of the model. It returns the code of its refusal.
func (m *model) change(want map[string]wire.State, create bool, ifRevision *uint64, dry bool) (next map[string]wire.State, changed bool, _ wire.Code) {
	if ifRevision != nil && *ifRevision != m.revision {
		return nil, false, wire.RevisionMismatch
	}
	next = maps.Clone(m.agents)
	for name, to := range want {
		from, there := m.agents[name]
		switch {
		case !there, create && from == wire.Destroyed:
			next[name] = to
		case create:
		case from == wire.Destroyed && to != wire.Destroyed:
			return nil, false, wire.AgentDestroyed
		default:
			next[name] = to
		}
	}
	changed = !maps.Equal(next, m.agents)
	if changed && !dry {
		m.agents = next
		m.last++
		m.revision = m.last
	}
	return next, changed, ""
}

// Random requests, one after the other, each held against the model: its answer in full, and what a view shows.
func TestModel_Property_EveryAnswerIsTheModels(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig()
		m := &model{agents: map[string]wire.State{}}
		for range rapid.IntRange(1, 25).Draw(rt, "requests") {
			step(t, rt, r, m)
			view(t, rt, r, m)
		}
	})
}

func step(t *testing.T, rt *rapid.T, r *rig, m *model) {
	if rapid.IntRange(0, 14).Draw(rt, "by hand") == 0 {
		r.wantedLog.Delete("h", rapid.Bool().Draw(rt, "purge"))
		m.last++
		m.revision, m.agents = 0, map[string]wire.State{}
		return
	}
	want := map[string]wire.State{anyAgent.Draw(rt, "agent"): anyState.Draw(rt, "state")}
	op := rapid.SampledFrom([]string{"set", "create", "apply", "dry"}).Draw(rt, "op")
	if op == "apply" || op == "dry" {
		want = rapid.MapOfN(anyAgent, anyState, 0, 4).Draw(rt, "agents")
	}
	var ifRevision *uint64
	switch rapid.IntRange(0, 5).Draw(rt, "if_revision") {
	case 0:
		ifRevision = new(m.revision)
	case 1:
		ifRevision = new(rapid.Uint64Range(0, m.last+1).Draw(rt, "perhaps wrong"))
	}
	reply := rapid.SampledFrom([]string{"", "", wire.ReplyBrief}).Draw(rt, "reply")
	next, changed, code := m.change(want, op == "create", ifRevision, op == "dry")

	var got wire.Declaration
	var err *wire.Error
	if op == "set" || op == "create" {
		h := r.set
		if op == "create" {
			h = r.create
		}
		for name, s := range want {
			got, err = ask(t, h, wire.Set{State: s, IfRevision: ifRevision, Reply: reply}, "h", name)
		}
	} else {
		body := wire.Apply{Agents: map[string]*wire.Agent{}, DryRun: op == "dry", IfRevision: ifRevision, Reply: reply}
		for name, s := range want {
			body.Agents[name] = &wire.Agent{State: s}
		}
		got, err = ask(t, r.apply, body, "h")
	}

	what := fmt.Sprintf("%s %v, if_revision %v", op, want, ifRevision != nil)
	switch {
	case code != "":
		if err == nil || err.Code != code || code == wire.RevisionMismatch && err.Details["revision"] != m.revision {
			rt.Fatalf("%s: %+v, %v, want %s at revision %d", what, got, err, code, m.revision)
		}
	case err != nil:
		rt.Fatalf("%s: %v", what, err)
	case got.Hive != "h" || got.Revision != m.revision || got.Changed != changed:
		rt.Fatalf("%s: revision %d, changed %v, want %d, %v", what, got.Revision, got.Changed, m.revision, changed)
	case reply == wire.ReplyBrief:
		if got.Agents != nil {
			rt.Fatalf("%s: a brief reply has agents", what)
		}
	default:
		sameStates(rt, what, got.Agents, next)
	}
}

// view compares what is stored with the model.
func view(t *testing.T, rt *rapid.T, r *rig, m *model) {
	got, err := ask(t, r.view, struct{}{}, "h")
	if m.revision == 0 {
		if err == nil || err.Code != wire.HiveNotDeclared {
			rt.Fatalf("view of what is not declared: %+v, %v", got, err)
		}
		return
	}
	if err != nil || got.Revision != m.revision || got.Changed {
		rt.Fatalf("view: %+v, %v, want revision %d", got, err, m.revision)
	}
	sameStates(rt, "view", got.Agents, m.agents)
	if value, revision := r.stored(t, "h"); revision != m.revision || text(read(t, value)) != value {
		rt.Fatalf("stored at %d, want %d: %s", revision, m.revision, value)
	}
}

func sameStates(rt *rapid.T, what string, got map[string]wire.Agent, want map[string]wire.State) {
	states := map[string]wire.State{}
	for name, a := range got {
		states[name] = a.State
	}
	if !maps.Equal(states, want) {
		rt.Fatalf("%s: agents %v, want %v", what, states, want)
	}
}
