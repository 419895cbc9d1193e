package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/runtime/store"
	"muster/wire"
)

// request is one call of Update, and what became of it.
type request struct {
	name    string // its effect is counted under it; requests of one id and content share it
	key     string
	id      string // "" for none
	body    string
	sameAs  bool     // it wants a state, and changes nothing where that is so
	cancel  func()   // its caller gives up
	earlier []uint64 // revisions acknowledged for its key before it began

	done bool
	res  store.Result[tally]
	err  error
}

type finished struct {
	r   *request
	res store.Result[tally]
	err error
}

// world is two replicas, the network between them and their bucket, and everything that was asked of them.
type world struct {
	*network
	stores   [2]*store.Store[tally]
	waiting  []*call
	requests []*request
	answers  chan finished
}

func newWorld() *world {
	w := &world{network: newNetwork(), answers: make(chan finished, 100)}
	for i := range w.stores {
		var ids atomic.Int64
		w.stores[i] = store.New(port{w.bucket, w.network}, codec, store.Config{
			EventType: "test",
			Rand:      func() float64 { return 0 },
			NewID:     func() string { return fmt.Sprintf("write-%d-%d", i, ids.Add(1)) },
		})
	}
	return w
}

func (w *world) start(r *request, replica int) {
	for _, other := range w.requests {
		if other.done && other.err == nil && other.key == r.key {
			r.earlier = append(r.earlier, other.res.Revision)
		}
	}
	w.requests = append(w.requests, r)
	var from store.Origin
	if r.id != "" {
		from = store.Origin{RequestID: r.id, MemoKey: wire.MemoKey("set", []string{r.key}, r.id), Digest: r.body}
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	change := func(d tally, _ uint64) (bool, error) {
		if r.sameAs && d[r.name] > 0 {
			return false, nil
		}
		d[r.name]++
		return true, nil
	}
	w.stores[replica].UpdateThen(ctx, r.key, from, change, func(res store.Result[tally], err error) {
		w.answers <- finished{r, res, err}
	})
}

// turn lets everything that can happen by itself happen.
func (w *world) turn() {
	w.waiting = w.settle(w.waiting)
	for {
		select {
		case f := <-w.answers:
			f.r.done, f.r.res, f.r.err = true, f.res, f.err
			f.r.cancel()
		default:
			return
		}
	}
}

// finish has the network heal and everything come to its end.
func (w *world) finish(t rapid.TB) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for left := true; left; {
		w.turn()
		for _, c := range w.waiting {
			w.let(t, c, arrives)
		}
		left = len(w.waiting) > 0
		w.waiting = nil
		for _, r := range w.requests {
			left = left || !r.done
		}
		if time.Now().After(end) {
			t.Fatal("the requests do not end")
		}
	}
	for _, c := range w.late {
		_, _ = w.write(t, c.entries) // as late as can be; refused or not, it must not matter
	}
}

// Whatever the network does to two replicas that change the same keys:
//
//   - nothing acknowledged is lost: it took effect once, in the revision that was named, and no later write dropped it
//   - no id takes effect twice, and all its successes have one outcome
//   - an id that succeeded with one content never succeeds with another
//   - a change that failed and is not said to be unknown left no trace, and leaves none later
//   - revisions only rise
//   - nothing hangs
func TestInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld()
		steps := rapid.IntRange(5, 40).Draw(rt, "steps")
		for range steps {
			w.step(rt)
			w.turn()
		}
		w.finish(rt)
		w.checkChain(rt)
		w.checkRequests(rt)
	})
}

