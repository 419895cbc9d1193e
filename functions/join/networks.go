package join

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"

	"muster/runtime/store"
	"muster/wire"
)

// Network configs lie in a bucket of their own, since they hold secrets and a rack's record becomes an event. A config is
// stored under <rack>.<generation> before the record takes its generation, and never changed; numbers may skip.

func networkKey(rack string, generation uint64) string {
	return rack + "." + strconv.FormatUint(generation, 10)
}

// keep stores a config under the first free generation from one on, and returns that.
func (f *function) keep(ctx context.Context, rack string, from uint64, c *wire.RackNetworkConfig) (uint64, error) {
	value, err := json.Marshal(c, json.Deterministic(true))
	if err != nil {
		return 0, fmt.Errorf("encode network config: %w", err)
	}
	if limit := f.Networks.MaxValue(); len(value) > limit {
		return 0, store.TooLarge("the network config", len(value), limit)
	}
	for generation := from; ; generation++ {
		made, err := store.Create(ctx, f.Networks, networkKey(rack, generation), value)
		if err != nil {
			return 0, err
		}
		if made {
			return generation, nil
		}
	}
}

// config reads a stored config.
func (f *function) config(ctx context.Context, rack string, generation uint64) (*wire.RackNetworkConfig, error) {
	key := networkKey(rack, generation)
	rev, err := store.Read(ctx, f.Networks, key)
	if err != nil {
		return nil, err
	}
	c := &wire.RackNetworkConfig{}
	if rev.Absent() {
		rev.Key = key
		return nil, store.Corrupt(f.Networks.Bucket(), rev, errors.New("the accepted config is not there"))
	}
	if err := json.Unmarshal(rev.Value, c); err != nil {
		return nil, store.Corrupt(f.Networks.Bucket(), rev, err)
	}
	return c, nil
}

// drop removes a stored config with its history.
func (f *function) drop(ctx context.Context, rack string, generation uint64) error {
	return store.Remove(ctx, f.Networks, networkKey(rack, generation), true)
}
