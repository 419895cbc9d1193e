package join

import (
	"context"
	"errors"
	"sync"
	"time"

	"muster/functions/join/quorum"
	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

// How the driver waits. Silent sleds are asked again after 250 ms, doubling to 5 s; a coordinator that is at work is asked
// often, since it takes milliseconds.
const (
	askTimeout = 1500 * time.Millisecond
	retryFirst = 250 * time.Millisecond
	retryMax   = 5 * time.Second
	pollFirst  = 20 * time.Millisecond
	pollMax    = 250 * time.Millisecond
	watchMax   = time.Second // while a coordinator is silent and may have to be replaced
	// before the next coordinator is chosen when one has refused; it may be the same one
	refusedPause = 500 * time.Millisecond
)

// step does what a rack's record says is next: asks the sleds, and writes once what they answered.
func (f *function) step(ctx context.Context, rack string, a runtime.Attempt) runtime.Progress {
	again := func(err error) runtime.Progress {
		if a.N == 0 && ctx.Err() == nil {
			f.log.Warn("a rack is held up here, it will be tried again", "rack", rack, "cause", err)
		}
		return runtime.Progress{Wait: backoff(a.N, retryFirst, retryMax)}
	}
	base, err := f.racks.View(ctx, rack)
	if err != nil {
		return again(err)
	}
	asks := plan(base.Doc)
	if len(asks) == 0 {
		return runtime.Progress{}
	}
	if a.N == 0 && base.Doc.refused() {
		return runtime.Progress{Wait: refusedPause}
	}
	answers, err := f.askAll(ctx, rack, asks)
	if err != nil {
		return again(err)
	}
	var ids []string
	if base.Doc.State == Committing {
		for range base.Doc.Peers {
			ids = append(ids, f.NewID())
		}
	}
	now := f.Now()
	r, err := f.racks.Update(ctx, rack, store.Origin{}, func(doc *record, _ uint64) (bool, error) {
		if !doc.exists() {
			return false, nil
		}
		return absorb(base.Doc, doc, answers, now, ids, a.Age), nil
	})
	switch {
	case err != nil:
		return again(err)
	case r.Changed:
		f.tell(rack, base.Doc, r.Doc)
		return runtime.Progress{Changed: true}
	}
	return runtime.Progress{Wait: pace(r.Doc, answers, a.N)}
}

// pace is how long to wait when nothing has changed.
func pace(r *record, answers []answer, attempt int) time.Duration {
	switch {
	case r.State != Reconfiguring && r.State != Preparing:
		return backoff(attempt, retryFirst, retryMax)
	case r.SilentSince != nil:
		return backoff(attempt, retryFirst, watchMax)
	}
	for _, a := range answers {
		if a.Err != nil {
			return backoff(attempt, retryFirst, watchMax)
		}
	}
	return backoff(attempt, pollFirst, pollMax)
}

func backoff(attempt int, first, most time.Duration) time.Duration {
	return min(first<<min(attempt, 10), most)
}

// askAll asks all at once and returns every answer, silence included.
func (f *function) askAll(ctx context.Context, rack string, asks []ask) ([]answer, error) {
	var config *wire.RackNetworkConfig
	if n, ok := asks[0].Body.(wire.SledNetworkConfig); ok {
		var err error
		if config, err = f.config(ctx, rack, n.Generation); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answers := make([]answer, len(asks))
	var wg sync.WaitGroup
	for i, a := range asks {
		if n, ok := a.Body.(wire.SledNetworkConfig); ok {
			n.Config = config
			a.Body = n
		}
		wg.Go(func() {
			select {
			case f.asks <- struct{}{}:
				defer func() { <-f.asks }()
				answers[i] = f.askOne(ctx, a)
			case <-ctx.Done():
				answers[i] = silent(a)
			}
		})
	}
	wg.Wait()
	return answers, nil
}

func silent(a ask) answer {
	return answer{From: a.To, Op: a.Op, Silent: true, Err: wire.Errorf(wire.Unavailable, "no answer")}
}

// askOne asks a sled. An answer that is not what the op answers is an error: nothing is taken for an ack that is none.
func (f *function) askOne(ctx context.Context, a ask) answer {
	out := answer{From: a.To, Op: a.Op}
	var committed quorum.Committed
	var done wire.SledNetworkDone
	var reply any
	switch a.Op {
	case wire.SledIdentity:
		out.Identity = &wire.Identity{}
		reply = out.Identity
	case wire.SledCoordinatorStatus:
		out.Status = &quorum.CoordinatorStatus{}
		reply = out.Status
	case wire.SledCommit:
		reply = &committed
	case wire.SledNetwork:
		reply = &done
	}
	err := f.Ask(ctx, a.To, a.Op, a.Body, reply)
	n, _ := a.Body.(wire.SledNetworkConfig)
	switch {
	case errors.Is(err, runtime.ErrSilent):
		return silent(a)
	case err != nil:
		out.Err = wire.AsError(err)
	case a.Op == wire.SledIdentity && out.Identity.Baseboard != a.To:
		out.Err = wire.Errorf(wire.Internal, "it answers with an identity that is not its own")
	case a.Op == wire.SledCommit && committed.Status != quorum.StatusCommitted,
		a.Op == wire.SledNetwork && done.Generation != n.Generation:
		out.Err = wire.Errorf(wire.Internal, "it answers with something else than an ack")
	}
	if out.Err != nil {
		out.Identity, out.Status = nil, nil
	}
	return out
}

// asksOfSleds lists what the driver asks of sleds. Preparing and giving shares they do among themselves.
func asksOfSleds() []runtime.Ask {
	var asks []runtime.Ask
	for _, op := range []string{
		wire.SledIdentity, wire.SledReconfigure, wire.SledCoordinatorStatus, wire.SledCommit, wire.SledStart, wire.SledNetwork,
		wire.SledReset,
	} {
		asks = append(asks, runtime.Ask{Function: wire.Sled, Subject: wire.SledSubjects(op)})
	}
	return asks
}
