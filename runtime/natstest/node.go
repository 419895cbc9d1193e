package natstest

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// readyLimit is how long a server may take to listen. It takes milliseconds, but
// under the race detector on two busy cores now and then a second.
const readyLimit = 30 * time.Second

// Node is one NATS server with a fixed address and a fixed store directory. It is
// down or up, and can go from one to the other any number of times.
type Node struct {
	t       testing.TB
	name    string
	port    int
	options func() (*server.Options, error) // made anew for each start
	dir     string
	journal journal

	mu    sync.Mutex
	srv   *server.Server          // nil while down
	taken *server.JetStreamConfig // what DisableJetStream took from srv
	since time.Time               // when srv was started
}

// Start starts one server with JetStream and returns when it takes connections.
func Start(t testing.TB, opts ...Option) *Node {
	t.Helper()
	n := Reserve(t, opts...)
	n.Up()
	return n
}

// Reserve gives an address at which no server listens yet, for things that must
// cope with starting before their server. [Node.Up] starts it.
func Reserve(t testing.TB, opts ...Option) *Node {
	t.Helper()
	return newNode(t, "natstest", func() (*server.Options, error) {
		return baseOptions("natstest", opts), nil
	})
}

// StartConfig starts one server from a nats-server configuration file. Accounts,
// users, permissions and limits are those of the file, JetStream runs if the file
// says so. Not from the file: addresses, the store directory, logs and pid files,
// and links to other servers, which are left out. The file is read again at each
// start.
func StartConfig(t testing.TB, file string) *Node {
	t.Helper()
	file, err := filepath.Abs(file)
	if err != nil {
		t.Fatalf("natstest: find server configuration: %v", err)
	}
	n := newNode(t, "natstest", func() (*server.Options, error) { return configOptions(file) })
	n.Up()
	return n
}

// newNode makes a node that is down.
func newNode(t testing.TB, name string, options func() (*server.Options, error)) *Node {
	t.Helper()
	n := &Node{t: t, name: name, port: freePort(t), options: options, dir: t.TempDir()}
	t.Cleanup(func() {
		n.Stop()
		givePortBack(n.port)
		if text := n.journal.text(); t.Failed() && text != "" {
			t.Logf("errors logged by server %s:\n%s", n.name, text)
		}
	})
	return n
}

// URL is the node's address for clients, the same whether it is up or down.
func (n *Node) URL() string { return "nats://" + address(n.port) }

// Server is the running server, nil while the node is down. After a restart it is
// another one.
func (n *Node) Server() *server.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.srv
}

// Up starts the server on the node's address with what it stored before, and
// returns when it takes connections. Nothing happens if it is up. A member of a
// cluster may then still be catching up, see [Cluster.WaitReady].
func (n *Node) Up() {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv != nil {
		return
	}
	if err := n.up(); err != nil {
		n.t.Fatalf("natstest: start server %s at %s: %v", n.name, n.URL(), err)
	}
}

// up starts the server; n.mu is held and the node is down.
func (n *Node) up() error {
	o, err := n.options()
	if err != nil {
		return err
	}
	o.Host, o.Port, o.ClientAdvertise = loopback, n.port, ""
	o.StoreDir = n.dir
	o.NoLog, o.NoSigs, o.Debug, o.Trace = true, true, false, false
	srv, err := server.NewServer(o)
	if err != nil {
		return err
	}
	n.journal.start()
	srv.SetLogger(&n.journal, false, false)
	srv.Start()
	failure := n.journal.failure()
	if failure == "" && !srv.ReadyForConnections(readyLimit) {
		failure = fmt.Sprintf("not ready after %v", readyLimit)
	}
	if failure != "" {
		srv.Shutdown()
		srv.WaitForShutdown()
		return errors.New(failure)
	}
	n.srv, n.taken, n.since = srv, nil, time.Now()
	return nil
}

// Stop shuts the server down and waits until it is gone: clients lose their
// connections without a word, requests under way get no answer. It is as hard a
// stop as a server in the same process allows; the package comment names what a
// killed one does that this one does not. Nothing happens if the node is down.
func (n *Node) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv == nil {
		return
	}
	n.srv.Shutdown()
	n.srv.WaitForShutdown()
	n.srv = nil
}

// Restart is [Node.Stop] and [Node.Up].
func (n *Node) Restart() {
	n.t.Helper()
	n.Stop()
	n.Up()
}
