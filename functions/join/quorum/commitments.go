package quorum

import (
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/cloudflare/circl/group"
	"github.com/cloudflare/circl/math/polynomial"
	"github.com/cloudflare/circl/secretsharing"
)

// Commitments are Feldman's for one deal: one group element for each coefficient
// of the polynomial, so as many as the threshold. They are public: whoever holds
// them can tell whether a share lies on that polynomial, and learns the secret no
// more than from any public key. They bind a member only if the other members hold
// the same ones; see the package comment. The zero value checks nothing.
type Commitments struct {
	elements secretsharing.SecretCommitment
}

func commit(p polynomial.Polynomial, threshold int) Commitments {
	elements := make(secretsharing.SecretCommitment, threshold)
	for i := range elements {
		elements[i] = group.Ristretto255.NewElement().MulGen(p.Coefficient(uint(i)))
	}
	return Commitments{elements}
}

// Check returns ErrShareMismatch unless s is a share of the committed secret, and
// the secret takes that threshold to recover.
func (c Commitments) Check(threshold int, s Share) error {
	if threshold < 1 || !secretsharing.Verify(uint(threshold-1), s.point(), c.elements) {
		return ErrShareMismatch
	}
	return nil
}

// ErrSecretMismatch: a secret is not the committed one.
var ErrSecretMismatch = errors.New("rack secret does not match")

// CheckSecret returns ErrSecretMismatch unless s is the committed secret.
func (c Commitments) CheckSecret(s RackSecret) error {
	if len(c.elements) == 0 || s.IsZero() {
		return ErrSecretMismatch
	}
	if !group.Ristretto255.NewElement().MulGen(s.scalar()).IsEqual(c.elements[0]) {
		return ErrSecretMismatch
	}
	return nil
}

// MarshalText is base64 of the elements, 32 bytes each: at most 728 characters. It
// fits in a message header.
func (c Commitments) MarshalText() ([]byte, error) {
	var all []byte
	for _, e := range c.elements {
		all = append(all, marshal(e)...)
	}
	return base64.StdEncoding.AppendEncode(nil, all), nil
}

// UnmarshalText reads what MarshalText wrote: 2 to 17 elements, all of the group.
func (c *Commitments) UnmarshalText(text []byte) error {
	const size = 32
	if len(text) > base64.StdEncoding.EncodedLen(size*Threshold(MaxMembers)) {
		return errors.New("parse commitments: too long")
	}
	all, err := base64.StdEncoding.Strict().DecodeString(string(text))
	n := len(all) / size
	if err != nil || len(all)%size != 0 || n < Threshold(MinMembers) {
		return fmt.Errorf("parse commitments: want base64 of %d to %d elements of %d bytes",
			Threshold(MinMembers), Threshold(MaxMembers), size)
	}
	elements := make(secretsharing.SecretCommitment, n)
	for i := range elements {
		elements[i] = group.Ristretto255.NewElement()
		if elements[i].UnmarshalBinary(all[i*size:(i+1)*size]) != nil {
			return fmt.Errorf("parse commitments: element %d is not of the group", i)
		}
	}
	c.elements = elements
	return nil
}
