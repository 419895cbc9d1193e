package declare

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"muster/runtime/store"
	"muster/wire"
)

// document is a hive's record: {"agents":{"atlas":{"state":"up"}}}. Members that we do not know are kept as they are
// written, numbers too. Once it is decoded or encoded it is shared and not changed any more.
type document struct {
	agents []agent  // by name
	rest   []member // members of the record that we do not know
	size   int      // of the encoded record, in bytes
	room   int      // how many bytes it can grow by without another agent
	json   []byte   // the agents as an encoded object; nil while the document is being changed
}

// agent is one agent as it is stored.
type agent struct {
	name     string
	state    wire.State // "" when it cannot be read
	unknown  wire.State // what stands there in its place, if that is a string
	raw      []byte     // its encoded value
	from, to int        // where in raw the state is; 0, 0 for a plain one
}

type member struct {
	name []byte // encoded
	raw  []byte
}

// codec stores documents.
var codec = store.Codec[*document]{
	New:    func() *document { return &document{size: len(`{"agents":{}}`), json: []byte(`{}`)} },
	Decode: decode,
	Encode: (*document).encode,
	Clone: func(d *document) *document {
		c := *d
		c.agents = slices.Grow(slices.Clone(d.agents), 1)
		return &c
	},
}

// The plain encodings of an agent are shared by all.
var plains = func() map[wire.State][]byte {
	m := map[wire.State][]byte{}
	for _, s := range wire.States() {
		m[s] = []byte(`{"state":"` + string(s) + `"}`)
	}
	return m
}()

func plain(s wire.State) []byte { return plains[s] }

// memberSize is what an agent takes in a record, in bytes, its comma included.
func memberSize(name string, value int) int { return len(name) + len(`"":,`) + value }

func (d *document) find(name string) (int, bool) {
	return slices.BinarySearchFunc(d.agents, name, byName)
}

// with is the agent in another state, all else as it was.
func (a agent) with(s wire.State) agent {
	if a.to == 0 {
		a.state, a.raw = s, plain(s)
		return a
	}
	value := `"` + string(s) + `"`
	raw := make([]byte, 0, len(a.raw)+len(longest))
	raw = append(append(append(raw, a.raw[:a.from]...), value...), a.raw[a.to:]...)
	a.state, a.raw, a.to = s, raw, a.from+len(value)
	return a
}

// encode writes the record.
func (d *document) encode() []byte {
	b := make([]byte, 0, d.size+len(`{"agents":{}}`))
	b = append(b, `{"agents":`...)
	from := len(b)
	if d.json != nil {
		b = append(b, d.json...)
	} else {
		b = d.appendAgents(b)
		d.json = b[from:len(b):len(b)]
	}
	for _, m := range d.rest {
		b = append(b, ',')
		b = append(b, m.name...)
		b = append(b, ':')
		b = append(b, m.raw...)
	}
	return append(b, '}')
}

func (d *document) appendAgents(b []byte) []byte {
	b = append(b, '{')
	for i := range d.agents {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendName(b, d.agents[i].name)
		b = append(b, ':')
		b = append(b, d.agents[i].raw...)
	}
	return append(b, '}')
}

// appendName appends an encoded name; one that was stored by hand may need escapes.
func appendName(b []byte, name string) []byte {
	if wire.ValidName(name) {
		b = append(b, '"')
		b = append(b, name...)
		return append(b, '"')
	}
	b, err := jsontext.AppendQuote(b, name)
	if err != nil {
		panic(fmt.Sprintf("quote a name that was decoded: %v", err))
	}
	return b
}

// decode reads a record. It fails on what is no JSON object, or leaves open which agents there are; an agent whose own
// value cannot be read is kept as it is.
func decode(value []byte) (*document, error) {
	d := &document{size: len(`{"agents":{}}`), json: []byte(`{}`)}
	seen := false
	err := eachMember(value, func(name string, quoted, raw jsontext.Value) error {
		if name != "agents" {
			d.rest = append(d.rest, member{bytes.Clone(quoted), bytes.Clone(raw)})
			d.size += len(quoted) + len(raw) + len(`:,`)
			return nil
		}
		if seen {
			return errors.New("agents is there twice")
		}
		seen = true
		d.json = bytes.Clone(raw)
		return eachMember(raw, func(name string, quoted, raw jsontext.Value) error {
			a := decodeAgent(name, raw)
			d.agents = append(d.agents, a)
			d.size += len(appendName(nil, name)) + len(a.raw) + len(`:,`)
			if a.state.Valid() {
				d.room += spare(a.state)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(d.agents, func(a, b agent) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(d.agents); i++ {
		if d.agents[i].name == d.agents[i-1].name {
			return nil, errors.New("an agent is there twice")
		}
	}
	return d, nil
}

// decodeAgent reads an agent's value as far as it can be read.
func decodeAgent(name string, raw []byte) agent {
	for _, s := range wire.States() {
		if bytes.Equal(raw, plain(s)) {
			return agent{name: name, state: s, raw: plain(s)}
		}
	}
	a := agent{name: name, raw: bytes.Clone(raw)}
	states := 0
	err := eachMember(a.raw, func(member string, _, value jsontext.Value) error {
		if member != "state" {
			return nil
		}
		states++
		a.to = offset(a.raw, value) + len(value)
		a.from = a.to - len(value)
		if s, err := jsontext.AppendUnquote(nil, value); err == nil && value.Kind() == '"' {
			a.state = wire.State(s)
		}
		return nil
	})
	if err != nil || states != 1 {
		a.state = ""
	}
	if !a.state.Valid() {
		a.unknown = a.state
		a.state, a.from, a.to = "", 0, 0
	}
	return a
}

// offset is where part begins within whole, of which it is a slice.
func offset(whole, part []byte) int { return cap(whole) - cap(part) }

// eachMember calls f with every member of an object: its name, its encoded name and its encoded value, both slices of
// object.
func eachMember(object []byte, f func(name string, quoted, raw jsontext.Value) error) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowDuplicateNames(true))
	if dec.PeekKind() != '{' {
		return errors.New("not a JSON object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return fmt.Errorf("read object: %w", err)
	}
	for dec.PeekKind() == '"' {
		quoted, err := dec.ReadValue()
		if err != nil {
			return fmt.Errorf("read member: %w", err)
		}
		end := int(dec.InputOffset())
		quoted = object[end-len(quoted) : end]
		name, err := jsontext.AppendUnquote(nil, quoted)
		if err != nil {
			return fmt.Errorf("read member name: %w", err)
		}
		raw, err := dec.ReadValue()
		if err != nil {
			return fmt.Errorf("read member value: %w", err)
		}
		end = int(dec.InputOffset())
		if err := f(string(name), quoted, object[end-len(raw):end]); err != nil {
			return err
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return fmt.Errorf("read object: %w", err)
	}
	if rest := bytes.TrimLeft(object[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return errors.New("something stands behind the object")
	}
	return nil
}
