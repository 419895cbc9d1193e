package natstest

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

func TestStart(t *testing.T) {
	began := time.Now()
	n := Start(t)
	t.Logf("one node is up after %v", time.Since(began).Round(time.Millisecond))
	if !strings.HasPrefix(n.URL(), "nats://127.0.0.1:") {
		t.Errorf("URL is %s", n.URL())
	}
	if !n.Server().JetStreamEnabled() {
		t.Error("no JetStream")
	}
	kv := bucket(t, Connect(t, n.URL()), "b", 1)
	put(t, kv, "k", "v")
	eventuallyHas(t, kv, "k", "v")
}

func TestStart_options(t *testing.T) {
	seen := 0
	n := Start(t, WithoutJetStream(), MaxPayload(4096), With(func(o *server.Options) {
		seen++
		o.MaxConn = 1
		o.Host, o.Port = "0.0.0.0", 4222 // not listened to
	}))
	nc := Connect(t, n.URL())
	if nc.MaxPayload() != 4096 {
		t.Errorf("max payload is %d", nc.MaxPayload())
	}
	if n.Server().JetStreamEnabled() {
		t.Error("JetStream is on")
	}
	if _, err := nats.Connect(n.URL()); err == nil {
		t.Error("a second connection was taken")
	}
	if host, _, _ := net.SplitHostPort(n.Server().Addr().String()); host != "127.0.0.1" {
		t.Errorf("listens on %s", host)
	}
	n.Restart()
	if seen != 2 {
		t.Errorf("option applied %d times in two starts", seen)
	}
}

func TestNodesAtOnce(t *testing.T) {
	a, b := Start(t), Start(t)
	if a.URL() == b.URL() {
		t.Fatalf("both at %s", a.URL())
	}
	put(t, bucket(t, Connect(t, a.URL()), "b", 1), "k", "a")
	put(t, bucket(t, Connect(t, b.URL()), "b", 1), "k", "b")
	eventuallyHas(t, bucket(t, Connect(t, a.URL()), "b", 1), "k", "a")
}

func TestReserve(t *testing.T) {
	n := Reserve(t)
	if n.Server() != nil {
		t.Error("there is a server")
	}
	if nc, err := nats.Connect(n.URL()); err == nil {
		nc.Close()
		t.Fatal("connected to a server that is not up")
	}
	early := Connect(t, n.URL(), nats.RetryOnFailedConnect(true))
	n.Up()
	n.Up() // again is nothing
	Eventually(t, limit, "the early client is connected", early.IsConnected)
}

func TestNode_keepsDataAndAddress(t *testing.T) {
	n := Start(t)
	nc := Connect(t, n.URL())
	kv := bucket(t, nc, "b", 1)
	url, srv := n.URL(), n.Server()
	for _, value := range []string{"one", "two", "three"} {
		put(t, kv, "k", value)

		n.Stop()
		n.Stop() // again is nothing
		if n.Server() != nil {
			t.Fatal("a stopped node has a server")
		}
		Eventually(t, limit, "the client sees the server go", func() bool { return !nc.IsConnected() })
		if c, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://")); err == nil {
			c.Close()
			t.Fatal("somebody listens on a stopped node's port")
		}

		n.Up()
		if n.URL() != url || n.Server() == srv {
			t.Fatalf("address %s and then %s, same server: %v", url, n.URL(), n.Server() == srv)
		}
		Eventually(t, limit, "the client is back", nc.IsConnected)
		eventuallyHas(t, kv, "k", value)
	}

	n.Restart()
	Eventually(t, limit, "the client is back", nc.IsConnected)
	eventuallyHas(t, kv, "k", "three")
}

func TestStartConfig(t *testing.T) {
	n := StartConfig(t, filepath.Join("testdata", "server.conf"))
	if got := n.Server().StoreDir(); !strings.HasPrefix(got, n.dir) {
		t.Errorf("stores in %s", got)
	}
	if addr := n.Server().MonitorAddr(); addr == nil || addr.Port == 8222 || !addr.IP.IsLoopback() {
		t.Errorf("monitoring listens on %v", addr)
	}
	if n.Server().JetStreamIsClustered() {
		t.Error("is clustered")
	}

	nc := Connect(t, n.URL(), nats.UserInfo("app", "secret"))
	kv := bucket(t, nc, "b", 1)
	put(t, kv, "k", "v")
	denied := make(chan error, 1)
	guest := Connect(t, n.URL(), nats.UserInfo("guest", "secret"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	publish(t, guest, "elsewhere", "")
	flush(t, guest)
	if err := <-denied; !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("permissions of the file: %v", err)
	}
	if _, err := nats.Connect(n.URL()); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("without a user: %v", err)
	}

	n.Restart()
	Eventually(t, limit, "the client is back", nc.IsConnected)
	eventuallyHas(t, kv, "k", "v")

	n.DisableJetStream()
	n.EnableJetStream()
	eventuallyHas(t, kv, "k", "v")
}

func TestStart_failures(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "wrong.conf")
	if err := os.WriteFile(wrong, []byte("jetstream { stor_dir: x }"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := failureOf(t, func(t testing.TB) { StartConfig(t, wrong) }); !strings.Contains(got, "stor_dir") {
		t.Errorf("wrong configuration: %q", got)
	}

	n := Reserve(t)
	other, err := net.Listen("tcp", strings.TrimPrefix(n.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if got := failureOf(t, func(t testing.TB) { n.t = t; n.Up() }); !strings.Contains(got, "address already in use") {
		t.Errorf("port taken: %q", got)
	}
	n.t = t
	other.Close()
	n.Up() // a failed start is not the end of the node
	Connect(t, n.URL())

	if got := failureOf(t, func(t testing.TB) { StartCluster(t, 1) }); got == "" {
		t.Error("a cluster of one was started")
	}
	if got := failureOf(t, func(t testing.TB) { StartProxy(t, "http://127.0.0.1") }); got == "" {
		t.Error("a proxy to http was started")
	}
}
