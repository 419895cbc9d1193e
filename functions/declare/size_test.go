package declare

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"muster/wire"
)

// A document that was written by us, or was changed by us, is stored in at most d.size bytes; of what needs no escapes it
// is exact but for the comma of the first agent.
func checkSize(t interface {
	Helper()
	Errorf(string, ...any)
}, d *document) {
	t.Helper()
	if n := len(text(d)); n > d.size {
		t.Errorf("stored in %d bytes, said to take %d: %s", n, d.size, text(d))
	}
	room := 0
	for _, a := range d.agents {
		if a.state.Valid() {
			room += spare(a.state)
		}
	}
	if room != d.room {
		t.Errorf("agents can grow by %d bytes, said to be %d: %s", room, d.room, agents(d))
	}
}

func TestSize_OfPlainRecordsIsExact(t *testing.T) {
	for _, record := range []string{
		`{"agents":{}}`, `{"agents":{"a":{"state":"up"}}}`, `{"agents":{"a":{"state":"up"},"b":{"state":"destroyed"}},"x":1,"y":{}}`,
		`{"agents":{"a":{ "state" : "up" , "x" : 1 }}}`, `{"agents":{"a":7}}`,
	} {
		d := read(t, record)
		comma := min(len(d.agents), 1)
		if d.size != len(record)+comma {
			t.Errorf("%s takes %d bytes, said to take %d", record, len(record), d.size-comma)
		}
		got, _, err := try(d, roomy, setTo("zz", wire.Up), setTo("0", wire.Destroyed))
		if err != nil || got.size != len(text(got))+1 {
			t.Errorf("%s takes %d bytes, said to take %d, %v", text(got), len(text(got)), got.size-1, err)
		}
	}
}

// Whatever a reply carries beside the agents fits into envelope.
func TestSize_EnvelopeOfTheLongestReply(t *testing.T) {
	d := declaration{hive: strings.Repeat("h", 64), revision: math.MaxUint64, changed: false, agents: []byte{}}
	if n := len(d.AppendJSON(nil)); n > envelope {
		t.Errorf("%d bytes, envelope is %d", n, envelope)
	}
}

// Field report B017, its rules: past the limit TooLarge with both sizes and nothing changed; what is there can still be
// changed; it stays possible to destroy every agent; and a small hive is no worse off.
func TestField_B017_RecordUpToTheLimit(t *testing.T) {
	for _, limit := range []int{1000, 8 << 10} {
		for _, state := range wire.States() {
			d := codec.New()
			var refused *wire.Error
			for i := 0; refused == nil; i++ {
				next, changed, err := try(d, limit, setTo(fmt.Sprintf("agent-%05d-%s", i, strings.Repeat("x", i%40)), state))
				if err != nil {
					refused = wire.AsError(err)
					if changed || text(next) != text(d) {
						t.Fatalf("the refused agent is there")
					}
					break
				}
				d = next
			}
			size, _ := refused.Details["size"].(int)
			if refused.Code != wire.TooLarge || refused.Details["limit"] != limit || size <= limit || size > limit+200 {
				t.Fatalf("limit %d: %v, details %v", limit, refused, refused.Details)
			}
			if used := len(text(d)); used < limit*3/4-400 {
				t.Errorf("limit %d: refused at %d bytes already", limit, used)
			}
			moves := []wire.State{wire.Up, wire.Offline, wire.Paused, wire.Destroyed}
			if state == wire.Destroyed {
				moves = moves[3:]
			}
			for _, to := range moves {
				for i, a := range d.agents { // one at a time, the record is never too large
					next, _, err := try(d, limit, setTo(a.name, to))
					if err != nil {
						t.Fatalf("limit %d: %d of %d agents could be made %s: %v", limit, i, len(d.agents), to, err)
					}
					d = next
				}
				fits(t, d, limit)
			}
			if _, _, err := try(codec.New(), limit, setTo("a", wire.Up)); err != nil {
				t.Errorf("limit %d: a small hive: %v", limit, err)
			}
		}
	}
}

// fits checks that a record and the reply that shows it keep within the limit.
func fits(t *testing.T, d *document, limit int) {
	t.Helper()
	checkSize(t, d)
	value := d.encode()
	reply := declaration{hive: strings.Repeat("h", 64), revision: math.MaxUint64, agents: d.json}.AppendJSON(nil)
	if len(value) > limit || len(reply) > limit {
		t.Fatalf("limit %d: the record takes %d bytes, its reply %d", limit, len(value), len(reply))
	}
}

