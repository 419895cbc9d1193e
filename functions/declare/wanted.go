package declare

import (
	"cmp"
	"slices"
	"strings"

	"muster/wire"
)

// change is what a request wants of one agent.
type change struct {
	agent string
	state wire.State
	fresh bool // create: the agent is newly made, and whatever runs under the name is left alone
}

// redeclare applies changes to a document, all or none, and tells whether it is another one afterwards. The rules:
//
//   - Every agent that is not named stays as it is, byte for byte.
//   - Destroyed is the end: only a fresh agent takes the name again. Destroying it once more is nothing.
//   - A fresh agent changes nothing about one that is not destroyed.
//   - An agent whose state cannot be read is not written over; the others are not held up by it.
//   - The document, and the reply that carries it, fit limit bytes; and it stays possible to destroy every agent in it.
func redeclare(d *document, changes []change, limit int) (changed bool, err error) {
	type step struct {
		at    int // where the agent is; -1: it is new
		state wire.State
		agent string
	}
	var steps []step
	size, room, added := d.size, d.room, 0
	for _, c := range changes {
		at, found := d.find(c.agent)
		if !found {
			added++
			size += memberSize(c.agent, len(plain(c.state)))
			room += spare(c.state)
			steps = append(steps, step{-1, c.state, c.agent})
			continue
		}
		switch old := d.agents[at].state; {
		case !old.Valid():
			return false, wire.Errorf(wire.CorruptRecord, "what is stored of agent %s cannot be read", c.agent).With("agent", c.agent)
		case c.fresh && old != wire.Destroyed:
		case old == c.state:
		case old == wire.Destroyed && !c.fresh:
			return false, wire.Errorf(wire.AgentDestroyed, "agent %s is destroyed; only create brings the name back", c.agent).
				With("agent", c.agent)
		default:
			size += len(c.state) - len(old)
			room += spare(c.state) - spare(old)
			steps = append(steps, step{at, c.state, c.agent})
		}
	}
	needed := size
	if added > 0 {
		needed += room
	}
	if len(steps) > 0 && needed+envelope > limit {
		return false, wire.Errorf(wire.TooLarge, "the hive's record would need %d bytes, the limit is %d", needed+envelope, limit).
			With("size", needed+envelope).With("limit", limit)
	}
	for _, s := range steps {
		if s.at >= 0 {
			d.agents[s.at] = d.agents[s.at].with(s.state)
		} else {
			d.agents = append(d.agents, agent{name: s.agent, state: s.state, raw: plain(s.state)})
		}
	}
	switch {
	case added == 1: // one insertion is a copy, sorting is not
		last := d.agents[len(d.agents)-1]
		at, _ := slices.BinarySearchFunc(d.agents[:len(d.agents)-1], last.name, byName)
		copy(d.agents[at+1:], d.agents[at:])
		d.agents[at] = last
	case added > 1:
		slices.SortFunc(d.agents, func(a, b agent) int { return strings.Compare(a.name, b.name) })
	}
	if len(steps) > 0 {
		d.size, d.room, d.json = size, room, nil
	}
	return len(steps) > 0, nil
}

// longest is the state that takes most bytes.
var longest = slices.MaxFunc(wire.States(), func(a, b wire.State) int { return cmp.Compare(len(a), len(b)) })

// spare is how many bytes an agent in that state may still grow by.
func spare(s wire.State) int { return len(longest) - len(s) }

// envelope is what a reply needs around a document: {"hive":"…","revision":…,"changed":…}, with a name and a revision of
// the greatest length.
const envelope = 160

func byName(a agent, name string) int { return strings.Compare(a.name, name) }
