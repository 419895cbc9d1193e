package join

import (
	"context"
	"errors"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"muster/runtime"
	"muster/wire"
)

// tell logs what has changed of a rack, old and new.
func (f *function) tell(rack string, old, now *record) {
	var attrs []any
	differ := func(name string, old, now any) {
		if old != now {
			attrs = append(attrs, name, now, "old_"+name, old)
		}
	}
	differ("state", old.shown(), now.shown())
	differ("epoch", old.Epoch, now.Epoch)
	differ("generation", old.Accepted, now.Accepted)
	differ("written_generation", old.Written, now.Written)
	differ("sealed", old.Sealed, now.Sealed)
	differ("resetting", old.Resetting, now.Resetting)
	if len(attrs) == 0 {
		return
	}
	level := slog.LevelInfo
	if now.Message != "" {
		level, attrs = slog.LevelWarn, append(attrs, "message", now.Message)
	}
	f.log.Log(context.Background(), level, "changed", append([]any{"rack", rack, "id", now.ID}, attrs...)...)
}

// shown is the state as status shows it.
func (r *record) shown() State {
	if !r.exists() {
		return Uninitialized
	}
	return r.State
}

// unreadable is shown in place of a state of a record that cannot be read.
const unreadable = "unreadable"

// racksByState counts the racks that are known.
func (f *function) racksByState() runtime.Gauge {
	g := runtime.Gauge{
		Name: "muster_racks", Help: "Racks that are known, by state.", Label: "state", Values: []string{unreadable}, Count: f.count,
	}
	for _, s := range states {
		g.Values = append(g.Values, string(s))
	}
	return g
}

func (f *function) count(ctx context.Context) (map[string]int, error) {
	keys, err := f.Racks.Keys(ctx)
	if err != nil {
		return nil, err
	}
	states := make([]string, len(keys))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, rack := range keys {
		g.Go(func() error {
			doc, err := f.racks.View(ctx, rack)
			state := unreadable
			if e, ok := errors.AsType[*wire.Error](err); err != nil && (!ok || e.Code != wire.CorruptRecord) {
				return err
			} else if err == nil {
				state = string(doc.Doc.State) // "" for one that has gone meanwhile
			}
			states[i] = state
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	n := map[string]int{}
	for _, state := range states {
		n[state]++
	}
	return n, nil
}
