package runtime_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"muster/runtime"
	"muster/runtime/natstest"
)

var chairBucket = runtime.BucketSpec{Name: "muster_test_chairs", Leases: true, Description: "the chair's tests"}

// chairs is who holds the chair, and when.
type chairs struct {
	mu   sync.Mutex
	held map[string][]time.Time // every moment at which one was sure that it holds it
}

// sitter waits for the chair until the test ends, or it is told to leave.
type sitter struct {
	name  string
	log   *runtime.Bucket
	leave func()
}

func (c *chairs) sit(t *testing.T, name string, log *runtime.Bucket) *sitter {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.Chair{Log: log, Key: "chair", Name: name, Say: slog.New(slog.DiscardHandler)}.Hold(ctx, func(ctx context.Context, held func() bool) {
			for ctx.Err() == nil {
				now := time.Now() // before it is asked, as who acts on the answer would
				if held() {
					c.mu.Lock()
					c.held[name] = append(c.held[name], now)
					c.mu.Unlock()
				}
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}()
	leave := func() {
		cancel()
		<-ended
	}
	t.Cleanup(leave)
	return &sitter{name, log, leave}
}

// first and last moment that one was sure since a time.
func (c *chairs) span(name string, since time.Time) (first, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.held[name] {
		if at.Before(since) {
			continue
		}
		if first.IsZero() {
			first = at
		}
		last = at
	}
	return first, last
}

// taken waits until one holds the chair.
func (c *chairs) taken(t *testing.T, name string, since time.Time, within time.Duration) time.Time {
	t.Helper()
	natstest.Eventually(t, within, name+" holds the chair", func() bool {
		first, _ := c.span(name, since)
		return !first.IsZero()
	})
	first, _ := c.span(name, since)
	return first
}

// inTurn checks that one never held the chair while the other did, and how long nobody did in between.
func (c *chairs) inTurn(t *testing.T, before, after string, pause time.Duration) {
	t.Helper()
	_, last := c.span(before, time.Time{})
	first, _ := c.span(after, time.Time{})
	if gap := first.Sub(last); gap < pause {
		t.Errorf("%s held it until %v before %s did, want %v", before, gap, after, pause)
	}
}

func newChairs() *chairs { return &chairs{held: map[string][]time.Time{}} }

// pairOfLines is two processes, each with a line of its own.
func pairOfLines(t *testing.T, url string, copies int) (a, b *line, logA, logB *runtime.Bucket) {
	a, b = newLine(t, url, copies), newLine(t, url, copies)
	return a, b, bucketOf(t, a.bus, chairBucket), bucketOf(t, b.bus, chairBucket)
}

func TestChairIsHandedOverAtOnce(t *testing.T) {
	t.Parallel()
	_, _, logA, logB := pairOfLines(t, natstest.Start(t).URL(), 1)
	c, began := newChairs(), time.Now()
	a := c.sit(t, "a", logA)
	c.taken(t, "a", began, limit)
	c.sit(t, "b", logB)
	natstest.Eventually(t, limit, "the chair was renewed", func() bool {
		_, last := c.span("a", began)
		return last.Sub(began) > 5*time.Second
	})
	if first, _ := c.span("b", began); !first.IsZero() {
		t.Error("two hold the chair")
	}
	left := time.Now()
	a.leave()
	if took := c.taken(t, "b", began, limit).Sub(left); took > 2*time.Second {
		t.Errorf("taken over after %v", took)
	}
	c.inTurn(t, "a", "b", 0)
}

// The holder hears nothing more, and is not heard: it stops before another begins.
func TestChairOfOneThatIsCutOff(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*natstest.Proxy, bool){
		"hangs": (*natstest.Proxy).Blackhole,
		"deaf":  (*natstest.Proxy).DropToClient,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lineA, _, logA, logB := pairOfLines(t, natstest.Start(t).URL(), 1)
			c, began := newChairs(), time.Now()
			c.sit(t, "a", logA)
			c.taken(t, "a", began, limit)
			c.sit(t, "b", logB)
			cut := time.Now()
			fault(lineA.proxy, true)
			took := c.taken(t, "b", began, limit).Sub(cut)
			t.Logf("taken over after %v", took)
			if name == "hangs" && took > 9*time.Second { // one that is deaf may go on renewing for a while
				t.Errorf("taken over after %v", took)
			}
			c.inTurn(t, "a", "b", time.Second)
			fault(lineA.proxy, false)
			mark := time.Now()
			natstest.Eventually(t, limit, "b goes on", func() bool { _, last := c.span("b", mark); return last.Sub(mark) > 2*time.Second })
			if first, _ := c.span("a", mark); !first.IsZero() {
				t.Error("the old holder goes on")
			}
		})
	}
}

// An operator removes the key, or the bucket: whoever takes the chair then waits until the old holder has noticed.
func TestChairIsTakenAway(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(t *testing.T, l *line){
		"deleted": func(t *testing.T, l *line) {
			must(t, keyValue(t, l.operator, chairBucket.Name).Delete(within(t), "chair"))
		},
		"purged": func(t *testing.T, l *line) {
			must(t, keyValue(t, l.operator, chairBucket.Name).Purge(within(t), "chair"))
		},
		"with its bucket": func(t *testing.T, l *line) {
			must(t, jetStream(t, l.operator).DeleteStream(within(t), "KV_"+chairBucket.Name))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lineA, _, logA, logB := pairOfLines(t, natstest.Start(t).URL(), 1)
			c, began := newChairs(), time.Now()
			c.sit(t, "a", logA)
			c.taken(t, "a", began, limit)
			remove(t, lineA)
			removed := time.Now()
			c.sit(t, "b", logB)
			if took := c.taken(t, "b", removed, limit).Sub(removed); took > 9*time.Second {
				t.Errorf("taken over after %v", took)
			}
			c.inTurn(t, "a", "b", 0)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A restart of the server, and of the leader of three, is no reason to give the chair to another.
func TestChairOutlivesARestart(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	_, _, logA, logB := pairOfLines(t, n.URL(), 1)
	c, began := newChairs(), time.Now()
	c.sit(t, "a", logA)
	c.taken(t, "a", began, limit)
	c.sit(t, "b", logB)
	n.Restart()
	mark := time.Now()
	natstest.Eventually(t, limit, "somebody works again", func() bool {
		_, a := c.span("a", mark)
		_, b := c.span("b", mark)
		return a.Sub(mark) > 3*time.Second || b.Sub(mark) > 3*time.Second
	})
	if first, _ := c.span("b", mark); !first.IsZero() {
		c.inTurn(t, "a", "b", time.Second)
	}
}
