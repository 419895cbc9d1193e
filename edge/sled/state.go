package sled

import (
	"maps"
	"slices"

	"muster/functions/join/quorum"
	"muster/wire"
)

// state is all that a sled knows and keeps. It is never changed: a rule returns another one, or the same one when there is
// nothing to change.
type state struct {
	board        wire.Baseboard
	key          quorum.ExchangeKey
	rack         string               // that it belongs to, "" for none; the first prepare or reconfigure says which
	epochs       map[uint64]*prepared // that it takes part in
	coordination *coordination        // nil: it coordinates nothing
	agent        *agent               // nil: it was not told to start
	network      *network             // nil: it was given none
	written      uint64               // generation of the network config in force, 0 for none
}

// prepared is an epoch that this sled holds a share of. One that was superseded before it was committed is kept until a
// later one is: the next coordinator may have to carry its secret on.
type prepared struct {
	config    quorum.Configuration
	share     quorum.Share
	keys      map[wire.Baseboard]string // exchange keys of the members, of as many as were told
	committed bool
}

// coordination is the epoch that this sled coordinates. Its exits: committed here, superseded by a higher epoch, reset.
type coordination struct {
	order  quorum.Reconfigure              // members in baseboard order
	config *quorum.Configuration           // nil until it is dealt
	shares map[wire.Baseboard]quorum.Share // of all members; nil before it is dealt and once it is committed

	commitments []byte // of the deal, as text; nil with shares
}

// open tells whether there is still something to do for it.
func (c *coordination) open() bool { return c != nil && (c.config == nil || c.shares != nil) }

// agent is what this sled is to be.
type agent struct {
	request wire.StartSled
	started bool // the on-start command has succeeded
}

// network is the newest network config this sled was given.
type network struct {
	generation uint64
	config     *wire.RackNetworkConfig // may hold secrets
	written    bool                    // the on-network command has succeeded
}

func newState(board wire.Baseboard, key quorum.ExchangeKey) *state {
	return &state{board: board, key: key, epochs: map[uint64]*prepared{}}
}

// clone copies what a rule changes in place.
func (s *state) clone() *state {
	c := *s
	c.epochs = maps.Clone(s.epochs)
	return &c
}

// highest is the highest epoch seen, 0 for none.
func (s *state) highest() uint64 {
	highest := s.latest(func(*prepared) bool { return true })
	if s.coordination != nil {
		highest = max(highest, s.coordination.order.Epoch)
	}
	return highest
}

// committed is the last epoch committed here, 0 for none.
func (s *state) committed() uint64 {
	return s.latest(func(p *prepared) bool { return p.committed })
}

func (s *state) latest(is func(*prepared) bool) (epoch uint64) {
	for e, p := range s.epochs {
		if is(p) {
			epoch = max(epoch, e)
		}
	}
	return epoch
}

// identity is what the sled says of itself.
func (s *state) identity() wire.Identity {
	id := wire.Identity{
		Baseboard: s.board, ExchangeKey: s.key.Public(), NetworkGeneration: s.written,
		Started: s.agent != nil && s.agent.started,
	}
	if s.rack != "" {
		id.RackID = &s.rack
	}
	if e := s.latest(func(*prepared) bool { return true }); e != 0 {
		id.PreparedEpoch = &e
	}
	if e := s.committed(); e != 0 {
		id.CommittedEpoch = &e
	}
	return id
}

// keyList is the keys in the order of the members.
func keyList(keys map[wire.Baseboard]string) []quorum.MemberKey {
	list := make([]quorum.MemberKey, 0, len(keys))
	for _, b := range slices.SortedFunc(maps.Keys(keys), wire.Baseboard.Compare) {
		list = append(list, quorum.MemberKey{Member: b, Key: keys[b]})
	}
	return list
}
