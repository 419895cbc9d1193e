package sled

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"muster/functions/join/quorum"
	"muster/runtime"
	"muster/wire"
)

// Unlocked is the proof that a rack's secret can be recovered. It holds no secret.
type Unlocked struct {
	RackID      string
	Epoch       uint64           // the last one committed here
	From        []wire.Baseboard // whose shares it took
	Members     int
	Fingerprint string
	Prior       []PriorSecret // of the committed epochs before, epochs rising
}

// PriorSecret is an earlier secret that the newest one opens.
type PriorSecret struct {
	Epoch       uint64
	Fingerprint string
}

// Unlock recovers the secret of the last epoch that a sled has committed, from its own share and those that other members
// give it over the bus, and then opens the secrets of the epochs before. The sled may run meanwhile: its store is only
// read. It tries until ctx ends.
func Unlock(ctx context.Context, dir string, board wire.Baseboard, bus *runtime.Bus) (Unlocked, error) {
	s, err := loadState(dir)
	if err != nil {
		return Unlocked{}, err
	}
	if s.board != board {
		return Unlocked{}, fmt.Errorf("store %s is that of sled %v, not of %v", dir, s.board, board)
	}
	return s.unlock(ctx, askOn(bus))
}

// ErrNotCommitted says that a sled has committed no epoch, so that there is nothing to unlock.
var ErrNotCommitted = errors.New("this sled has committed no epoch")

func (s *state) unlock(ctx context.Context, ask asking) (Unlocked, error) {
	epoch := s.committed()
	if epoch == 0 {
		return Unlocked{}, ErrNotCommitted
	}
	got, err := s.gather(ctx, epoch, ask, nil)
	if err != nil {
		return Unlocked{}, fmt.Errorf("unlock epoch %d: %w", epoch, err)
	}
	config := s.epochs[epoch].config
	all, err := config.Secrets(got.secret)
	if err != nil {
		return Unlocked{}, fmt.Errorf("open the secrets before epoch %d: %w", epoch, err)
	}
	u := Unlocked{
		RackID: s.rack, Epoch: epoch, From: got.from, Members: len(config.Members), Fingerprint: quorum.Fingerprint(got.secret),
	}
	for _, e := range slices.Sorted(maps.Keys(all)) {
		if e != epoch {
			u.Prior = append(u.Prior, PriorSecret{e, quorum.Fingerprint(all[e])})
		}
	}
	return u, nil
}
