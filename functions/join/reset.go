package join

import (
	"context"
	"slices"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

// resetMargin is how many generations above the accepted one may have been stored by requests that were not taken.
const resetMargin = 16

// reset has every sled that was ever asked for this rack forget it, and then forgets the rack: its network configs first,
// its record last, so that a reset that broke off can be repeated.
func (f *function) reset(ctx context.Context, r *runtime.Request[wire.RackReset]) (any, error) {
	rack := r.IDs[0]
	if r.Body.Confirm != rack {
		return nil, wire.Invalid("confirm", "confirm must be the rack's name")
	}
	result, err := f.racks.Update(ctx, rack, store.Origin{Trace: r.Origin.Trace}, func(doc *record, _ uint64) (bool, error) {
		if !doc.exists() {
			return false, errNotFound(rack)
		}
		changed := !doc.Resetting // from here on no driver asks anything of a sled
		doc.Resetting = true
		return changed, nil
	})
	if err != nil {
		return nil, err
	}
	doc := result.Doc
	unreachable, err := f.forget(ctx, rack, doc)
	if err != nil {
		return nil, err
	}
	if len(unreachable) > 0 && !r.Body.Force {
		return nil, wire.Errorf(wire.Unavailable, "%d sleds did not answer; repeat the reset when they do, or with force to leave them", len(unreachable)).
			With("unreachable", unreachable)
	}
	for generation := uint64(1); generation <= doc.Accepted+resetMargin; generation++ {
		if err := f.drop(ctx, rack, generation); err != nil {
			return nil, err
		}
	}
	if err := store.Remove(ctx, f.Racks, rack, false); err != nil {
		return nil, err
	}
	f.log.Info("reset", "rack", rack, "id", doc.ID, "left_alone", len(unreachable))
	return wire.RackWasReset{Rack: rack, Unreachable: unreachable}, nil
}

// forget has every sled that was ever asked for a rack forget it, and returns those that did not say so. They are asked
// twice: what a coordinator had sent when it forgot may reach a member that had forgotten before.
func (f *function) forget(ctx context.Context, rack string, doc *record) ([]wire.Baseboard, error) {
	unreachable := []wire.Baseboard{}
	asks := each(doc.Known, wire.SledReset, wire.SledForget{RackID: doc.RackID})
	for range 2 {
		if len(asks) == 0 {
			break
		}
		answers, err := f.askAll(ctx, rack, asks)
		if err != nil {
			return nil, err
		}
		asks = nil
		for _, a := range answers {
			switch {
			case a.Err == nil:
				asks = append(asks, ask{a.From, wire.SledReset, wire.SledForget{RackID: doc.RackID}})
			case a.Err.Code == wire.WrongRack: // of another rack by now: nothing of ours to forget
			default:
				unreachable = append(unreachable, a.From)
			}
		}
	}
	slices.SortFunc(unreachable, wire.Baseboard.Compare)
	return unreachable, nil
}
