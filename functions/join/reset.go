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
	_, err := f.racks.Update(ctx, rack, r.Origin, func(doc *record, _ uint64) (bool, error) {
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
	// A retry may come when its first attempt is done, and the rack started anew: it finds no reset to go on with.
	now, err := f.racks.View(ctx, rack)
	if err != nil {
		return nil, err
	}
	doc := now.Doc
	if !doc.Resetting {
		return wire.RackWasReset{Rack: rack}, nil
	}
	unreachable, err := f.forget(ctx, rack, doc)
	if err != nil {
		return nil, err
	}
	if len(unreachable) > 0 && !r.Body.Force {
		return nil, wire.Errorf(wire.Unavailable, "%d sleds did not answer; repeat the reset when they do, or with force to leave them", len(unreachable)).
			With("unreachable", unreachable)
	}
	if err := f.remove(ctx, rack, now.Revision, doc.Accepted+resetMargin); err != nil {
		return nil, err
	}
	f.log.Info("reset", "rack", rack, "id", doc.ID, "left_alone", len(unreachable))
	return wire.RackWasReset{Rack: rack, Unreachable: unreachable}, nil
}

// remove removes what is stored of a rack that is being reset since a revision of its record. An operator who got no answer
// may have repeated the reset, and started the rack anew when that one was done: nothing of the new start is touched.
func (f *function) remove(ctx context.Context, rack string, revision, last uint64) error {
	var configs []store.Revision
	for generation := uint64(1); generation <= last; generation++ {
		rev, err := store.Read(ctx, f.Networks, networkKey(rack, generation))
		if err != nil {
			return err
		}
		if !rev.Absent() {
			configs = append(configs, rev)
		}
	}
	now, err := f.racks.View(ctx, rack)
	if err != nil || now.Revision != revision { // done by another, and what was read may be of a new start
		return err
	}
	for _, rev := range configs {
		if _, err := store.RemoveAt(ctx, f.Networks, rev.Key, rev.Revision, true); err != nil {
			return err
		}
	}
	_, err = store.RemoveAt(ctx, f.Racks, rack, revision, false)
	return err
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
