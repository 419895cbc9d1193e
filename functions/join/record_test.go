package join

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Every member of a record is one that we know, whether it shows in each record or not: else it would be kept as another's
// and written twice.
func TestMembers_AreAllOfARecord(t *testing.T) {
	var want []string
	for f := range reflect.TypeFor[record]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.IsExported() {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(members)); !slices.Equal(got, want) {
		t.Errorf("\n got %v\nwant %v", got, want)
	}
	b := encodeRecord(fullRecord())
	var m map[string]jsontext.Value
	if err := json.Unmarshal(b, &m); err != nil || len(m) != len(want) {
		t.Errorf("the full record has %d members, not %d: %v", len(m), len(want), err)
	}
}

// What is written is read as it was: of every state, of the full record, and of one with members that we do not know.
func TestRecord_RoundTrip(t *testing.T) {
	full := fullRecord()
	full.State = Preparing
	for _, r := range append(statuses(t), full) {
		if !r.exists() {
			continue
		}
		r.rest = map[string]jsontext.Value{"x": jsontext.Value(`{"y":1}`)}
		b := encodeRecord(r)
		back, err := decodeRecord(b)
		if err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		if string(encodeRecord(back)) != string(b) || string(encodeRecord(back.clone())) != string(b) {
			t.Errorf("\nwrote %s\n read %s", b, encodeRecord(back))
		}
		if missing := missingMembers(b, back); missing != "" {
			t.Errorf("%s was lost of %s", missing, b)
		}
	}
}

// missingMembers names a member of b that a record made of it does not have.
func missingMembers(b []byte, r *record) string {
	var m, again map[string]jsontext.Value
	_ = json.Unmarshal(b, &m)
	_ = json.Unmarshal(encodeRecord(r), &again)
	for name, v := range m {
		if string(again[name]) != string(v) {
			return name
		}
	}
	return ""
}

// Members that we do not know survive every rewrite, and do not become part of another record.
func TestRecord_UnknownMembersSurvive(t *testing.T) {
	w := worldOf(t, "a", "b", "c")
	w.join("a", "b", "c")
	text := strings.Replace(string(encodeRecord(w.rec)), "{", `{"colour":"red","n":9007199254740993,"x":{"b":[1,{"c":1e2}],"a":null},`, 1)
	r, err := decodeRecord([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	w.rec = r
	for w.rec.State != AwaitingCompletion {
		w.step(1)
	}
	if _, done, err := w.complete(); !done || err != nil {
		t.Fatal(err)
	}
	if after := string(encodeRecord(w.rec)); !strings.HasSuffix(after, `,"colour":"red","n":9007199254740993,"x":{"b":[1,{"c":1e2}],"a":null}}`) {
		t.Errorf("after the join it is %s", after)
	}
	if b := string(encodeRecord(w.rec.clone())); b != string(encodeRecord(w.rec)) {
		t.Errorf("a copy is %s", b)
	}
}

func TestRecord_ThatCannotBeReadIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":             ``,
		"null":                `null`,
		"a list":              `[]`,
		"cut short":           `{"state":"starting"`,
		"no state":            `{"kind":"join"}`,
		"state of nothing":    `{"state":"uninitialized"}`,
		"a state of others":   `{"state":"task_panicked"}`,
		"in capitals":         `{"state":"STARTING"}`,
		"a number for state":  `{"state":1}`,
		"member twice":        `{"state":"starting","epoch":1,"epoch":2}`,
		"unknown twice":       `{"state":"starting","x":1,"x":2}`,
		"negative epoch":      `{"state":"starting","epoch":-1}`,
		"an epoch too large":  `{"state":"starting","epoch":18446744073709551616}`,
		"a fraction":          `{"state":"starting","epoch":1.5}`,
		"trailing words":      `{"state":"starting"} x`,
		"peers of text":       `{"state":"starting","peers":["a"]}`,
		"a digest cut short":  `{"state":"starting","config":{"members":[[{"part_number":"p","serial_number":"s"},"00"]]}}`,
		"silent since a word": `{"state":"starting","silent_since":"noon"}`,
		"broken UTF-8":        "{\"state\":\"starting\",\"message\":\"\xff\"}",
	} {
		if r, err := decodeRecord([]byte(text)); err == nil {
			t.Errorf("%s: read as %s", name, encodeRecord(r))
		}
	}
}

// A copy can be changed while the original is read.
func TestClone_SharesNothingThatIsChangedInPlace(t *testing.T) {
	r := fullRecord()
	r.State, r.Peers, r.Known = Preparing, r.Acked, slices.Clone(r.Acked)
	r.Problems = []sledProblem{{Problem: "p"}}
	before := string(encodeRecord(r))
	c := r.clone()
	for _, list := range []any{c.Peers, c.Known, c.Acked, c.Committed, c.Network, c.Sleds, c.Problems} {
		v := reflect.ValueOf(list)
		if v.Len() == 0 {
			t.Fatalf("%T is empty", list)
		}
		v.Index(0).SetZero()
	}
	if after := string(encodeRecord(r)); after != before {
		t.Errorf("\nbefore %s\nafter  %s", before, after)
	}
}
