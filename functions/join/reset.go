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
	asks := each(doc.Known, wire.SledReset, wire.SledForget{RackID: doc.RackID})
	unreachable := []wire.Baseboard{}
	if len(asks) > 0 {
		answers, err := f.askAll(ctx, rack, asks)
		if err != nil {
			return nil, err
		}
		for _, a := range answers {
			if a.Err != nil && a.Err.Code != wire.WrongRack { // of another rack by now: nothing of ours to forget
				unreachable = append(unreachable, a.From)
			}
		}
	}
	slices.SortFunc(unreachable, wire.Baseboard.Compare)
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
	return wire.RackWasReset{Rack: rack, Unreachable: unreachable}, nil
}
