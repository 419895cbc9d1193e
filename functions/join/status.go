package join

import (
	"context"

	"muster/functions/join/quorum"
	"muster/runtime"
	"muster/wire"
)

// Status is the reply of join.status: a rack's state with what belongs to it, flat, as in the join API that it speaks.
type Status struct {
	State             State            `json:"state"`
	Rack              string           `json:"rack"`
	ID                string           `json:"id,omitempty"`
	Message           string           `json:"message,omitempty"`
	Generation        uint64           `json:"generation,omitzero"`
	WrittenGeneration uint64           `json:"written_generation,omitzero"`
	Missing           []wire.Baseboard `json:"missing,omitempty"` // are awaited
	Problems          []sledProblem    `json:"problems,omitempty"`

	// of trust_quorum_reconfigure and trust_quorum_committing
	RackID             string           `json:"rack_id,omitempty"`
	Epoch              uint64           `json:"epoch,omitzero"`
	LastCommittedEpoch *uint64          `json:"last_committed_epoch,omitempty"`
	Members            []wire.Baseboard `json:"members,omitempty"`
	Threshold          int              `json:"threshold,omitzero"`

	// of trust_quorum_preparing
	Config        *quorum.Configuration `json:"config,omitempty"`
	AckedPrepares *[]wire.Baseboard     `json:"acked_prepares,omitempty"`

	// of trust_quorum_committing
	Acked                *[]wire.Baseboard  `json:"acked,omitempty"`
	CommitCrashTolerance *int               `json:"commit_crash_tolerance,omitempty"`
	TransientErrors      *map[string]string `json:"transient_errors,omitempty"`
	FatalErrors          *map[string]string `json:"fatal_errors,omitempty"`

	// from start_sled_agents on
	Sleds []sledStatus `json:"sleds,omitempty"`
}

// sledStatus is how one sled's agent is doing.
type sledStatus struct {
	Baseboard  wire.Baseboard `json:"baseboard_id"`
	ID         string         `json:"sled_id"`
	Subnet     wire.Subnet    `json:"sled_subnet"`
	StartState startState     `json:"start_state"`
}

type startState struct {
	Type      string `json:"type"` // in_progress, started
	LastError string `json:"last_error,omitempty"`
}

// describe makes the status of a rack.
func describe(rack string, r *record) Status {
	if !r.exists() {
		return Status{State: Uninitialized, Rack: rack}
	}
	s := Status{
		State: r.State, Rack: rack, ID: r.ID, Message: r.Message, Generation: r.Accepted, WrittenGeneration: r.Written,
		Problems: r.Problems,
	}
	members := func() {
		s.RackID, s.Epoch, s.LastCommittedEpoch, s.Members = r.RackID, r.Epoch, r.LastCommitted, r.Peers
		s.Threshold = quorum.Threshold(len(r.Peers))
	}
	switch r.State {
	case Reconfiguring:
		members()
		s.Missing = []wire.Baseboard{*r.Coordinator}
	case Preparing:
		acked := present(r.Acked)
		s.Config, s.AckedPrepares, s.Missing = r.Config, &acked, missing(r.Peers, r.Acked)
	case Committing:
		members()
		acked, tolerance := present(r.Committed), quorum.Tolerance(len(r.Peers))
		transient, fatal := map[string]string{}, map[string]string{}
		for _, p := range r.Problems {
			transient[p.Baseboard.String()] = p.Problem
		}
		s.Acked, s.CommitCrashTolerance, s.TransientErrors, s.FatalErrors = &acked, &tolerance, &transient, &fatal
		s.Missing = missing(r.Peers, r.Committed)
	case ConfiguringNetwork:
		s.Missing = missing(r.Peers, r.Network)
	case Starting:
		s.Missing = r.Peers
	case Requested, StartingAgents, AwaitingCompletion, Completed, Initialized, Failed, InvalidMembershipSize, Uninitialized:
	}
	for _, sled := range r.Sleds {
		line := sledStatus{sled.Baseboard, sled.ID, sled.Subnet, startState{Type: "started"}}
		if !sled.Started {
			line.StartState = startState{"in_progress", sled.LastError}
			s.Missing = append(s.Missing, sled.Baseboard)
		}
		s.Sleds = append(s.Sleds, line)
	}
	return s
}

// present is never null in JSON.
func present(b []wire.Baseboard) []wire.Baseboard {
	if b == nil {
		return []wire.Baseboard{}
	}
	return b
}

func (f *function) status(ctx context.Context, r *runtime.Request[struct{}]) (any, error) {
	doc, err := f.racks.View(ctx, r.IDs[0])
	if err != nil {
		return nil, err
	}
	return describe(r.IDs[0], doc.Doc), nil
}

func (f *function) operation(ctx context.Context, r *runtime.Request[struct{}]) (any, error) {
	doc, err := f.racks.View(ctx, r.IDs[0])
	if err != nil {
		return nil, err
	}
	return operation(doc.Doc), nil
}

// operation tells which operation a rack is in.
func operation(r *record) wire.RackOperation {
	o := wire.RackOperation{ID: r.ID, Message: r.Message}
	switch {
	case !r.exists():
		return wire.RackOperation{Status: wire.OperationUninitialized}
	case r.Kind == byInitialize && r.State == Failed:
		o.Status = wire.OperationInitializationFailed
	case r.Kind == byInitialize && r.State == Initialized:
		o.Status = wire.OperationInitialized
	case r.Kind == byInitialize:
		o.Status, o.Step = wire.OperationInitializing, string(r.State)
	case r.State == Failed:
		o.Status = wire.OperationJoinFailed
	case r.State == Completed:
		o.Status = wire.OperationJoinCompleted
	default:
		o.Status, o.Step = wire.OperationJoinInProgress, string(r.State)
	}
	return o
}

func (f *function) network(ctx context.Context, r *runtime.Request[struct{}]) (any, error) {
	rack := r.IDs[0]
	doc, err := f.racks.View(ctx, rack)
	if err != nil {
		return nil, err
	}
	if !doc.Doc.exists() {
		return nil, errNotFound(rack)
	}
	config, err := f.config(ctx, rack, doc.Doc.Accepted)
	if err != nil {
		return nil, err
	}
	return wire.RackNetwork{Generation: doc.Doc.Accepted, Config: redacted(config)}, nil
}

func errNotFound(rack string) error {
	return wire.Errorf(wire.RackNotFound, "nothing is known of rack %s", rack)
}
