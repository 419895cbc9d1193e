package join

import (
	"reflect"
	"slices"

	"muster/functions/join/quorum"
	"muster/wire"
)

// modelSled is a sled as the contract's table has it, with the rules of edge/sled: no bus, no disk, no secrets. What it
// keeps, it keeps over a restart.
type modelSled struct {
	board  wire.Baseboard
	silent bool           // neither answers nor sends
	broken map[string]int // op → how many more times it fails
	text   func() string  // of these failures; nil for one that is always the same

	key        int // its exchange key, another one after a wipe or a reset: shares that are under way do not open then
	rackID     string
	configs    map[uint64]*quorum.Configuration
	committed  uint64
	task       *coordination
	started    *wire.StartSledBody
	generation uint64
	network    *wire.RackNetworkConfig
}

// coordination is the epoch that a sled coordinates.
type coordination struct {
	asked  quorum.Reconfigure
	config *quorum.Configuration // nil until it is made
	acked  []wire.Baseboard
}

func newModelSled(b wire.Baseboard) *modelSled {
	return &modelSled{board: b, broken: map[string]int{}, configs: map[uint64]*quorum.Configuration{}}
}

// wipe makes it a sled without a past, of the same name.
func (s *modelSled) wipe() {
	fresh := newModelSled(s.board)
	fresh.silent, fresh.broken, fresh.text, fresh.key = s.silent, s.broken, s.text, s.key+1
	*s = *fresh
}

// clean tells whether it holds nothing of any rack.
func (s *modelSled) clean() bool {
	return s.rackID == "" && len(s.configs) == 0 && s.committed == 0 && s.task == nil && s.started == nil && s.generation == 0
}

// highest is the highest epoch that it knows of.
func (s *modelSled) highest() (epoch uint64) {
	for e := range s.configs {
		epoch = max(epoch, e)
	}
	if s.task != nil {
		epoch = max(epoch, s.task.asked.Epoch)
	}
	return epoch
}

func (s *modelSled) foreign(rackID string) bool { return s.rackID != "" && s.rackID != rackID }

// answer does what is asked.
func (s *modelSled) answer(w *world, op string, body any) answer {
	out := answer{From: s.board, Op: op}
	if s.broken[op] > 0 {
		s.broken[op]--
		text := "it is broken"
		if s.text != nil {
			text = s.text()
		}
		out.Err = wire.Errorf(wire.Internal, "%s", text)
		return out
	}
	switch b := body.(type) {
	case nil:
		if op == wire.SledIdentity {
			out.Identity = s.identity()
		} else {
			out.Status, out.Err = s.status()
		}
	case quorum.Reconfigure:
		out.Err = s.reconfigure(b)
	case quorum.Commit:
		out.Err = s.commit(b)
	case wire.StartSled:
		out.Err = s.start(b.Body)
	case wire.SledNetworkConfig:
		out.Err = s.configure(b)
	case wire.SledForget:
		out.Err = s.reset(b.RackID)
	default:
		w.t.Fatalf("a sled was asked %s with %T", op, body)
	}
	if out.Err != nil && out.Err.Code == wire.EpochConflict {
		w.conflicts++
	}
	return out
}

func (s *modelSled) identity() *wire.Identity {
	id := &wire.Identity{Baseboard: s.board, Started: s.started != nil, NetworkGeneration: s.generation}
	if s.rackID != "" {
		id.RackID = new(s.rackID)
	}
	if e := s.highest(); e > 0 && s.configs[e] != nil {
		id.PreparedEpoch = &e
	}
	if s.committed > 0 {
		id.CommittedEpoch = new(s.committed)
	}
	return id
}

