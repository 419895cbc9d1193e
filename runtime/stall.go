package runtime

import (
	"context"
	"math/rand/v2"
	"time"

	"muster/wire"
)

// A stream that takes the revisions of buckets may stand still for half a minute and more when a server dies: its leader
// waits for the answer of one that is gone, then for longer. Hot keys wait with it, since nothing is overwritten unread.
// Another leader begins anew at once, so whoever sees that it stands still asks for one.

// How long a stream that stands still is left alone, with as much again by chance, so that one replica asks and not all;
// and at most, if another leader did not help.
const (
	stallPatience = 2 * time.Second
	stallMost     = time.Minute
)

// stall is what is known of a stream that stands still.
type stall struct {
	patience time.Duration // 0: it runs
	until    time.Time
}

// due tells whether it is time to ask for another leader.
func (s *stall) due(running bool, now time.Time) bool {
	switch {
	case running:
		*s = stall{}
		return false
	case s.patience == 0:
		s.patience = stallPatience
	case now.Before(s.until):
		return false
	default:
		s.patience = min(2*s.patience, stallMost)
		s.wait(now)
		return true
	}
	s.wait(now)
	return false
}

func (s *stall) wait(now time.Time) { s.until = now.Add(s.patience + rand.N(s.patience)) }

// restart has another server lead the stream, if that can help: there is one, and the buckets that it should follow are led.
func (s *Stream) restart(state *streamState) {
	ctx, cancel := context.WithTimeout(s.bus.closing, 2*lookTimeout)
	defer cancel()
	for _, spec := range s.spec.sources {
		if sourceProblem(state, spec) == "" {
			continue
		}
		source, err := s.bus.js.Stream(ctx, wire.BucketStream(spec.Name))
		if err != nil || source.CachedInfo().Cluster == nil || source.CachedInfo().Cluster.Leader == "" {
			return
		}
	}
	_, err := s.bus.nc.RequestWithContext(ctx, wire.APILeaderStepDown(s.spec.Name), nil)
	s.bus.log.Info("stream stands still; asked for another leader", "stream", s.spec.Name, "error", err)
}
