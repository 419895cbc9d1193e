package resolve_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"muster/functions/resolve"
	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

const limit = 30 * time.Second

// serve starts a replica of the function. Its end is returned, for tests that stop it early.
func serve(t *testing.T, url string) (*runtime.Bus, func()) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	bus, err := runtime.Connect(runtime.Options{Name: "resolve", Dial: runtime.URL(url), Replicas: 1, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	fn := resolve.New(resolve.Deps{Bus: bus, NewID: uuid.NewString, Log: log})
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	svc, err := bus.Serve(ctx, fn, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := errors.Join(bus.Stop(ctx, svc), bus.Close(ctx)); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	t.Cleanup(stop)
	return bus, stop
}

func ask(t *testing.T, bus *runtime.Bus, op string, body, reply any, ids ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := bus.Ask(ctx, wire.Subject(wire.Resolve, op, ids...), body, reply); err != nil {
		t.Fatalf("%s %v: %v", op, ids, err)
	}
}

func addresses(w *resolve.Watcher) (all []string, err error) {
	backends, err := w.Backends()
	for _, b := range backends {
		all = append(all, b.Name+"="+b.Address)
	}
	return all, err
}

func TestWatch(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	bus, stop := serve(t, s.URL())
	caller := natstest.Connect(t, s.URL())
	w, err := resolve.Watch(t.Context(), caller, "web")
	if err != nil {
		t.Fatal(err)
	}
	eventually := func(what string, ok func([]string, error) bool) {
		t.Helper()
		natstest.Eventually(t, limit, what, func() bool { return ok(addresses(w)) })
	}
	eventually("nobody resolves what is not defined", func(_ []string, err error) bool { return errors.Is(err, resolve.ErrNobody) })

	var lease wire.Lease
	ask(t, bus, "register", wire.Register{Address: "[fd00::1]:80"}, &lease, "web", "w1")
	eventually("w1 is there", func(all []string, err error) bool {
		return err == nil && len(all) == 1 && all[0] == "w1=[fd00::1]:80"
	})
	ask(t, bus, "deregister", wire.Heartbeat{Lease: lease.Lease}, nil, "web", "w1")
	eventually("known to have none", func(all []string, err error) bool { return err == nil && len(all) == 0 })
	ask(t, bus, "register", wire.Register{Address: "[fd00::2]:80"}, &lease, "web", "w2")
	eventually("w2 is there", func(all []string, err error) bool { return err == nil && len(all) == 1 })

	stop()
	eventually("nobody resolves any more, w2 was the last", func(all []string, err error) bool {
		return errors.Is(err, resolve.ErrNobody) && len(all) == 1
	})
	w.Close()
	w.Close()
	if all, err := addresses(w); !errors.Is(err, resolve.ErrClosed) || all != nil {
		t.Errorf("after Close: %v, %v", all, err)
	}
	for range w.Changes() { // is closed
	}
}

// A caller whose own link is cut is told so at once, and right again soon after it is back.
func TestWatch_OwnLink(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	bus, _ := serve(t, s.URL())
	ask(t, bus, "define", wire.Source{Static: map[string]string{"a": "10.0.0.1:80"}}, nil, "web")
	p := natstest.StartProxy(t, s.URL())
	caller, err := nats.Connect(p.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, err := resolve.Watch(ctx, caller, "web")
	if err != nil {
		t.Fatal(err)
	}
	sure := func() bool { all, err := addresses(w); return err == nil && len(all) == 1 }
	natstest.Eventually(t, limit, "a is there", sure)
	p.Cut()
	natstest.Eventually(t, limit, "stale, with the last backends", func() bool {
		all, err := addresses(w)
		_, stale := errors.AsType[*resolve.StaleError](err)
		return stale && len(all) == 1
	})
	p.Heal()
	natstest.Eventually(t, limit, "sure again", sure)
	cancel()
	if _, err := w.Backends(); !errors.Is(err, resolve.ErrClosed) {
		t.Errorf("after its context ended: %v", err)
	}
	w.Close()
}

func TestWatch_Name(t *testing.T) {
	if w, err := resolve.Watch(t.Context(), nil, "a.b"); err == nil {
		t.Errorf("a.b is taken for a name: %v", w)
	}
}
