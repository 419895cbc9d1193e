package sled

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"muster/functions/join/quorum"
	"muster/wire"
)

// recordVersion is the form of the record that this program reads and writes.
const recordVersion = 1

// record is a state as it lies on disk, in one document, so that what belongs together is written together. Secrets are in
// it in clear: shares, the seed of the exchange key, keys within the network config.
type record struct {
	Version      int                 `json:"version"`
	Baseboard    wire.Baseboard      `json:"baseboard"`
	ExchangeSeed string              `json:"exchange_seed"` // SX…
	RackID       string              `json:"rack_id,omitzero"`
	Epochs       []epochRecord       `json:"epochs"`
	Coordination *coordinationRecord `json:"coordination,omitzero"`
	Agent        *agentRecord        `json:"agent,omitzero"`
	Network      *networkRecord      `json:"network,omitzero"`
	Written      uint64              `json:"written_generation,omitzero"`
}

type epochRecord struct {
	Config    quorum.Configuration `json:"config"`
	Share     []byte               `json:"share"` // base64, as all bytes here
	Keys      []quorum.MemberKey   `json:"keys"`
	Committed bool                 `json:"committed"`
}

type coordinationRecord struct {
	Order  quorum.Reconfigure    `json:"order"`
	Config *quorum.Configuration `json:"config,omitzero"`
	Shares []shareRecord         `json:"shares,omitzero"` // of all members

	Commitments string `json:"commitments,omitzero"`
}

type shareRecord struct {
	Member wire.Baseboard `json:"member"`
	Share  []byte         `json:"share"`
}

type agentRecord struct {
	Request wire.StartSled `json:"request"`
	Started bool           `json:"started"`
}

type networkRecord struct {
	Generation uint64                  `json:"generation"`
	Config     *wire.RackNetworkConfig `json:"config"`
	Written    bool                    `json:"written"`
}

// encodeState writes a state as it lies on disk.
func encodeState(s *state) ([]byte, error) {
	seed, err := s.key.Reveal()
	if err != nil {
		return nil, fmt.Errorf("reveal exchange key: %w", err)
	}
	r := record{
		Version: recordVersion, Baseboard: s.board, ExchangeSeed: string(seed), RackID: s.rack, Written: s.written,
		Epochs: []epochRecord{},
	}
	for _, p := range s.epochs {
		r.Epochs = append(r.Epochs, epochRecord{p.config, p.share.Reveal(), keyList(p.keys), p.committed})
	}
	slices.SortFunc(r.Epochs, func(a, b epochRecord) int {
		if a.Config.Epoch < b.Config.Epoch {
			return -1
		}
		return 1
	})
	if c := s.coordination; c != nil {
		r.Coordination = &coordinationRecord{Order: c.order, Config: c.config, Commitments: string(c.commitments)}
		for _, b := range c.order.Members {
			if share, ok := c.shares[b]; ok {
				r.Coordination.Shares = append(r.Coordination.Shares, shareRecord{b, share.Reveal()})
			}
		}
	}
	if s.agent != nil {
		r.Agent = &agentRecord{s.agent.request, s.agent.started}
	}
	if s.network != nil {
		r.Network = &networkRecord{s.network.generation, s.network.config, s.network.written}
	}
	return json.Marshal(r, json.Deterministic(true))
}

// decodeState reads what encodeState wrote. It fails on everything that it would not have written: what cannot be read is
// never taken for less than it was.
func decodeState(data []byte) (*state, error) {
	var form struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, errNotReadable(err)
	}
	if form.Version != recordVersion {
		return nil, fmt.Errorf("it has version %d, this program knows %d", form.Version, recordVersion)
	}
	var r record
	if err := json.Unmarshal(data, &r, json.RejectUnknownMembers(true)); err != nil {
		return nil, errNotReadable(err)
	}
	key, err := quorum.ParseExchangeKey([]byte(r.ExchangeSeed))
	if err != nil {
		return nil, err
	}
	s := newState(r.Baseboard, key)
	s.rack, s.written = r.RackID, r.Written
	for _, e := range r.Epochs {
		p, err := e.prepared(r.Baseboard)
		if err != nil {
			return nil, fmt.Errorf("epoch %d: %w", e.Config.Epoch, err)
		}
		s.epochs[e.Config.Epoch] = p
	}
	if r.Coordination != nil {
		if s.coordination, err = r.Coordination.coordination(); err != nil {
			return nil, fmt.Errorf("coordinated epoch: %w", err)
		}
	}
	if r.Agent != nil {
		s.agent = &agent{r.Agent.Request, r.Agent.Started}
	}
	if n := r.Network; n != nil {
		s.network = &network{n.Generation, n.Config, n.Written}
	}
	return s, s.check()
}

// errNotReadable keeps the place and drops the rest: what stands there may be a secret.
func errNotReadable(err error) error {
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		return fmt.Errorf("it cannot be read at %q", string(e.JSONPointer))
	}
	return errors.New("it is no JSON of the right form")
}

func (e epochRecord) prepared(board wire.Baseboard) (*prepared, error) {
	if err := e.Config.Validate(); err != nil {
		return nil, err
	}
	share, err := quorum.ParseShare(e.Share)
	if err != nil {
		return nil, err
	}
	if err := e.Config.CheckShare(board, share); err != nil {
		return nil, err
	}
	p := &prepared{config: e.Config, share: share, keys: map[wire.Baseboard]string{}, committed: e.Committed}
	for _, k := range e.Keys {
		if err := quorum.CheckPublicKey(k.Key); err != nil {
			return nil, err
		}
		p.keys[k.Member] = k.Key
	}
	return p, nil
}

func (r *coordinationRecord) coordination() (*coordination, error) {
	if err := checkReconfigure(r.Order); err != nil {
		return nil, err
	}
	c := &coordination{order: r.Order, config: r.Config}
	if r.Config == nil {
		return c, nil
	}
	if err := r.Config.Validate(); err != nil {
		return nil, err
	}
	if len(r.Shares) == 0 {
		return c, nil
	}
	c.shares = map[wire.Baseboard]quorum.Share{}
	for _, s := range r.Shares {
		share, err := quorum.ParseShare(s.Share)
		if err != nil {
			return nil, err
		}
		if err := r.Config.CheckShare(s.Member, share); err != nil {
			return nil, err
		}
		c.shares[s.Member] = share
	}
	if len(c.shares) != len(r.Config.Members) {
		return nil, errors.New("shares are missing")
	}
	c.commitments = []byte(r.Commitments)
	return c, nil
}

// check tells whether the parts of a state that was read go together.
func (s *state) check() error {
	if err := s.board.Check(); err != nil {
		return fmt.Errorf("baseboard: %w", err)
	}
	bound := len(s.epochs) > 0 || s.coordination != nil || s.agent != nil
	if bound && !wire.ValidName(s.rack) {
		return errors.New("the rack is missing")
	}
	for e, p := range s.epochs {
		if p.config.RackID != s.rack {
			return fmt.Errorf("epoch %d is of another rack", e)
		}
	}
	if c := s.coordination; c != nil && (c.order.RackID != s.rack || c.config != nil && c.config.RackID != s.rack) {
		return errors.New("the coordinated epoch is of another rack")
	}
	if s.agent != nil && s.agent.request.Body.RackID != s.rack {
		return errors.New("the start is of another rack")
	}
	if s.network != nil && s.network.config == nil {
		return errors.New("the network config is missing")
	}
	return nil
}
