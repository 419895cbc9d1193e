package quorum

import (
	"bytes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha3"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"golang.org/x/crypto/chacha20poly1305"
)

// Secrets are rack secrets of one rack by epoch.
type Secrets map[uint64]RackSecret

// Hex is bytes written as hex digits, in lower case; read in either.
type Hex []byte

// MarshalText writes the hex digits.
func (h Hex) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h)), nil }

// UnmarshalText reads hex digits.
func (h *Hex) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil {
		return errors.New("want hex digits")
	}
	*h = b
	return nil
}

// EncryptedRackSecrets are the secrets of all committed epochs before the one
// whose configuration holds them, so that the newest secret opens all. In JSON:
// {"salt":"64 hex digits","data":"hex"}.
//
// The key is HKDF-SHA3-256 of the newest secret with the salt; the cipher is
// ChaCha20-Poly1305 with a zero nonce, as each key is used once. Rack and epoch
// are the context of both. The clear text is 40 bytes an epoch, epochs rising: the
// epoch in 8 bytes, big end first, and its secret.
type EncryptedRackSecrets struct {
	// Salt is 32 random bytes, new each time.
	Salt Hex `json:"salt"`
	// Data is the encrypted secrets and the 16 byte tag.
	Data Hex `json:"data"`
}

const (
	saltSize  = 32
	entrySize = 8 + SecretSize
)

func (e *EncryptedRackSecrets) equal(other *EncryptedRackSecrets) bool {
	if e == nil || other == nil {
		return e == other
	}
	return bytes.Equal(e.Salt, other.Salt) && bytes.Equal(e.Data, other.Data)
}

// check looks at what can be seen without the key.
func (e *EncryptedRackSecrets) check(field string) error {
	var broken ruleErrors
	if len(e.Salt) != saltSize {
		broken.add(RuleEncryptedRackSecrets, field+".salt", "want %d bytes in hex, got %d", saltSize, len(e.Salt))
	}
	if n := len(e.Data) - chacha20poly1305.Overhead; n <= 0 || n%entrySize != 0 {
		broken.add(RuleEncryptedRackSecrets, field+".data", "want %d bytes in hex for each prior epoch and %d more, got %d",
			entrySize, chacha20poly1305.Overhead, len(e.Data))
	}
	return broken.err()
}

// EncryptPrior encrypts the secrets of earlier epochs under the secret of a new
// epoch. It gives nil for no secrets. An epoch in prior that is not 1 to epoch-1
// breaks RulePriorEpoch; otherwise it fails only when random does.
func EncryptPrior(random io.Reader, rackID string, epoch uint64, secret RackSecret, prior Secrets) (*EncryptedRackSecrets, error) {
	if len(prior) == 0 {
		return nil, nil
	}
	plain := make([]byte, 0, len(prior)*entrySize)
	for _, e := range slices.Sorted(maps.Keys(prior)) {
		if e < 1 || e >= epoch || prior[e].IsZero() {
			return nil, &RuleError{RulePriorEpoch, "prior",
				fmt.Sprintf("want secrets of epochs 1 to %d, got one, or an empty one, of %d", epoch-1, e)}
		}
		plain = binary.BigEndian.AppendUint64(plain, e)
		plain = append(plain, prior[e].Reveal()...)
	}
	salt := make([]byte, saltSize)
	if _, err := io.ReadFull(random, salt); err != nil {
		return nil, fmt.Errorf("read randomness: %w", err)
	}
	aead, context := priorCipher(rackID, epoch, secret, salt)
	data := aead.Seal(nil, make([]byte, aead.NonceSize()), plain, context)
	return &EncryptedRackSecrets{Salt: salt, Data: data}, nil
}

// ErrCannotDecrypt: the prior secrets do not open. The secret, the rack or the
// epoch is another one, or the data was changed; which, cannot be told.
var ErrCannotDecrypt = errors.New("prior rack secrets do not decrypt")

// DecryptPrior is the reverse of EncryptPrior; nil gives no secrets. The error is
// ErrCannotDecrypt, or a broken RuleEncryptedRackSecrets.
func DecryptPrior(rackID string, epoch uint64, secret RackSecret, e *EncryptedRackSecrets) (Secrets, error) {
	if e == nil {
		return Secrets{}, nil
	}
	if err := e.check("encrypted_rack_secrets"); err != nil {
		return nil, err
	}
	aead, context := priorCipher(rackID, epoch, secret, e.Salt)
	plain, err := aead.Open(nil, make([]byte, aead.NonceSize()), e.Data, context)
	if err != nil {
		return nil, ErrCannotDecrypt
	}
	prior := Secrets{}
	last := uint64(0)
	for entry := range slices.Chunk(plain, entrySize) {
		at := binary.BigEndian.Uint64(entry)
		s, err := ParseRackSecret(entry[8:])
		if err != nil || at <= last || at >= epoch {
			return nil, ErrCannotDecrypt // its writer did not use EncryptPrior
		}
		prior[at], last = s, at
	}
	return prior, nil
}

// Secrets are all that the secret of c opens: its own epoch's and those of all
// epochs committed before. It is what the next epoch's Plan takes as Prior once c
// is committed. Errors are DecryptPrior's.
func (c Configuration) Secrets(secret RackSecret) (Secrets, error) {
	all, err := DecryptPrior(c.RackID, c.Epoch, secret, c.EncryptedRackSecrets)
	if err != nil {
		return nil, err
	}
	all[c.Epoch] = secret
	return all, nil
}

// priorCipher derives the key. The rack id has its length in front: no other
// rack and epoch have the same context.
func priorCipher(rackID string, epoch uint64, secret RackSecret, salt []byte) (cipher.AEAD, []byte) {
	context := []byte("muster/quorum/v1/prior-secrets\x00")
	context = binary.BigEndian.AppendUint64(context, uint64(len(rackID)))
	context = append(context, rackID...)
	context = binary.BigEndian.AppendUint64(context, epoch)
	key, err := hkdf.Key(sha3.New256, secret.Reveal(), salt, string(context), chacha20poly1305.KeySize)
	if err != nil {
		panic(fmt.Sprintf("derive key: %v", err)) // only for keys of more than 8160 bytes
	}
	aead, err := chacha20poly1305.New(key)
	if err != nil {
		panic(fmt.Sprintf("make cipher: %v", err)) // only for keys of another size
	}
	return aead, context
}
