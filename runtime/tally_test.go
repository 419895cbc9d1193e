package runtime_test

import (
	"bytes"
	"errors"
	"maps"

	"github.com/go-json-experiment/json"

	"muster/runtime/store"
)

// tally is the suite's document: named counters. A change that was lost or applied twice shows in a count.
type tally map[string]int

var codec = store.Codec[tally]{
	New: func() tally { return tally{} },
	Decode: func(b []byte) (tally, error) {
		var d tally
		if err := json.Unmarshal(b, &d); err != nil {
			return nil, err
		}
		if d == nil {
			return nil, errors.New("null is no tally")
		}
		return d, nil
	},
	Encode: func(d tally) []byte {
		b, err := json.Marshal(d, json.Deterministic(true))
		if err != nil {
			panic(err) // a map of numbers
		}
		return bytes.TrimSpace(b)
	},
	Clone: maps.Clone[tally],
}

// add counts one more. It changes something every time, so a repetition shows.
func add(name string) store.Change[tally] {
	return func(d tally, _ uint64) (bool, error) {
		d[name]++
		return true, nil
	}
}

// set changes nothing where the count is n already.
func set(name string, n int) store.Change[tally] {
	return func(d tally, _ uint64) (bool, error) {
		if have, ok := d[name]; ok && have == n {
			return false, nil
		}
		d[name] = n
		return true, nil
	}
}

// addUnless refuses with err while the count of name is n.
func addUnless(name string, n int, err error) store.Change[tally] {
	return func(d tally, _ uint64) (bool, error) {
		if d[name] == n {
			return false, err
		}
		d[name]++
		return true, nil
	}
}
