package quorum

import (
	"bytes"
	"crypto/sha3"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"muster/wire"
)

// A Digest is a SHA3-256, written as 64 hex digits; letters are read in either
// case and written in lower case.
type Digest [32]byte

// String is the 64 hex digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes the 64 hex digits.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads 64 hex digits and leaves d alone if they are not that.
func (d *Digest) UnmarshalText(text []byte) error {
	raw, err := hex.DecodeString(string(text))
	if err != nil || len(raw) != len(d) {
		return errors.New("want 64 hex digits")
	}
	copy(d[:], raw)
	return nil
}

// domain starts a SHA3-256 that is good for one purpose only. A key share's
// digest is the one hash of this package without it: the contract fixes that.
func domain(purpose string) *sha3.SHA3 {
	h := sha3.New256()
	h.Write([]byte("muster/quorum/v1/" + purpose + "\x00"))
	return h
}

// A Member of a configuration: a sled, and the digest of the key share it holds.
// In JSON it is a pair, [{"part_number":…,"serial_number":…},"hex digest"].
type Member struct {
	Baseboard   wire.Baseboard
	ShareDigest Digest
}

// MarshalJSON writes the pair.
func (m Member) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{m.Baseboard, m.ShareDigest})
}

var errPair = errors.New("want a pair: baseboard, 64 hex digits")

// UnmarshalJSON reads the pair as strictly as requests are read, whatever
// decoder is at work around it: exactly two elements, the baseboard's two members
// each once and in their letter case. Names are left to Configuration.Validate.
func (m *Member) UnmarshalJSON(data []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(data, &pair); err != nil || len(pair) != 2 {
		return errPair
	}
	board, err := strictBaseboard(pair[0])
	if err != nil {
		return err
	}
	var text *string
	if err := json.Unmarshal(pair[1], &text); err != nil || text == nil {
		return errPair
	}
	var digest Digest
	if err := digest.UnmarshalText([]byte(*text)); err != nil {
		return fmt.Errorf("share digest: %w", err)
	}
	*m = Member{Baseboard: board, ShareDigest: digest}
	return nil
}

// strictBaseboard walks the tokens because encoding/json cannot be told to refuse
// duplicates and other letter cases.
func strictBaseboard(data []byte) (wire.Baseboard, error) {
	var b wire.Baseboard
	into := map[string]*string{"part_number": &b.PartNumber, "serial_number": &b.SerialNumber}
	dec := json.NewDecoder(bytes.NewReader(data))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return wire.Baseboard{}, errPair
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return wire.Baseboard{}, errPair
		}
		name, _ := key.(string)
		field, wanted := into[name]
		if !wanted {
			return wire.Baseboard{}, errors.New("baseboard: unknown or repeated member")
		}
		delete(into, name)
		value, err := dec.Token()
		text, isString := value.(string)
		if err != nil || !isString {
			return wire.Baseboard{}, fmt.Errorf("baseboard: %s: want a string", name)
		}
		*field = text
	}
	if len(into) > 0 {
		return wire.Baseboard{}, errors.New("baseboard: want part_number and serial_number")
	}
	return b, nil
}
