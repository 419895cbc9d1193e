package quorum

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cloudflare/circl/group"
	"github.com/cloudflare/circl/math/polynomial"
	"github.com/cloudflare/circl/secretsharing"

	"muster/wire"
)

// A Plan is what a coordinator is asked to deal.
type Plan struct {
	// RackID and Epoch become the configuration's.
	RackID string
	Epoch  uint64
	// Coordinator is the sled that deals, one of Members.
	Coordinator wire.Baseboard
	// Members are 3 to 32, each once, in any order.
	Members []wire.Baseboard
	// Prior are the secrets of the committed epochs before this one, as
	// Configuration.Secrets gives them for the last committed one. Empty if no
	// epoch was committed yet.
	Prior Secrets
}

// A Deal is a new rack secret, split. All but Shares and Secret is public.
type Deal struct {
	Config      Configuration
	Secret      RackSecret
	Shares      map[wire.Baseboard]Share
	Commitments Commitments
}

// Split makes a new rack secret from random and deals it to the plan's members,
// with ids from 1 in baseboard order, and encrypts the prior secrets under it.
// The same bytes of random give the same deal: random must be crypto/rand.Reader
// outside of tests.
//
// It fails with the rules that the plan breaks (Broken lists them), or when random
// fails; then there is no deal.
func Split(random io.Reader, plan Plan) (Deal, error) {
	members := slices.SortedFunc(slices.Values(plan.Members), wire.Baseboard.Compare)
	config := Configuration{
		RackID:      plan.RackID,
		Epoch:       plan.Epoch,
		Coordinator: plan.Coordinator,
		Members:     make([]Member, len(members)),
		Threshold:   Threshold(len(members)),
	}
	for i, b := range members {
		config.Members[i].Baseboard = b
	}
	if err := config.Validate(); err != nil {
		return Deal{}, fmt.Errorf("split rack secret: %w", err)
	}

	line, err := randomPolynomial(random, config.Threshold)
	if err != nil {
		return Deal{}, fmt.Errorf("split rack secret: %w", err)
	}
	deal := Deal{
		Secret:      newRackSecret(line.Coefficient(0)),
		Shares:      make(map[wire.Baseboard]Share, len(members)),
		Commitments: commit(line, config.Threshold),
	}
	for i, b := range members {
		id := group.Ristretto255.NewScalar().SetUint64(uint64(i + 1))
		share := newShare(secretsharing.Share{ID: id, Value: line.Evaluate(id)})
		deal.Shares[b] = share
		config.Members[i].ShareDigest = share.Digest()
	}
	config.EncryptedRackSecrets, err = EncryptPrior(random, config.RackID, config.Epoch, deal.Secret, plan.Prior)
	if err != nil {
		return Deal{}, fmt.Errorf("split rack secret: %w", err)
	}
	deal.Config = config
	if err := deal.check(); err != nil {
		return Deal{}, fmt.Errorf("split rack secret: %w", err)
	}
	return deal, nil
}

// check recovers the secret from all the shares before any of them is sent:
// Recover looks at every digest and that all shares lie on one polynomial.
func (d Deal) check() error {
	got, err := Recover(d.Config, d.Shares)
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if !got.Equal(d.Secret) || d.Commitments.CheckSecret(got) != nil {
		return errors.New("check: the shares give another secret")
	}
	return nil
}

// randomPolynomial has as many uniform coefficients as the threshold, from random
// alone. secretsharing.New does the same but for Ristretto255 circl ignores the
// reader it is given and asks the operating system, which would leave nothing to
// repeat in a test; a test here holds this package to its reader.
func randomPolynomial(random io.Reader, threshold int) (polynomial.Polynomial, error) {
	coefficients := make([]group.Scalar, threshold)
	for i := range coefficients {
		var seed [64]byte
		if _, err := io.ReadFull(random, seed[:]); err != nil {
			return polynomial.Polynomial{}, fmt.Errorf("read randomness: %w", err)
		}
		coefficients[i] = group.Ristretto255.HashToScalar(seed[:], []byte("muster/quorum/v1/coefficient"))
	}
	return polynomial.New(coefficients), nil
}