func TestSize_ApplyIsRefusedAsAWhole(t *testing.T) {
	d := read(t, `{"agents":{"a":{"state":"up"}}}`)
	got, changed, err := try(d, 250, setTo("a", wire.Paused), setTo("b", wire.Up), setTo("c", wire.Up), setTo("d", wire.Up))
	if changed || wire.AsError(err).Code != wire.TooLarge || text(got) != text(d) {
		t.Errorf("changed %v, %v, %s", changed, err, text(got))
	}
	if got, changed, err := try(d, 250, setTo("a", wire.Paused), setTo("b", wire.Up)); !changed || err != nil {
		t.Errorf("what fits: changed %v, %v, %s", changed, err, text(got))
	}
}

// One that an operator made too large by hand, or that was stored when the limit was a greater one, is no trap: a change
// that changes nothing is still no error.
func TestSize_NothingToDoIsNeverTooLarge(t *testing.T) {
	d := read(t, `{"agents":{"a":{"state":"up"}}}`)
	if _, changed, err := try(d, 10, setTo("a", wire.Up), createAs("a", wire.Paused)); changed || err != nil {
		t.Errorf("changed %v, %v", changed, err)
	}
}

var (
	anyState = rapid.SampledFrom(wire.States())
	anyAgent = rapid.SampledFrom([]string{"a", "b", "c", "Atlas", "x-1", "y_2", strings.Repeat("n", 64)})
	// anyRecord is a record as some program or some hand may have written it.
	anyRecord = rapid.Custom(func(t *rapid.T) string {
		space := rapid.SampledFrom([]string{"", "", " ", "\n\t"})
		extra := rapid.SampledFrom([]string{``, ``, `"x":1.0`, `"cpu":9007199254740993`, `"t":{"state":"up","state":[]}`, `"\u00e9":null`})
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
			`"a"`, `"b"`, `"c"`, `"Atlas"`, `"not a name"`, `"\u00e9"`, `""`, `"x-1"`,
		}), 0, 6, rapid.ID[string]).Draw(t, "names")
		var members []string
		for _, name := range names {
			var value []string
			if s := rapid.SampledFrom([]string{`up`, `offline`, `paused`, `destroyed`, `\u0075p`, `banana`}).Draw(t, "state"); s != "banana" {
				value = append(value, space.Draw(t, "space")+`"state"`+space.Draw(t, "space")+`:"`+s+`"`)
			}
			if e := extra.Draw(t, "extra"); e != "" {
				value = append(value, e)
			}
			members = append(members, name+space.Draw(t, "space")+":{"+strings.Join(value, ",")+"}")
		}
		tops := []string{`"agents":{` + strings.Join(members, ",") + `}`}
		if e := extra.Draw(t, "top"); e != "" {
			tops = rapid.Permutation(append(tops, e)).Draw(t, "order")
		}
		return space.Draw(t, "space") + "{" + strings.Join(tops, space.Draw(t, "space")+",") + "}"
	})
)

func TestSize_Property_IsAnUpperBoundOfEveryRecordWeWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		record := anyRecord.Draw(t, "record")
		d, err := decode([]byte(record))
		if err != nil {
			t.Fatalf("%s: %v", record, err)
		}
		limit := rapid.SampledFrom([]int{300, 400, 600, roomy}).Draw(t, "limit")
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			var changes []change
			for _, name := range rapid.SliceOfNDistinct(anyAgent, 1, 3, rapid.ID[string]).Draw(t, "agents") {
				changes = append(changes, change{name, anyState.Draw(t, "to"), rapid.Bool().Draw(t, "create")})
			}
			next, changed, err := try(d, limit, changes...)
			if changed {
				checkSize(t, next)
				if n := len(text(next)); n+envelope > limit {
					t.Fatalf("%d bytes past the limit", n+envelope-limit)
				}
			} else if text(next) != text(d) {
				t.Fatalf("changed though it says it is not (%v): %s", err, text(next))
			}
			if rapid.Bool().Draw(t, "stored and read again") {
				old := next
				if next, err = decode([]byte(text(next))); err != nil {
					t.Fatalf("%s: %v", text(old), err)
				}
				if agents(next) != agents(old) {
					t.Fatalf("%s is read again as %s", agents(old), agents(next))
				}
			}
			d = next
		}
	})
}
