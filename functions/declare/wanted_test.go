package declare

import (
	"slices"
	"testing"

	"muster/wire"
)

func TestRedeclare(t *testing.T) {
	for name, c := range map[string]struct {
		before  string // "": the hive is not declared
		changes []change
		after   string // "": as it was
		refused wire.Code
	}{
		"the first declaration makes the record": {
			"", []change{setTo("atlas", wire.Up)}, `{"agents":{"atlas":{"state":"up"}}}`, "",
		},
		"a record without agents is a first declaration too": {
			`{}`, []change{setTo("atlas", wire.Up)}, `{"agents":{"atlas":{"state":"up"}}}`, "",
		},
		"declaring one preserves every other": {
			`{"agents":{"a":{"state":"up"},"b":{"state":"paused"},"c":{"state":"destroyed"},"d":{"state":"offline"}}}`,
			[]change{setTo("e", wire.Up)},
			`{"agents":{"a":{"state":"up"},"b":{"state":"paused"},"c":{"state":"destroyed"},"d":{"state":"offline"},"e":{"state":"up"}}}`, "",
		},
		"declaring one replaces only its own": {
			`{"agents":{"a":{"state":"up"},"b":{"state":"up"},"c":{"state":"up"}}}`,
			[]change{setTo("b", wire.Paused)},
			`{"agents":{"a":{"state":"up"},"b":{"state":"paused"},"c":{"state":"up"}}}`, "",
		},
		"declaring what is declared changes nothing": {
			`{"agents":{"a":{"state":"up"}}}`, []change{setTo("a", wire.Up)}, "", "",
		},
		"names differ by case": {
			`{"agents":{"Atlas":{"state":"up"}}}`, []change{setTo("atlas", wire.Paused)},
			`{"agents":{"Atlas":{"state":"up"},"atlas":{"state":"paused"}}}`, "",
		},
		"destroyed to up is refused": {
			`{"agents":{"a":{"state":"destroyed"}}}`, []change{setTo("a", wire.Up)}, "", wire.AgentDestroyed,
		},
		"destroyed to offline is refused": {
			`{"agents":{"a":{"state":"destroyed"}}}`, []change{setTo("a", wire.Offline)}, "", wire.AgentDestroyed,
		},
		"destroyed to paused is refused": {
			`{"agents":{"a":{"state":"destroyed"}}}`, []change{setTo("a", wire.Paused)}, "", wire.AgentDestroyed,
		},
		"destroyed to destroyed is no transition": {
			`{"agents":{"a":{"state":"destroyed"}}}`, []change{setTo("a", wire.Destroyed)}, "", "",
		},
		"a destroyed agent does not block another": {
			`{"agents":{"a":{"state":"destroyed"},"b":{"state":"up"}}}`, []change{setTo("b", wire.Paused)},
			`{"agents":{"a":{"state":"destroyed"},"b":{"state":"paused"}}}`, "",
		},
		"a new agent may be destroyed at once": {
			"", []change{setTo("a", wire.Destroyed)}, `{"agents":{"a":{"state":"destroyed"}}}`, "",
		},
		"create reuses a destroyed name": {
			`{"agents":{"a":{"state":"destroyed"}}}`, []change{createAs("a", wire.Paused)}, `{"agents":{"a":{"state":"paused"}}}`, "",
		},
		"create touches no other destroyed agent": {
			`{"agents":{"a":{"state":"destroyed"},"b":{"state":"destroyed"},"c":{"state":"destroyed"}}}`,
			[]change{createAs("b", wire.Up)},
			`{"agents":{"a":{"state":"destroyed"},"b":{"state":"up"},"c":{"state":"destroyed"}}}`, "",
		},
		"create leaves an agent that is not destroyed exactly as it was": {
			`{"agents":{"a":{ "state" : "up", "cpu":2 }}}`, []change{createAs("a", wire.Paused)}, "", "",
		},
		"create does not even destroy one": {
			`{"agents":{"a":{"state":"up"}}}`, []change{createAs("a", wire.Destroyed)}, "", "",
		},
		"create touches nobody else": {
			`{"agents":{"a":{"state":"up"},"c":{"state":"destroyed","x":1}},"note":1e2}`, []change{createAs("b", wire.Up)},
			`{"agents":{"a":{"state":"up"},"b":{"state":"up"},"c":{"state":"destroyed","x":1}},"note":1e2}`, "",
		},
		"create refuses an agent that cannot be read": {
			`{"agents":{"a":{"state":"banana"}}}`, []change{createAs("a", wire.Up)}, "", wire.CorruptRecord,
		},
		"an agent with an unknown state is not written over": {
			`{"agents":{"a":{"state":"banana"}}}`, []change{setTo("a", wire.Up)}, "", wire.CorruptRecord,
		},
		"an agent with an unknown state is not even destroyed": {
			`{"agents":{"a":{"state":"banana"}}}`, []change{setTo("a", wire.Destroyed)}, "", wire.CorruptRecord,
		},
		"an agent with an unknown state holds up no other": {
			`{"agents":{"a":{"state":"banana","x":[1, 2]},"b":{"state":"up"}}}`, []change{setTo("b", wire.Paused), createAs("c", wire.Up)},
			`{"agents":{"a":{"state":"banana","x":[1, 2]},"b":{"state":"paused"},"c":{"state":"up"}}}`, "",
		},
		"many at once, new ones and old ones": {
			`{"agents":{"b":{"state":"up"},"d":{"state":"up"}}}`,
			[]change{setTo("a", wire.Up), setTo("b", wire.Offline), setTo("c", wire.Paused), setTo("d", wire.Up), setTo("e", wire.Destroyed)},
			`{"agents":{"a":{"state":"up"},"b":{"state":"offline"},"c":{"state":"paused"},"d":{"state":"up"},"e":{"state":"destroyed"}}}`, "",
		},
		"many at once change nothing when all is so already": {
			`{"agents":{"a":{"state":"up"},"b":{"state":"destroyed"}}}`, []change{setTo("a", wire.Up), setTo("b", wire.Destroyed)}, "", "",
		},
		"none at once change nothing": {`{"agents":{"a":{"state":"up"}}}`, nil, "", ""},
		"none at once make no record": {"", nil, "", ""},
		"many at once are all refused for one destroyed": {
			`{"agents":{"b":{"state":"up"},"c":{"state":"destroyed"}}}`,
			[]change{setTo("a", wire.Up), setTo("b", wire.Paused), setTo("c", wire.Up), setTo("d", wire.Up)}, "", wire.AgentDestroyed,
		},
		"many at once are all refused for one that cannot be read": {
			`{"agents":{"b":{"state":"up"},"c":7}}`,
			[]change{setTo("a", wire.Up), setTo("b", wire.Paused), setTo("c", wire.Up)}, "", wire.CorruptRecord,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := read(t, c.before)
			base := text(d)
			got, changed, err := try(d, roomy, c.changes...)
			var code wire.Code
			if err != nil {
				code = wire.AsError(err).Code
			}
			if code != c.refused || changed != (c.after != "") {
				t.Fatalf("changed %v, error %v; want changed %v, code %q", changed, err, c.after != "", c.refused)
			}
			want := c.after
			if want == "" {
				want = base
			}
			if text(got) != want {
				t.Errorf("record\n got %s\nwant %s", text(got), want)
			}
			if text(d) != base {
				t.Errorf("the document others read was changed to %s", text(d))
			}
			if again, changed, err := try(got, roomy, c.changes...); err == nil && c.refused == "" && (changed || text(again) != want) {
				t.Errorf("the same again makes it %s", text(again))
			}
		})
	}
}

