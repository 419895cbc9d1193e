package declare

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"muster/runtime"
	"muster/wire"
)

// readers is how many records a list reads at once.
const readers = 32

// lineSize is the most that a line of a list takes in a reply, in bytes.
const lineSize = 200

func (f *function) list(ctx context.Context, r *runtime.Request[wire.Page]) (any, error) {
	limit, err := checkPage(r.Body)
	if err != nil {
		return nil, err
	}
	keys, err := f.wanted.Keys(ctx)
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return !wire.ValidName(key) }) // stored by hand: no hives
	keys, next := page(keys, r.Body.After, min(limit, f.wanted.MaxValue()/lineSize))
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

func checkPage(p wire.Page) (limit int, err error) {
	if p.After != "" && !wire.ValidName(p.After) {
		return 0, wire.CheckName("after", p.After)
	}
	switch {
	case p.Limit == 0:
		return wire.PageDefault, nil
	case p.Limit < 0 || p.Limit > wire.PageMax:
		return 0, wire.Invalid("limit", "limit must be 1 to %d", wire.PageMax)
	}
	return p.Limit, nil
}

// page cuts the page behind after out of sorted keys, and tells what the next one comes after; "" for the last.
func page(keys []string, after string, limit int) (now []string, next string) {
	from, found := slices.BinarySearchFunc(keys, after, strings.Compare)
	if found {
		from++
	}
	keys = keys[from:]
	if len(keys) <= limit {
		return keys, ""
	}
	return keys[:limit], keys[limit-1]
}
