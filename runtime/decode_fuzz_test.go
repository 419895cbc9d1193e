package runtime

import (
	"bytes"
	"encoding/json"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"muster/wire"
)

// FuzzDecode holds the decoder against a reader written from the contract on top of the standard library's tokens: both
// must take the same bodies and read the same values from them, and every refusal must be fit to be sent.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"agents":{"a":{"state":"up"},"b":{"state":"paused"}},"dry_run":true,"if_revision":9007199254740993}`))
	f.Add([]byte(`{"state":"up","limit":-7,"ports":[{"port":"qsfp0","addresses":["::1",null],"vlan_id":4094},null]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var got sample
		err := decode(body, &got)
		want, legal := oracle{}.read(body)
		switch {
		case legal && err != nil:
			t.Fatalf("refused: %v", err)
		case !legal && err == nil:
			t.Fatalf("accepted as %+v", got)
		case legal:
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("want -, got +\n%s", d)
			}
			readAgain(t, got)
		default:
			fitToSend(t, err)
		}
		for _, into := range []any{new(wire.Set), new(wire.Apply), new(wire.Page), new(struct{})} {
			if err := decode(body, into); err != nil {
				fitToSend(t, err)
			}
		}
	})
}

// readAgain checks that a value that was read is read the same once it is written.
func readAgain(t *testing.T, v sample) {
	b, err := encode(nil, v)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	var back sample
	if err := decode(b, &back); err != nil {
		t.Fatalf("decode %s: %v", b, err)
	}
	if b2, err := encode(nil, back); err != nil || !bytes.Equal(b, b2) {
		t.Fatalf("%s comes back as %s, %v", b, b2, err)
	}
}

// fitToSend checks what holds of every refusal.
func fitToSend(t *testing.T, err error) {
	e, ok := err.(*wire.Error) //nolint:errorlint // it must be one itself, not wrap one
	if !ok || e.Code != wire.InvalidRequest {
		t.Fatalf("%v, want InvalidRequest", err)
	}
	if len(e.Message) > 512 || !utf8.ValidString(e.Message) {
		t.Fatalf("message of %d bytes: %q", len(e.Message), e.Message)
	}
	if b, err := encode(nil, e.Body("r1")); err != nil || !json.Valid(b) || len(b) > 2048 {
		t.Fatalf("the error is sent as %d bytes, %v", len(b), err)
	}
}

// oracle is the other reader.
type oracle struct{}

// read reads a sample body as the contract says, by other means than the decoder.
func (x oracle) read(body []byte) (o sample, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, refused := p.(illegal); !refused {
				panic(p)
			}
			o, ok = sample{}, false
		}
	}()
	body = bytes.Trim(body, " \t\r\n")
	if len(body) == 0 {
		return sample{}, true
	}
	x.must(body[0] == '{' && utf8.Valid(body) && json.Valid(body) && x.pairedSurrogates(body))
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	for name, v := range x.members(x.value(dec)) {
		switch name {
		case "state":
			o.State = wire.State(x.text(v))
		case "if_revision":
			o.IfRevision = x.unsigned(v, 64)
		case "limit":
			o.Limit = x.integer(v)
		case "dry_run":
			o.DryRun = x.boolean(v)
		case "agents":
			if v != nil {
				o.Agents = map[string]*wire.Agent{}
			}
			for agent, v := range x.members(v) {
				o.Agents[agent] = x.anAgent(v)
			}
		case "ports":
			if v != nil {
				o.Ports = []samplePort{}
			}
			for _, v := range x.elements(v) {
				o.Ports = append(o.Ports, x.aPort(v))
			}
		default:
			x.must(false)
		}
	}
	return o, true
}

func (x oracle) anAgent(v any) *wire.Agent {
	if v == nil {
		return nil
	}
	a := new(wire.Agent)
	for name, v := range x.members(v) {
		x.must(name == "state")
		a.State = wire.State(x.text(v))
	}
	return a
}

func (x oracle) aPort(v any) (p samplePort) {
	for name, v := range x.members(v) {
		switch name {
		case "port":
			p.Port = x.text(v)
		case "addresses":
			if v != nil {
				p.Addresses = []string{}
			}
			for _, v := range x.elements(v) {
				p.Addresses = append(p.Addresses, x.text(v))
			}
		case "vlan_id":
			if n := x.unsigned(v, 16); n != nil {
				small := uint16(*n)
				p.VLAN = &small
			}
		default:
			x.must(false)
		}
	}
	return p
}

// illegal is what [oracle.must] panics with.
type illegal struct{}

func (oracle) must(ok bool) {
	if !ok {
		panic(illegal{})
	}
}

// value reads one value from tokens: nil, bool, string, json.Number, []any or map[string]any without duplicates.
func (x oracle) value(dec *json.Decoder) any {
	token, err := dec.Token()
	x.must(err == nil)
	switch token {
	case json.Delim('{'):
		m := map[string]any{}
		for dec.More() {
			name := x.text(x.value(dec))
			_, twice := m[name]
			x.must(!twice)
			m[name] = x.value(dec)
		}
		_, err = dec.Token()
		x.must(err == nil)
		return m
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			list = append(list, x.value(dec))
		}
		_, err = dec.Token()
		x.must(err == nil)
		return list
	}
	return token
}

func (x oracle) members(v any) map[string]any {
	m, ok := v.(map[string]any)
	x.must(ok || v == nil)
	return m
}

func (x oracle) elements(v any) []any {
	list, ok := v.([]any)
	x.must(ok || v == nil)
	return list
}

func (x oracle) text(v any) string {
	s, ok := v.(string)
	x.must(ok || v == nil)
	return s
}

func (x oracle) boolean(v any) bool {
	b, ok := v.(bool)
	x.must(ok || v == nil)
	return b
}

func (x oracle) unsigned(v any, bits int) *uint64 {
	if v == nil {
		return nil
	}
	n, ok := v.(json.Number)
	x.must(ok)
	u, err := strconv.ParseUint(n.String(), 10, bits)
	x.must(err == nil)
	return &u
}

func (x oracle) integer(v any) int {
	if v == nil {
		return 0
	}
	n, ok := v.(json.Number)
	x.must(ok)
	i, err := strconv.ParseInt(n.String(), 10, 64)
	x.must(err == nil)
	return int(i)
}

// pairedSurrogates tells whether every surrogate that legal JSON escapes is one half of a pair.
func (x oracle) pairedSurrogates(body []byte) bool {
	unit := func(at int) uint64 {
		if at+6 > len(body) || body[at] != '\\' || body[at+1] != 'u' {
			return 0
		}
		u, err := strconv.ParseUint(string(body[at+2:at+6]), 16, 16)
		x.must(err == nil)
		return u
	}
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		switch u := unit(i); {
		case u >= 0xDC00 && u < 0xE000:
			return false
		case u >= 0xD800 && u < 0xDC00:
			if low := unit(i + 6); low < 0xDC00 || low >= 0xE000 {
				return false
			}
			i += 6
		}
		i++ // over the character that is escaped
	}
	return true
}
