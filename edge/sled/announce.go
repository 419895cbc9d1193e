package sled

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"muster/wire"
)

// How a sled shows that it is there: its announcement is renewed long before it expires.
const (
	announceEvery = 10 * time.Second
	announceTTL   = 30 * time.Second
	announceRetry = time.Second // after one that was not stored
)

// announce keeps the sled's identity in the bucket of sleds until ctx ends: every so often, and at once after a change and
// when the connection is there again. Nothing takes it out but its expiry.
func (s *Sled) announce(ctx context.Context) {
	links := s.Bus.Conn().StatusChanged(nats.CONNECTED)
	defer s.Bus.Conn().RemoveStatusListener(links)
	next := time.NewTimer(0)
	defer next.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-s.changed:
		case <-links:
		}
		err := s.show(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && failing:
			s.log.Info("announced again")
		case err != nil && !failing:
			s.log.Warn("not announced, it will be tried again until it is", "cause", err)
		}
		failing = err != nil
		if failing {
			next.Reset(announceRetry)
		} else {
			next.Reset(s.every)
		}
	}
}

func (s *Sled) show(ctx context.Context) error {
	value, err := json.Marshal(s.state.Load().identity(), json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode identity: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return s.Bus.Put(ctx, wire.BucketSleds, wire.SledKey(s.Baseboard), value, s.ttl)
}
