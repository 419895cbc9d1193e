package wire

import "time"

// JoinStarted is the reply of join.start.
type JoinStarted struct {
	Rack       string `json:"rack"`
	ID         string `json:"id"`         // of the join, the same for every correction
	Generation uint64 `json:"generation"` // of the accepted network config
	Changed    bool   `json:"changed"`
}

// RackInitializing is the reply of join.initialize.
type RackInitializing struct {
	Rack string `json:"rack"`
	ID   string `json:"id"`
}

// JoinCompleted is the reply of join.complete.
type JoinCompleted struct {
	BootstoreGeneration uint64 `json:"bootstore_generation"` // of the network config that every sled has written
}

// Statuses of a RackOperation.
const (
	OperationUninitialized        = "uninitialized"
	OperationInitializing         = "initializing"
	OperationInitialized          = "initialized"
	OperationInitializationFailed = "initialization_failed"
	OperationJoinInProgress       = "multirack_join_in_progress"
	OperationJoinCompleted        = "multirack_join_completed"
	OperationJoinFailed           = "multirack_join_failed"
)

// RackOperation is the reply of join.operation.
type RackOperation struct {
	Status  string `json:"status"`
	ID      string `json:"id,omitempty"`
	Step    string `json:"step,omitempty"` // the state, while it is under way
	Message string `json:"message,omitempty"`
}

// RackNetwork is the reply of join.network.
type RackNetwork struct {
	Generation uint64             `json:"generation"`
	Config     *RackNetworkConfig `json:"config"` // secrets redacted
}

// RackReset is the body of join.reset.
type RackReset struct {
	Confirm string `json:"confirm"`         // the rack's name once more
	Force   bool   `json:"force,omitempty"` // also when sleds do not answer; they keep what they have
}

// RackWasReset is the reply of join.reset.
type RackWasReset struct {
	Rack        string      `json:"rack"`
	Unreachable []Baseboard `json:"unreachable,omitempty"` // sleds that were not reset
}

// Racks is the reply of join.racks.
type Racks struct {
	Racks []RackLine `json:"racks"`
	Next  string     `json:"next"`
}

// RackLine is one rack of a list.
type RackLine struct {
	Rack   string `json:"rack"`
	Status string `json:"status"` // as in RackOperation
	ID     string `json:"id"`
	Error  Code   `json:"error_code,omitempty"` // CorruptRecord: the record cannot be read
}

// Sleds is the reply of join.sleds.
type Sleds struct {
	Sleds []SledLine `json:"sleds"`
	Next  string     `json:"next"`
}

// States of a SledLine.
const (
	SledFree     = "free"
	SledPrepared = "prepared"
	SledMember   = "member" // only after its commit
	SledStarted  = "started"
)

// SledLine is one sled of a list.
type SledLine struct {
	Baseboard Baseboard `json:"baseboard"`
	SeenAt    time.Time `json:"seen_at"` // its last announcement's arrival
	RackID    *string   `json:"rack_id"`
	State     string    `json:"state"`
}
