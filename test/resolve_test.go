package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/functions/resolve"
	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

// startResolve serves resolve under a name of its own, so that a caller can choose the replica.
func startResolve(t testing.TB, url, name string, replicas int) *replica {
	t.Helper()
	return connectResolve(t, url, name, replicas).ready()
}

func connectResolve(t testing.TB, url, name string, replicas int) *replica {
	t.Helper()
	return connectFunction(t, url, name, replicas, func(bus *runtime.Bus, log *slog.Logger) runtime.Function {
		return resolve.New(resolve.Deps{Bus: bus, NewID: uuid.NewString, Log: log})
	})
}

// resolvers is two replicas of resolve on one server, and a caller.
type resolvers struct {
	t    *testing.T
	node *natstest.Node
	nc   *nats.Conn
	a, b *replica
}

func newResolvers(t *testing.T) *resolvers {
	t.Helper()
	n := natstest.Start(t)
	return &resolvers{
		t: t, node: n, nc: natstest.Connect(t, n.URL()),
		a: startResolve(t, n.URL(), "resolveA", 1), b: startResolve(t, n.URL(), "resolveB", 1),
	}
}

// found is an answer of lookup, or the error.
type found struct {
	wire.Answer
	code wire.Code
	raw  string
}

// names are the backends' names, in order, and "-" for none.
func (f found) names() string {
	var names []string
	for _, b := range f.Backends {
		names = append(names, b.Name)
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, " ")
}

func (f found) String() string {
	if f.code != "" {
		return string(f.code)
	}
	return f.Status + " " + f.names()
}

// look looks a service up at a replica; "" for whichever answers.
func look(nc *nats.Conn, at *replica, service, body string) (found, error) {
	name := "resolve"
	if at != nil {
		name = at.name
	}
	a, err := try(nc, time.Second, "muster."+name+".lookup."+service, body)
	for i := 0; i < 9 && at == nil && errors.Is(err, context.DeadlineExceeded); i++ { // asked of one that is stopped, perhaps
		a, err = try(nc, time.Second, "muster."+name+".lookup."+service, body)
	}
	if err != nil {
		return found{}, err
	}
	f := found{raw: string(a.raw)}
	if a.failure != nil {
		f.code = a.failure.Code
		return f, nil
	}
	return f, json.Unmarshal(a.raw, &f.Answer)
}

func mustLook(t testing.TB, nc *nats.Conn, at *replica, service string) found {
	t.Helper()
	f, err := look(nc, at, service, "")
	if err != nil {
		t.Fatalf("look up %s: %v", service, err)
	}
	return f
}

// becomes waits until a lookup gives what is wanted, as String says it.
func becomes(t testing.TB, nc *nats.Conn, at *replica, service, want string, limit time.Duration) found {
	t.Helper()
	var f found
	defer func() {
		if t.Failed() {
			t.Logf("the last answer was %s", f.raw)
		}
	}()
	natstest.Eventually(t, limit, service+" is "+want, func() bool {
		var err error
		f, err = look(nc, at, service, "")
		return err == nil && f.String() == want
	})
	return f
}

// register registers a backend and returns its lease.
func register(t testing.TB, nc *nats.Conn, at *replica, service, backend, ttl string, headers ...string) wire.Lease {
	t.Helper()
	name := "resolve"
	if at != nil {
		name = at.name
	}
	var l wire.Lease
	ask(t, nc, fmt.Sprintf("muster.%s.register.%s.%s", name, service, backend), fmt.Sprintf(`{"address":"[fd00::1]:80","ttl":%q}`, ttl), headers...).into(t, &l)
	return l
}

func withLease(lease string) string { return fmt.Sprintf(`{"lease":%q}`, lease) }

// watching looks a service up over and over until it is stopped, and keeps what was found with the time it was asked at.
type watching struct {
	mu   sync.Mutex
	seen []sighting
	stop func()
}

type sighting struct {
	at, answered time.Time
	found
}

// watchLookups watches a service as one replica tells it. check is called with each answer.
func watchLookups(t *testing.T, nc *nats.Conn, at *replica, service string, every time.Duration, check func(found) error) *watching {
	w := &watching{}
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for wrong := false; ; { // said once
			asked := time.Now()
			f, err := look(nc, at, service, "")
			if err == nil && check != nil {
				err = check(f)
			}
			if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) {
				err = nil // a replica or a server that is away says nothing
			}
			if err != nil && !wrong {
				wrong = true
				t.Errorf("lookup of %s: %v: %s", service, err, f.raw)
			}
			w.mu.Lock()
			w.seen = append(w.seen, sighting{asked, time.Now(), f})
			w.mu.Unlock()
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	})
	w.stop = sync.OnceFunc(func() {
		close(end)
		wg.Wait()
	})
	t.Cleanup(w.stop)
	return w
}

func (w *watching) all() []sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]sighting(nil), w.seen...)
}

// neverEmpty says that a service which has backends is never told to have none.
func neverEmpty(f found) error {
	if f.code == "" && f.Status == wire.StatusFresh && len(f.Backends) == 0 {
		return errors.New("fresh and empty, which nobody said")
	}
	return nil
}

// bucketNamed is a bucket in an operator's hands.
func bucketNamed(t testing.TB, nc *nats.Conn, name string) jetstream.KeyValue {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(ctx(t), name)
	if err != nil {
		t.Fatalf("bind bucket %s: %v", name, err)
	}
	return kv
}
