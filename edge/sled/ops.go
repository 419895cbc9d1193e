package sled

import (
	"context"

	"muster/functions/join/quorum"
	"muster/runtime"
	"muster/wire"
)

// Function is the value of a sled's function, which tells what it is but cannot serve.
func Function(b wire.Baseboard) runtime.Function {
	s := &Sled{Config: Config{Baseboard: b}}
	return s.Function()
}

// Function is the sled as a function. Its ops are no triggers: only the control plane and other sleds ask.
func (s *Sled) Function() runtime.Function {
	epoch := []wire.Code{wire.WrongRack, wire.StaleEpoch, wire.EpochConflict, wire.NotMember, wire.LastCommittedEpochMismatch}
	return runtime.Function{
		Name: wire.Sled, Instance: []string{s.Baseboard.PartNumber, s.Baseboard.SerialNumber}, Version: Version,
		Description: "a sled: its part in the rack's trust quorum, its start and its network",
		Keys:        []runtime.Key{{Bucket: wire.BucketSleds, Key: wire.SledKey(s.Baseboard), Writes: true}},
		Asks:        asksOfSleds(),
		Ops: []runtime.Op{
			runtime.NewOp[struct{}, wire.Identity](runtime.Op{
				Name: wire.SledIdentity, Description: "who this sled is and how far it is",
			}, s.identity),
			runtime.NewOp[quorum.Reconfigure, struct{}](runtime.Op{
				Name: wire.SledReconfigure, Codes: epoch, Description: "makes this sled the coordinator of an epoch",
			}, s.reconfigure),
			runtime.NewOp[struct{}, quorum.CoordinatorStatus](runtime.Op{
				Name: wire.SledCoordinatorStatus, Codes: []wire.Code{wire.NotCoordinator},
				Description: "how far the epoch has come that this sled coordinates",
			}, s.coordinatorStatus),
			runtime.NewOp[quorum.Prepare, struct{}](runtime.Op{
				Name: wire.SledPrepare, Codes: append([]wire.Code{wire.ShareMismatch}, epoch...),
				Description: "gives this sled its share of an epoch",
			}, s.prepare),
			runtime.NewOp[quorum.Commit, quorum.Committed](runtime.Op{
				Name: wire.SledCommit, Codes: []wire.Code{wire.WrongRack, wire.StaleEpoch, wire.NotPrepared},
				Description: "tells this sled that every member has prepared",
			}, s.commit),
			runtime.NewOp[quorum.ShareRequest, quorum.SealedShare](runtime.Op{
				Name: wire.SledShare, Codes: []wire.Code{wire.WrongRack, wire.NotPrepared, wire.NotMember},
				Description: "gives a member this sled's share of a committed epoch, sealed to it",
			}, s.share),
			runtime.NewOp[wire.StartSled, struct{}](runtime.Op{
				Name: wire.SledStart, Codes: []wire.Code{wire.WrongRack, wire.NotPrepared, wire.AlreadyStarted},
				Description: "starts this sled's agent",
			}, s.start),
			runtime.NewOp[wire.SledNetworkConfig, wire.SledNetworkDone](runtime.Op{
				Name: wire.SledNetwork, Codes: []wire.Code{wire.StaleGeneration, wire.GenerationConflict},
				Description: "gives this sled a network config",
			}, s.configure),
			runtime.NewOp[wire.SledForget, struct{}](runtime.Op{
				Name: wire.SledReset, Codes: []wire.Code{wire.WrongRack}, Description: "makes this sled forget its rack",
			}, s.reset),
		},
	}
}

// done is the reply of an op that has nothing to say.
type done = struct{}

func (s *Sled) identity(context.Context, *runtime.Request[struct{}]) (any, error) {
	return s.state.Load().identity(), nil
}

// reconfigure answers when the order is stored, and the configuration too if no secret must be recovered for it first. The
// rest goes on in the background. Repeated, it makes the coordinator look again whether its members hold their shares.
func (s *Sled) reconfigure(_ context.Context, r *runtime.Request[quorum.Reconfigure]) (any, error) {
	err := s.change(func(now *state) (*state, error) {
		next, err := now.reconfigure(r.Body)
		if err != nil || r.Body.LastCommittedEpoch != nil {
			return next, err
		}
		return next.deal(s.random, nil)
	})
	if err != nil {
		return nil, err
	}
	wake(s.asked)
	return done{}, nil
}

func (s *Sled) coordinatorStatus(context.Context, *runtime.Request[struct{}]) (any, error) {
	now := s.state.Load()
	acked := []wire.Baseboard{}
	if a, c := s.acks.Load(), now.coordination; a != nil && c != nil && a.epoch == c.order.Epoch {
		acked = a.by
	}
	status, err := now.status(acked)
	if err != nil {
		return nil, err
	}
	return status, nil
}

func (s *Sled) prepare(_ context.Context, r *runtime.Request[quorum.Prepare]) (any, error) {
	if v := r.Header[wire.HeaderCommitments]; len(v) > 0 {
		r.Body.Commitments = v[0]
	}
	return done{}, s.takePrepare(r.Body)
}

func (s *Sled) takePrepare(r quorum.Prepare) error {
	return s.change(func(now *state) (*state, error) { return now.prepare(r) })
}

func (s *Sled) commit(_ context.Context, r *runtime.Request[quorum.Commit]) (any, error) {
	err := s.change(func(now *state) (*state, error) { return now.commit(r.Body) })
	return quorum.Committed{Status: quorum.StatusCommitted}, err
}

func (s *Sled) share(_ context.Context, r *runtime.Request[quorum.ShareRequest]) (any, error) {
	now := s.state.Load()
	share, to, err := now.share(r.Body)
	if err != nil {
		return nil, err
	}
	sealed, err := now.key.Seal(s.random, share, to)
	return quorum.SealedShare{Share: sealed}, err
}

func (s *Sled) start(ctx context.Context, r *runtime.Request[wire.StartSled]) (any, error) {
	err := s.change(func(now *state) (*state, error) { return now.start(r.Body, s.OnStart == "") })
	if err != nil {
		return nil, err
	}
	if a := s.state.Load().agent; a != nil && !a.started {
		return done{}, s.startAgent(ctx, r.Body, false)
	}
	return done{}, nil
}

func (s *Sled) configure(ctx context.Context, r *runtime.Request[wire.SledNetworkConfig]) (any, error) {
	err := s.change(func(now *state) (*state, error) { return now.configure(r.Body, s.OnNetwork == "") })
	if err != nil {
		return nil, err
	}
	if n := s.state.Load().network; n != nil && n.generation == r.Body.Generation && !n.written {
		err = s.writeNetwork(ctx, r.Body)
	}
	return wire.SledNetworkDone{Generation: r.Body.Generation}, err
}

func (s *Sled) reset(_ context.Context, r *runtime.Request[wire.SledForget]) (any, error) {
	return done{}, s.change(func(now *state) (*state, error) {
		return now.forget(r.Body, func() (quorum.ExchangeKey, error) { return quorum.NewExchangeKey(s.random) })
	})
}
