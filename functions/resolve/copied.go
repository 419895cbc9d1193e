package resolve

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"muster/wire"
)

// How long the expiring copy of an answer lives, and how often the replica that resolves writes it anew.
const (
	copyTTL     = 12 * time.Second
	copyRefresh = 3 * time.Second
	copyRetry   = time.Second // after one that failed
)

// copied is what the resolved bucket holds of a service: an answer as lookup gives it, of the moment it was stored, and
// what its readers need to judge it later.
type copied struct {
	Service    string    `json:"service"`
	Status     string    `json:"status"` // fresh, stale, or unresolved
	Complete   bool      `json:"complete"`
	Backends   []backend `json:"backends"`
	Source     string    `json:"source"`
	ObservedAt time.Time `json:"observed_at"`
	AgeMS      int64     `json:"age_ms"` // when it was stored
	Reason     string    `json:"reason"`
	TTL        string    `json:"ttl"` // of the answer: for how long it is fresh; "" for a source that does not age
	Of         string    `json:"of"`  // the source

	ttl time.Duration
}

func decodeCopied(value []byte) (*copied, error) {
	c := &copied{}
	if err := json.Unmarshal(value, c); err != nil {
		return nil, fmt.Errorf("decode resolved answer: %w", err)
	}
	if c.Status != wire.StatusFresh && c.Status != wire.StatusStale && c.Status != wire.StatusUnresolved {
		return nil, fmt.Errorf("decode resolved answer: it has no status that is known")
	}
	if c.TTL != "" {
		ttl, err := time.ParseDuration(c.TTL)
		if err != nil {
			return nil, fmt.Errorf("decode resolved answer: %w", err)
		}
		c.ttl = ttl
	}
	return c, nil
}
