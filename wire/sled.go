package wire

// Sled ops, on muster.sled.<part>.<serial>.<op>.
const (
	SledIdentity          = "identity"
	SledReconfigure       = "reconfigure"
	SledCoordinatorStatus = "coordinator-status"
	SledPrepare           = "prepare"
	SledCommit            = "commit"
	SledShare             = "share"
	SledStart             = "start"
	SledNetwork           = "network"
	SledReset             = "reset"
)

// Identity is what a sled says of itself: the reply of its identity op and its announcement in [BucketSleds].
type Identity struct {
	Baseboard         Baseboard `json:"baseboard"`
	ExchangeKey       string    `json:"exchange_key"` // NATS curve key, X…
	RackID            *string   `json:"rack_id"`
	PreparedEpoch     *uint64   `json:"prepared_epoch"`
	CommittedEpoch    *uint64   `json:"committed_epoch"`
	Started           bool      `json:"started"`
	NetworkGeneration uint64    `json:"network_generation"` // 0: none written
}

// StartSled starts a sled's agent, with the form of the sled-agent start request it is modelled on.
type StartSled struct {
	Generation    uint64        `json:"generation"`     // 0
	SchemaVersion uint64        `json:"schema_version"` // 1
	Body          StartSledBody `json:"body"`
}

// StartSledBody is what the sled is to be.
type StartSledBody struct {
	ID             string `json:"id"` // of the sled, a UUID
	Subnet         Subnet `json:"subnet"`
	UseTrustQuorum bool   `json:"use_trust_quorum"`
	IsLRTQLearner  bool   `json:"is_lrtq_learner"`
	RackID         string `json:"rack_id"`
}

// Subnet is an IPv6 network of a fixed prefix length.
type Subnet struct {
	Net string `json:"net"`
}

// SledNetworkConfig gives a sled the rack's network config; the reply is a SledNetworkDone.
type SledNetworkConfig struct {
	Generation uint64             `json:"generation"`
	Config     *RackNetworkConfig `json:"config"`
}

// SledNetworkDone tells which generation the sled has written.
type SledNetworkDone struct {
	Generation uint64 `json:"generation"`
}

// SledForget asks a sled to forget its rack.
type SledForget struct {
	RackID string `json:"rack_id"`
}

// SledSubject is the subject of a sled's op.
func SledSubject(b Baseboard, op string) string {
	return root + ".sled." + b.PartNumber + "." + b.SerialNumber + "." + op
}

// SledKey is a sled's key in [BucketSleds].
func SledKey(b Baseboard) string { return b.PartNumber + "." + b.SerialNumber }

// Sled is the name of the micro service of sleds, without "muster-".
const Sled = "sled"
