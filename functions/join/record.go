package join

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"muster/functions/join/quorum"
	"muster/runtime/store"
	"muster/wire"
)

// State is how far a rack has come. The zero value is no state.
type State string

// The states of a rack, in order, each with its exits.
const (
	Uninitialized         State = "uninitialized"            // no record; start or initialize → requested
	Requested             State = "requested"                // → starting, or invalid_membership_size
	Starting              State = "starting"                 // a sled answers → trust_quorum_reconfigure
	Reconfiguring         State = "trust_quorum_reconfigure" // the coordinator has a configuration → preparing; is silent → starting
	Preparing             State = "trust_quorum_preparing"   // all have acked → committing; the coordinator is silent → starting
	Committing            State = "trust_quorum_committing"  // all have committed → start_sled_agents
	StartingAgents        State = "start_sled_agents"        // all have started → configuring_network
	ConfiguringNetwork    State = "configuring_network"      // all have written → awaiting_completion, completed or initialized
	AwaitingCompletion    State = "awaiting_completion"      // complete → completed; another config → configuring_network
	Completed             State = "completed"                // the end
	Initialized           State = "initialized"              // the end of initialize
	Failed                State = "failed"                   // reset is the only way out
	InvalidMembershipSize State = "invalid_membership_size"  // start with other peers → requested
)

// Ways to bring a rack in. They exclude each other until reset.
const (
	byJoin       = "join"
	byInitialize = "initialize"
)

// record is all that is known of a rack; it holds no secret. It is the state that status shows, the event that others
// see and the driver's work item in one.
type record struct {
	Kind       string           `json:"kind"`
	ID         string           `json:"id"`      // of the operation, a UUID
	RackID     string           `json:"rack_id"` // what sleds know the rack by, a UUID
	State      State            `json:"state"`
	Message    string           `json:"message,omitzero"` // of failed and invalid_membership_size
	Peers      []wire.Baseboard `json:"peers"`            // wanted, in baseboard order
	Known      []wire.Baseboard `json:"known"`            // every sled that was ever asked, for reset
	RackSubnet string           `json:"rack_subnet"`

	Accepted  uint64  `json:"generation"`                    // of the network config that counts
	Written   uint64  `json:"written_generation,omitzero"`   // the last one that every sled has written
	Sealed    bool    `json:"sealed,omitzero"`               // complete was accepted: no config is taken any more
	Completed *uint64 `json:"completed_generation,omitzero"` // what complete answers, for ever
	Resetting bool    `json:"resetting,omitzero"`

	Epoch         uint64                `json:"epoch,omitzero"` // the highest ever begun
	LastCommitted *uint64               `json:"last_committed_epoch,omitzero"`
	Coordinator   *wire.Baseboard       `json:"coordinator,omitzero"`
	Told          bool                  `json:"told,omitzero"`         // the coordinator took the epoch on
	SilentSince   *time.Time            `json:"silent_since,omitzero"` // the coordinator
	Config        *quorum.Configuration `json:"config,omitzero"`       // of Epoch; set once
	Acked         []wire.Baseboard      `json:"acked_prepares,omitzero"`
	Committed     []wire.Baseboard      `json:"committed,omitzero"`
	Sleds         []sled                `json:"sleds,omitzero"`   // fixed before the first is started
	Network       []wire.Baseboard      `json:"network,omitzero"` // have written Accepted
	Problems      []sledProblem         `json:"problems,omitzero"`

	rest map[string]jsontext.Value // members that we do not know
}

// sled is one sled's agent.
type sled struct {
	Baseboard wire.Baseboard `json:"baseboard_id"`
	ID        string         `json:"sled_id"`
	Subnet    wire.Subnet    `json:"sled_subnet"`
	Started   bool           `json:"started"`
	LastError string         `json:"last_error,omitzero"`
}

// sledProblem is what stands against a sled now.
type sledProblem struct {
	Baseboard wire.Baseboard `json:"baseboard"`
	Problem   string         `json:"problem"`
}

// codec stores records.
var codec = store.Codec[*record]{
	New:    func() *record { return &record{} },
	Decode: decodeRecord,
	Encode: encodeRecord,
	Clone:  (*record).clone,
	Alone:  true, // else who asks for the accepted config is told the generation of a correction that comes with it
}

// members are the names of the members that we know, made once.
var members = func() map[string]bool {
	known := map[string]bool{}
	b, err := json.Marshal(fullRecord())
	if err != nil {
		panic(fmt.Sprintf("encode a record: %v", err))
	}
	var m map[string]jsontext.Value
	if err := json.Unmarshal(b, &m); err != nil {
		panic(fmt.Sprintf("decode a record: %v", err))
	}
	for name := range m {
		known[name] = true
	}
	return known
}()

// fullRecord has every member set.
func fullRecord() *record {
	n, now, b := uint64(1), time.Unix(1, 0), wire.Baseboard{PartNumber: "p", SerialNumber: "s"}
	one := []wire.Baseboard{b}
	return &record{
		Message: "m", Written: 1, Sealed: true, Completed: &n, Resetting: true, Epoch: 1, LastCommitted: &n, Coordinator: &b, Told: true,
		SilentSince: &now, Config: &quorum.Configuration{}, Acked: one, Committed: one, Sleds: []sled{{}}, Network: one,
		Problems: []sledProblem{{}},
	}
}

func decodeRecord(value []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(value, r); err != nil {
		return nil, fmt.Errorf("decode rack record: %w", err)
	}
	if !r.State.known() {
		return nil, fmt.Errorf("decode rack record: it has no state that is known")
	}
	var all map[string]jsontext.Value
	if err := json.Unmarshal(value, &all); err != nil {
		return nil, fmt.Errorf("decode rack record: %w", err)
	}
	for name, raw := range all {
		if !members[name] {
			if r.rest == nil {
				r.rest = map[string]jsontext.Value{}
			}
			r.rest[name] = raw
		}
	}
	return r, nil
}

func encodeRecord(r *record) []byte {
	b, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		panic(fmt.Sprintf("encode rack record: %v", err)) // only types that can be encoded
	}
	if len(r.rest) == 0 {
		return b
	}
	rest, err := json.Marshal(r.rest, json.Deterministic(true))
	if err != nil {
		panic(fmt.Sprintf("encode unknown members: %v", err)) // they were decoded
	}
	return append(append(b[:len(b)-1], ','), rest[1:]...)
}

// states are those that a record may be in.
var states = []State{
	Requested, Starting, Reconfiguring, Preparing, Committing, StartingAgents, ConfiguringNetwork,
	AwaitingCompletion, Completed, Initialized, Failed, InvalidMembershipSize,
}

func (s State) known() bool { return slices.Contains(states, s) }

// clone copies what is changed in place.
func (r *record) clone() *record {
	c := *r
	c.Peers, c.Known = slices.Clone(r.Peers), slices.Clone(r.Known)
	c.Acked, c.Committed, c.Network = slices.Clone(r.Acked), slices.Clone(r.Committed), slices.Clone(r.Network)
	c.Sleds, c.Problems = slices.Clone(r.Sleds), slices.Clone(r.Problems)
	return &c
}

// exists tells whether there is a record at all.
func (r *record) exists() bool { return r.State != "" }

// missing lists those of all that are not in done.
func missing(all, done []wire.Baseboard) []wire.Baseboard {
	var out []wire.Baseboard
	for _, b := range all {
		if !slices.Contains(done, b) {
			out = append(out, b)
		}
	}
	return out
}
