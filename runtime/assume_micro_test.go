package runtime_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"muster/runtime/natstest"
)

// FACTS 3, what package runtime works around in the micro library.

func newMicro(t *testing.T, nc *nats.Conn, handle func(micro.Request)) micro.Service {
	t.Helper()
	svc, err := micro.AddService(nc, micro.Config{Name: "assume", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := svc.AddEndpoint("op", micro.HandlerFunc(handle), micro.WithEndpointSubject("assume.op")); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(limit); err != nil {
		t.Fatal(err)
	}
	return svc
}

func TestAssumeMicroNames(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Start(t).URL())
	for _, c := range []micro.Config{
		{Name: "assume", Version: "1"}, {Name: "assume", Version: "v1.0.0"}, {Name: "assume", Version: ""},
		{Name: "as.sume", Version: "1.0.0"}, {Name: "", Version: "1.0.0"},
	} {
		if _, err := micro.AddService(nc, c); err == nil {
			t.Errorf("service %q, version %q is taken now", c.Name, c.Version)
		}
	}
	svc := newMicro(t, nc, func(micro.Request) {})
	if err := svc.AddEndpoint("a.b", micro.HandlerFunc(func(micro.Request) {})); err == nil {
		t.Error("an endpoint name with a dot is taken now")
	}
}

func TestAssumeMicroHandlesOneAtATime(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	first, second := make(chan struct{}), make(chan struct{}, 1)
	hold := make(chan struct{})
	newMicro(t, natstest.Connect(t, node.URL()), func(r micro.Request) {
		if string(r.Data()) == "first" {
			close(first)
			<-hold
		} else {
			second <- struct{}{}
		}
		_ = r.Respond(nil)
	})
	caller := natstest.Connect(t, node.URL())
	for _, body := range []string{"first", "second"} {
		if err := caller.PublishRequest("assume.op", caller.NewInbox(), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	<-first
	if err := caller.FlushTimeout(limit); err != nil {
		t.Fatal(err)
	}
	select {
	case <-second:
		t.Error("two handlers of one endpoint ran at once")
	default:
	}
	close(hold)
	<-second
}

// A service's subscriptions are one an endpoint and nine of its own, and show in the connection's number, by which package
// runtime knows when they are gone.
func TestAssumeMicroStopReturnsEarly(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	nc := natstest.Connect(t, node.URL())
	before := nc.NumSubscriptions()
	began, hold := make(chan struct{}), make(chan struct{})
	svc := newMicro(t, nc, func(r micro.Request) {
		close(began)
		<-hold
		_ = r.Respond([]byte("late"))
	})
	if n := nc.NumSubscriptions() - before; n != 10 {
		t.Errorf("a service with one endpoint has %d subscriptions", n)
	}
	caller := natstest.Connect(t, node.URL())
	sub, err := caller.SubscribeSync(caller.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := caller.PublishRequest("assume.op", sub.Subject, nil); err != nil {
		t.Fatal(err)
	}
	<-began
	if err := svc.Stop(); err != nil { // returns although the handler runs
		t.Fatal(err)
	}
	close(hold)
	if m, err := sub.NextMsgWithContext(within(t)); err != nil || string(m.Data) != "late" {
		t.Errorf("the handler's answer after Stop: %v, %v", m, err)
	}
	natstest.Eventually(t, limit, "the subscriptions are gone", func() bool { return nc.NumSubscriptions() <= before })
}
