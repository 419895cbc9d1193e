package declare

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"muster/wire"
)

func TestDecode_WhatIsNoRecordIsAnErrorAndNoFreshStart(t *testing.T) {
	for name, record := range map[string]string{
		"nothing":                  "",
		"spaces":                   " \n",
		"null":                     "null",
		"array":                    `[]`,
		"string":                   `"up"`,
		"number":                   `7`,
		"words":                    `up`,
		"cut short":                `{"agents":{"a":{"state":"up"`,
		"trailing words":           `{"agents":{}} x`,
		"two documents":            `{"agents":{}}{"agents":{}}`,
		"trailing NUL":             "{\"agents\":{}}\x00",
		"byte order mark":          "\uFEFF{\"agents\":{}}",
		"agents is null":           `{"agents":null}`,
		"agents is an array":       `{"agents":[]}`,
		"agents is a string":       `{"agents":"a"}`,
		"agents is there twice":    `{"agents":{},"agents":{}}`,
		"agents twice, by escapes": `{"agents":{},"\u0061gents":{}}`,
		"an agent is there twice":  `{"agents":{"a":{"state":"up"},"b":{},"a":{"state":"up"}}}`,
		"an agent by escapes":      `{"agents":{"a":{"state":"up"},"\u0061":{"state":"up"}}}`,
		"broken UTF-8":             "{\"agents\":{\"a\":{\"state\":\"\xff\"}}}",
		"broken UTF-8 elsewhere":   "{\"agents\":{},\"x\":\"\xff\"}",
		"lone surrogate":           `{"agents":{"\ud800":{"state":"up"}}}`,
		"10,000 brackets":          strings.Repeat(`[`, 10000),
		"10,000 brackets inside":   `{"agents":{"a":` + strings.Repeat(`[`, 10000),
		"trailing comma":           `{"agents":{},}`,
		"a number that is none":    `{"agents":{},"x":01}`,
	} {
		if d, err := decode([]byte(record)); err == nil {
			t.Errorf("%s: read as %s", name, agents(d))
		}
	}
}

// An agent whose own value cannot be read is kept as it is.
func TestDecode_AgentThatCannotBeRead(t *testing.T) {
	for _, value := range []string{
		`null`, `7`, `"up"`, `true`, `[]`, `["up"]`, `{}`, `{"State":"up"}`, `{"state":null}`, `{"state":7}`, `{"state":["up"]}`,
		`{"state":""}`, `{"state":"UP"}`, `{"state":"banana"}`, `{"state":" up"}`, `{"state":"unknown"}`, `{"state":"up","state":"up"}`,
		`{"state":"banana","state":"up"}`, `{"x":{"state":"up"}}`, `{ "state" : "banana", "x" : 1e2 }`,
	} {
		record := `{"agents":{"a":` + value + `,"b":{"state":"up"}}}`
		d := read(t, record)
		if agents(d) != "a: b:up" {
			t.Errorf("%s is read as %s", value, agents(d))
		}
		if text(d) != record {
			t.Errorf("%s is listed as %s", record, text(d))
		}
		for _, c := range []change{setTo("a", wire.Up), setTo("a", wire.Destroyed), createAs("a", wire.Up)} {
			if _, _, err := try(d, roomy, c); err == nil || wire.AsError(err).Code != wire.CorruptRecord {
				t.Errorf("%s is written over: %v", value, err)
			}
		}
		after, changed, err := try(d, roomy, setTo("b", wire.Paused))
		if want := `{"agents":{"a":` + value + `,"b":{"state":"paused"}}}`; err != nil || !changed || text(after) != want {
			t.Errorf("another agent: %v, %s, want %s", err, text(after), want)
		}
	}
}

func TestDecode_AgentThatCanBeRead(t *testing.T) {
	for _, value := range []string{
		`{"state":"up"}`, ` { "state" : "up" } `, `{"state":"\u0075p"}`, `{"st\u0061te":"up"}`, `{"State":"banana","state":"up"}`,
		`{"a":{"state":"destroyed"},"state":"up","b":[{"state":7}]}`, `{"x":1,"x":2,"state":"up"}`, "{\n\t\"state\":\t\"up\"\r\n}",
	} {
		d := read(t, `{"agents":{"a":`+value+`}}`)
		if agents(d) != "a:up" {
			t.Errorf("%s is read as %s", value, agents(d))
			continue
		}
		if _, changed, err := try(d, roomy, setTo("a", wire.Up)); changed || err != nil {
			t.Errorf("%s: declaring what is declared: changed %v, %v", value, changed, err)
		}
	}
}

