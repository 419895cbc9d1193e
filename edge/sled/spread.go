package sled

import (
	"errors"
	"time"

	"muster/functions/join/quorum"
	"muster/wire"
)

// How members are asked again: one that failed after 250 ms, doubling to 5 s. One that has not answered yet is sent the
// same again after 2 s, growing alike; an answer to any of them counts, however late.
const (
	retryFirst = 250 * time.Millisecond
	retryMax   = 5 * time.Second
	unanswered = 2 * time.Second
)

func backoff(failures int) time.Duration { return min(retryFirst<<min(failures, 10), retryMax) }

// spread is how far the prepares of one epoch have come. It is changed by the functions of this file only, which take the
// time and do nothing else.
//
// Every member's exchange key must be known to all others in the end, and yet one that is silent must not keep the others
// from their shares: an operator sees by the acks who is missing. So once all members were asked for their keys, those
// that answered are prepared with the keys known so far. When the last key is known, they are prepared once more with all
// keys, and only then are the others. So when all have acked at some time, all have all keys.
type spread struct {
	epoch   uint64
	rack    string
	members []wire.Baseboard
	keys    map[wire.Baseboard]string
	version int // of the keys; it rises whenever they change
	peers   map[wire.Baseboard]*peer
	over    bool // a member has seen a higher epoch
}

// peer is one member.
type peer struct {
	asked    bool // for its key, and it answered or failed to
	doubted  bool // its key and what it holds are to be asked again
	shown    bool // it has acked some time
	holds    int  // version of the keys with which it has acked, 0 for no ack
	tries    int  // steps taken
	heard    int  // tries at its last answer
	failures int
	retryAt  time.Time
	problem  string
}

// step is what to ask of a member: its identity, or to prepare with keys.
type step struct {
	to      wire.Baseboard
	try     int
	version int // of keys; 0 asks for the identity
	keys    []quorum.MemberKey
}

// newSpread begins to spread the epoch of a configuration. self is the coordinator's own key.
func newSpread(c *quorum.Configuration, self string) *spread {
	p := &spread{
		epoch: c.Epoch, rack: c.RackID, members: c.Baseboards(), version: 1,
		keys: map[wire.Baseboard]string{c.Coordinator: self}, peers: map[wire.Baseboard]*peer{},
	}
	for _, b := range p.members {
		p.peers[b] = &peer{asked: b == c.Coordinator}
	}
	return p
}

type need int

const (
	nothing need = iota + 1
	identity
	prepare
)

// need tells what is to be asked of a member next.
func (p *spread) need(b wire.Baseboard) need {
	m := p.peers[b]
	switch {
	case p.over:
		return nothing
	case p.keys[b] == "" || m.doubted:
		return identity
	case !p.all(func(m *peer) bool { return m.asked }):
		return nothing // the others' keys are on their way
	case m.holds == p.version:
		return nothing
	case !p.complete():
		if m.holds != 0 {
			return nothing // all keys together, later
		}
	case !m.shown && !p.all(func(m *peer) bool { return !m.shown || m.holds == p.version }):
		return nothing // those who have acked with fewer keys come first
	}
	return prepare
}

// complete tells whether all keys are known.
func (p *spread) complete() bool { return len(p.keys) == len(p.members) }

func (p *spread) all(is func(*peer) bool) bool {
	for _, m := range p.peers {
		if !is(m) {
			return false
		}
	}
	return true
}

// steps takes what is to be asked now.
func (p *spread) steps(now time.Time) []step {
	var steps []step
	for _, b := range p.members {
		m, what := p.peers[b], p.need(b)
		if what == nothing || now.Before(m.retryAt) {
			continue
		}
		m.retryAt = now.Add(min(unanswered<<min(m.tries-m.heard, 10), retryMax))
		m.tries++
		s := step{to: b, try: m.tries}
		if what == prepare {
			s.version, s.keys = p.version, keyList(p.keys)
		}
		steps = append(steps, s)
	}
	return steps
}

// next is when steps, which has just been asked, has something to give again although nothing happens before; zero for
// never.
func (p *spread) next() time.Time {
	var next time.Time
	for b, m := range p.peers {
		if p.need(b) != nothing && (next.IsZero() || m.retryAt.Before(next)) {
			next = m.retryAt
		}
	}
	return next
}

// met takes a member's identity.
func (p *spread) met(b wire.Baseboard, id wire.Identity) {
	m := p.peers[b]
	switch {
	case id.ExchangeKey != p.keys[b]: // it is new, or was wiped: then it has lost its share, too
		p.keys[b] = id.ExchangeKey
		p.version++
		m.holds = 0
	case id.RackID == nil || *id.RackID != p.rack || id.PreparedEpoch == nil || *id.PreparedEpoch != p.epoch:
		m.holds = 0
	}
	m.asked, m.doubted = true, false
	m.heard, m.retryAt = m.tries, time.Time{} // its failures count on until it acks
}

// acked takes that a member has prepared with the keys of a version.
func (p *spread) acked(b wire.Baseboard, version int) {
	m := p.peers[b]
	m.holds, m.shown = max(m.holds, version), true
	m.heard, m.retryAt, m.failures, m.problem = m.tries, time.Time{}, 0, ""
}

// failed takes that a step failed, and tells whether that is news. A member that fails is asked who it is before it is
// prepared again: it may be another than before.
func (p *spread) failed(s step, err error, now time.Time) (news bool) {
	m := p.peers[s.to]
	if s.try <= m.heard {
		return false // it has answered since
	}
	if s.version != 0 {
		m.holds = 0
		e, ok := errors.AsType[*wire.Error](err)
		p.over = p.over || ok && e.Code == wire.StaleEpoch
	}
	m.asked, m.doubted = true, true
	m.retryAt = now.Add(backoff(m.failures))
	m.failures++
	news = m.problem != err.Error()
	m.problem = err.Error()
	return news
}

// doubt asks all members again for who they are and what they hold.
func (p *spread) doubt() {
	for _, m := range p.peers {
		m.doubted = true
		m.heard, m.retryAt, m.failures = m.tries, time.Time{}, 0
	}
}

// acks lists who has acked, with all keys if they are known, in baseboard order.
func (p *spread) acks() []wire.Baseboard {
	acks := []wire.Baseboard{}
	for _, b := range p.members {
		if m := p.peers[b]; m.holds == p.version || m.holds != 0 && !p.complete() {
			acks = append(acks, b)
		}
	}
	return acks
}

// done tells whether every member has its share and all keys.
func (p *spread) done() bool {
	return p.complete() && p.all(func(m *peer) bool { return m.holds == p.version })
}
