package join

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

// errMoved says that the record is no longer the one that a request was judged on.
var errMoved = errors.New("the record has moved on")

func (f *function) start(ctx context.Context, r *runtime.Request[wire.JoinRequest]) (any, error) {
	doc, changed, err := f.begin(ctx, r, byJoin)
	if err != nil {
		return nil, err
	}
	return wire.JoinStarted{Rack: r.IDs[0], ID: doc.ID, Generation: doc.Accepted, Changed: changed}, nil
}

func (f *function) initialize(ctx context.Context, r *runtime.Request[wire.JoinRequest]) (any, error) {
	doc, _, err := f.begin(ctx, r, byInitialize)
	if err != nil {
		return nil, err
	}
	return wire.RackInitializing{Rack: r.IDs[0], ID: doc.ID}, nil
}

// begin takes a start or initialize. Its network config is stored before the record accepts it; one that is not accepted
// in the end is removed.
func (f *function) begin(ctx context.Context, r *runtime.Request[wire.JoinRequest], kind string) (*record, bool, error) {
	if problems := checkRequest(&r.Body); len(problems) > 0 {
		text := ""
		if n := len(problems); n > 1 {
			text = fmt.Sprintf("; and %d more", n-1)
		}
		return nil, false, wire.Invalid(problems[0].Field, "%s: %s%s", problems[0].Field, problems[0].Problem, text).With("problems", problems)
	}
	rack, req, ids := r.IDs[0], normal(&r.Body), fresh{f.NewID(), f.NewID()}
	for {
		base, err := f.racks.View(ctx, rack)
		if err != nil {
			return nil, false, err
		}
		generation, stored, err := f.accept(ctx, rack, base.Doc, kind, req)
		if err != nil {
			return nil, false, err
		}
		result, err := f.racks.Update(ctx, rack, r.Origin, func(doc *record, _ uint64) (bool, error) {
			if doc.exists() != base.Doc.exists() || doc.Accepted != base.Doc.Accepted || doc.ID != base.Doc.ID {
				return false, errMoved
			}
			if generation != 0 && !stored && refusal(doc, kind, false) == nil {
				return false, errMoved
			}
			changed, _, err := begin(doc, kind, req, generation, ids)
			return changed, err
		})
		if stored && notTaken(result.Doc, generation, err) {
			if dropErr := f.drop(ctx, rack, generation); dropErr != nil && err == nil {
				err = dropErr
			}
		}
		if errors.Is(err, errMoved) {
			continue
		}
		if err == nil && result.Changed {
			f.tell(rack, base.Doc, result.Doc)
		}
		return result.Doc, result.Changed, err
	}
}

// notTaken tells whether a stored config is certain never to be accepted.
func notTaken(doc *record, generation uint64, err error) bool {
	if err == nil {
		return doc.Accepted != generation
	}
	e, ok := errors.AsType[*wire.Error](err)
	return errors.Is(err, errMoved) || ok && e.Code.Status() < 500
}

// accept stores a request's network config if it is another one than the accepted one, and returns its generation; 0 when
// it is the same. Nothing is stored for a request that will be refused: the refusal comes from the record.
func (f *function) accept(ctx context.Context, rack string, base *record, kind string, req *wire.JoinRequest) (generation uint64, stored bool, err error) {
	if base.exists() {
		accepted, err := f.config(ctx, rack, base.Accepted)
		if err != nil {
			return 0, false, err
		}
		if sameConfig(accepted, req.RackNetworkConfig) {
			return 0, false, nil
		}
		if refusal(base, kind, false) != nil {
			return base.Accepted + 1, false, nil
		}
	}
	generation, err = f.keep(ctx, rack, base.Accepted+1, req.RackNetworkConfig)
	return generation, err == nil, err
}

// waitFirst and waitMost are how often complete looks whether the join is done.
const (
	waitFirst = 20 * time.Millisecond
	waitMost  = 250 * time.Millisecond
)

func (f *function) complete(ctx context.Context, r *runtime.Request[struct{}]) (any, error) {
	rack := r.IDs[0]
	answer := func(generation uint64) any {
		if r.API == 1 {
			return struct{}{}
		}
		return wire.JoinCompleted{BootstoreGeneration: generation}
	}
	// Its outcome is the record's, which is remembered for ever: no memo is needed, and none must stand in the way of a
	// retry that comes while the first attempt still waits.
	var done bool
	var generation uint64
	var before *record
	result, err := f.racks.Update(ctx, rack, store.Origin{RequestID: r.Origin.RequestID, Trace: r.Origin.Trace, Cause: r.Origin.Cause},
		func(doc *record, _ uint64) (changed bool, err error) {
			before = doc.clone()
			changed, done, generation, err = complete(doc)
			return changed, err
		})
	if err != nil {
		return nil, err
	}
	if result.Changed {
		f.tell(rack, before, result.Doc)
	}
	if done {
		return answer(generation), nil
	}
	for attempt := 0; ; attempt++ {
		select {
		case <-ctx.Done():
			return nil, wire.Errorf(wire.DeadlineExceeded, "completion is recorded, the join is not done yet; ask again").
				With("outcome", wire.Recorded)
		case <-time.After(backoff(attempt, waitFirst, waitMost)):
		}
		doc, err := f.racks.View(ctx, rack)
		if err != nil {
			if ctx.Err() != nil {
				continue
			}
			return nil, err
		}
		look := doc.Doc.clone()
		_, done, generation, err := complete(look)
		if err != nil {
			return nil, err
		}
		if done && doc.Doc.State == Completed {
			return answer(generation), nil
		}
	}
}
