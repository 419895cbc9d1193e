package quorum

import (
	"encoding/json"
	"errors"

	"muster/wire"
)

// The bodies that the control plane and sleds exchange about a trust quorum, on muster.sled.<part>.<serial>.<op>.

// Reconfigure asks a sled to coordinate an epoch: make its secret, its shares and its configuration, and prepare all
// members until they have acked or a higher epoch comes.
type Reconfigure struct {
	RackID             string           `json:"rack_id"`
	Epoch              uint64           `json:"epoch"`
	LastCommittedEpoch *uint64          `json:"last_committed_epoch"` // null for the first
	Threshold          int              `json:"threshold"`
	Members            []wire.Baseboard `json:"members"`
}

// CoordinatorStatus is how far a coordinator has come.
type CoordinatorStatus struct {
	Config        Configuration    `json:"config"`
	AckedPrepares []wire.Baseboard `json:"acked_prepares"`
}

// Prepare gives a member its share, sealed to the member's exchange key by the sender's.
type Prepare struct {
	Config    Configuration `json:"config"`
	Share     string        `json:"share"`      // base64
	SenderKey string        `json:"sender_key"` // X…
	Keys      []MemberKey   `json:"keys"`       // of all members, for later requests of shares

	// Commitments of the deal, as Commitments.MarshalText writes them. They travel in a header beside the body, which
	// is the contract's; "" when the coordinator gives none.
	Commitments string `json:"-"`
}

// Headers are sent with the request.
func (p Prepare) Headers() map[string]string {
	if p.Commitments == "" {
		return nil
	}
	return map[string]string{wire.HeaderCommitments: p.Commitments}
}

// CheckShare returns ErrShareMismatch unless share is the one that the configuration has for member, and, if the
// coordinator gave commitments, is of the secret that they are of, which then takes the configuration's threshold.
func (p Prepare) CheckShare(member wire.Baseboard, share Share) error {
	if err := p.Config.CheckShare(member, share); err != nil || p.Commitments == "" {
		return err
	}
	var c Commitments
	if c.UnmarshalText([]byte(p.Commitments)) != nil {
		return ErrShareMismatch
	}
	return c.Check(p.Config.Threshold, share)
}

// MemberKey is a member's exchange key; a pair in JSON.
type MemberKey struct {
	Member wire.Baseboard
	Key    string
}

// Commit tells a member that every member has acked its prepare.
type Commit struct {
	RackID string `json:"rack_id"`
	Epoch  uint64 `json:"epoch"`
}

// StatusCommitted is the one status of a [Committed].
const StatusCommitted = "committed"

// Committed is the reply to a commit.
type Committed struct {
	Status string `json:"status"` // [StatusCommitted]
}

// ShareRequest asks a member for its share of a committed epoch.
type ShareRequest struct {
	RackID    string         `json:"rack_id"`
	Epoch     uint64         `json:"epoch"`
	Requester wire.Baseboard `json:"requester"`
}

// SealedShare is its reply, sealed to the requester's key in that configuration.
type SealedShare struct {
	Share string `json:"share"`
}

// MarshalJSON writes the pair.
func (k MemberKey) MarshalJSON() ([]byte, error) { return json.Marshal([]any{k.Member, k.Key}) }

// UnmarshalJSON reads the pair strictly, as a [Member]'s.
func (k *MemberKey) UnmarshalJSON(data []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(data, &pair); err != nil || len(pair) != 2 {
		return errKeyPair
	}
	board, err := strictBaseboard(pair[0])
	if err != nil {
		return err
	}
	var key string
	if err := json.Unmarshal(pair[1], &key); err != nil {
		return errKeyPair
	}
	*k = MemberKey{Member: board, Key: key}
	return nil
}

var errKeyPair = errors.New("want a pair: baseboard, exchange key")
