package sled

import (
	"context"
	"errors"
	"time"

	"muster/functions/join/quorum"
	"muster/runtime"
	"muster/wire"
)

// How long a member may take. A share that is on its way is waited for longer than it takes to send it again.
const (
	identityTimeout = 1500 * time.Millisecond
	prepareTimeout  = 20 * time.Second
)

// coordinate carries out what the state says this sled coordinates, whenever there is something, until ctx ends. It needs
// nothing but the state: after a restart it goes on by itself, with the same configuration.
func (s *Sled) coordinate(ctx context.Context) {
	for ctx.Err() == nil {
		var again <-chan time.Time
		if c := s.state.Load().coordination; c.open() {
			switch err := s.lead(ctx, c); {
			case ctx.Err() != nil || !s.still(c):
				continue
			case errors.Is(err, errSuperseded):
				s.log.Warn("no longer coordinating: a member has seen a higher epoch", "rack", c.order.RackID, "epoch", c.order.Epoch)
			default:
				s.log.Error("the epoch cannot be dealt, it will be tried again", "rack", c.order.RackID, "epoch", c.order.Epoch, "cause", err)
				again = time.After(retryMax)
			}
		}
		select {
		case <-ctx.Done():
		case <-s.moved:
		case <-s.asked:
		case <-again:
		}
	}
}

// errSuperseded: a member has seen a higher epoch than the one that is coordinated here.
var errSuperseded = errors.New("a member has seen a higher epoch")

// lead brings one epoch to its members, until the state has moved on to something else, or it fails.
func (s *Sled) lead(ctx context.Context, c *coordination) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.config == nil {
		if err := s.carryOn(ctx, c); err != nil {
			return err
		}
		dealt := s.state.Load().coordination
		if !s.still(c) {
			return nil
		}
		c = dealt
	}
	log := s.log.With("rack", c.order.RackID, "epoch", c.order.Epoch)
	log.Info("coordinating", "members", len(c.config.Members))
	p := newSpread(c.config, s.state.Load().key.Public())
	results := make(chan result)
	for told := false; ; {
		for _, st := range p.steps(time.Now()) {
			go func() {
				r := s.carryOut(ctx, c, st)
				select {
				case results <- r:
				case <-ctx.Done():
				}
			}()
		}
		s.acks.Store(&acks{c.order.Epoch, p.acks()})
		if p.over {
			return errSuperseded
		}
		if p.done() && !told {
			log.Info("all members have prepared")
		}
		told = p.done()
		var retry <-chan time.Time
		if next := p.next(); !next.IsZero() {
			retry = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.moved:
			if !s.still(c) {
				return nil
			}
		case <-s.asked:
			p.doubt()
		case <-retry:
		case r := <-results:
			switch {
			case r.err != nil:
				if p.failed(r.step, r.err, time.Now()) {
					log.Warn("a member has not prepared, it will be asked again", "member", r.to, "cause", r.err)
				}
			case r.version == 0:
				p.met(r.to, r.identity)
			default:
				p.acked(r.to, r.version)
			}
		}
	}
}

// still tells whether c is what this sled coordinates, and has something left to do.
func (s *Sled) still(c *coordination) bool {
	now := s.state.Load().coordination
	return now.open() && now.order.RackID == c.order.RackID && now.order.Epoch == c.order.Epoch
}

// carryOn recovers the secret of the last committed epoch and deals the new one with it.
func (s *Sled) carryOn(ctx context.Context, c *coordination) error {
	last := *c.order.LastCommittedEpoch
	now := s.state.Load()
	log := s.log.With("rack", c.order.RackID, "epoch", last)
	log.Info("recovering the rack secret of the last committed epoch")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		got, err := now.gather(ctx, last, s.ask, func(b wire.Baseboard, err error) {
			log.Warn("a member has not given its key share, it will be asked again", "member", b, "cause", err)
		})
		if err != nil {
			done <- err
			return
		}
		done <- s.change(func(now *state) (*state, error) {
			if now.coordination == nil || now.coordination.order.Epoch != c.order.Epoch || now.rack != c.order.RackID {
				return now, nil // superseded, or reset
			}
			prior, err := now.carried(got.secret)
			if err != nil {
				return nil, err
			}
			return now.deal(s.random, prior)
		})
	}()
	for {
		select {
		case err := <-done:
			return err
		case <-s.moved:
			if !s.still(c) {
				return errors.New("superseded")
			}
		case <-s.asked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// result is what became of a step.
type result struct {
	step
	identity wire.Identity
	err      error
}

// carryOut asks a member what a step says. This sled is a member like the others.
func (s *Sled) carryOut(ctx context.Context, c *coordination, st step) result {
	r := result{step: st}
	if st.version == 0 {
		r.identity, r.err = s.identityOf(ctx, st.to)
		return r
	}
	body := quorum.Prepare{Config: *c.config, SenderKey: s.state.Load().key.Public(), Keys: st.keys, Commitments: string(c.commitments)}
	for _, k := range st.keys {
		if k.Member == st.to {
			body.Share, r.err = s.state.Load().key.Seal(s.random, c.shares[st.to], k.Key)
		}
	}
	switch {
	case r.err != nil:
	case st.to == s.Baseboard:
		r.err = s.takePrepare(body)
	default:
		ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
		defer cancel()
		r.err = s.ask(ctx, st.to, wire.SledPrepare, body, nil)
	}
	return r
}

func (s *Sled) identityOf(ctx context.Context, b wire.Baseboard) (wire.Identity, error) {
	if b == s.Baseboard {
		return s.state.Load().identity(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	var id wire.Identity
	if err := s.ask(ctx, b, wire.SledIdentity, nil, &id); err != nil {
		return id, err
	}
	if id.Baseboard != b || quorum.CheckPublicKey(id.ExchangeKey) != nil {
		return id, wire.Errorf(wire.Internal, "it answers with an identity that is not its own")
	}
	return id, nil
}

// acks are the acks of an epoch that this sled coordinates.
type acks struct {
	epoch uint64
	by    []wire.Baseboard
}

// askOn asks sleds over the bus.
func askOn(bus *runtime.Bus) asking {
	return func(ctx context.Context, to wire.Baseboard, op string, body, reply any) error {
		return bus.Ask(ctx, wire.SledSubject(to, op), body, reply)
	}
}
