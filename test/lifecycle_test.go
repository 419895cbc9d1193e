package test

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

func TestServeBeforeItsServer(t *testing.T) {
	t.Parallel()
	s := natstest.Reserve(t)
	p := launch(t, "serve", "--nats", s.URL(), "--http", "127.0.0.1:0")
	natstest.Eventually(t, startLimit, "the process is alive and not ready", func() bool {
		live, _ := p.get("/livez")
		ready, body := p.get("/readyz")
		return live == 200 && ready == 503 && strings.Contains(body, "not connected")
	})
	if strings.Contains(p.out.String(), "ready") {
		t.Error("said to be ready without a server")
	}
	s.Up()
	p.waitReady()
	status, body := p.get("/readyz")
	if status != 200 {
		t.Errorf("/readyz: %d %s", status, body)
	}
	aLineACheck(t, body)
	nc := natstest.Connect(t, s.URL())
	ask(t, nc, "muster.declare.set.h1.a", state("up")).ok(t)
	id := micro(t, nc, "$SRV.PING.muster-declare").ID

	s.Stop() // and later goes away, and comes back
	natstest.Eventually(t, startLimit, "the process is not ready", func() bool {
		status, _ := p.get("/readyz")
		return status == 503
	})
	s.Up()
	natstest.Eventually(t, startLimit, "the process is ready again", func() bool {
		status, _ := p.get("/readyz")
		return status == 200
	})
	natstest.Eventually(t, startLimit, "it answers again", func() bool { return succeeds(nc, "muster.declare.set.h1.b", state("up")) })
	if d := ask(t, nc, "muster.declare.view.h1", "").ok(t); len(d.Agents) != 2 {
		t.Errorf("agents %v, want a and b", d.Agents)
	}
	if again := micro(t, nc, "$SRV.PING.muster-declare").ID; again != id {
		t.Errorf("the service was restarted: id %s, was %s", again, id)
	}
	p.signal(syscall.SIGTERM)
	if code := p.waitExit(25 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// aLineACheck checks the form of /readyz: JSON, and each check on a line of its own.
func aLineACheck(t *testing.T, body string) {
	t.Helper()
	var all struct {
		Ready  *bool           `json:"ready"`
		Checks []runtime.Check `json:"checks"`
	}
	if err := json.Unmarshal([]byte(body), &all); err != nil || all.Ready == nil || len(all.Checks) < 3 {
		t.Errorf("/readyz: %v: %s", err, body)
	}
	for _, c := range all.Checks {
		for line := range strings.Lines(body) {
			if n := strings.Count(line, `"name":`); n > 1 {
				t.Errorf("/readyz: %d checks on a line: %s", n, line)
			}
		}
		if c.Name == "" || *all.Ready && !c.OK {
			t.Errorf("/readyz: %+v in %s", c, body)
		}
	}
}

func TestServeWithoutJetStreamAtFirst(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	s.DisableJetStream()
	p := launch(t, "serve", "--nats", s.URL(), "--http", "127.0.0.1:0")
	nc := natstest.Connect(t, s.URL())
	natstest.Eventually(t, startLimit, "it answers", func() bool {
		_, err := try(nc, time.Second, "muster.declare.view.h1", "")
		return err == nil
	})
	within2s(t, "set", func() {
		e := ask(t, nc, "muster.declare.set.h1.a", state("up")).refused(t, wire.Unavailable)
		if e.Details["reason"] != wire.JetStreamUnavailable {
			t.Errorf("reason %v", e.Details["reason"])
		}
	})
	if status, body := p.get("/readyz"); status != 503 || !strings.Contains(body, "jetstream_unavailable") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	s.EnableJetStream()
	p.waitReady()
	ask(t, nc, "muster.declare.set.h1.a", state("up")).ok(t)
}

func TestBucketWithOtherSettings(t *testing.T) {
	s := natstest.Start(t)
	nc := natstest.Connect(t, s.URL())
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	// As `nats kv add muster_wanted --history 5 --ttl 1h` makes it.
	if _, err := js.CreateKeyValue(ctx(t), jetstream.KeyValueConfig{Bucket: "muster_wanted", History: 5, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	before := wanted(t, nc).stream().CachedInfo().Config
	p := launch(t, "serve", "--nats", s.URL(), "--http", "127.0.0.1:0")
	natstest.Eventually(t, startLimit, "/readyz names what differs", func() bool {
		status, body := p.get("/readyz")
		return status == 503 && strings.Contains(body, "bucket muster_wanted") && strings.Contains(body, "history") &&
			strings.Contains(body, "max_age") && strings.Contains(body, "allow_direct")
	})
	if after := wanted(t, nc).stream().CachedInfo().Config; !equalJSON(t, before, after) {
		t.Errorf("the bucket was changed from %+v to %+v", before, after)
	}
	if strings.Contains(p.out.String(), "ready") {
		t.Error("said to be ready")
	}
	if err := js.DeleteKeyValue(ctx(t), "muster_wanted"); err != nil { // the operator makes room
		t.Fatal(err)
	}
	p.signal(syscall.SIGTERM)
	if code := p.waitExit(25 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	serveProcess(t, s.URL())
	ask(t, nc, "muster.declare.set.h1.a", state("up")).ok(t)
}

// What an operator may choose is no difference: more replicas, limits, a description, placement.
func TestBucketOfAnOperatorsMaking(t *testing.T) {
	s := natstest.Start(t)
	nc := natstest.Connect(t, s.URL())
	first := startReplica(t, s.URL(), "declare", 1)
	kv := wanted(t, nc)
	c := kv.stream().CachedInfo().Config
	c.Description, c.MaxBytes, c.Metadata = "ours", 1<<30, map[string]string{"owner": "operations"}
	if _, err := kv.js.UpdateStream(ctx(t), c); err != nil {
		t.Fatal(err)
	}
	again := startReplica(t, s.URL(), "declareB", 1)
	for _, r := range []*replica{first, again} {
		if problem := r.problem(ctx(t)); problem != "" {
			t.Errorf("%s: %s", r.name, problem)
		}
	}
}

func TestForeignStreamCapturesRequests(t *testing.T) {
	s := natstest.Start(t)
	nc := natstest.Connect(t, s.URL())
	p := serveProcess(t, s.URL())
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"muster.declare.>", "muster.declare.set.*.*", "muster.declare.set.h1.a", "*.declare.>", "muster.declare.list"} {
		if _, err := js.CreateStream(ctx(t), jetstream.StreamConfig{Name: "EAVESDROP", Subjects: []string{subject}, NoAck: true}); err != nil {
			t.Fatal(err)
		}
		if status, body := p.get("/readyz"); status != 503 || !strings.Contains(body, "EAVESDROP") {
			t.Errorf("a stream on %s: /readyz says %d %s", subject, status, body)
		}
		if err := js.DeleteStream(ctx(t), "EAVESDROP"); err != nil {
			t.Fatal(err)
		}
		if status, body := p.get("/readyz"); status != 200 {
			t.Errorf("without it: /readyz says %d %s", status, body)
		}
	}
	if _, err := js.CreateStream(ctx(t), jetstream.StreamConfig{Name: "INNOCENT", Subjects: []string{"muster.event.>", "other.declare.>"}}); err != nil {
		t.Fatal(err)
	}
	if status, body := p.get("/readyz"); status != 200 {
		t.Errorf("with a stream on other subjects: /readyz says %d %s", status, body)
	}
}

// A process that cannot leave in order, since its line is dead: SIGTERM ends it within 25 s, a second one at once.
func TestSignalsWithADeadLine(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	line := natstest.StartProxy(t, s.URL())
	once, twice := serveProcess(t, line.URL()), serveProcess(t, line.URL())
	nc := natstest.Connect(t, s.URL())
	ask(t, nc, "muster.declare.set.h1.a", state("up")).ok(t)
	line.Blackhole(true)
	began := time.Now()
	once.signal(syscall.SIGTERM)
	twice.signal(syscall.SIGTERM)
	natstest.Eventually(t, startLimit, "the process is stopping", func() bool { return strings.Contains(twice.err.String(), "msg=stopping") })
	if !twice.running() {
		t.Fatal("the first signal ended it at once: nothing is shown")
	}
	second := time.Now()
	twice.signal(syscall.SIGTERM)
	code := twice.waitExit(startLimit)
	if took := time.Since(second); took > time.Second || code == 0 {
		t.Errorf("after a second signal: exit code %d after %v", code, took)
	}
	code = once.waitExit(startLimit)
	took := time.Since(began)
	if took > 25*time.Second {
		t.Errorf("after one signal: exit code %d after %v", code, took)
	}
	t.Logf("after one signal and with a dead line: exit code %d after %v", code, took)
}

func TestSigtermWhenIdle(t *testing.T) {
	s := natstest.Start(t)
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		p := serveProcess(t, s.URL())
		p.signal(sig)
		if code := p.waitExit(5 * time.Second); code != 0 {
			t.Errorf("%s: exit code %d", name, code)
		}
	}
}

func TestSigtermBeforeReady(t *testing.T) {
	for _, args := range [][]string{{"serve", "--http", "127.0.0.1:0"}, {"hive", "--name", "h1"}} {
		p := launch(t, append(args, "--nats", natstest.Reserve(t).URL())...)
		natstest.Eventually(t, startLimit, "the process says something", func() bool { return p.err.String() != "" })
		p.signal(syscall.SIGTERM)
		if code := p.waitExit(5 * time.Second); code != 0 {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}

// A start that can never work ends by itself and says why.
func TestServeCannotListen(t *testing.T) {
	s := natstest.Start(t)
	first := serveProcess(t, s.URL())
	p := launch(t, "serve", "--nats", s.URL(), "--http", strings.TrimPrefix(first.httpURL(), "http://"))
	if code := p.waitExit(startLimit); code == 0 || !strings.Contains(p.err.String(), "address already in use") {
		t.Errorf("exit code %d: %s", code, p.err)
	}
}

// What a killed or lost replica leaves behind on the server is nothing for long: no consumers of its own.
func TestNoConsumersLeftBehind(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	nc := natstest.Connect(t, s.URL())
	kv := func() int { return wanted(t, nc).stream().CachedInfo().State.Consumers }
	r := startReplica(t, s.URL(), "declare", 1)
	ask(t, nc, "muster.declare.set.h1.a", state("up")).ok(t)
	most := 0
	for range 5 { // each reconnect starts afresh what follows the bucket
		natstest.Eventually(t, startLimit, "views are answered", func() bool {
			a, err := try(nc, time.Second, "muster.declare.view.h1", "")
			return err == nil && a.failure == nil
		})
		natstest.Eventually(t, startLimit, "something follows the bucket", func() bool {
			_, err := try(nc, time.Second, "muster.declare.view.h1", "")
			return err == nil && kv() > 0
		})
		most = max(most, kv())
		s.Restart()
		natstest.Eventually(t, startLimit, "the replica is back", func() bool { return r.problem(context.Background()) == "" })
	}
	r.stop()
	natstest.Eventually(t, startLimit, "its consumers are gone", func() bool { return kv() == 0 })
	if most > 2 {
		t.Errorf("%d consumers at once", most)
	}
}