// Every state and none, moved to every state, by set and by create.
func TestRedeclare_EveryTransition(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		for _, from := range append(wire.States(), "") {
			for _, to := range wire.States() {
				before := `{"agents":{"m":{"state":"up"}}}`
				if from != "" {
					before = `{"agents":{"a":{"state":"` + string(from) + `"},"m":{"state":"up"}}}`
				}
				want, refused := to, false
				switch {
				case from == "":
				case fresh && from != wire.Destroyed:
					want = from
				case !fresh && from == wire.Destroyed && to != wire.Destroyed:
					want, refused = from, true
				}
				got, changed, err := try(read(t, before), roomy, change{"a", to, fresh})
				if (err != nil) != refused || refused && wire.AsError(err).Code != wire.AgentDestroyed {
					t.Errorf("create %v, %q to %s: %v", fresh, from, to, err)
				}
				if changed != (want != from) || agents(got) != "a:"+string(want)+" m:up" {
					t.Errorf("create %v, %q to %s: %s, changed %v, want a:%s", fresh, from, to, agents(got), changed, want)
				}
			}
		}
	}
}

func TestRedeclare_RefusalNamesTheAgent(t *testing.T) {
	d := read(t, `{"agents":{"gone":{"state":"destroyed"},"odd":{"state":"banana"}}}`)
	for _, c := range []struct {
		agent string
		code  wire.Code
	}{{"gone", wire.AgentDestroyed}, {"odd", wire.CorruptRecord}} {
		_, _, err := try(d, roomy, setTo("first", wire.Up), setTo(c.agent, wire.Up))
		if e := wire.AsError(err); e.Code != c.code || e.Details["agent"] != c.agent {
			t.Errorf("%s: %v, details %v", c.agent, e, e.Details)
		}
	}
}

// A refused change must leave the document as it was in every respect, since others of its group go on with it.
func TestRedeclare_RefusedLeavesTheAccountsAlone(t *testing.T) {
	d := codec.Clone(read(t, `{"agents":{"a":{"state":"up"},"b":{"state":"destroyed"},"c":{"state":"paused","x":1}},"y":2}`))
	size, room, count, base := d.size, d.room, len(d.agents), text(d)
	for name, changes := range map[string][]change{
		"destroyed": {setTo("0", wire.Up), setTo("a", wire.Destroyed), setTo("b", wire.Up)},
		"too large": {setTo("0", wire.Up), setTo("a", wire.Destroyed)},
	} {
		limit := roomy
		if name == "too large" {
			limit = 10
		}
		if changed, err := redeclare(d, changes, limit); changed || err == nil {
			t.Fatalf("%s: changed %v, %v", name, changed, err)
		}
		if d.size != size || d.room != room || len(d.agents) != count || text(d) != base {
			t.Errorf("%s: the document is another one", name)
		}
	}
}

func TestStates_LongestIsTheEnd(t *testing.T) {
	for _, s := range wire.States() {
		if spare(s) < 0 || spare(s) != len(longest)-len(s) {
			t.Errorf("an agent that is %s is said to grow by %d", s, spare(s))
		}
	}
	if !slices.Contains(wire.States(), longest) || spare(wire.Destroyed) != 0 {
		t.Errorf("the longest state is %q: the room that is kept is for destroying", longest)
	}
}
