package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"muster/runtime/natstest"
	"muster/wire"
)

// What operators, or later versions of the product, may have put into a record.
const handmade = `{"top":9007199254740993,"agents":{` +
	`"a":{"state":"up","hw":{"serial":9007199254740993,"r":1.10,"e":1E+2,"z":-0,"list":[1, 2,{"deep":null}]}},` +
	`"b":{"note":"é \u00e9 \/","state":"offline","n":0.1e-7},` +
	`"c":{"state":"paused"}},` +
	`"nested":{"b":1,"a":{"n":9007199254740993,"agents":{"x":1}}}, "text" : "<&>\u2028","empty":{},"null":null}`

// unknowns are the members of it that nobody here knows, by their paths.
var unknowns = []string{
	"top", "nested", "text", "empty", "null", "agents.a.hw", "agents.b.note", "agents.b.n",
}

func TestField_B138_UnknownMembersStay(t *testing.T) {
	s := natstest.Start(t)
	a, b := pair(t, s.URL(), s.URL(), 1)
	nc := natstest.Connect(t, s.URL())
	kv := wanted(t, nc)
	kv.put("h1", handmade)
	gone := map[string]bool{}
	for i, step := range []struct{ op, body, agent, want string }{
		{"set.h1.new", state("up"), "new", "up"},
		{"set.h1.c", state("up"), "c", "up"},
		{"set.h1.a", state("paused"), "a", "paused"},
		{"create.h1.a", state("up"), "a", "paused"},
		{"set.h1.b", state("destroyed"), "b", "destroyed"},
		{"apply.h1", `{"agents":{"a":{"state":"offline"},"c":{"state":"paused"}}}`, "a", "offline"},
		{"create.h1.b", state("up"), "b", "up"},
		{"set.h1.a", state("destroyed"), "a", "destroyed"},
		{"set.h1.b", `{"state":"paused","reply":"brief"}`, "b", "paused"},
	} {
		ask(t, nc, []*replica{a, b}[i%2].subject(step.op), step.body).ok(t)
		value, _ := kv.value("h1")
		if got := string(member(t, value, "agents."+step.agent+".state")); got != `"`+step.want+`"` {
			t.Errorf("after %s: %s is %s, want %s", step.op, step.agent, got, step.want)
		}
		if step.want == "destroyed" {
			gone["agents."+step.agent] = true // its own may go
		}
		for _, path := range unknowns {
			want, got := member(t, handmade, path), member(t, value, path)
			if bytes.Equal(want, got) || got == nil && gone[path[:min(len(path), len("agents.x"))]] {
				continue
			}
			t.Errorf("after %s: %s is %s, was %s", step.op, path, got, want)
		}
	}
}

// member is the bytes of a member at a dotted path, nil when it is not there.
func member(t *testing.T, value, path string) json.RawMessage {
	t.Helper()
	raw := json.RawMessage(value)
	for _, name := range bytes.Split([]byte(path), []byte(".")) {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			t.Fatalf("%s of %s: %v", path, value, err)
		}
		if raw = object[string(name)]; raw == nil {
			return nil
		}
	}
	return raw
}

// An agent whose state a later version knows, and an object that cannot be read at all.
func TestField_B138_WhatCannotBeRead(t *testing.T) {
	s := natstest.Start(t)
	startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	kv := wanted(t, nc)
	for i, raw := range []string{`{"state":"hibernating","until":9007199254740993}`, `{"state":5}`, `{}`, `"up"`, `null`, `[1]`, `{"state":"up","state":"paused"}`} {
		hive := fmt.Sprintf("h%d", i)
		rev := kv.put(hive, `{"agents":{"a":{"state":"up"},"odd":`+raw+`}}`)
		for _, op := range []string{"set", "create"} {
			e := ask(t, nc, "muster.declare."+op+"."+hive+".odd", state("up")).refused(t, wire.CorruptRecord)
			if e.Details["key"] != hive || detail(e, "revision") != int64(rev) || e.Details["bucket"] != "muster_wanted" {
				t.Errorf("%s of %s: details %v", op, raw, e.Details)
			}
		}
		ask(t, nc, "muster.declare.apply."+hive, `{"agents":{"a":{"state":"paused"},"odd":{"state":"up"}}}`).refused(t, wire.CorruptRecord)
		if _, at := kv.value(hive); at != rev {
			t.Errorf("%s: a refused change was stored", raw)
		}
		ask(t, nc, "muster.declare.set."+hive+".a", state("paused")).ok(t)
		ask(t, nc, "muster.declare.create."+hive+".b", state("up")).ok(t)
		value, _ := kv.value(hive)
		if got := member(t, value, "agents.odd"); string(got) != raw {
			t.Errorf("%s became %s", raw, got)
		}
		var view struct {
			Agents map[string]json.RawMessage `json:"agents"`
		}
		got := ask(t, nc, "muster.declare.view."+hive, "")
		if err := json.Unmarshal(got.raw, &view); err != nil || got.failure != nil || string(view.Agents["odd"]) != raw {
			t.Errorf("%s is viewed as %s", raw, got.raw)
		}
	}
	for i, whole := range []string{"", "null", "[]", `"x"`, "7", "{", `{"agents":[]}`, `{"agents":null}`, `{"agents":{"a":{"state":"up"}}} x`, "\xff\xfe"} {
		hive := fmt.Sprintf("broken%d", i)
		rev := kv.put(hive, whole)
		for _, op := range []string{"set." + hive + ".a", "create." + hive + ".a"} {
			got := ask(t, nc, "muster.declare."+op, state("up"))
			if got.failure == nil || got.failure.Code != wire.CorruptRecord {
				t.Errorf("%s over %q: %s", op, whole, got.raw)
			}
		}
		if got := ask(t, nc, "muster.declare.view."+hive, ""); got.failure == nil || got.failure.Code != wire.CorruptRecord {
			t.Errorf("view of %q: %s", whole, got.raw)
		}
		if value, at := kv.value(hive); value != whole || at != rev {
			t.Errorf("%q was written over: %q", whole, value)
		}
	}
	var page struct {
		Hives []wire.HiveLine `json:"hives"`
	}
	ask(t, nc, "muster.declare.list", "").into(t, &page)
	if len(page.Hives) != 17 {
		t.Errorf("%d hives listed, want all 17, those that cannot be read too", len(page.Hives))
	}
}
