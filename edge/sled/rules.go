package sled

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"muster/functions/join/quorum"
	"muster/wire"
)

// The rules of the trust quorum: what this sled knows and a request in, what it then knows out. An equal repeat changes
// nothing and is no error.

// reconfigure takes the order to coordinate an epoch.
func (s *state) reconfigure(r quorum.Reconfigure) (*state, error) {
	if err := checkReconfigure(r); err != nil {
		return nil, err
	}
	r.Members = slices.SortedFunc(slices.Values(r.Members), wire.Baseboard.Compare)
	if err := s.own(r.RackID); err != nil {
		return nil, err
	}
	if !slices.Contains(r.Members, s.board) {
		return nil, wire.Errorf(wire.NotMember, "this sled is to coordinate, but it is not among the members")
	}
	switch highest := s.highest(); {
	case r.Epoch < highest:
		return nil, stale(highest)
	case r.Epoch == highest:
		if s.coordination != nil && sameOrder(s.coordination.order, r) {
			return s, nil
		}
		return nil, conflict(r.Epoch)
	}
	switch last := s.committed(); {
	case last != 0 && (r.LastCommittedEpoch == nil || *r.LastCommittedEpoch != last):
		return nil, lastMismatch(last)
	case r.LastCommittedEpoch != nil && s.epochs[*r.LastCommittedEpoch] == nil:
		return nil, wire.Errorf(wire.LastCommittedEpochMismatch,
			"this sled has no part in epoch %d and cannot carry its secret on; choose a coordinator that has", *r.LastCommittedEpoch)
	}
	next := s.clone()
	next.rack, next.coordination = r.RackID, &coordination{order: r}
	return next, nil
}

// deal makes the secret, the shares and the configuration of the epoch this sled coordinates, unless that is done. prior
// are the secrets of the committed epochs before. From here on there is one configuration for the epoch, whatever crashes.
func (s *state) deal(random io.Reader, prior quorum.Secrets) (*state, error) {
	c := s.coordination
	if c == nil || c.config != nil {
		return s, nil
	}
	deal, err := quorum.Split(random, quorum.Plan{
		RackID: c.order.RackID, Epoch: c.order.Epoch, Coordinator: s.board, Members: c.order.Members, Prior: prior,
	})
	if err != nil {
		return nil, fmt.Errorf("deal epoch %d: %w", c.order.Epoch, err)
	}
	commitments, err := deal.Commitments.MarshalText()
	if err != nil {
		return nil, fmt.Errorf("deal epoch %d: %w", c.order.Epoch, err)
	}
	next := s.clone()
	next.coordination = &coordination{order: c.order, config: &deal.Config, shares: deal.Shares, commitments: commitments}
	return next, nil
}

// prepare takes a share of an epoch.
func (s *state) prepare(r quorum.Prepare) (*state, error) {
	if err := checkPrepare(r); err != nil {
		return nil, err
	}
	c := r.Config
	if err := s.own(c.RackID); err != nil {
		return nil, err
	}
	if _, listed := c.ShareDigest(s.board); !listed {
		return nil, wire.Errorf(wire.NotMember, "this sled is not among the members")
	}
	if highest := s.highest(); c.Epoch < highest {
		return nil, stale(highest)
	}
	if l := s.coordination; l != nil && l.order.Epoch == c.Epoch && (l.config == nil || !l.config.Equal(c)) {
		return nil, conflict(c.Epoch)
	}
	held := s.epochs[c.Epoch]
	if held != nil && !held.config.Equal(c) {
		return nil, conflict(c.Epoch)
	}
	if last := s.committed(); held == nil && last != 0 && c.EncryptedRackSecrets == nil {
		return nil, lastMismatch(last) // it would lose the secrets of the epochs before
	}
	share, err := s.open(r)
	if err != nil {
		return nil, err
	}
	keys := map[wire.Baseboard]string{}
	if held != nil {
		maps.Copy(keys, held.keys)
	}
	for _, k := range r.Keys {
		keys[k.Member] = k.Key
	}
	if held != nil && (held.committed || maps.Equal(keys, held.keys)) {
		return s, nil // with the commit the keys are settled
	}
	next := s.clone()
	next.rack, next.epochs[c.Epoch] = c.RackID, &prepared{config: c, share: share, keys: keys}
	if l := s.coordination; l != nil && l.order.Epoch < c.Epoch {
		next.coordination = nil // superseded
	}
	return next, nil
}

// open takes the share out of a prepare and checks that it is the one the configuration has for this sled.
func (s *state) open(r quorum.Prepare) (quorum.Share, error) {
	share, err := s.key.Open(r.Share, r.SenderKey)
	if err != nil {
		return share, wire.Errorf(wire.ShareMismatch, "the key share does not open with this sled's key and the sender's").Because(err)
	}
	if err := r.CheckShare(s.board, share); err != nil {
		return share, wire.Errorf(wire.ShareMismatch, "the key share is not the one that the configuration has for this sled").Because(err)
	}
	return share, nil
}

