package test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
	"muster/wire"
)

// Every error code, reached as callers reach it. The answers are read from their bodies alone; read holds the headers
// against them.
func TestField_B048_EveryErrorCode(t *testing.T) {
	ways := map[wire.Code]func(*testing.T) answer{
		wire.Internal:         internal,
		wire.Busy:             busy,
		wire.Contended:        contended,
		wire.Unavailable:      unavailable,
		wire.DeadlineExceeded: deadlineExceeded,
	}
	s := natstest.Start(t)
	startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	kv := wanted(t, nc)
	ask(t, nc, "muster.declare.set.h1.a", state("destroyed")).ok(t)
	ask(t, nc, "muster.declare.set.h1.b", state("up"), "Muster-Request-Id", "used").ok(t)
	corrupt := kv.put("broken", "not json")
	plain := func(subject, body string, headers ...string) func(*testing.T) answer {
		return func(t *testing.T) answer { return ask(t, nc, "muster.declare."+subject, body, headers...) }
	}
	ways[wire.InvalidRequest] = plain("set.h1.a", "{}")
	ways[wire.UnsupportedAPIVersion] = plain("view.h1", "", "Muster-Api-Version", "3")
	ways[wire.AgentDestroyed] = plain("set.h1.a", state("up"))
	ways[wire.HiveNotDeclared] = plain("view.nowhere", "")
	ways[wire.RevisionMismatch] = plain("set.h1.b", `{"state":"paused","if_revision":999}`)
	ways[wire.RequestIDReused] = plain("set.h1.b", state("paused"), "Muster-Request-Id", "used")
	ways[wire.TooLarge] = plain("set.h1.b", `{"state":"up"`+strings.Repeat(" ", 300<<10)+"}")
	ways[wire.CorruptRecord] = func(t *testing.T) answer {
		for _, op := range []string{"set.broken.a", "create.broken.a"} {
			e := ask(t, nc, "muster.declare."+op, state("up")).refused(t, wire.CorruptRecord)
			if e.Details["bucket"] != "muster_wanted" || e.Details["key"] != "broken" || detail(e, "revision") != int64(corrupt) {
				t.Errorf("%s: details %v, want the bucket, the key and revision %d", op, e.Details, corrupt)
			}
		}
		if value, rev := kv.value("broken"); value != "not json" || rev != corrupt {
			t.Errorf("a record that cannot be read was written over: %q", value)
		}
		return ask(t, nc, "muster.declare.view.broken", "")
	}
	declared := map[string]bool{}
	for _, op := range schemasOf(t, nc) {
		for _, code := range op.Errors {
			declared[code] = true
		}
	}
	for _, code := range slices.Sorted(maps.Keys(contract)) {
		way := ways[code]
		if way == nil {
			t.Errorf("no way to %s", code)
			continue
		}
		if !declared[string(code)] {
			t.Errorf("%s is in no op's list of errors", code)
		}
		t.Run(string(code), func(t *testing.T) {
			e := way(t).refused(t, code)
			t.Logf("%d %s %v", e.Status, e.Message, e.Details)
		})
	}
}

// internal: a bucket that an operator has sealed, which nobody can foresee.
func internal(t *testing.T) answer {
	s := natstest.Start(t)
	startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	ask(t, nc, "muster.declare.set.h1.a", state("up")).ok(t)
	kv := wanted(t, nc)
	c := kv.stream().CachedInfo().Config
	c.Sealed = true
	if _, err := kv.js.UpdateStream(ctx(t), c); err != nil {
		t.Fatal(err)
	}
	a := ask(t, nc, "muster.declare.set.h1.a", state("paused"))
	if e := a.refused(t, wire.Internal); len(e.Details) != 0 || strings.Contains(e.Message, "sealed") {
		t.Errorf("the cause is for the log: %s", a.raw)
	}
	return a
}

// busy: requests pile up while JetStream does not answer, and before the function knows.
func busy(t *testing.T) answer {
	s := natstest.Start(t)
	startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	replies := make(chan *nats.Msg, 8192)
	if _, err := nc.ChanSubscribe("replies", replies); err != nil {
		t.Fatal(err)
	}
	const n = 6000
	s.DisableJetStream()
	for i := range n {
		if err := nc.PublishRequest(fmt.Sprintf("muster.declare.view.h%d", i), "replies", nil); err != nil {
			t.Fatal(err)
		}
	}
	var found *answer
	for range n { // none of them is forgotten
		select {
		case m := <-replies:
			a, err := read("muster.declare.view", m)
			if err != nil || a.failure == nil {
				t.Fatalf("%v: %s", err, a.raw)
			}
			if a.failure.Code == wire.Busy {
				found = &a
			} else {
				a.refused(t, wire.Unavailable)
			}
		case <-time.After(startLimit):
			t.Fatal("requests without an answer")
		}
	}
	if found == nil {
		t.Fatalf("%d requests at once, and none was told Busy", n)
	}
	return *found
}

