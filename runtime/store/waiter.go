package store

import (
	"sync/atomic"

	"muster/wire"
)

// Stages of a waiter. It goes waiting → taken → sent → (waiting after a lost race, or finished).
const (
	waiting  int32 = iota // in the cell's queue
	taken                 // in a group whose base is being read: nothing of it is on its way
	sent                  // part of a write that may be on its way
	finished              // it has its outcome, or its caller has given up
)

// waiter is one change that waits for its outcome.
type waiter[D any] struct {
	from   Origin
	change Change[D]
	then   func(Result[D], error) // called once, with the outcome
	stage  atomic.Int32
	lost   atomic.Bool // has lost a race before
	stop   func() bool // stops waiting for the deadline

	// Only the committer reads and writes these.
	settled bool // result and err are set
	result  Result[D]
	err     error
	changed bool       // by the attempt under way
	refusal error      // the change's own error in it
	sameAs  *waiter[D] // an earlier waiter of the group with the same request id
}

// take makes the waiter part of a group, unless its caller has given up. Likewise launch, right before the attempt.
func (w *waiter[D]) take() bool   { return w.stage.CompareAndSwap(waiting, taken) }
func (w *waiter[D]) launch() bool { return w.stage.CompareAndSwap(taken, sent) }

// release takes it out of an attempt that lost a race; false when its caller has given up meanwhile.
func (w *waiter[D]) release() bool {
	w.lost.Store(true)
	return w.stage.CompareAndSwap(sent, waiting)
}

// finish sets the outcome and hands it to the caller, if that still waits.
func (w *waiter[D]) finish(r Result[D], err error) {
	w.result, w.err, w.settled = r, err, true
	if w.stage.Swap(finished) != finished {
		w.stop()
		w.then(r, err)
	}
}

// finishSame gives the outcome of the first request of an id to the others of its group.
func finishSame[D any](group []*waiter[D]) {
	for _, w := range group {
		if w.sameAs != nil {
			w.finish(w.sameAs.result, w.sameAs.err)
		}
	}
}

// giveUp ends the wait at the caller's deadline and says what is known.
func (w *waiter[D]) giveUp() {
	var err error
	switch w.stage.Swap(finished) {
	case finished: // the outcome came just now
		return
	case sent:
		err = wire.Errorf(wire.DeadlineExceeded, "no answer from the store in time; the change may or may not be stored").
			With("outcome", wire.Unknown)
	default:
		if w.lost.Load() {
			err = wire.Errorf(wire.Contended, "other writers kept coming first; nothing was written")
		} else {
			err = wire.Errorf(wire.DeadlineExceeded, "the deadline passed before the change was sent to the store").
				With("outcome", wire.NotApplied)
		}
	}
	w.then(Result[D]{}, err)
}