// commit takes that every member has prepared.
func (s *state) commit(r quorum.Commit) (*state, error) {
	if err := checkEpochOf(r.RackID, r.Epoch); err != nil {
		return nil, err
	}
	if err := s.own(r.RackID); err != nil {
		return nil, err
	}
	held := s.epochs[r.Epoch]
	switch highest := s.highest(); {
	case held != nil && held.committed:
		return s, nil
	case r.Epoch < highest:
		return nil, stale(highest)
	case held == nil:
		return nil, notPrepared(r.Epoch)
	}
	next := s.clone()
	// What was superseded before anybody committed it can open nothing that the new secret does not.
	maps.DeleteFunc(next.epochs, func(e uint64, p *prepared) bool { return e < r.Epoch && !p.committed })
	next.epochs[r.Epoch] = &prepared{config: held.config, share: held.share, keys: held.keys, committed: true}
	if l := s.coordination; l != nil {
		next.coordination = &coordination{order: l.order, config: l.config} // the others' shares are theirs alone now
	}
	return next, nil
}

// share gives this sled's share of a committed epoch, and the key to seal it to. A sled that is no longer a member gets
// none, not even of an epoch in which it was one.
func (s *state) share(r quorum.ShareRequest) (share quorum.Share, to string, err error) {
	if err := checkShare(r); err != nil {
		return share, "", err
	}
	if err := s.own(r.RackID); err != nil {
		return share, "", err
	}
	held := s.epochs[r.Epoch]
	if held == nil || !held.committed {
		return share, "", wire.Errorf(wire.NotPrepared, "epoch %d is not committed here", r.Epoch)
	}
	for _, e := range []*prepared{held, s.epochs[s.committed()]} {
		if _, listed := e.config.ShareDigest(r.Requester); !listed {
			return share, "", wire.Errorf(wire.NotMember, "the requester is not a member of epoch %d", e.config.Epoch)
		}
	}
	to = held.keys[r.Requester]
	if to == "" {
		return share, "", wire.Errorf(wire.NotMember, "the requester's key in epoch %d is not known here", r.Epoch)
	}
	return held.share, to, nil
}

// status is how far the epoch has come that this sled coordinates. acked are those whose acks it knows of.
func (s *state) status(acked []wire.Baseboard) (quorum.CoordinatorStatus, error) {
	switch c := s.coordination; {
	case c == nil:
		return quorum.CoordinatorStatus{}, wire.Errorf(wire.NotCoordinator, "this sled coordinates nothing")
	case c.config == nil:
		return quorum.CoordinatorStatus{}, wire.Errorf(wire.Unavailable,
			"epoch %d is not dealt yet: the secret of epoch %d is being recovered", c.order.Epoch, *c.order.LastCommittedEpoch)
	case !c.open():
		return quorum.CoordinatorStatus{Config: *c.config, AckedPrepares: c.config.Baseboards()}, nil
	default:
		return quorum.CoordinatorStatus{Config: *c.config, AckedPrepares: acked}, nil
	}
}

// own refuses what is of another rack than this sled's.
func (s *state) own(rack string) error {
	if s.rack == "" || s.rack == rack {
		return nil
	}
	return wire.Errorf(wire.WrongRack, "this sled belongs to rack %s", s.rack).With("rack_id", s.rack)
}

func stale(highest uint64) error {
	return wire.Errorf(wire.StaleEpoch, "this sled has seen epoch %d", highest).With("epoch", highest)
}

func conflict(epoch uint64) error {
	return wire.Errorf(wire.EpochConflict, "epoch %d has another content here", epoch).With("epoch", epoch)
}

func lastMismatch(committed uint64) error {
	return wire.Errorf(wire.LastCommittedEpochMismatch, "the last epoch committed here is %d, and its secret must be carried on", committed).
		With("last_committed_epoch", committed)
}

func notPrepared(epoch uint64) error {
	return wire.Errorf(wire.NotPrepared, "epoch %d was not prepared here", epoch).With("epoch", epoch)
}

// sameOrder tells whether two orders with sorted members say the same.
func sameOrder(a, b quorum.Reconfigure) bool {
	last := func(r quorum.Reconfigure) uint64 {
		if r.LastCommittedEpoch == nil {
			return 0
		}
		return *r.LastCommittedEpoch
	}
	return a.RackID == b.RackID && a.Epoch == b.Epoch && a.Threshold == b.Threshold && last(a) == last(b) &&
		slices.Equal(a.Members, b.Members)
}

// carried are the secrets that the next epoch must hold, once the secret of the last committed one is recovered.
func (s *state) carried(secret quorum.RackSecret) (quorum.Secrets, error) {
	last := s.coordination.order.LastCommittedEpoch
	if last == nil || s.epochs[*last] == nil {
		return nil, errors.New("no epoch to carry on")
	}
	return s.epochs[*last].config.Secrets(secret)
}
