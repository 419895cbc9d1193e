package test

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
	"muster/wire"
)

func TestField_B149_DestroyedStaysDestroyed(t *testing.T) {
	s := natstest.Start(t)
	a, b := pair(t, s.URL(), s.URL(), 1)
	destroyedStays(t, natstest.Connect(t, s.URL()), a, b, 20)
}

func TestField_B149_DestroyedStaysDestroyedOnThreeNodes(t *testing.T) {
	c := natstest.StartCluster(t, 3)
	a, b := pair(t, c.Node(0).URL(), c.Node(1).URL(), 3)
	destroyedStays(t, natstest.Connect(t, c.Node(2).URL()), a, b, 8)
}

// destroyedStays destroys an agent while 16 callers redeclare it through both replicas, half of them with if_revision.
func destroyedStays(t *testing.T, nc *nats.Conn, a, b *replica, rounds int) {
	replicas := []*replica{a, b}
	for round := range rounds {
		hive := fmt.Sprintf("h%d", round)
		ask(t, nc, a.subject("create."+hive+".a"), state("up")).ok(t)
		var destroyed, stop atomic.Bool
		var before, after atomic.Int64
		errs := make([]error, 16)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				c := redeclarer{nc: nc, replica: replicas[i%2], hive: hive, conditional: i%4 > 1, destroyed: &destroyed, before: &before, after: &after}
				for n := 0; !stop.Load() && errs[i] == nil; n++ {
					errs[i] = c.round(n)
				}
			})
		}
		natstest.Eventually(t, startLimit, "callers redeclare", func() bool { return before.Load() > 50 })
		d := ask(t, nc, replicas[round%2].subject("set."+hive+".a"), state("destroyed")).ok(t)
		destroyed.Store(true)
		natstest.Eventually(t, startLimit, "callers are refused", func() bool { return after.Load() > 100 })
		stop.Store(true)
		wg.Wait()
		for i, err := range errs {
			if err != nil {
				t.Errorf("round %d, caller %d: %v", round, i, err)
			}
		}
		view := ask(t, nc, replicas[(round+1)%2].subject("view."+hive), "").ok(t)
		if view.Revision != d.Revision || view.Agents["a"].State != wire.Destroyed {
			t.Errorf("round %d: destroyed at %d, viewed %+v", round, d.Revision, view)
		}
		back := ask(t, nc, replicas[round%2].subject("create."+hive+".a"), state("paused")).ok(t)
		if !back.Changed || back.Agents["a"].State != wire.Paused {
			t.Errorf("round %d: create does not bring the name back: %+v", round, back)
		}
		if t.Failed() {
			return
		}
	}
}

// redeclarer sets an agent over and over.
type redeclarer struct {
	nc            *nats.Conn
	replica       *replica
	hive          string
	conditional   bool
	destroyed     *atomic.Bool // it was acknowledged
	before, after *atomic.Int64
	rev           uint64
}

func (c *redeclarer) round(n int) error {
	body := state([]string{"up", "paused", "offline"}[n%3])
	if c.conditional {
		body = fmt.Sprintf(`{"state":%q,"if_revision":%d}`, []string{"up", "paused", "offline"}[n%3], c.rev)
	}
	known := c.destroyed.Load()
	a, err := try(c.nc, startLimit, c.replica.subject("set."+c.hive+".a"), body)
	switch {
	case err != nil:
		return err
	case a.failure == nil && known:
		return fmt.Errorf("redeclared after destroy was acknowledged, with %s: %s", body, a.raw)
	case a.failure == nil:
		c.rev = a.decl.Revision
		c.before.Add(1)
	case a.failure.Code == wire.RevisionMismatch && c.conditional:
		c.rev = uint64(detail(*a.failure, "revision"))
	case a.failure.Code != wire.AgentDestroyed:
		return fmt.Errorf("%s: %s", body, a.raw)
	}
	if known {
		c.after.Add(1)
	}
	return nil
}