// Field report B138: everything that others keep in a record survives every rewrite, to the byte.
func TestField_B138_UnknownMembers(t *testing.T) {
	const (
		top    = `"note":{"by":"ops" , "n":9007199254740993,"f":1.50e+2},"\u00e9":"\/","note2":[ 1,2 ]`
		inA    = `{"cpu":9007199254740993,"state":"up","tags":{"a":[1.0, {"state":"x"}] , "é":"\u00e9"},"x":null}`
		inB    = `{ "state" : "paused" , "cpu" : 18446744073709551616 }`
		strewn = "{\n  \"agents\" : {\"a\":" + inA + ",\"b\":" + inB + "},\n  " + top + "\n}"
	)
	moved := func(value, to string) string {
		return strings.NewReplacer(`"state":"up"`, `"state":"`+to+`"`, `"state" : "paused"`, `"state" : "`+to+`"`).Replace(value)
	}
	record := func(parts ...string) string { return `{"agents":{` + strings.Join(parts, ",") + `},` + top + `}` }
	for name, c := range map[string]struct {
		changes []change
		want    string
	}{
		"another agent is set":     {[]change{setTo("z", wire.Up)}, record(`"a":`+inA, `"b":`+inB, `"z":{"state":"up"}`)},
		"another agent is created": {[]change{createAs("0", wire.Up)}, record(`"0":{"state":"up"}`, `"a":`+inA, `"b":`+inB)},
		"the same agent is set":    {[]change{setTo("a", wire.Offline)}, record(`"a":`+moved(inA, "offline"), `"b":`+inB)},
		"both are set":             {[]change{setTo("a", wire.Paused), setTo("b", wire.Up)}, record(`"a":`+moved(inA, "paused"), `"b":`+moved(inB, "up"))},
		"one is destroyed":         {[]change{setTo("b", wire.Destroyed)}, record(`"a":`+inA, `"b":`+moved(inB, "destroyed"))},
	} {
		got, changed, err := try(read(t, strewn), roomy, c.changes...)
		if err != nil || !changed || text(got) != c.want {
			t.Errorf("%s: changed %v, %v\n got %s\nwant %s", name, changed, err, text(got), c.want)
		}
	}

	// And through a whole life: set, other set, destroy, create again, each stored and read again.
	d := read(t, strewn)
	for _, step := range []struct {
		change
		state wire.State
	}{
		{setTo("a", wire.Paused), wire.Paused}, {setTo("c", wire.Up), wire.Paused}, {setTo("a", wire.Destroyed), wire.Destroyed},
		{createAs("a", wire.Up), wire.Up}, {setTo("c", wire.Destroyed), wire.Up},
	} {
		next, _, err := try(d, roomy, step.change)
		if err != nil {
			t.Fatalf("%s to %s: %v", step.agent, step.change.state, err)
		}
		d = read(t, text(next))
		if !strings.HasSuffix(text(d), `},`+top+`}`) {
			t.Errorf("after %s to %s the members at the top are others: %s", step.agent, step.change.state, text(d))
		}
		if !strings.Contains(text(d), `"a":`+moved(inA, string(step.state))+`,"b":`+inB) {
			t.Errorf("after %s to %s the members of the agents are others: %s", step.agent, step.change.state, text(d))
		}
	}
}

func TestEncode_RoundTrip(t *testing.T) {
	for name, record := range map[string]string{
		"empty":            `{"agents":{}}`,
		"every state":      `{"agents":{"a":{"state":"up"},"b":{"state":"offline"},"c":{"state":"paused"},"d":{"state":"destroyed"}}}`,
		"members of more":  `{"agents":{"a":{"state":"up","x":1}},"y":[1, 2],"z":{}}`,
		"what is no name":  `{"agents":{"":{"state":"up"},"a \"b\"":{"state":"up"},"é":{"state":"up"}}}`,
		"what is no agent": `{"agents":{"a":7,"b":null}}`,
	} {
		d := read(t, record)
		if text(d) != record {
			t.Errorf("%s: %s comes back as %s", name, record, text(d))
		}
		again := read(t, text(d))
		if agents(again) != agents(d) || again.size != d.size || again.room != d.room {
			t.Errorf("%s: read again it is another document", name)
		}
	}
}

// A record written by hand is brought into our form by the first change: agents in order, names plain, members of others
// as they were.
func TestEncode_FormOfARecordWrittenByHand(t *testing.T) {
	d := read(t, `{ "x" : 1.0 , "agents" : { "b" : {"state":"up"} , "\u0061" : { "state" : "\u0075p" } } }`)
	got, _, err := try(d, roomy, setTo("a", wire.Paused))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"agents":{"a":{ "state" : "paused" },"b":{"state":"up"}},"x":1.0}`; text(got) != want {
		t.Errorf("\n got %s\nwant %s", text(got), want)
	}
	if !json.Valid([]byte(text(d))) {
		t.Errorf("unchanged it is no JSON: %s", text(d))
	}
}

// What is handed out is shared with readers: later changes may not show through it.
func TestClone_ChangesDoNotShowThrough(t *testing.T) {
	d := read(t, `{"agents":{"b":{"state":"up","x":1},"d":{"state":"up"}}}`)
	before, names := text(d), agents(d)
	for _, c := range []change{setTo("a", wire.Up), setTo("b", wire.Paused), setTo("c", wire.Up), setTo("d", wire.Destroyed), setTo("e", wire.Up)} {
		first, _, err1 := try(d, roomy, c)
		firstText := text(first)
		second, _, err2 := try(d, roomy, setTo("zz", wire.Offline), setTo(c.agent, wire.Offline))
		third, _, err3 := try(first, roomy, setTo("0", wire.Up), setTo("b", wire.Offline))
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
		if text(d) != before || agents(d) != names || text(first) != firstText {
			t.Errorf("%v: %s, %s\nwere %s, %s", c, text(d), text(first), before, firstText)
		}
		if slices.Equal(second.encode(), third.encode()) {
			t.Errorf("%v: two changes made the same document", c)
		}
	}
}
