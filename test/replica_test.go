package test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/functions/declare"
	"muster/runtime"
	"muster/runtime/natstest"
)

// replica is a function in this process, on its own connection.
type replica struct {
	t       testing.TB
	name    string // the function's name: the token behind muster. in its subjects
	bus     *runtime.Bus
	fn      runtime.Function
	service *runtime.Service
	reg     *prometheus.Registry
	stopped bool
}

// startReplica serves declare under a name and returns once it is ready. Two replicas with different names share their
// buckets and nothing else, so that a caller can choose between them.
func startReplica(t testing.TB, url, name string, replicas int) *replica {
	t.Helper()
	return connectReplica(t, url, name, replicas).ready()
}

// ready returns once it is.
func (r *replica) ready() *replica {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	natstest.Eventually(r.t, startLimit, "replica "+r.name+" is ready", func() bool { return r.problem(ctx) == "" })
	return r
}

// connectReplica is startReplica without the wait.
func connectReplica(t testing.TB, url, name string, replicas int) *replica {
	t.Helper()
	return connectFunction(t, url, name, replicas, func(bus *runtime.Bus, _ *slog.Logger) runtime.Function {
		return declare.New(declare.Deps{Wanted: bus.Bucket(runtime.Wanted), Reported: bus.Bucket(runtime.Reported), Now: time.Now})
	})
}

func connectFunction(t testing.TB, url, name string, replicas int, makeFunction func(*runtime.Bus, *slog.Logger) runtime.Function) *replica {
	t.Helper()
	log := &output{}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	bus, err := runtime.Connect(runtime.Options{Name: name, Dial: runtime.URL(url), Replicas: replicas, Log: logger})
	if err != nil {
		t.Fatalf("connect replica %s: %v", name, err)
	}
	fn := makeFunction(bus, logger)
	fn.Name = name
	r := &replica{t: t, name: name, bus: bus, fn: fn, reg: prometheus.NewRegistry()}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if r.service, err = bus.Serve(ctx, fn, r.reg); err != nil {
		t.Fatalf("serve %s: %v", name, err)
	}
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Logf("replica %s logged:\n%s", name, tail(log.String(), 8<<10))
		}
	})
	return r
}

// problem is the first check that fails, "" for none.
func (r *replica) problem(ctx context.Context) string {
	for _, c := range r.bus.Checks(ctx, []runtime.Function{r.fn}) {
		if !c.OK {
			return c.Name + ": " + c.Detail
		}
	}
	return ""
}

func (r *replica) stop() {
	if r.stopped {
		return
	}
	r.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.bus.Stop(ctx, r.service); err != nil {
		r.t.Logf("stop replica %s: %v", r.name, err)
	}
	if err := r.bus.Close(ctx); err != nil {
		r.t.Logf("close replica %s: %v", r.name, err)
	}
}

// subject is muster.<this replica's name>.<op>[.<id>…].
func (r *replica) subject(op string) string { return "muster." + r.name + "." + op }

// pair is two replicas on a bus, each under a name of its own, and a caller's connection.
func pair(t testing.TB, urlA, urlB string, replicas int) (a, b *replica) {
	t.Helper()
	return startReplica(t, urlA, "declareA", replicas), startReplica(t, urlB, "declareB", replicas)
}
