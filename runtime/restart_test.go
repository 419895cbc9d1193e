package runtime_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nuid"
	"golang.org/x/sync/errgroup"

	"muster/runtime/natstest"
	"muster/runtime/store"
	"muster/wire"
)

func nuidNext() string { return nuid.Next() }

// Callers who repeat what failed, with its id, are done exactly once, whatever the servers go through meanwhile.
func TestStoreGoesOnAfterRestarts(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	a := bucketOf(t, connect(t, node.URL(), 1), testBucket)
	b := bucketOf(t, connect(t, node.URL(), 1), testBucket)
	exactlyOnce(t, [2]store.Log{a, b}, func(int) { node.Restart() })
}

func TestStoreGoesOnAfterRestartsOfMembers(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t, 3)
	a := bucketOf(t, connect(t, c.Node(0).URL(), 3), testBucket)
	b := bucketOf(t, connect(t, c.Node(1).URL(), 3), testBucket)
	stream := wire.BucketStream(testBucket.Name)
	exactlyOnce(t, [2]store.Log{a, b}, func(round int) {
		if round == 0 {
			c.StepDown(stream)
			return
		}
		c.StreamLeader(stream).Restart()
		c.WaitReady()
	})
}

// exactlyOnce has writers on one key, over both logs, while trouble comes twice. Each makes changes until both troubles
// are over; one that failed is repeated, on the other log, until it succeeds.
func exactlyOnce(t *testing.T, logs [2]store.Log, trouble func(round int)) {
	t.Helper()
	stores := [2]*store.Store[tally]{newStore(logs[0]), newStore(logs[1])}
	const writers, least = 8, 20
	over := make(chan struct{})
	var all errgroup.Group
	var counts [writers]int
	for w := range writers {
		name := fmt.Sprintf("w%d", w)
		all.Go(func() error {
			for done := false; !done; counts[w]++ {
				from := request("key", fmt.Sprintf("%s-%d", name, counts[w]), "body")
				if err := untilDone(t, stores, w, from, name, counts[w]+1); err != nil {
					return err
				}
				select {
				case <-over:
					done = counts[w] >= least
				default:
				}
			}
			return nil
		})
	}
	start := view(t, stores[0], "key").Revision
	for round := range 2 {
		natstest.Eventually(t, limit, "the writers go on", func() bool {
			r, err := stores[round].View(t.Context(), "key")
			return err == nil && r.Revision > start
		})
		start = view(t, stores[round], "key").Revision
		trouble(round)
	}
	close(over)
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	doc := view(t, stores[0], "key").Doc
	for w, want := range counts {
		if name := fmt.Sprintf("w%d", w); doc[name] != want {
			t.Errorf("%s made %d changes, each acknowledged once; stored are %d", name, want, doc[name])
		}
	}
	wantChain(t, history(t, logs[1], "key"))
}

// untilDone repeats a request until it succeeds, and checks that its outcome is that of a first attempt.
func untilDone(t *testing.T, stores [2]*store.Store[tally], w int, from store.Origin, name string, want int) error {
	ctx := within(t)
	for try := 0; ; try++ {
		r, err := stores[(w+try)%2].Update(ctx, "key", from, add(name))
		switch {
		case err == nil && r.Changed && (r.Partial || r.Doc[name] == want):
			return nil
		case err == nil:
			return fmt.Errorf("%s: try %d of request %s gave changed %t, count %d, want %d", name, try, from.RequestID, r.Changed, r.Doc[name], want)
		case !wire.AsError(err).Code.Retryable():
			return fmt.Errorf("%s: %w", name, err)
		case ctx.Err() != nil:
			return fmt.Errorf("%s: no success within %v: %w", name, limit, err)
		}
	}
}
