package join

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"muster/functions/join/quorum"
	"muster/wire"
)

// coordinatorSilence is how long a coordinator may be silent before another takes over.
const coordinatorSilence = 5 * time.Second

// fresh is what a new record needs from outside.
type fresh struct {
	ID, RackID string
}

// started is what a start or initialize did.
type started struct {
	ID         string
	Generation uint64
}

// begin takes a join request, in its normal form. config is the generation under which its network config is stored when
// it differs from the accepted one, and 0 when it is the accepted one. The outcome of an equal request is the first one's.
func begin(r *record, kind string, req *wire.JoinRequest, config uint64, ids fresh) (changed bool, out started, err error) {
	if !r.exists() {
		r.Kind, r.ID, r.RackID = kind, ids.ID, ids.RackID
		r.Peers, r.RackSubnet, r.Accepted = req.TrustQuorumPeers, req.RackNetworkConfig.RackSubnet, config
		r.restart()
		return true, started{r.ID, r.Accepted}, nil
	}
	samePeers := slices.Equal(r.Peers, req.TrustQuorumPeers)
	same := samePeers && config == 0
	if err := refusal(r, kind, same); err != nil {
		return false, started{}, err
	}
	if same {
		return false, started{r.ID, r.Accepted}, nil
	}
	if !samePeers {
		if err := r.changePeers(req.TrustQuorumPeers); err != nil {
			return false, started{}, err
		}
	}
	if config != 0 {
		r.Accepted, r.Network = config, nil
		r.RackSubnet = cmp.Or(r.subnetInUse(), req.RackNetworkConfig.RackSubnet)
		if r.State == AwaitingCompletion {
			r.State = ConfiguringNetwork
		}
	}
	return true, started{r.ID, r.Accepted}, nil
}

// subnetInUse is the rack subnet that sleds were given addresses from; "" before.
func (r *record) subnetInUse() string {
	if len(r.Sleds) > 0 {
		return r.RackSubnet
	}
	return ""
}

// refusal tells why a start or initialize cannot be taken, nil if it can.
func refusal(r *record, kind string, same bool) error {
	switch {
	case r.Resetting:
		return wire.Errorf(wire.MultirackJoinInProgress, "the rack is being reset; repeat the reset until it is done")
	case r.State == Failed && r.Kind == byInitialize:
		return wire.Errorf(wire.InitializationFailed, "the initialization failed: %s", r.Message)
	case r.State == Failed:
		return wire.Errorf(wire.MultirackJoinFailed, "the join failed, reset the rack to begin anew: %s", r.Message)
	case r.Kind == byInitialize && r.State == Initialized:
		if kind == byInitialize && same {
			return nil
		}
		return wire.Errorf(wire.AlreadyInitialized, "the rack is initialized")
	case r.Kind == byInitialize:
		if kind == byInitialize && same {
			return nil
		}
		return wire.Errorf(wire.StillInitializing, "the rack is being initialized; it takes no correction until reset")
	case r.State == Completed:
		return wire.Errorf(wire.MultirackJoinCompleted, "the rack has joined")
	case kind == byInitialize:
		return wire.Errorf(wire.MultirackJoinInProgress, "the rack is joining a cluster")
	case r.Sealed && !same:
		return wire.Errorf(wire.MultirackJoinInProgress, "the join is being completed and takes no change")
	}
	return nil
}

// changePeers takes a correction of the membership.
func (r *record) changePeers(peers []wire.Baseboard) error {
	switch r.State {
	case Requested, Starting, Reconfiguring, Preparing, InvalidMembershipSize:
		r.Peers = peers
		r.restart()
		return nil
	case Committing:
		if !r.canFollow() {
			r.State, r.Message = Failed, fmt.Sprintf(
				"the membership was changed while epoch %d was being committed and only %d of the %d sleds needed had committed",
				r.Epoch, len(r.Committed), r.enough())
			return nil
		}
		epoch := r.Epoch
		r.LastCommitted, r.Peers = &epoch, peers
		r.restart()
		return nil
	case StartingAgents, ConfiguringNetwork, AwaitingCompletion, Completed, Initialized, Failed, Uninitialized:
	}
	return wire.Errorf(wire.MembershipChangeNoLongerAllowed, "all sleds have committed; the membership stays as it is")
}

