package quorum

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nkeys"
)

// An ExchangeKey is a sled's NATS curve key pair (xkeys): key shares are sealed to
// its public half. It prints as "[hidden]". The zero value is not usable.
type ExchangeKey struct {
	unprintable

	pair   func() nkeys.KeyPair
	public string
}

// ErrNotCurveKey: a text is no NATS curve key, "X…" public or "SX…" seed.
var ErrNotCurveKey = errors.New("not a NATS curve key")

// NewExchangeKey makes a key from 32 bytes of random.
func NewExchangeKey(random io.Reader) (ExchangeKey, error) {
	pair, err := nkeys.CreateCurveKeysWithRand(random)
	if err != nil {
		return ExchangeKey{}, fmt.Errorf("make exchange key: %w", err)
	}
	return newExchangeKey(pair)
}

// ParseExchangeKey reads what Reveal returned, "SX…"; ErrNotCurveKey otherwise.
func ParseExchangeKey(seed []byte) (ExchangeKey, error) {
	pair, err := nkeys.FromCurveSeed(seed)
	if err != nil {
		return ExchangeKey{}, fmt.Errorf("parse exchange key seed: %w", ErrNotCurveKey)
	}
	return newExchangeKey(pair)
}

func newExchangeKey(pair nkeys.KeyPair) (ExchangeKey, error) {
	public, err := pair.PublicKey()
	if err != nil {
		return ExchangeKey{}, fmt.Errorf("derive public exchange key: %w", err)
	}
	return ExchangeKey{pair: func() nkeys.KeyPair { return pair }, public: public}, nil
}

// Public is the public half, "X…", as a sled's identity shows it.
func (k ExchangeKey) Public() string { return k.public }

// Reveal is the seed, "SX…".
func (k ExchangeKey) Reveal() ([]byte, error) { return k.pair().Seed() }

// CheckPublicKey returns ErrNotCurveKey unless key is a public curve key, "X…".
func CheckPublicKey(key string) error {
	// nkeys' own sealing trusts the length: a longer key would make it panic.
	if len(key) != 56 || !nkeys.IsValidPublicCurveKey(key) {
		return ErrNotCurveKey
	}
	return nil
}

// ErrCannotOpen: a sealed share does not open. It was sealed to another key, by
// another sender, or it was changed; which, cannot be told.
var ErrCannotOpen = errors.New("sealed key share does not open")

// Seal encrypts the 64 bytes of a share to a member's public key, and proves to it
// that k sealed them: base64 of what NATS' xkeys seal, 144 characters. The nonce is
// 24 bytes of random. It fails with ErrNotCurveKey, or when random fails.
func (k ExchangeKey) Seal(random io.Reader, s Share, to string) (string, error) {
	if s.IsZero() {
		return "", errors.New("seal key share: it is empty")
	}
	if err := CheckPublicKey(to); err != nil {
		return "", fmt.Errorf("seal key share: %w", err)
	}
	sealed, err := k.pair().SealWithRand(s.Reveal(), to, random)
	if err != nil {
		return "", fmt.Errorf("seal key share: %w", err)
	}
	return base64.StdEncoding.EncodeToString(sealed), nil
}

// Open is the reverse of Seal: sealed came from the sender with that public key. It
// fails with ErrNotCurveKey, ErrCannotOpen, or as ParseShare does. Whether the share
// is the right one is for Configuration.CheckShare to say.
func (k ExchangeKey) Open(sealed, from string) (Share, error) {
	if err := CheckPublicKey(from); err != nil {
		return Share{}, fmt.Errorf("open key share: sender: %w", err)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(sealed)
	if err != nil {
		return Share{}, fmt.Errorf("open key share: not base64: %w", ErrCannotOpen)
	}
	plain, err := k.pair().Open(raw, from)
	if err != nil {
		return Share{}, fmt.Errorf("open key share: %w", ErrCannotOpen)
	}
	return ParseShare(plain)
}
