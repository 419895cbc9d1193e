package join

import (
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

// readers is how many records a list reads at once; lineSize the most that a line takes in a reply, in bytes.
const (
	readers  = 32
	lineSize = 320
)

func (f *function) list(ctx context.Context, r *runtime.Request[wire.Page]) (any, error) {
	lines, next, err := lines(ctx, f.Racks, 1, r.Body, func(ctx context.Context, rack string) (wire.RackLine, error) {
		doc, err := f.racks.View(ctx, rack)
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.CorruptRecord {
			return wire.RackLine{Rack: rack, Error: wire.CorruptRecord}, nil // one bad record does not hide the others
		}
		if err != nil || !doc.Doc.exists() {
			return wire.RackLine{}, err
		}
		o := operation(doc.Doc)
		return wire.RackLine{Rack: rack, Status: o.Status, ID: o.ID}, nil
	})
	if err != nil {
		return nil, err
	}
	return wire.Racks{Racks: slices.DeleteFunc(lines, func(l wire.RackLine) bool { return l.Rack == "" }), Next: next}, nil
}

func (f *function) sleds(ctx context.Context, r *runtime.Request[wire.Page]) (any, error) {
	lines, next, err := lines(ctx, f.Sleds, 2, r.Body, func(ctx context.Context, key string) (wire.SledLine, error) {
		rev, err := store.Read(ctx, f.Sleds, key)
		if err != nil || rev.Absent() {
			return wire.SledLine{}, err
		}
		var id wire.Identity
		if err := json.Unmarshal(rev.Value, &id); err != nil {
			return wire.SledLine{}, store.Corrupt(f.Sleds.Bucket(), rev, err)
		}
		return wire.SledLine{Baseboard: id.Baseboard, SeenAt: rev.Time.UTC(), RackID: id.RackID, State: sledState(id)}, nil
	})
	if err != nil {
		return nil, err
	}
	return wire.Sleds{Sleds: slices.DeleteFunc(lines, func(l wire.SledLine) bool { return l.State == "" }), Next: next}, nil
}

// sledState is how far a sled is, by what it says of itself. It is a member only once it has committed.
func sledState(id wire.Identity) string {
	switch {
	case id.Started:
		return wire.SledStarted
	case id.CommittedEpoch != nil:
		return wire.SledMember
	case id.PreparedEpoch != nil:
		return wire.SledPrepared
	}
	return wire.SledFree
}

// lines makes a page of what is stored in a bucket, a line a key.
func lines[L any](ctx context.Context, log store.Log, names int, page wire.Page, line func(context.Context, string) (L, error)) ([]L, string, error) {
	limit, err := runtime.CheckPage(page, names)
	if err != nil {
		return nil, "", err
	}
	keys, err := log.Keys(ctx)
	if err != nil {
		return nil, "", err
	}
	keys, next := runtime.CutPage(keys, page.After, min(limit, log.MaxValue()/lineSize))
	out := make([]L, len(keys))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, key := range keys {
		g.Go(func() (err error) {
			out[i], err = line(ctx, key)
			return err
		})
	}
	return out, next, g.Wait()
}
