package test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
)

// Two replicas as processes, each told to stop and started again ten times in turn, while 16 callers go on asking: some
// with an id, some without, on hives of their own and on one that all share.
func TestField_B036_RollingRestarts(t *testing.T) {
	url := natstest.Start(t).URL()
	rollingRestarts(t, 20, []string{url, url}, []string{url, url, url, url})
}

// The same with each replica and each caller at a server of its own or another's.
func TestField_B036_RollingRestartsOnThreeNodes(t *testing.T) {
	urls := natstest.StartCluster(t, 3).URLs()
	rollingRestarts(t, 6, urls[:2], append(urls, urls[2]), "--replicas", "3")
}

func rollingRestarts(t *testing.T, rounds int, servers, callers []string, args ...string) {
	var replicas [2]*program
	for i, url := range servers {
		replicas[i] = serveProcess(t, url, args...)
	}
	conns := make([]*nats.Conn, len(callers))
	for i, url := range callers {
		conns[i] = natstest.Connect(t, url)
	}
	var stop atomic.Bool // also once a caller has failed
	var asked atomic.Int64
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			c := rollingCaller{nc: conns[i%len(conns)], id: i, asked: &asked}
			for n := 0; !stop.Load(); n++ {
				if errs[i] = c.round(n); errs[i] != nil {
					stop.Store(true)
				}
			}
		})
	}
	slowest := time.Duration(0)
	for round := 0; round < rounds && !stop.Load(); round++ {
		before := asked.Load()
		natstest.Eventually(t, startLimit, "callers are served", func() bool { return asked.Load() > before+100 || stop.Load() })
		p := replicas[round%2]
		began := time.Now()
		p.signal(syscall.SIGTERM)
		if code := p.waitExit(25 * time.Second); code != 0 {
			t.Errorf("round %d: exit code %d after SIGTERM", round, code)
		}
		slowest = max(slowest, time.Since(began))
		replicas[round%2] = serveProcess(t, servers[round%2], args...)
	}
	stop.Store(true)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("caller %d: %v", i, err)
		}
	}
	t.Logf("%d requests, slowest stop %v", asked.Load(), slowest)
}

// rollingCaller asks in a closed loop and checks that each reply is to what it asked.
type rollingCaller struct {
	nc    *nats.Conn
	id    int
	asked *atomic.Int64
	last  uint64
}

func (c *rollingCaller) round(n int) error {
	hive, agent := fmt.Sprintf("own%d", c.id), fmt.Sprintf("agent%d", c.id)
	if n%4 == 3 {
		hive = "shared"
	}
	st := []string{"up", "paused", "offline"}[n%3]
	var headers []string
	if c.id%4 == 0 {
		headers = []string{"Muster-Request-Id", fmt.Sprintf("c%d-%d", c.id, n)}
	}
	set, err := try(c.nc, 5*time.Second, "muster.declare.set."+hive+"."+agent, state(st), headers...)
	c.asked.Add(1)
	if d := set.decl; err != nil || set.failure != nil || d.Hive != hive || string(d.Agents[agent].State) != st || d.Revision <= c.last {
		return fmt.Errorf("set %s.%s to %s after revision %d: %w: %s", hive, agent, st, c.last, err, set.raw)
	}
	c.last = set.decl.Revision
	view, err := try(c.nc, 5*time.Second, "muster.declare.view."+hive, "")
	c.asked.Add(1)
	if d := view.decl; err != nil || view.failure != nil || d.Hive != hive || string(d.Agents[agent].State) != st || d.Revision < c.last {
		return fmt.Errorf("view %s after revision %d, %s %s: %w: %s", hive, c.last, agent, st, err, view.raw)
	}
	id := fmt.Sprintf("mine-%d-%d", c.id, n) // an error names its request
	wrong, err := try(c.nc, 5*time.Second, "muster.declare.set."+hive+"."+agent, `{}`, "Muster-Request-Id", id)
	c.asked.Add(1)
	if err != nil || wrong.failure == nil || wrong.failure.RequestID != id {
		return fmt.Errorf("a request with id %s: %w: %s", id, err, wrong.raw)
	}
	return nil
}

// A replica that is killed outright while callers are at it. What was acknowledged is stored, and a request whose answer
// was lost is done once when it is repeated, even though its caller has changed its mind meanwhile.
func TestKilledReplica(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	nc := natstest.Connect(t, s.URL())
	replicas := [2]*program{serveProcess(t, s.URL()), serveProcess(t, s.URL())}
	callers := make([]*stubborn, 12)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for i := range callers {
		c := &stubborn{nc: natstest.Connect(t, s.URL()), hive: fmt.Sprintf("h%d", i)}
		callers[i] = c
		wg.Go(func() {
			for n := 0; !stop.Load() && c.err == nil; n++ {
				c.err = c.round(n)
			}
		})
	}
	for round := range 6 {
		var before int64
		for _, c := range callers {
			before += c.done.Load()
		}
		natstest.Eventually(t, startLimit, "callers are served", func() bool {
			var now int64
			for _, c := range callers {
				now += c.done.Load()
			}
			return now > before+60
		})
		p := replicas[round%2]
		p.signal(syscall.SIGKILL)
		if code := p.waitExit(5 * time.Second); code != -1 {
			t.Errorf("round %d: exit code %d of a killed process", round, code)
		}
		replicas[round%2] = serveProcess(t, s.URL())
	}
	stop.Store(true)
	wg.Wait()
	kv := wanted(t, nc)
	lost, stored := 0, 0
	for _, c := range callers {
		if c.err != nil {
			t.Errorf("hive %s: %v", c.hive, c.err)
			continue
		}
		lost += c.lost
		stored += c.stored
		c.check(t, kv)
	}
	t.Logf("%d answers lost, %d of them of changes that were stored", lost, stored)
	if lost == 0 {
		t.Error("no answer was lost: nothing was shown")
	}
}

