package quorum

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"muster/wire"
)

// A Configuration is the quorum of one rack in one epoch. It is public: shares
// and secrets are in it only as digests and encrypted. Its JSON is
//
//	{"rack_id":"9bb7…","epoch":1,"coordinator":{…},"members":[[{…},"650973…"],…],
//	 "threshold":2,"encrypted_rack_secrets":null}
//
// Decoding checks shapes only; nothing should be done with a decoded
// configuration before Validate has passed it. Unknown and repeated members of
// the configuration itself are for the surrounding decoder to refuse.
type Configuration struct {
	// RackID is the rack's UUID.
	RackID string `json:"rack_id"`
	// Epoch is 1 to 2^63 - 1; a rack's epochs only rise.
	Epoch uint64 `json:"epoch"`
	// Coordinator is the member that dealt the shares.
	Coordinator wire.Baseboard `json:"coordinator"`
	// Members are 3 to 32, in baseboard order, each once.
	Members []Member `json:"members"`
	// Threshold is how many shares it takes: Threshold(len(Members)).
	Threshold int `json:"threshold"`
	// EncryptedRackSecrets holds the secrets of earlier epochs, or is null when
	// there is none: no epoch was committed before this one.
	EncryptedRackSecrets *EncryptedRackSecrets `json:"encrypted_rack_secrets"`
}

// Validate reports every broken rule at once; Broken lists them. Fields are as in
// the JSON, such as "members[3][0].serial_number".
func (c Configuration) Validate() error {
	var broken ruleErrors
	broken.addAll(CheckRackID("rack_id", c.RackID))
	broken.addAll(CheckEpoch("epoch", c.Epoch))
	broken.addAll(CheckSize("members", len(c.Members)))
	boards := c.Baseboards()
	broken.addAll(checkNames(boards, func(i int) string { return fmt.Sprintf("members[%d][0]", i) }))
	if !slices.IsSortedFunc(boards, wire.Baseboard.Compare) {
		broken.add(RuleMemberOrder, "members", "must be in baseboard order: by part number, then serial number")
	}
	if !slices.Contains(boards, c.Coordinator) {
		broken.add(RuleCoordinatorIsMember, "coordinator", "is not among the members")
	}
	broken.addAll(CheckThreshold("threshold", c.Threshold, len(c.Members)))
	if c.EncryptedRackSecrets != nil {
		broken.addAll(c.EncryptedRackSecrets.check("encrypted_rack_secrets"))
	}
	return broken.err()
}

// Baseboards lists the members' baseboards in the configuration's order.
func (c Configuration) Baseboards() []wire.Baseboard {
	boards := make([]wire.Baseboard, len(c.Members))
	for i, m := range c.Members {
		boards[i] = m.Baseboard
	}
	return boards
}

// ShareDigest is the digest of a member's key share; false if the sled is no
// member.
func (c Configuration) ShareDigest(of wire.Baseboard) (Digest, bool) {
	for _, m := range c.Members {
		if m.Baseboard == of {
			return m.ShareDigest, true
		}
	}
	return Digest{}, false
}

// Equal tells whether both say the same. Two configurations of one rack and epoch
// that are not Equal are a conflict.
func (c Configuration) Equal(other Configuration) bool {
	return c.RackID == other.RackID &&
		c.Epoch == other.Epoch &&
		c.Coordinator == other.Coordinator &&
		slices.Equal(c.Members, other.Members) &&
		c.Threshold == other.Threshold &&
		c.EncryptedRackSecrets.equal(other.EncryptedRackSecrets)
}

// Canonical is the one encoding of a valid configuration: its JSON in the order of
// the contract, without spaces, hex in lower case. Equal configurations have equal
// encodings and the other way round.
func (c Configuration) Canonical() []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(c); err != nil {
		panic(fmt.Sprintf("encode configuration: %v", err)) // no field of ours can fail
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// Digest identifies the whole configuration: SHA3-256 over a domain prefix and
// Canonical.
func (c Configuration) Digest() Digest {
	h := domain("configuration")
	h.Write(c.Canonical())
	return Digest(h.Sum(nil))
}
