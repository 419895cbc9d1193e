package test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
)

// events hears every event as a consumer of the stream delivers them, and holds each key's to be without a gap.
type events struct {
	t        testing.TB
	mu       sync.Mutex
	last     map[string]string // revision of each key's last event
	count    map[string]int
	changes  map[string]int // requests that were carried by the events of each key
	repeated map[string]int // events that were heard before
	unnamed  int            // events without a message id, by which the server knows a repeat
	gaps     []string
	markers  int
}

func hearEvents(t testing.TB, url string) *events {
	t.Helper()
	js, err := jetstream.New(natstest.Connect(t, url))
	if err != nil {
		t.Fatal(err)
	}
	e := &events{t: t, last: map[string]string{}, count: map[string]int{}, changes: map[string]int{}, repeated: map[string]int{}}
	c, err := js.OrderedConsumer(ctx(t), "MUSTER_EVENTS", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.Consume(e.hear)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Stop)
	return e
}

func (e *events) hear(m jetstream.Msg) {
	e.mu.Lock()
	defer e.mu.Unlock()
	subject, h := m.Subject(), m.Headers()
	e.count[subject]++
	if id := h.Get("Nats-Msg-Id"); id == "" || h.Get("ce-id") != "" && id != h.Get("ce-id") {
		e.unnamed++
	}
	// The origin is the server's own account of where the message was: stream, sequence, and more.
	var stream, revision string
	if _, err := fmt.Sscanf(h.Get("Nats-Stream-Source"), "%s %s", &stream, &revision); err != nil {
		e.gaps = append(e.gaps, "no origin: "+h.Get("Nats-Stream-Source"))
	}
	now, _ := strconv.ParseUint(revision, 10, 64)
	if before, _ := strconv.ParseUint(e.last[subject], 10, 64); now <= before && now > 0 {
		e.repeated[subject]++
		return
	}
	if n, err := strconv.Atoi(h.Get("ce-changes")); err == nil {
		e.changes[subject] += n
	} else {
		e.changes[subject]++
	}
	if previous, known := h.Get("ce-previous"), e.last[subject]; previous == "" {
		e.markers++
	} else if known != "" && previous != known {
		e.gaps = append(e.gaps, fmt.Sprintf("%s: revision %s follows %s, heard was %s", subject, revision, previous, known))
	}
	e.last[subject] = revision
}

// until waits for the event of a revision and fails the test if anything was left out.
func (e *events) until(subject string, revision uint64) {
	e.t.Helper()
	natstest.Eventually(e.t, startLimit, fmt.Sprintf("the event of %s at revision %d", subject, revision), func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.last[subject] == strconv.FormatUint(revision, 10)
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, gap := range e.gaps {
		if i == 5 {
			e.t.Errorf("and %d more", len(e.gaps)-i)
			break
		}
		e.t.Error(gap)
	}
}

// onceOf is of without those that were repeated; changesOf is how many requests they carried.
func (e *events) onceOf(subject string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count[subject] - e.repeated[subject]
}

func (e *events) changesOf(subject string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changes[subject]
}

func (e *events) of(subject string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count[subject]
}

// Every revision of a hot key is an event, whatever happens to the leader of the events stream.
func TestEventsUnderAHotKeyOnThreeNodes(t *testing.T) {
	c := natstest.StartCluster(t, 3)
	a, b := pair(t, c.Node(0).URL(), c.Node(1).URL(), 3)
	heard := hearEvents(t, c.URL())
	nc := natstest.Connect(t, c.Node(2).URL())
	stop, cancel := context.WithCancel(ctx(t))
	defer cancel()
	var changed, failed atomic.Uint64
	var wg sync.WaitGroup
	for i := range 32 {
		r := []*replica{a, b}[i%2]
		wg.Go(func() {
			for n := 0; stop.Err() == nil; n++ {
				got, err := try(nc, 10*time.Second, r.subject(fmt.Sprintf("set.hot.a%d", i)), state([]string{"up", "paused"}[n%2]))
				if err != nil || got.failure != nil {
					failed.Add(1)
					continue
				}
				changed.Add(1)
			}
		})
	}
	wait := func(d time.Duration) {
		select {
		case <-stop.Done():
		case <-time.After(d):
		}
	}
	wait(500 * time.Millisecond)
	c.StepDown("MUSTER_EVENTS")
	wait(700 * time.Millisecond)
	leader := c.StreamLeader("MUSTER_EVENTS")
	leader.Stop()
	wait(1500 * time.Millisecond)
	leader.Up()
	wait(500 * time.Millisecond)
	cancel()
	wg.Wait()
	rev := wanted(t, natstest.Connect(t, c.URL())).last("hot").Sequence
	heard.until("muster.event.hive.hot", rev)
	if n := heard.of("muster.event.hive.hot"); uint64(n) != rev { // the bucket holds nothing else
		t.Errorf("%d events of %d revisions", n, rev)
	}
	if heard.unnamed > 0 { // no more is written
		t.Errorf("%d events without the message id by which the server would know a repeat", heard.unnamed)
	}
	t.Logf("%d changes (%d failed) in %d revisions", changed.Load(), failed.Load(), rev)
}
