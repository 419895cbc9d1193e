package join

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"muster/wire"
)

// schema is what of OpenAPI stands in testdata/join_state.json: the reference's MultirackJoinServiceState and what belongs to
// it, without its comments.
type schema struct {
	Ref        string            `json:"$ref"`
	Type       string            `json:"type"`
	Enum       []string          `json:"enum"`
	Nullable   bool              `json:"nullable"`
	Required   []string          `json:"required"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	Additional *schema           `json:"additionalProperties"`
	OneOf      []schema          `json:"oneOf"`
	AllOf      []schema          `json:"allOf"`
}

type schemas map[string]schema

func readSchemas(t *testing.T) (all schemas) {
	b, err := os.ReadFile("testdata/join_state.json")
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// check returns what is wrong with v. Schemas that are not there are texts or, as the contract has it for a configuration's
// members, pairs.
func (all schemas) check(at string, s schema, v any) []string {
	wrong := func(format string, args ...any) []string {
		return []string{at + ": " + fmt.Sprintf(format, args...)}
	}
	if v == nil && s.Nullable {
		return nil
	}
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		if name == "ConfigurationMember" {
			if pair, ok := v.([]any); !ok || len(pair) != 2 {
				return wrong("want a pair")
			}
			return nil
		}
		if s, ok = all[name]; !ok {
			s = schema{Type: "string"}
		}
		return all.check(at, s, v)
	}
	var problems []string
	for _, s := range s.AllOf {
		problems = append(problems, all.check(at, s, v)...)
	}
	if len(s.AllOf) > 0 {
		return problems
	}
	if len(s.OneOf) > 0 {
		for _, s := range s.OneOf {
			if problems = all.check(at, s, v); len(problems) == 0 {
				return nil
			}
		}
		return wrong("is none of the %d that there are: %v", len(s.OneOf), v)
	}
	switch x := v.(type) {
	case map[string]any:
		if s.Type != "object" {
			return wrong("want %s", s.Type)
		}
		for _, name := range s.Required {
			if _, ok := x[name]; !ok {
				problems = append(problems, wrong("%s is not there", name)...)
			}
		}
		for name, v := range x {
			p, known := s.Properties[name]
			if !known && s.Additional != nil {
				p, known = *s.Additional, true
			}
			if known {
				problems = append(problems, all.check(at+"."+name, p, v)...)
			}
		}
	case []any:
		if s.Type != "array" {
			return wrong("want %s", s.Type)
		}
		for i, v := range x {
			problems = append(problems, all.check(fmt.Sprintf("%s[%d]", at, i), *s.Items, v)...)
		}
	case string:
		if s.Type != "string" || len(s.Enum) > 0 && !slices.Contains(s.Enum, x) {
			return wrong("%q, want %s %v", x, s.Type, s.Enum)
		}
	case float64:
		if s.Type != "integer" || x != float64(int64(x)) || x < 0 {
			return wrong("%v, want %s", x, s.Type)
		}
	default:
		return wrong("%v, want %s", v, s.Type)
	}
	return problems
}

// asJSON is a status as an operator gets it.
func asJSON(t *testing.T, r *record) map[string]any {
	t.Helper()
	b, err := json.Marshal(describe("r1", r))
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// Every status is what the reference says of its state, with every member that it names; what we add stands beside it.
func TestStatus_IsTheReferencesForEveryState(t *testing.T) {
	all := readSchemas(t)
	variants := map[string]schema{}
	for _, s := range all["MultirackJoinServiceState"].OneOf {
		variants[s.Properties["state"].Enum[0]] = s
	}
	ours := []State{ConfiguringNetwork, AwaitingCompletion, Initialized} // the reference has no such states
	seen := map[string]map[string]bool{}
	for _, c := range statuses(t) {
		m := asJSON(t, c)
		state := m["state"].(string)
		if seen[state] == nil {
			seen[state] = map[string]bool{}
		}
		for name := range m {
			seen[state][name] = true
		}
		if variant, ok := variants[state]; ok {
			if wrong := all.check(state, variant, m); len(wrong) > 0 {
				t.Errorf("%v\n%v", wrong, m)
			}
		} else if !slices.Contains(ours, State(state)) {
			t.Errorf("the reference has no state %q", state)
		}
	}
	for state, variant := range variants {
		for name := range variant.Properties {
			if state != "task_panicked" && !seen[state][name] {
				t.Errorf("%s never has %s", state, name)
			}
		}
	}
	for _, s := range ours {
		if seen[string(s)] == nil {
			t.Errorf("no status of %s was looked at", s)
		}
	}
}

// statuses are records of every state, among them an epoch that follows a committed one.
func statuses(t *testing.T) (all []*record) {
	for _, s := range situations {
		w := worldOf(t, "a", "b", "c", "d")
		s.get(w)
		all = append(all, w.rec)
	}
	w := worldOf(t, "a", "b", "c", "d")
	w.join("a", "b", "c")
	w.until(Committing)
	w.silence("c")
	w.step(1)
	w.join("a", "b", "d")
	for _, s := range []State{Reconfiguring, Committing, StartingAgents} {
		w.until(s)
		all = append(all, w.rec)
	}
	w.sleds[sledNamed("b")].broken[wire.SledStart] = 1
	w.step(1)
	return append(all, w.rec)
}

// The members that the contract adds, where they apply, and none elsewhere.
func TestStatus_MembersByState(t *testing.T) {
	const of = " rack state"
	want := map[string]string{
		"nothing":                       of,
		"requested":                     of + " generation id",
		"starting":                      of + " generation id missing",
		"reconfiguring":                 of + " generation id missing epoch members rack_id threshold",
		"preparing":                     of + " generation id missing acked_prepares config",
		"committing, no ack":            of + " generation id missing acked commit_crash_tolerance epoch fatal_errors members rack_id threshold transient_errors",
		"committing, enough":            of + " generation id missing problems acked commit_crash_tolerance epoch fatal_errors members rack_id threshold transient_errors",
		"starting agents":               of + " generation id missing sleds",
		"configuring, the first config": of + " generation id missing sleds",
		"configuring, a later config":   of + " generation id missing sleds written_generation",
		"awaiting completion":           of + " generation id sleds written_generation",
		"completed":                     of + " generation id sleds written_generation",
		"failed":                        of + " generation id message",
		"wrong size":                    of + " generation id message",
		"initialized":                   of + " generation id sleds written_generation",
	}
	for _, s := range situations {
		if want[s.name] == "" {
			continue
		}
		w := worldOf(t, "a", "b", "c", "d")
		s.get(w)
		names := strings.Fields(want[s.name])
		slices.Sort(names)
		if got := slices.Sorted(maps.Keys(asJSON(t, w.rec))); !slices.Equal(got, names) {
			t.Errorf("%s:\n got %v\nwant %v", s.name, got, names)
		}
	}
}

// An error of a sled's agent is shown until it has started, and beside it who has.
func TestStatus_LastErrorUntilStarted(t *testing.T) {
	w := worldOf(t, "a", "b", "c")
	w.join("a", "b", "c")
	w.until(StartingAgents)
	w.sleds[sledNamed("b")].broken[wire.SledStart] = 1
	w.silence("c")
	w.step(1)
	got := fmt.Sprint(asJSON(t, w.rec)["sleds"])
	for i, want := range []string{
		"start_state:map[type:started]",
		"start_state:map[last_error:Internal: it is broken type:in_progress]",
		"start_state:map[last_error:Unavailable: no answer type:in_progress]",
	} {
		id := fmt.Sprintf("sled_id:%s sled_subnet:map[net:fd00:1122:3344:20%d::/64]", w.rec.Sleds[i].ID, i+1)
		if !strings.Contains(got, want) || !strings.Contains(got, id) {
			t.Errorf("no %s or %s in %s", want, id, got)
		}
	}
	w.step(1)
	if got := describe("r1", w.rec); names(got.Missing) != "c" || got.Sleds[1].StartState != (startState{Type: "started"}) {
		t.Errorf("%+v", got)
	}
}

func TestOperation_OfEverySituation(t *testing.T) {
	want := map[string]wire.RackOperation{
		"nothing":                     {Status: "uninitialized"},
		"requested":                   {Status: "multirack_join_in_progress", ID: "1", Step: "requested"},
		"configuring, a later config": {Status: "multirack_join_in_progress", ID: "1", Step: "configuring_network"},
		"awaiting completion":         {Status: "multirack_join_in_progress", ID: "1", Step: "awaiting_completion"},
		"completed":                   {Status: "multirack_join_completed", ID: "1"},
		"failed": {Status: "multirack_join_failed", ID: "1",
			Message: "the membership was changed while epoch 1 was being committed and only 0 of the 2 sleds needed had committed"},
		"wrong size": {Status: "multirack_join_in_progress", ID: "1", Step: "invalid_membership_size",
			Message: "2 sleds cannot form a trust quorum, it takes 3 to 32; send start again with the right ones"},
		"initialize requested": {Status: "initializing", ID: "1", Step: "requested"},
		"initialize preparing": {Status: "initializing", ID: "1", Step: "trust_quorum_preparing"},
		"initialized":          {Status: "initialized", ID: "1"},
		"initialize failed":    {Status: "initialization_failed", ID: "1", Message: "no room"},
	}
	for _, s := range situations {
		if w, ok := worldOf(t, "a", "b", "c", "d"), want[s.name].Status != ""; ok {
			s.get(w)
			if got := operation(w.rec); got != want[s.name] {
				t.Errorf("%s: %+v", s.name, got)
			}
		}
	}
}

// A sled is a member only once it has committed.
func TestSledState(t *testing.T) {
	epoch := new(uint64)
	for want, id := range map[string]wire.Identity{
		"free":     {RackID: new(string)},
		"prepared": {PreparedEpoch: epoch},
		"member":   {PreparedEpoch: epoch, CommittedEpoch: epoch},
		"started":  {PreparedEpoch: epoch, CommittedEpoch: epoch, Started: true},
	} {
		if got := sledState(id); got != want {
			t.Errorf("%+v is %s, want %s", id, got, want)
		}
	}
}
