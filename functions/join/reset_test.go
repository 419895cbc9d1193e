package join

import (
	"context"
	"log/slog"
	"testing"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

// late is a log whose first write of a kind waits for others to do theirs.
type late struct {
	store.Log
	before func()
}

func (l *late) Write(ctx context.Context, entries []store.Entry) (uint64, error) {
	if f := l.before; f != nil {
		l.before = nil
		f()
	}
	return l.Log.Write(ctx, entries)
}

// A reset whose caller got no answer goes on while he repeats it and starts the rack anew: it touches nothing of the new
// start, wherever it was overtaken.
func TestReset_LateTouchesNoNewStart(t *testing.T) {
	for _, overtaken := range []string{"before it looks", "before the first config", "before the record"} {
		t.Run(overtaken, func(t *testing.T) {
			racks, networks := &late{Log: store.NewMemory(wire.BucketRacks)}, &late{Log: store.NewMemory(wire.BucketNetworks)}
			f := &function{Deps: Deps{Racks: racks, Networks: networks}}
			f.racks = store.New(store.Log(racks), codec, store.Config{})
			ctx := t.Context()
			start := func(id string) {
				t.Helper()
				generation, err := f.keep(ctx, "r1", 1, &wire.RackNetworkConfig{InfraIPFirst: id})
				if err != nil {
					t.Fatal(err)
				}
				req := &wire.JoinRequest{RackNetworkConfig: &wire.RackNetworkConfig{}}
				if _, err := f.racks.Update(ctx, "r1", store.Origin{}, func(r *record, _ uint64) (bool, error) {
					changed, _, err := begin(r, byJoin, req, generation, fresh{id, "rack " + id})
					return changed, err
				}); err != nil {
					t.Fatal(err)
				}
			}
			start("first")
			resetting, err := f.racks.Update(ctx, "r1", store.Origin{}, func(r *record, _ uint64) (bool, error) {
				r.Resetting = true
				return true, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			other := func() {
				if err := f.remove(ctx, "r1", resetting.Revision, 1+resetMargin); err != nil {
					t.Fatal(err)
				}
				start("second")
			}
			switch overtaken {
			case "before it looks":
				other()
			case "before the first config":
				networks.before = other
			default:
				racks.before = other
			}
			if err := f.remove(ctx, "r1", resetting.Revision, 1+resetMargin); err != nil {
				t.Fatal(err)
			}
			now, err := f.racks.View(ctx, "r1")
			if err != nil || now.Doc.ID != "second" {
				t.Fatalf("the new start is %+v, %v", now.Doc, err)
			}
			if c, err := f.config(ctx, "r1", now.Doc.Accepted); err != nil || c.InfraIPFirst != "second" {
				t.Errorf("its config is %+v, %v", c, err)
			}
		})
	}
}

// A reset with a request id is done once: its retry, which comes when the rack was started anew, succeeds and resets nothing.
func TestReset_RetryTouchesNoNewStart(t *testing.T) {
	racks := store.NewMemory(wire.BucketRacks)
	f := &function{Deps: Deps{Racks: racks, Networks: store.NewMemory(wire.BucketNetworks)}, log: slog.New(slog.DiscardHandler)}
	f.racks = store.New(store.Log(racks), codec, store.Config{})
	start := func(id string) {
		t.Helper()
		if _, err := f.racks.Update(t.Context(), "r1", store.Origin{}, func(r *record, _ uint64) (bool, error) {
			changed, _, err := begin(r, byJoin, &wire.JoinRequest{RackNetworkConfig: &wire.RackNetworkConfig{}}, 1, fresh{id, "rack " + id})
			return changed, err
		}); err != nil {
			t.Fatal(err)
		}
	}
	reset := func(id string) error {
		r := &runtime.Request[wire.RackReset]{IDs: []string{"r1"}, Body: wire.RackReset{Confirm: "r1"}}
		if id != "" {
			r.Origin = store.Origin{RequestID: id, MemoKey: "_req.reset.r1." + id, Digest: "same"}
		}
		_, err := f.reset(t.Context(), r)
		return err
	}
	start("first")
	for range 2 { // the second when nothing is there
		if err := reset("id"); err != nil {
			t.Fatal(err)
		}
	}
	start("second")
	if err := reset("id"); err != nil {
		t.Fatal(err)
	}
	if now, err := f.racks.View(t.Context(), "r1"); err != nil || now.Doc.ID != "second" || now.Doc.Resetting {
		t.Errorf("the new start is %+v, %v", now.Doc, err)
	}
	if err := reset("another"); err != nil {
		t.Fatal(err)
	}
	if err := reset(""); wire.AsError(err).Code != wire.RackNotFound {
		t.Errorf("the reset without an id: %v", err)
	}
}