// contended: many write the key by hand, one over the other. Where the deadline finds the change on its way, the outcome
// is unknown; where it finds it between two lost races, it is contended.
func contended(t *testing.T) answer {
	s := natstest.Start(t)
	startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	kv := wanted(t, nc)
	var stop atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop.Store(true)
	for range 4 {
		writer := natstest.Connect(t, s.URL())
		for range 16 {
			wg.Go(func() {
				for !stop.Load() {
					_, _ = writer.Request("$KV.muster_wanted.h1", []byte(`{"agents":{"by-hand":{"state":"up"}}}`), time.Second)
				}
			})
		}
	}
	var a answer
	natstest.Eventually(t, startLimit, "a change finds no gap", func() bool {
		a = ask(t, nc, "muster.declare.set.h1.mine", state("up"), "Muster-Timeout", "100ms")
		return a.failure != nil && a.failure.Code == wire.Contended
	})
	stop.Store(true)
	wg.Wait()
	if value, _ := kv.value("h1"); strings.Contains(value, "mine") {
		t.Errorf("what was told to be contended was written: %s", value)
	}
	return a
}

// unavailable, for each reason that can be told. A function that is not connected can tell nobody.
func unavailable(t *testing.T) answer {
	reason := func(a answer, want string) {
		t.Helper()
		if e := a.refused(t, wire.Unavailable); e.Details["reason"] != want {
			t.Errorf("reason %v, want %s: %s", e.Details["reason"], want, a.raw)
		}
	}
	s := natstest.Start(t)
	startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	ask(t, nc, "muster.declare.set.h1.a", state("up")).ok(t)
	s.DisableJetStream()
	for _, op := range []string{"set.h1.a", "set.h2.a", "create.h2.a"} {
		within2s(t, op, func() { reason(ask(t, nc, "muster.declare."+op, state("up")), wire.JetStreamUnavailable) })
	}
	for _, op := range []string{"view.h1", "list", "status.h1"} {
		within2s(t, op, func() { reason(ask(t, nc, "muster.declare."+op, ""), wire.JetStreamUnavailable) })
	}
	s.EnableJetStream()
	natstest.Eventually(t, startLimit, "JetStream is back", func() bool {
		return succeeds(nc, "muster.declare.set.h1.a", state("paused"))
	})
	kv := wanted(t, nc)
	// After JetStream came back this server may carry out a request twice, and then says "not found" of its own deletion.
	if err := kv.js.DeleteStream(ctx(t), "KV_muster_wanted"); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Fatal(err)
	}
	var gone answer
	natstest.Eventually(t, 2*time.Second, "the bucket is said to be missing", func() bool {
		gone = ask(t, nc, "muster.declare.set.h1.a", state("up"))
		return gone.failure != nil && gone.failure.Details["reason"] == wire.BucketMissing
	})
	reason(gone, wire.BucketMissing)
	reason(ask(t, nc, "muster.declare.view.h1", ""), wire.BucketMissing)

	denied := natstest.Start(t, natstest.With(func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "operator", Password: "o"},
			{Username: "replica", Password: "r", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Deny: []string{"$KV.>", "$JS.API.STREAM.MSG.GET.>"}},
			}},
		}
	}))
	connectReplica(t, strings.Replace(denied.URL(), "nats://", "nats://replica:r@", 1), "declare", 1)
	operator := natstest.Connect(t, denied.URL(), nats.UserInfo("operator", "o"))
	for _, op := range []string{"set.h1.a", "create.h1.a"} {
		within2s(t, op, func() { reason(ask(t, operator, "muster.declare."+op, state("up")), wire.PermissionDenied) })
	}
	within2s(t, "view", func() { reason(ask(t, operator, "muster.declare.view.h1", ""), wire.PermissionDenied) })
	return gone
}

// within2s fails the test when f takes longer than the contract lets a caller wait to hear that something is away.
func within2s(t *testing.T, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("%s was answered after %v", what, took)
	}
}

// deadlineExceeded: with what is known of the outcome, before the caller gives up.
func deadlineExceeded(t *testing.T) answer {
	s := natstest.Start(t)
	p := natstest.StartProxy(t, s.URL())
	startReplica(t, p.URL(), "declare", 1)
	t.Cleanup(p.Cut)
	nc := natstest.Connect(t, s.URL())
	outcome := func(op, body, want string) answer {
		t.Helper()
		// The function can publish, and hears nothing: requests are sent before, and answered after.
		var a answer
		p.DropToClient(false)
		natstest.Eventually(t, startLimit, "the function answers", func() bool {
			a, err := try(nc, time.Second, "muster.declare.set.known.a", state("up"))
			return err == nil && a.failure == nil
		})
		p.OnClientBytes(func(b []byte) {
			if strings.Contains(string(b[:min(len(b), 100)]), "KV_muster_wanted") || strings.Contains(string(b[:min(len(b), 100)]), "$KV.muster_wanted.") {
				p.OnClientBytes(nil)
				p.DropToClient(true)
			}
		})
		began := time.Now()
		a = ask(t, nc, "muster.declare."+op, body, "Muster-Timeout", "400ms")
		if took := time.Since(began); took > 500*time.Millisecond { // a little is the way of the answer on a busy machine
			t.Errorf("%s: told after %v what was to be told within 400ms", op, took)
		}
		if e := a.refused(t, wire.DeadlineExceeded); e.Details["outcome"] != want {
			t.Errorf("%s: outcome %v, want %s", op, e.Details["outcome"], want)
		}
		return a
	}
	outcome("set.known.a", state("paused"), wire.Unknown)
	outcome("view.unknown", "", wire.NotApplied)
	return outcome("set.unknown.a", state("up"), wire.NotApplied)
}
