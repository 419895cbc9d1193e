package declare

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"

	"muster/wire"
)

// FuzzRewrite takes any stored value, sets or creates one agent in it, stores it and reads it again. Whatever else was in
// the record must be there afterwards, to the byte, by the standard library's reading of both.
func FuzzRewrite(f *testing.F) {
	f.Add([]byte(`{"agents":{"a":{"state":"up"}}}`), "a", byte(3), false)
	f.Add([]byte(`{ "x" : 9007199254740993, "agents" : { "b" : { "state" : "\u0075p", "y":[1, 2] } } }`), "a", byte(0), true)
	f.Fuzz(func(t *testing.T, value []byte, name string, state byte, create bool) {
		d, err := decode(value)
		if err != nil {
			if d != nil {
				t.Fatal("a document and an error")
			}
			return
		}
		if !json.Valid(value) {
			t.Fatal("what is no JSON was read")
		}
		before, once := unpack(t, value)
		first := text(d)
		same(t, "written again", first, before, once)
		if again, err := decode([]byte(first)); err != nil || agents(again) != agents(d) {
			t.Fatalf("written again as %s: %v", first, err)
		}
		if !wire.ValidName(name) {
			return // the door does not let it in
		}
		c := change{name, wire.States()[int(state)%len(wire.States())], create}
		next, changed, err := try(d, roomy, c)
		if text(d) != first {
			t.Fatalf("the document others read is now %s", text(d))
		}
		if !changed {
			if text(next) != first {
				t.Fatalf("not changed (%v), but now %s", err, text(next))
			}
			return
		}
		stored := text(next)
		checkSize(t, next)
		back, err := decode([]byte(stored))
		if err != nil {
			t.Fatalf("stored as %s: %v", stored, err)
		}
		at, found := back.find(name)
		if !found || back.agents[at].state != c.state || agents(back) != agents(next) {
			t.Fatalf("%s is stored as %s", agents(next), stored)
		}
		if once {
			after, _ := unpack(t, []byte(stored))
			own := without(t, before.agents[name])
			if !maps.EqualFunc(own, without(t, after.agents[name]), equal) {
				t.Fatalf("the agent's own members: %s are now %s", before.agents[name], after.agents[name])
			}
			before.agents[name] = after.agents[name]
		}
		same(t, "changed", stored, before, once)
	})
}

// record is a stored record as the standard library reads it.
type record struct{ top, agents map[string]json.RawMessage }

// unpack reads a record, and tells whether every member is there once, so that maps show all of it.
func unpack(t *testing.T, value []byte) (r record, once bool) {
	t.Helper()
	if err := json.Unmarshal(value, &r.top); err != nil {
		t.Fatalf("%s: %v", value, err)
	}
	r.agents = map[string]json.RawMessage{}
	if raw, ok := r.top["agents"]; ok {
		if err := json.Unmarshal(raw, &r.agents); err != nil {
			t.Fatalf("agents of %s: %v", value, err)
		}
	}
	d := read(t, string(value))
	n := len(r.top)
	if _, ok := r.top["agents"]; ok {
		n--
	}
	delete(r.top, "agents")
	return r, n == len(d.rest) && len(r.agents) == len(d.agents)
}

// same checks that a value holds what a record held.
func same(t *testing.T, what, value string, want record, once bool) {
	t.Helper()
	if !json.Valid([]byte(value)) {
		t.Fatalf("%s: no JSON: %s", what, value)
	}
	got, _ := unpack(t, []byte(value))
	if once && !(maps.EqualFunc(got.top, want.top, equal) && maps.EqualFunc(got.agents, want.agents, equal)) {
		t.Fatalf("%s: %s\nhad %s and agents %s", what, value, want.top, want.agents)
	}
}

// without are the members of an agent but its state; nothing for one that is new.
func without(t *testing.T, agent json.RawMessage) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	if agent != nil {
		if err := json.Unmarshal(agent, &m); err != nil {
			t.Fatalf("%s: %v", agent, err)
		}
	}
	delete(m, "state")
	return m
}

func equal(a, b json.RawMessage) bool { return bytes.Equal(a, b) }
