// Package join brings a rack of sleds into a cluster. The sleds form a trust quorum, start their agents and take the
// rack's network config; the control plane then completes the join.
//
// Roles: an operator asks to start, and corrects by asking again; the rack's record, one key of one bucket, is all that is
// known; the driver takes each revision of a record as a work item, asks sleds what the record says is next, and writes
// what they answered; one of the sleds coordinates and makes the secret, which nobody else ever sees whole.
//
// What always holds: one configuration for a rack and epoch; epochs and generations only rise; only who has committed is a
// member; ids and subnets are stored before the first sled is started; after complete was accepted no config is taken, and
// its generation never changes. What makes progress: a sled that is silent is asked again, a coordinator that is silent is
// replaced, a replica that dies leaves its work to the others, and a sled that lost its store is given its share in another
// epoch. The gap: once too few others have committed for that, or all have, it holds its rack up until an operator resets it.
//
// The decisions are pure and stand in machine.go and step.go.
package join

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

// Version is the version of the function on the bus.
const Version = "1.0.0"

// Deps are what the function needs to run. A Function made of none tells what it is but cannot serve.
type Deps struct {
	Racks    store.Log // bucket of record [runtime.Racks]
	Networks store.Log // bucket of record [runtime.Networks]
	Sleds    store.Log // bucket [runtime.Sleds]
	// Ask sends a sled a request and decodes its reply; it fails with a [*wire.Error] or [runtime.ErrSilent].
	Ask   func(ctx context.Context, to wire.Baseboard, op string, body, reply any) error
	NewID func() string // makes UUIDs
	Now   func() time.Time
	Log   *slog.Logger // nil logs nothing
}

type function struct {
	Deps
	log   *slog.Logger
	racks *store.Store[*record]
	asks  chan struct{} // bounds the requests to sleds under way
}

// maxAsks is how many requests to sleds a replica has under way.
const maxAsks = 512

// New makes the function.
func New(deps Deps) runtime.Function {
	f := &function{Deps: deps, log: cmp.Or(deps.Log, slog.New(slog.DiscardHandler)), asks: make(chan struct{}, maxAsks)}
	if deps.Racks != nil {
		f.racks = store.New(deps.Racks, codec, store.Config{EventType: runtime.Racks.EventType, Now: deps.Now})
	}
	rack := []string{"rack"}
	stands := []wire.Code{
		wire.MultirackJoinInProgress, wire.MultirackJoinCompleted, wire.MultirackJoinFailed, wire.StillInitializing,
		wire.AlreadyInitialized, wire.InitializationFailed, wire.RequestIDReused, wire.CorruptRecord, wire.Contended,
	}
	reads := []wire.Code{wire.CorruptRecord}
	return runtime.Function{
		Name: wire.Join, Version: Version, Description: "brings racks of sleds into a cluster",
		Buckets: []runtime.Use{
			{Bucket: runtime.Racks, Writes: true, Views: true}, {Bucket: runtime.Networks, Writes: true, Log: true}, {Bucket: runtime.Sleds},
		},
		Asks:   asksOfSleds(),
		Gauges: []runtime.Gauge{f.racksByState()},
		Workers: []runtime.Worker{{
			Bucket: runtime.Racks, Durable: wire.DurableJoin, Wake: runtime.Sleds, Step: f.step,
		}},
		Ops: []runtime.Op{
			runtime.NewOp[wire.JoinRequest, wire.JoinStarted](runtime.Op{
				Name: "start", IDs: rack, Changes: true, Codes: append(stands, wire.MembershipChangeNoLongerAllowed),
				Description: "starts a join, or corrects one that is under way",
			}, f.start),
			runtime.NewOp[struct{}, Status](runtime.Op{
				Name: "status", IDs: rack, Codes: reads, Description: "how far a rack has come",
			}, f.status),
			runtime.NewOp[struct{}, wire.JoinCompleted](runtime.Op{
				Name: "complete", IDs: rack, Changes: true,
				Codes: append(stands, wire.MultirackJoinNotStarted, wire.MultirackJoinPendingConfigUpdate,
					wire.MultirackJoinGenerationUnavailable),
				Description: "stops config updates, waits for the join, and returns the generation of its network config",
			}, f.complete),
			runtime.NewOp[wire.JoinRequest, wire.RackInitializing](runtime.Op{
				Name: "initialize", IDs: rack, Changes: true, Codes: stands,
				Description: "initializes a rack that joins nobody",
			}, f.initialize),
			runtime.NewOp[struct{}, wire.RackOperation](runtime.Op{
				Name: "operation", IDs: rack, Codes: reads, Description: "which operation a rack is in",
			}, f.operation),
			runtime.NewOp[struct{}, wire.RackNetwork](runtime.Op{
				Name: "network", IDs: rack, Codes: append(reads, wire.RackNotFound),
				Description: "the accepted network config of a rack, its secrets redacted",
			}, f.network),
			runtime.NewOp[wire.RackReset, wire.RackWasReset](runtime.Op{
				Name: "reset", IDs: rack, Changes: true, Codes: []wire.Code{wire.RackNotFound, wire.CorruptRecord, wire.Contended},
				Description: "has every sled forget the rack, and forgets it",
			}, f.reset),
			runtime.NewOp[wire.Page, wire.Racks](runtime.Op{
				Name: "racks", Description: "all racks, in pages",
			}, f.list),
			runtime.NewOp[wire.Page, wire.Sleds](runtime.Op{
				Name: "sleds", Description: "all sleds that answer, in pages",
			}, f.sleds),
		},
	}
}