// A replica, as a process, is stopped in the middle of a redeclare: it has read the record and not yet written. Another
// one destroys the agent. Then the first goes on.
func TestField_B149_ReplicaStoppedBeforeItsWrite(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"plain": `{"state":"paused"}`, "if_revision": `{"state":"paused","if_revision":%d}`} {
		t.Run(name, func(t *testing.T) {
			s := natstest.Start(t)
			p := natstest.StartProxy(t, s.URL())
			stopped := serveProcess(t, p.URL())
			nc := natstest.Connect(t, s.URL())
			kv := wanted(t, nc)
			rev := kv.put("h1", `{"agents":{"a":{"state":"up"}}}`) // by hand, so that it must be read
			if name == "if_revision" {
				body = fmt.Sprintf(body, rev)
			}
			asleep := make(chan struct{})
			p.OnClientBytes(func(b []byte) {
				if bytes.HasPrefix(b, []byte("PUB $JS.API.STREAM.MSG.GET.KV_muster_wanted ")) ||
					bytes.HasPrefix(b, []byte("HPUB $JS.API.STREAM.MSG.GET.KV_muster_wanted ")) {
					p.OnClientBytes(nil)
					stopped.stop() // before the answer reaches it
					close(asleep)
				}
			})
			late := askLater(t, nc, body)
			waitFor(t, asleep)
			d := destroyElsewhere(t, s.URL(), nc)
			stopped.signal(syscall.SIGCONT)
			lateIsRefused(t, nc, late, d, name == "if_revision")
		})
	}
}

// The same for a replica that knows the record from before, and whose request came while it slept.
func TestField_B149_ReplicaStoppedWithWhatItKnows(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	stopped := serveProcess(t, s.URL())
	nc := natstest.Connect(t, s.URL())
	for _, st := range []string{"up", "offline", "up"} {
		ask(t, nc, "muster.declare.set.h1.a", state(st)).ok(t)
		ask(t, nc, "muster.declare.view.h1", "").ok(t)
	}
	stopped.stop()
	late := askLater(t, nc, `{"state":"paused"}`)
	if err := nc.Flush(); err != nil { // it waits in the connection of the one that sleeps
		t.Fatal(err)
	}
	d := destroyElsewhere(t, s.URL(), nc)
	stopped.signal(syscall.SIGCONT)
	lateIsRefused(t, nc, late, d, false)
}

// askLater redeclares h1's agent and does not wait.
func askLater(t *testing.T, nc *nats.Conn, body string) *nats.Subscription {
	t.Helper()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	msg := nats.NewMsg("muster.declare.set.h1.a")
	msg.Reply, msg.Data = inbox, []byte(body)
	msg.Header.Set("Muster-Timeout", "60s")
	if err := nc.PublishMsg(msg); err != nil {
		t.Fatal(err)
	}
	return sub
}

func waitFor(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(startLimit):
		t.Fatal("the replica never came to where it is to be stopped")
	}
}

// destroyElsewhere destroys h1's agent through a replica that runs. The sleeping one still gets its share of requests,
// so it is asked for again, under one id, until the other one gets it.
func destroyElsewhere(t *testing.T, url string, nc *nats.Conn) (d wire.Declaration) {
	t.Helper()
	serveProcess(t, url)
	natstest.Eventually(t, startLimit, "the agent is destroyed", func() bool {
		a, err := try(nc, 300*time.Millisecond, "muster.declare.set.h1.a", state("destroyed"), "Muster-Request-Id", "destroy")
		d = a.decl
		return err == nil && a.failure == nil
	})
	if d.Agents["a"].State != wire.Destroyed {
		t.Fatalf("destroyed is %+v", d)
	}
	return d
}

// lateIsRefused checks the answer to the late redeclare, and that it left no trace.
func lateIsRefused(t *testing.T, nc *nats.Conn, late *nats.Subscription, d wire.Declaration, conditional bool) {
	t.Helper()
	m, err := late.NextMsg(startLimit)
	if err != nil {
		t.Fatalf("the late redeclare got no answer: %v", err)
	}
	a, err := read("the late redeclare", m)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case a.failure != nil && a.failure.Code == wire.Unavailable: // while it slept its time for the read went by
	case conditional:
		a.refused(t, wire.RevisionMismatch)
	default:
		a.refused(t, wire.AgentDestroyed)
	}
	view := ask(t, nc, "muster.declare.view.h1", "").ok(t)
	if view.Revision != d.Revision || view.Agents["a"].State != wire.Destroyed {
		t.Errorf("destroyed at %d, then viewed %+v", d.Revision, view)
	}
}
