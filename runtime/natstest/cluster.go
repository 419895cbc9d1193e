package natstest

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// clusterLimit is how long a cluster may take to agree on something. A vote that
// has to be repeated costs up to 9 s, and may be split again.
const clusterLimit = 60 * time.Second

// Cluster is several servers in this process with routes between them.
type Cluster struct {
	t     testing.TB
	nodes []*Node
}

// StartCluster starts size servers, at least two, and returns when they have a
// meta leader and all of them follow it.
//
// That is a third of a second as a rule. Once in 72 starts it was 8 s: a vote that
// is split is repeated after 4 to 9 s. The first leader of a replicated stream is
// voted for in the same way, so give the call that makes one more than the 5 s a
// JetStream client allows by default.
//
// Members tell clients about each other. A client that is to stay with one of
// them, or behind a [Proxy], needs nats.IgnoreDiscoveredServers.
func StartCluster(t testing.TB, size int, opts ...Option) *Cluster {
	t.Helper()
	if size < 2 {
		t.Fatalf("natstest: a cluster of %d is none, use Start", size)
	}
	ports := make([]int, size)
	routes := make([]*url.URL, size)
	for i := range ports {
		ports[i] = freePort(t)
		routes[i] = &url.URL{Scheme: "nats-route", Host: address(ports[i])}
	}
	t.Cleanup(func() {
		for _, port := range ports {
			givePortBack(port)
		}
	})
	c := &Cluster{t: t}
	for i, port := range ports {
		name := fmt.Sprintf("natstest-%d", i)
		c.nodes = append(c.nodes, newNode(t, name, func() (*server.Options, error) {
			return memberOptions(name, port, routes, opts), nil
		}))
	}
	for _, n := range c.nodes {
		n.Up()
	}
	c.WaitReady()
	return c
}

// memberOptions are those of one node plus its place in the cluster. Options may
// change how the cluster works (NoAdvertise, pool size), not where it is.
func memberOptions(name string, port int, routes []*url.URL, opts []Option) *server.Options {
	o := baseOptions(name, opts)
	o.Cluster.Name, o.Cluster.Host, o.Cluster.Port = "natstest", loopback, port
	o.Routes = routes
	return o
}

// Node returns member i, from 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// URLs are the addresses of all members, up or down.
func (c *Cluster) URLs() []string {
	urls := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		urls[i] = n.URL()
	}
	return urls
}

// URL is all addresses in the form nats.Connect takes, joined by commas.
func (c *Cluster) URL() string { return strings.Join(c.URLs(), ",") }

// WaitReady returns when the members that are up are joined, follow one meta
// leader, and have caught up with all their streams and consumers. Call it after
// [Node.Up] if the test needs the cluster whole again.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	Eventually(c.t, clusterLimit, "the cluster is joined, led and current", c.ready)
}

func (c *Cluster) ready() bool {
	up := c.up()
	var leader *server.Server
	for _, srv := range up {
		if srv.NumRemotes() < len(up)-1 {
			return false
		}
		if !srv.JetStreamEnabled() {
			continue
		}
		if srv.JetStreamIsLeader() {
			leader = srv
		}
		if srv.Healthz(&server.HealthzOptions{}).Status != "ok" {
			return false
		}
	}
	withJetStream := 0
	for _, srv := range up {
		if srv.JetStreamEnabled() {
			withJetStream++
		}
	}
	return withJetStream == 0 || leader != nil && len(leader.JetStreamClusterPeers()) == withJetStream
}

// up are the servers that run now.
func (c *Cluster) up() []*server.Server {
	var up []*server.Server
	for _, n := range c.nodes {
		if srv := n.Server(); srv != nil {
			up = append(up, srv)
		}
	}
	return up
}

// StreamLeader is the member that leads the stream, in whatever account it is. It
// waits for the stream to have one.
func (c *Cluster) StreamLeader(stream string) *Node {
	c.t.Helper()
	var leader *Node
	Eventually(c.t, clusterLimit, "stream "+stream+" has a leader", func() bool {
		leader, _ = c.leader(stream)
		return leader != nil
	})
	return leader
}

// leader is the member that leads the stream now and the account it was found in.
func (c *Cluster) leader(stream string) (*Node, string) {
	for _, n := range c.nodes {
		srv := n.Server()
		if srv == nil {
			continue
		}
		list, err := srv.Accountz(nil)
		if err != nil {
			continue // it is going down
		}
		for _, account := range list.Accounts {
			if srv.JetStreamIsStreamLeader(account, stream) {
				return n, account
			}
		}
	}
	return nil, ""
}

// StepDown makes another member lead the stream and returns when it does. The
// stream needs replicas.
func (c *Cluster) StepDown(stream string) {
	c.t.Helper()
	old := c.StreamLeader(stream)
	var asked time.Time
	Eventually(c.t, clusterLimit, "stream "+stream+" is led by another member than "+old.name, func() bool {
		now, account := c.leader(stream)
		if now != old {
			return now != nil
		}
		// Not at each look, but again if it was elected again.
		if srv := old.Server(); srv != nil && time.Since(asked) > time.Second {
			asked = time.Now()
			if err := srv.JetStreamStepdownStream(account, stream); err != nil {
				c.t.Logf("natstest: step down from stream %s: %v", stream, err)
			}
		}
		return false
	})
}