// canFollow tells whether another epoch may follow the one that is being committed. Commits may have gone out: what was
// committed must be known to stay.
func (r *record) canFollow() bool { return len(r.Committed) >= r.enough() }

// enough is how many sleds must have committed for that.
func (r *record) enough() int { return r.Config.Threshold + quorum.Tolerance(len(r.Config.Members)) }

// restart begins with the present peers. The epoch that follows is above every one before.
func (r *record) restart() {
	r.Coordinator, r.Told, r.SilentSince, r.Config = nil, false, nil, nil
	r.Acked, r.Committed, r.Problems, r.Message = nil, nil, nil, ""
	r.State = Requested
	if n := len(r.Peers); n < quorum.MinMembers || n > quorum.MaxMembers {
		r.State = InvalidMembershipSize
		r.sayWrongSize()
	}
}

// sayWrongSize tells what stands against the membership, and what is left to do about it.
func (r *record) sayWrongSize() {
	mend := "send start again with the right ones"
	if r.Sealed || r.Kind == byInitialize {
		mend = "it takes no correction any more: reset the rack and begin anew with the right ones"
	}
	r.Message = fmt.Sprintf("%d sleds cannot form a trust quorum, it takes %d to %d; %s",
		len(r.Peers), quorum.MinMembers, quorum.MaxMembers, mend)
}

// complete takes a request to complete. done tells that generation is the answer; otherwise the caller waits.
func complete(r *record) (changed, done bool, generation uint64, err error) {
	switch {
	case !r.exists():
		return false, false, 0, wire.Errorf(wire.MultirackJoinNotStarted, "no join was ever started for this rack")
	case r.Kind == byInitialize && r.State == Failed:
		return false, false, 0, wire.Errorf(wire.InitializationFailed, "the initialization failed: %s", r.Message)
	case r.Kind == byInitialize && r.State == Initialized:
		return false, false, 0, wire.Errorf(wire.AlreadyInitialized, "the rack was initialized, not joined")
	case r.Kind == byInitialize:
		return false, false, 0, wire.Errorf(wire.StillInitializing, "the rack is being initialized, not joined")
	case r.State == Failed:
		return false, false, 0, wire.Errorf(wire.MultirackJoinFailed, "the join failed, reset the rack to begin anew: %s", r.Message)
	case r.State == Completed && r.Completed == nil:
		return false, false, 0, wire.Errorf(wire.MultirackJoinGenerationUnavailable, "the join is completed, but the record holds no generation")
	case r.State == Completed:
		return false, true, *r.Completed, nil
	case r.Resetting:
		return false, false, 0, wire.Errorf(wire.MultirackJoinInProgress, "the rack is being reset")
	case r.Written != 0 && r.Accepted > r.Written:
		return false, false, 0, wire.Errorf(wire.MultirackJoinPendingConfigUpdate,
			"network config %d is accepted and not written yet; it is being applied, complete again", r.Accepted)
	case r.State == AwaitingCompletion:
		r.Sealed = true
		r.finish()
		return true, true, *r.Completed, nil
	}
	changed = !r.Sealed
	r.Sealed = true
	if r.State == InvalidMembershipSize {
		r.sayWrongSize()
	}
	return changed, false, 0, nil
}

// finish ends a join whose accepted config is written and whose completion was asked for.
func (r *record) finish() {
	generation := r.Written
	r.State, r.Completed = Completed, &generation
}

// written takes that every sled has written the accepted config.
func (r *record) written() {
	r.Written = r.Accepted
	switch {
	case r.Kind == byInitialize:
		r.State = Initialized
	case r.Sealed:
		r.finish()
	default:
		r.State = AwaitingCompletion
	}
}
