package quorum

import (
	"crypto/sha3"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/cloudflare/circl/group"
	"github.com/cloudflare/circl/secretsharing"

	"muster/wire"
)

// ShareSize is the length of a key share in clear, in bytes.
const ShareSize = 64

// A Share is one sled's part of a rack secret: a point of the polynomial whose
// value at zero is the secret. In clear it is 64 bytes: its id, never zero, and its
// value, each as circl marshals a Ristretto255 scalar. It is immutable, prints as
// "[hidden]" and compares with Equal. The zero value holds nothing.
type Share struct {
	unprintable

	reveal func() [ShareSize]byte // nil holds nothing
}

// ParseShare reads 64 bytes of clear share. Both scalars must be reduced and the
// id not zero; the error does not repeat the bytes.
func ParseShare(b []byte) (Share, error) {
	if len(b) != ShareSize {
		return Share{}, fmt.Errorf("parse key share: want %d bytes, got %d", ShareSize, len(b))
	}
	id, value := group.Ristretto255.NewScalar(), group.Ristretto255.NewScalar()
	if id.UnmarshalBinary(b[:32]) != nil || value.UnmarshalBinary(b[32:]) != nil || id.IsZero() {
		return Share{}, errors.New("parse key share: want two reduced scalars, the first not zero")
	}
	return newShare(secretsharing.Share{ID: id, Value: value}), nil
}

func newShare(p secretsharing.Share) Share {
	b := [ShareSize]byte(append(marshal(p.ID), marshal(p.Value)...))
	return Share{reveal: func() [ShareSize]byte { return b }}
}

// point is the share as circl has it. A share was parsed before, so this cannot
// fail; the zero value gives the id zero, which circl refuses.
func (s Share) point() secretsharing.Share {
	p := secretsharing.Share{ID: group.Ristretto255.NewScalar(), Value: group.Ristretto255.NewScalar()}
	if s.IsZero() {
		return p
	}
	b := s.reveal()
	if p.ID.UnmarshalBinary(b[:32]) != nil || p.Value.UnmarshalBinary(b[32:]) != nil {
		panic("key share: not two reduced scalars")
	}
	return p
}

// Reveal is a copy of the 64 bytes; nil for the zero value.
func (s Share) Reveal() []byte {
	if s.reveal == nil {
		return nil
	}
	b := s.reveal()
	return b[:]
}

// IsZero tells whether s holds nothing.
func (s Share) IsZero() bool { return s.reveal == nil }

// Equal compares in constant time. Two that hold nothing are equal.
func (s Share) Equal(other Share) bool {
	return subtle.ConstantTimeCompare(s.Reveal(), other.Reveal()) == 1
}

// Digest is the SHA3-256 of the 64 bytes, as a configuration lists it.
func (s Share) Digest() Digest { return Digest(sha3.Sum256(s.Reveal())) }

// Why a share is refused; errors.Is finds these in a *ShareError.
var (
	// ErrNotMember: the configuration does not list the sled.
	ErrNotMember = errors.New("not a member of the configuration")
	// ErrShareMismatch: the share is not the one the configuration, or the
	// commitments, were made with.
	ErrShareMismatch = errors.New("key share does not match")
	// ErrShareRepeated: another member gave a share with the same id.
	ErrShareRepeated = errors.New("key share has the id of another member's")
)

// A ShareError names the sled whose share is refused.
type ShareError struct {
	Member wire.Baseboard
	Err    error
}

// Error prints the sled and the reason.
func (e *ShareError) Error() string { return fmt.Sprintf("key share of %v: %v", e.Member, e.Err) }

// Unwrap is the reason.
func (e *ShareError) Unwrap() error { return e.Err }

// CheckShare tells whether s is the share that c has of that member. The error is
// a *ShareError with ErrNotMember or ErrShareMismatch.
func (c Configuration) CheckShare(of wire.Baseboard, s Share) error {
	want, listed := c.ShareDigest(of)
	switch {
	case !listed:
		return &ShareError{of, ErrNotMember}
	case s.IsZero() || s.Digest() != want:
		return &ShareError{of, ErrShareMismatch}
	}
	return nil
}