// stubborn is a caller that repeats what was not answered, on a hive of its own.
type stubborn struct {
	nc     *nats.Conn
	hive   string
	tally  *tally // nil: nobody counts
	done   atomic.Int64
	err    error
	lost   int               // requests without an answer
	stored int               // of these, whose first attempt was stored
	state  int               // of the agent, in the list of states
	acked  map[uint64]string // revision to the state of the agent in it
}

// round sets the agent. When no answer comes, it first sets a third state, and then repeats the first request.
func (c *stubborn) round(n int) error {
	if c.acked == nil {
		c.acked = map[uint64]string{}
	}
	states := []string{"offline", "up", "paused"}
	one, other := (c.state+1)%3, (c.state+2)%3
	first, err := c.set(states[one], fmt.Sprintf("first%d", n), 500*time.Millisecond)
	c.done.Add(1)
	if err == nil && (c.tally == nil || first.failure == nil || !first.failure.Retryable) {
		c.state = one
		return c.changed(first, states[one])
	}
	c.lost++
	newer, err := c.insist(states[other], fmt.Sprintf("newer%d", n))
	if err != nil {
		return err
	}
	if first, err = c.insist(states[one], fmt.Sprintf("first%d", n)); err != nil {
		return err
	}
	if first.failure == nil && newer.failure == nil && first.decl.Revision == newer.decl.Revision {
		// On a busy replica both waited together and were written as one revision, whose record both are told.
		if string(newer.decl.Agents["a"].State) == states[one] {
			other = one
		}
		one = other
	}
	if err := errors.Join(c.changed(newer, states[other]), c.changed(first, states[one])); err != nil {
		return err
	}
	want := newer
	if first.decl.Revision > newer.decl.Revision {
		want, c.state = first, one
	} else {
		c.state = other
		c.stored++
	}
	view, err := c.insistOn("view."+c.hive, "", nil)
	if err != nil {
		return err
	}
	if view.decl.Revision != want.decl.Revision {
		return fmt.Errorf("lost answer: first at %d, newer at %d, viewed at %d", first.decl.Revision, newer.decl.Revision, view.decl.Revision)
	}
	return nil
}

// changed notes an acknowledged change.
func (c *stubborn) changed(a answer, st string) error {
	if a.failure != nil || !a.decl.Changed || string(a.decl.Agents["a"].State) != st {
		return fmt.Errorf("set %s: %s", st, a.raw)
	}
	c.acked[a.decl.Revision] = st
	return nil
}

func (c *stubborn) set(st, id string, limit time.Duration) (answer, error) {
	return c.tally.try(c.nc, limit, "muster.declare.set."+c.hive+".a", state(st), "Muster-Request-Id", id)
}

func (c *stubborn) insist(st, id string) (answer, error) {
	return c.insistOn("set."+c.hive+".a", state(st), []string{"Muster-Request-Id", id})
}

func (c *stubborn) insistOn(op, body string, headers []string) (a answer, err error) {
	for end := time.Now().Add(c.tally.limit()); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		if a, err = c.tally.try(c.nc, time.Second, "muster.declare."+op, body, headers...); err == nil && (a.failure == nil || !a.failure.Retryable) {
			return a, nil
		}
	}
	return a, fmt.Errorf("%s: still no answer: %w: %s", op, err, a.raw)
}

// check holds the stored history against what was acknowledged: every acknowledged change, each once, and no other.
func (c *stubborn) check(t *testing.T, kv bucket) {
	t.Helper()
	history := kv.history(c.hive)
	kept := len(history) == 256 // the oldest are dropped then
	found := map[uint64]bool{}
	for _, e := range history {
		st, ok := c.acked[e.Revision()]
		if !ok {
			t.Errorf("hive %s: revision %d was stored and never acknowledged: %s", c.hive, e.Revision(), e.Value())
		}
		if want := fmt.Sprintf(`{"agents":{"a":{"state":%q}}}`, st); ok && string(e.Value()) != want {
			t.Errorf("hive %s: revision %d is %s, acknowledged was %s", c.hive, e.Revision(), e.Value(), st)
		}
		found[e.Revision()] = true
	}
	for rev := range c.acked {
		if !found[rev] && (!kept || rev > history[0].Revision()) {
			t.Errorf("hive %s: revision %d was acknowledged and is not stored", c.hive, rev)
		}
	}
	if len(c.acked) == 0 {
		t.Errorf("hive %s: nothing was acknowledged", c.hive)
	}
}
