package sled

import (
	"bytes"

	"github.com/go-json-experiment/json"

	"muster/functions/join/quorum"
	"muster/wire"
)

// The rules of what this sled is told once it is a member: to start, its network, and to forget it all.

// start takes what this sled is to be. done tells that there is no command to run for it.
func (s *state) start(r wire.StartSled, done bool) (*state, error) {
	if err := checkStart(r); err != nil {
		return nil, err
	}
	if err := s.own(r.Body.RackID); err != nil {
		return nil, err
	}
	if s.committed() == 0 {
		return nil, wire.Errorf(wire.NotPrepared, "this sled has committed no epoch: it holds no share of the rack secret")
	}
	if s.agent != nil && s.agent.request != r {
		return nil, wire.Errorf(wire.AlreadyStarted, "this sled was told to start with another content")
	}
	if s.agent != nil && (s.agent.started || !done) {
		return s, nil
	}
	next := s.clone()
	next.agent = &agent{request: r, started: done}
	return next, nil
}

// started takes that the on-start command has succeeded for r.
func (s *state) started(r wire.StartSled) *state {
	if s.agent == nil || s.agent.request != r || s.agent.started {
		return s // reset meanwhile
	}
	next := s.clone()
	next.agent = &agent{request: r, started: true}
	return next
}

// configure takes a network config. done tells that there is no command to run for it.
func (s *state) configure(r wire.SledNetworkConfig, done bool) (*state, error) {
	if err := checkNetwork(r); err != nil {
		return nil, err
	}
	if n := s.network; n != nil {
		switch {
		case r.Generation < n.generation:
			return nil, staleGeneration(n.generation)
		case r.Generation == n.generation && !sameConfig(n.config, r.Config):
			return nil, wire.Errorf(wire.GenerationConflict, "generation %d has another content here", n.generation).
				With("generation", n.generation)
		case r.Generation == n.generation && (n.written || !done):
			return s, nil
		}
	}
	next := s.clone()
	next.network = &network{generation: r.Generation, config: r.Config, written: done}
	if done {
		next.written = r.Generation
	}
	return next, nil
}

func staleGeneration(newest uint64) error {
	return wire.Errorf(wire.StaleGeneration, "this sled has been given generation %d", newest).With("generation", newest)
}

// configured takes that the on-network command has succeeded for a generation.
func (s *state) configured(generation uint64) *state {
	n := s.network
	if n == nil || n.generation != generation || n.written {
		return s // reset meanwhile, or a newer one came
	}
	next := s.clone()
	next.network = &network{generation: n.generation, config: n.config, written: true}
	next.written = generation
	return next
}

// forget takes a reset: of the rack nothing is left. The key is another one from then on, so that a share that is still
// under way to this sled no longer opens.
func (s *state) forget(r wire.SledForget, newKey func() (quorum.ExchangeKey, error)) (*state, error) {
	if err := checkForget(r); err != nil {
		return nil, err
	}
	if err := s.own(r.RackID); err != nil {
		return nil, err
	}
	if s.rack == "" && s.network == nil {
		return s, nil
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	return newState(s.board, key), nil
}

func sameConfig(a, b *wire.RackNetworkConfig) bool {
	return bytes.Equal(encodeNetwork(a), encodeNetwork(b))
}

// encodeNetwork is a network config as the on-network command reads it.
func encodeNetwork(c *wire.RackNetworkConfig) []byte {
	b, err := json.Marshal(c, json.Deterministic(true))
	if err != nil {
		panic("encode network config: " + err.Error()) // strings and numbers, decoded from JSON
	}
	return b
}

// secretsOf lists what must be shown nowhere of a network config.
func secretsOf(c *wire.RackNetworkConfig) []string {
	var secrets []string
	for _, port := range c.Ports {
		for _, peer := range port.BGPPeers {
			if peer.MD5AuthKey != nil {
				secrets = append(secrets, *peer.MD5AuthKey)
			}
		}
	}
	return secrets
}
