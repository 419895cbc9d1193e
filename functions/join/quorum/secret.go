package quorum

import (
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"

	"github.com/cloudflare/circl/group"
)

const hidden = "[hidden]"

// unprintable makes the type that embeds it print as "[hidden]" under every verb
// of fmt, in encoding/json and other text encodings, and in slog. What is hidden
// is kept in a function: where the value is an unexported field of something, fmt
// calls none of these methods, and for a verb such as %s it even follows pointers.
type unprintable struct{}

// String is "[hidden]".
func (unprintable) String() string { return hidden }

// GoString is "[hidden]".
func (unprintable) GoString() string { return hidden }

// Format writes "[hidden]" for every verb and flag.
func (unprintable) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hidden) }

// MarshalJSON writes "[hidden]": storing the value takes its Reveal method.
func (unprintable) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// MarshalText writes "[hidden]".
func (unprintable) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue is "[hidden]".
func (unprintable) LogValue() slog.Value { return slog.StringValue(hidden) }

// SecretSize is the length of a rack secret in bytes.
const SecretSize = 32

// A RackSecret is what a threshold of sleds can recover and fewer cannot: a
// uniform Ristretto255 scalar. It is immutable, prints as "[hidden]" and compares
// with Equal. The zero value holds nothing.
type RackSecret struct {
	unprintable

	reveal func() [SecretSize]byte // nil holds nothing
}

// ParseRackSecret reads what Reveal returned: 32 bytes, a reduced scalar.
func ParseRackSecret(b []byte) (RackSecret, error) {
	s := group.Ristretto255.NewScalar()
	if err := s.UnmarshalBinary(b); err != nil {
		return RackSecret{}, fmt.Errorf("parse rack secret: want a reduced scalar of %d bytes", SecretSize)
	}
	return newRackSecret(s), nil
}

func newRackSecret(s group.Scalar) RackSecret {
	b := [SecretSize]byte(marshal(s))
	return RackSecret{reveal: func() [SecretSize]byte { return b }}
}

// scalar is the secret as circl has it; it must hold one.
func (s RackSecret) scalar() group.Scalar {
	v := group.Ristretto255.NewScalar()
	if v.UnmarshalBinary(s.Reveal()) != nil {
		panic("rack secret: not a reduced scalar") // it was parsed or made as one
	}
	return v
}

// Reveal is a copy of the 32 bytes; nil for the zero value.
func (s RackSecret) Reveal() []byte {
	if s.reveal == nil {
		return nil
	}
	b := s.reveal()
	return b[:]
}

// IsZero tells whether s holds nothing.
func (s RackSecret) IsZero() bool { return s.reveal == nil }

// Equal compares in constant time. Two that hold nothing are equal.
func (s RackSecret) Equal(other RackSecret) bool {
	return subtle.ConstantTimeCompare(s.Reveal(), other.Reveal()) == 1
}

// Fingerprint tells a secret from others without revealing it: the first 8 bytes
// of a domain-separated SHA3-256, as 16 hex digits. It may be printed.
func Fingerprint(s RackSecret) string {
	h := domain("fingerprint")
	h.Write(s.Reveal())
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// marshal is circl's encoding of a scalar or an element of Ristretto255, 32 bytes.
func marshal(v interface{ MarshalBinary() ([]byte, error) }) []byte {
	b, err := v.MarshalBinary()
	if err != nil || len(b) != SecretSize {
		panic("marshal Ristretto255 value: not 32 bytes") // circl never fails here
	}
	return b
}
