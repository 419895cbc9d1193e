package resolve

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"muster/runtime/store"
	"muster/wire"
)

// Bounds of a lease's ttl. Below 1 s NATS keeps no key's time.
const (
	minTTL     = time.Second
	maxTTL     = time.Hour
	defaultTTL = 30 * time.Second
)

// lease is what is stored of a backend that has registered. It is gone when its ttl is over, unless it is written again.
type lease struct {
	Address   string         `json:"address"`
	Lease     string         `json:"lease"` // the token that proves who registered
	TTL       string         `json:"ttl"`
	ExpiresAt time.Time      `json:"expires_at"`     // for readers; what counts is when it was stored
	Ended     bool           `json:"ended,omitzero"` // by its holder; it goes at once
	Rest      jsontext.Value `json:",embed"`         // members that we do not know

	ttl time.Duration
}

// endedTTL is how long a lease that was ended is stored: NATS keeps no key for less.
const endedTTL = time.Second

// leases stores leases.
var leases = store.Codec[*lease]{
	New:    func() *lease { return &lease{} },
	Decode: decodeLease,
	Encode: func(l *lease) []byte { return encode(l) },
	Clone:  func(l *lease) *lease { c := *l; return &c },
	TTL: func(l *lease) time.Duration {
		if l.Ended {
			return endedTTL
		}
		return l.ttl
	},
	Alone: true, // else who registers together with another would be told the other's token
}

func decodeLease(value []byte) (*lease, error) {
	l := &lease{}
	if err := json.Unmarshal(value, l); err != nil {
		return nil, fmt.Errorf("decode lease: %w", err)
	}
	ttl, err := time.ParseDuration(l.TTL)
	if err != nil || ttl < minTTL || ttl > maxTTL {
		return nil, fmt.Errorf("decode lease: its ttl is not %v to %v", minTTL, maxTTL)
	}
	if err := checkAddress("address", l.Address); err != nil {
		return nil, fmt.Errorf("decode lease: %w", err)
	}
	l.ttl = ttl
	return l, nil
}

// live tells whether there is a lease that was not ended.
func (l *lease) live() bool { return l.Lease != "" && !l.Ended }

// errExpired is the answer to whoever comes with a lease that is not the current one.
func errExpired(service, backend string) error {
	return wire.Errorf(wire.LeaseExpired, "the lease of backend %s of %s is not the current one: it has expired, was replaced or removed; register again", backend, service)
}

// register makes or goes on with a lease. token is the one the caller holds, "" for none; fresh the one it gets then.
func (l *lease) register(token, fresh, address string, ttl time.Duration, now time.Time) bool {
	if token != "" && (token != l.Lease || !l.live()) {
		return false
	}
	if token == "" {
		token = fresh
	}
	*l = lease{Address: address, Lease: token, TTL: ttl.String(), ttl: ttl, ExpiresAt: now.Add(ttl).UTC(), Rest: l.Rest}
	return true
}

// renew starts the lease's time anew.
func (l *lease) renew(token string, now time.Time) bool {
	if token != l.Lease || !l.live() {
		return false
	}
	l.ExpiresAt = now.Add(l.ttl).UTC()
	return true
}

// end ends the lease.
func (l *lease) end(token string) bool {
	if token != l.Lease || !l.live() {
		return false
	}
	l.Ended = true
	return true
}

// ttlOf reads the ttl of a register.
func ttlOf(s wire.LeaseTTL) (time.Duration, error) {
	if s == "" {
		return defaultTTL, nil
	}
	d, err := time.ParseDuration(string(s))
	if err != nil || d < minTTL || d > maxTTL {
		return 0, wire.Invalid("ttl", "ttl must be %s", s.JSONKind())
	}
	return d, nil
}
