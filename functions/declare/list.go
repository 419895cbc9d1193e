package declare

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"muster/runtime"
	"muster/wire"
)

// readers is how many records a list reads at once.
const readers = 32

// lineSize is the most that a line of a list takes in a reply, in bytes.
const lineSize = 200

func (f *function) list(ctx context.Context, r *runtime.Request[wire.Page]) (any, error) {
	limit, err := runtime.CheckPage(r.Body, 1)
	if err != nil {
		return nil, err
	}
	keys, err := f.wanted.Keys(ctx)
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return !wire.ValidName(key) }) // stored by hand: no hives
	keys, next := runtime.CutPage(keys, r.Body.After, min(limit, f.wanted.MaxValue()/lineSize))
	lines := make([]wire.HiveLine, len(keys))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, hive := range keys {
		g.Go(func() error {
			doc, err := f.wanted.View(ctx, hive)
			if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.CorruptRecord {
				revision, _ := e.Details["revision"].(uint64) // one bad record does not hide the others
				lines[i] = wire.HiveLine{Hive: hive, Revision: revision, Error: wire.CorruptRecord}
				return nil
			}
			if err != nil {
				return err
			}
			if doc.Revision != 0 {
				lines[i] = wire.HiveLine{Hive: hive, Revision: doc.Revision, Agents: len(doc.Doc.agents)}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	lines = slices.DeleteFunc(lines, func(l wire.HiveLine) bool { return l.Hive == "" }) // removed by hand
	return wire.Hives{Hives: lines, Next: next}, nil
}