func (s *modelSled) reconfigure(m quorum.Reconfigure) *wire.Error {
	last := uint64(0)
	if m.LastCommittedEpoch != nil {
		last = *m.LastCommittedEpoch
	}
	switch highest := s.highest(); {
	case quorum.CheckEpoch("epoch", m.Epoch) != nil, quorum.CheckMembers("members", m.Members) != nil,
		quorum.CheckThreshold("threshold", m.Threshold, len(m.Members)) != nil, m.LastCommittedEpoch != nil && (last < 1 || last >= m.Epoch):
		return wire.Invalid("", "no quorum can be made of it")
	case s.foreign(m.RackID):
		return wire.Errorf(wire.WrongRack, "of another rack")
	case !slices.Contains(m.Members, s.board):
		return wire.Errorf(wire.NotMember, "not a member")
	case m.Epoch < highest:
		return wire.Errorf(wire.StaleEpoch, "there is a higher epoch")
	case m.Epoch == highest && s.task != nil && reflect.DeepEqual(s.task.asked, m):
		return nil
	case m.Epoch == highest:
		return wire.Errorf(wire.EpochConflict, "this epoch has another content here")
	case s.committed != 0 && last != s.committed:
		return wire.Errorf(wire.LastCommittedEpochMismatch, "committed epoch %d", s.committed)
	case last != 0 && s.configs[last] == nil:
		return wire.Errorf(wire.LastCommittedEpochMismatch, "has no part in epoch %d", last)
	}
	s.rackID, s.task = m.RackID, &coordination{asked: m}
	return nil
}

func (s *modelSled) status() (*quorum.CoordinatorStatus, *wire.Error) {
	switch {
	case s.task == nil:
		return nil, wire.Errorf(wire.NotCoordinator, "coordinates nothing")
	case s.task.config == nil:
		return nil, wire.Errorf(wire.Unavailable, "the configuration is not made yet")
	}
	return &quorum.CoordinatorStatus{Config: *s.task.config, AckedPrepares: slices.Clone(s.task.acked)}, nil
}

func (s *modelSled) prepare(c *quorum.Configuration, key int) *wire.Error {
	held := s.configs[c.Epoch]
	switch {
	case c.Validate() != nil:
		return wire.Invalid("config", "not valid")
	case s.foreign(c.RackID):
		return wire.Errorf(wire.WrongRack, "of another rack")
	case !slices.Contains(c.Baseboards(), s.board):
		return wire.Errorf(wire.NotMember, "not a member")
	case c.Epoch < s.highest():
		return wire.Errorf(wire.StaleEpoch, "there is a higher epoch")
	case held != nil && held.Equal(*c):
		return nil
	case held != nil, s.task != nil && s.task.asked.Epoch == c.Epoch && s.task.config != c:
		return wire.Errorf(wire.EpochConflict, "has another configuration of this epoch")
	case s.committed != 0 && c.EncryptedRackSecrets == nil:
		return wire.Errorf(wire.LastCommittedEpochMismatch, "committed epoch %d", s.committed)
	case key != s.key:
		return wire.Errorf(wire.ShareMismatch, "the share is sealed to another key")
	}
	s.rackID, s.configs[c.Epoch] = c.RackID, c
	if s.task != nil && s.task.asked.Epoch < c.Epoch {
		s.task = nil
	}
	return nil
}

func (s *modelSled) commit(m quorum.Commit) *wire.Error {
	switch {
	case s.foreign(m.RackID):
		return wire.Errorf(wire.WrongRack, "of another rack")
	case m.Epoch == s.committed:
		return nil
	case m.Epoch < s.highest():
		return wire.Errorf(wire.StaleEpoch, "there is a higher epoch")
	case s.configs[m.Epoch] == nil:
		return wire.Errorf(wire.NotPrepared, "not prepared")
	}
	s.committed = m.Epoch
	return nil
}

func (s *modelSled) start(b wire.StartSledBody) *wire.Error {
	switch {
	case s.foreign(b.RackID):
		return wire.Errorf(wire.WrongRack, "of another rack")
	case s.committed == 0:
		return wire.Errorf(wire.NotPrepared, "not committed")
	case s.started != nil && *s.started != b:
		return wire.Errorf(wire.AlreadyStarted, "started as another")
	}
	s.started = &b
	return nil
}

func (s *modelSled) configure(m wire.SledNetworkConfig) *wire.Error {
	switch {
	case m.Generation < s.generation:
		return wire.Errorf(wire.StaleGeneration, "has generation %d", s.generation)
	case m.Generation == s.generation && !sameConfig(m.Config, s.network):
		return wire.Errorf(wire.GenerationConflict, "has another config of this generation")
	}
	s.generation, s.network = m.Generation, m.Config
	return nil
}

func (s *modelSled) reset(rackID string) *wire.Error {
	if s.foreign(rackID) {
		return wire.Errorf(wire.WrongRack, "of another rack")
	}
	s.wipe()
	return nil
}