func (w *world) step(t *rapid.T) {
	key := rapid.SampledFrom([]string{"k1", "k1", "k1", "k2"}).Draw(t, "key")
	replica := rapid.IntRange(0, 1).Draw(t, "replica")
	name := fmt.Sprintf("n%d", len(w.requests))
	switch what := rapid.IntRange(0, 19).Draw(t, "what"); {
	case what < 4:
		w.start(&request{name: name, key: key, sameAs: rapid.Bool().Draw(t, "same")}, replica)
	case what < 7:
		w.start(&request{name: name, key: key, id: "id-" + name, body: "body", sameAs: rapid.Bool().Draw(t, "same")}, replica)
	case what < 9 && len(w.requests) > 0: // again, there or elsewhere
		if old := rapid.SampledFrom(w.requests).Draw(t, "again"); old.id != "" {
			again := &request{name: old.name, key: old.key, id: old.id, body: old.body, sameAs: old.sameAs}
			if rapid.IntRange(0, 4).Draw(t, "other body") == 0 {
				again.body, again.name = "body of "+name, name
			}
			w.start(again, replica)
		}
	case what == 9 && len(w.requests) > 0:
		rapid.SampledFrom(w.requests).Draw(t, "gives up").cancel()
	case what == 10:
		w.hand(t, key, rapid.SampledFrom([]string{"put", "del", "purge"}).Draw(t, "hand"))
	case what == 11 && len(w.late) > 0:
		c := rapid.SampledFrom(w.late).Draw(t, "arrives late")
		w.late = slices.DeleteFunc(w.late, func(other *call) bool { return other == c })
		_, _ = w.write(t, c.entries)
	case len(w.waiting) > 0:
		i := rapid.IntRange(0, len(w.waiting)-1).Draw(t, "call")
		fate := rapid.SampledFrom([]int{arrives, arrives, arrives, answerLost, answerLost, requestLost, anotherWrite, away}).Draw(t, "fate")
		c := w.waiting[i]
		w.waiting = slices.Delete(w.waiting, i, i+1)
		w.let(t, c, fate)
	}
}

func (w *world) checkRequests(t *rapid.T) {
	effects := w.effects()
	byID := map[string]*request{}
	for _, r := range w.requests {
		if effects[r.name] > 1 {
			t.Errorf("%s took effect %d times", r.describe(), effects[r.name])
		}
		if r.err != nil {
			w.checkFailed(t, r, effects[r.name])
			continue
		}
		w.checkSucceeded(t, r, effects[r.name])
		if r.id == "" {
			continue
		}
		if first := byID[r.key+r.id]; first == nil {
			byID[r.key+r.id] = r
		} else if first.body != r.body || first.res.Revision != r.res.Revision || first.res.Changed != r.res.Changed {
			t.Errorf("two successes of one id: %s and %s", first.describe(), r.describe())
		}
	}
}

func (w *world) checkSucceeded(t *rapid.T, r *request, effect int) {
	switch {
	case r.res.Changed && effect != 1:
		t.Errorf("%s was acknowledged and took effect %d times", r.describe(), effect)
	case r.res.Changed && w.revisions[r.res.Revision].doc[r.name] != 1:
		t.Errorf("%s is not in its revision: %v", r.describe(), w.revisions[r.res.Revision].doc)
	case r.id == "" && !r.res.Changed && effect != 0:
		t.Errorf("%s changed nothing and took effect %d times", r.describe(), effect)
	}
	if !r.res.Partial && r.res.Doc[r.name] != w.revisions[r.res.Revision].doc[r.name] {
		t.Errorf("%s was given %v, stored is %v", r.describe(), r.res.Doc, w.revisions[r.res.Revision].doc)
	}
	if r.id != "" { // a retry's revision is its first attempt's
		return
	}
	for _, earlier := range r.earlier {
		if r.res.Revision != 0 && (r.res.Revision < earlier || r.res.Changed && r.res.Revision == earlier) {
			t.Errorf("%s, and revision %d was acknowledged before it began", r.describe(), earlier)
		}
	}
}

// checkFailed: an effect there may only be where the outcome is said to be unknown, or was another attempt's.
func (w *world) checkFailed(t *rapid.T, r *request, effect int) {
	e, ok := errors.AsType[*wire.Error](r.err)
	if !ok {
		t.Errorf("%s is no error for a caller", r.describe())
		return
	}
	if e.Code == wire.CorruptRecord || e.Code == wire.Internal || e.Code == wire.TooLarge {
		t.Errorf("%s: nothing of the kind happened", r.describe())
	}
	if e.Code == wire.RequestIDReused {
		if !slices.ContainsFunc(w.requests, func(o *request) bool { return o.id == r.id && o.body != r.body }) {
			t.Errorf("%s: the id was not reused", r.describe())
		}
	}
	if e.Details["outcome"] == wire.Unknown {
		return
	}
	for _, other := range w.requests {
		if other != r && other.name == r.name && (other.err == nil || wire.AsError(other.err).Details["outcome"] == wire.Unknown) {
			return
		}
	}
	if effect != 0 {
		t.Errorf("%s did not say unknown and took effect", r.describe())
	}
}

func (r *request) describe() string {
	return fmt.Sprintf("request %s on %s (id %q, body %q): revision %d, changed %t, error %v", r.name, r.key, r.id, r.body, r.res.Revision, r.res.Changed, r.err)
}
