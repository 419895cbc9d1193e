package quorum

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cloudflare/circl/group"
	"github.com/cloudflare/circl/math/polynomial"
	"github.com/cloudflare/circl/secretsharing"

	"muster/wire"
)

// A TooFewSharesError says how many shares there were, and how many of how many
// members' it takes.
type TooFewSharesError struct {
	Have, Need, Members int
}

// Error prints the three numbers.
func (e *TooFewSharesError) Error() string {
	return fmt.Sprintf("have %d key shares, need %d of %d", e.Have, e.Need, e.Members)
}

// Recover gives the rack secret of a configuration from its members' shares, by
// whose they are. It is strict: one wrong share among enough right ones fails it,
// so that none goes unnoticed; check each with CheckShare as it arrives.
//
// It fails with the rules a bad configuration breaks; with a *ShareError for each
// share refused, by ErrNotMember, ErrShareMismatch or ErrShareRepeated, in baseboard
// order, joined; with a *TooFewSharesError; or with ErrUneven.
func Recover(c Configuration, shares map[wire.Baseboard]Share) (RackSecret, error) {
	secret, err := recoverSecret(c, shares)
	if err != nil {
		return RackSecret{}, fmt.Errorf("recover rack secret: %w", err)
	}
	return secret, nil
}

// ErrUneven: all shares have the digests of the configuration and yet are not of
// one secret. Whoever dealt them was at fault.
var ErrUneven = errors.New("the dealt key shares are not of one secret")

func recoverSecret(c Configuration, shares map[wire.Baseboard]Share) (RackSecret, error) {
	if err := c.Validate(); err != nil {
		return RackSecret{}, err
	}
	points, err := checkedPoints(c, shares)
	if err != nil {
		return RackSecret{}, err
	}
	if len(points) < c.Threshold {
		return RackSecret{}, &TooFewSharesError{len(points), c.Threshold, len(c.Members)}
	}
	// The shares beyond the threshold add nothing to the secret; they prove it.
	enough, surplus := points[:c.Threshold], points[c.Threshold:]
	if !onOneLine(enough, surplus) {
		return RackSecret{}, ErrUneven
	}
	secret, err := secretsharing.Recover(uint(c.Threshold-1), enough)
	if err != nil {
		return RackSecret{}, err
	}
	return newRackSecret(secret), nil
}

// checkedPoints are the shares in baseboard order, all of them right and with
// different ids: circl's Recover panics otherwise.
func checkedPoints(c Configuration, shares map[wire.Baseboard]Share) ([]secretsharing.Share, error) {
	var points []secretsharing.Share
	var refused []error
	ids := map[[32]byte]bool{}
	for _, of := range slices.SortedFunc(maps.Keys(shares), wire.Baseboard.Compare) {
		share := shares[of]
		if err := c.CheckShare(of, share); err != nil {
			refused = append(refused, err)
			continue
		}
		point := share.point()
		id := [32]byte(marshal(point.ID))
		if ids[id] {
			refused = append(refused, &ShareError{of, ErrShareRepeated})
			continue
		}
		ids[id] = true
		points = append(points, point)
	}
	return points, errors.Join(refused...)
}

// onOneLine tells whether the polynomial through the points of a goes through
// those of b as well.
func onOneLine(a, b []secretsharing.Share) bool {
	if len(b) == 0 {
		return true
	}
	ids, values := make([]group.Scalar, len(a)), make([]group.Scalar, len(a))
	for i, p := range a {
		ids[i], values[i] = p.ID, p.Value
	}
	line := polynomial.NewLagrangePolynomial(ids, values)
	return !slices.ContainsFunc(b, func(p secretsharing.Share) bool {
		return !line.Evaluate(p.ID).IsEqual(p.Value)
	})
}
