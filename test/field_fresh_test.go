package test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
)

func TestField_B019_SetHereViewThere(t *testing.T) {
	s := natstest.Start(t)
	a, b := pair(t, s.URL(), s.URL(), 1)
	setHereViewThere(t, []string{s.URL()}, a, b, 2*time.Second, nil)
}

func TestField_B019_SetHereViewThereOnThreeNodes(t *testing.T) {
	c := natstest.StartCluster(t, 3)
	a, b := pair(t, c.Node(0).URL(), c.Node(1).URL(), 3)
	setHereViewThere(t, c.URLs(), a, b, 4*time.Second, nil)
}

// The same while the bucket's stream changes its leader. Requests may fail then, but none may tell what is old.
func TestField_B019_SetHereViewThereWhileLeadersChange(t *testing.T) {
	c := natstest.StartCluster(t, 3)
	a, b := pair(t, c.Node(0).URL(), c.Node(1).URL(), 3)
	setHereViewThere(t, c.URLs(), a, b, 4*time.Second, func() { c.StepDown("KV_muster_wanted") })
}

// setHereViewThere has 24 callers set through a and at once view through b: half of them on hives of their own, half on
// one hive. disturb, when given, is done now and then meanwhile.
func setHereViewThere(t *testing.T, urls []string, a, b *replica, lasts time.Duration, disturb func()) {
	const callers = 24
	conns := make([]*nats.Conn, len(urls))
	for i, url := range urls {
		conns[i] = natstest.Connect(t, url)
	}
	var acknowledged atomic.Uint64 // of the shared hive
	var views, failures atomic.Int64
	disturbed := 0
	errs := make(chan error, callers)
	end := time.Now().Add(lasts)
	var wg sync.WaitGroup
	for i := range callers {
		nc := conns[i%len(conns)]
		wg.Go(func() {
			hive, agent := fmt.Sprintf("own%d", i), "a"
			if i%2 == 0 {
				hive, agent = "shared", fmt.Sprintf("a%d", i)
			}
			for n := 0; time.Now().Before(end); n++ {
				st := []string{"up", "paused"}[n%2]
				set, err := try(nc, startLimit, a.subject("set."+hive+"."+agent), state(st))
				if err == nil && set.failure != nil && disturb != nil && set.failure.Status > 500 {
					failures.Add(1)
					<-time.After(20 * time.Millisecond) // as a caller would, before it asks again
					continue
				}
				if err != nil || set.failure != nil {
					errs <- fmt.Errorf("set: %w: %s", err, set.raw)
					return
				}
				least := set.decl.Revision
				if hive == "shared" {
					least = raise(&acknowledged, least)
				}
				view, err := try(nc, startLimit, b.subject("view."+hive), "")
				if err == nil && view.failure != nil && disturb != nil && view.failure.Status > 500 {
					failures.Add(1)
					<-time.After(20 * time.Millisecond) // as a caller would, before it asks again
					continue
				}
				if err != nil || view.failure != nil {
					errs <- fmt.Errorf("view: %w: %s", err, view.raw)
					return
				}
				views.Add(1)
				if got := string(view.decl.Agents[agent].State); view.decl.Revision < least || got != st {
					errs <- fmt.Errorf("%s: set %s acknowledged at revision %d, then viewed %s at %d", hive, st, least, got, view.decl.Revision)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	ended := func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
	for disturb != nil && !ended() { // each time when all have found their way again
		seen := views.Load()
		natstest.Eventually(t, startLimit, "views go on", func() bool { return views.Load() > seen+500 || ended() })
		if !ended() {
			disturb()
			disturbed++
		}
	}
	<-done
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if views.Load() < 100 {
		t.Errorf("only %d views in %v: nothing was shown", views.Load(), lasts)
	}
	if disturb != nil && disturbed == 0 {
		t.Error("nothing was disturbed")
	}
	t.Logf("%d views, %d requests failed, disturbed %d times", views.Load(), failures.Load(), disturbed)
}

// raise makes v at least n and returns what it is then.
func raise(v *atomic.Uint64, n uint64) uint64 {
	for {
		old := v.Load()
		if old >= n {
			return old
		}
		if v.CompareAndSwap(old, n) {
			return n
		}
	}
}
