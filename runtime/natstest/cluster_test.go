package natstest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestCluster(t *testing.T) {
	began := time.Now()
	c := StartCluster(t, 3, MaxPayload(8192))
	t.Logf("three nodes are ready after %v", time.Since(began).Round(time.Millisecond))
	if got := strings.Split(c.URL(), ","); len(got) != 3 || got[1] != c.Node(1).URL() || c.URLs()[2] != c.Node(2).URL() {
		t.Errorf("URLs %q of %q", got, c.URLs())
	}
	nc := Connect(t, c.URL())
	if nc.MaxPayload() != 8192 {
		t.Errorf("max payload is %d", nc.MaxPayload())
	}
	kv := bucket(t, nc, "b", 3)
	put(t, kv, "k", "v")

	t.Run("routes", func(t *testing.T) {
		echo(t, Connect(t, c.Node(0).URL()), "echo")
		far := Connect(t, c.Node(2).URL())
		Eventually(t, limit, "the subscription is known on the other side", func() bool {
			_, err := far.Request("echo", nil, limit)
			return !errors.Is(err, nats.ErrNoResponders)
		})
		mustAnswer(t, far, "echo")
	})

	t.Run("step down", func(t *testing.T) {
		old := c.StreamLeader("KV_b")
		began := time.Now()
		c.StepDown("KV_b")
		t.Logf("stepped down after %v", time.Since(began).Round(time.Millisecond))
		if now := c.StreamLeader("KV_b"); now == old {
			t.Errorf("%s leads again", now.name)
		}
		eventuallyHas(t, kv, "k", "v")
	})

	t.Run("survives the stop of a node", func(t *testing.T) {
		leader := c.StreamLeader("KV_b")
		follower := c.Node(0)
		if follower == leader {
			follower = c.Node(1)
		}
		for _, n := range []*Node{leader, follower} {
			began := time.Now()
			since := func() time.Duration { return time.Since(began).Round(time.Millisecond) }
			n.Stop()
			stopped := since()
			eventuallyPut(t, kv, "k", n.name)
			written := since()
			c.WaitReady() // the two that are left
			eventuallyHas(t, kv, "k", n.name)
			n.Up()
			c.WaitReady()
			t.Logf("down after %v, written after %v, whole after %v", stopped, written, since())
		}
	})

	t.Run("stops without a majority", func(t *testing.T) {
		leader := c.StreamLeader("KV_b")
		var others []*Node
		for i := range 3 {
			if n := c.Node(i); n != leader {
				others = append(others, n)
				n.Stop()
			}
		}
		ctx, cancel := contextWithin(t, 500*time.Millisecond)
		defer cancel()
		if _, err := kv.PutString(ctx, "k", "minority"); err == nil {
			t.Error("one of three took a write")
		}
		for _, n := range others {
			n.Up()
		}
		c.WaitReady()
		eventuallyPut(t, kv, "k", "again")
	})

	t.Run("all restarted", func(t *testing.T) {
		eventuallyPut(t, kv, "k", "last")
		for i := range 3 {
			c.Node(i).Stop()
		}
		began := time.Now()
		for i := range 3 {
			c.Node(i).Up()
		}
		c.WaitReady()
		t.Logf("three nodes are ready again after %v", time.Since(began).Round(time.Millisecond))
		eventuallyHas(t, kv, "k", "last")
	})

	t.Run("JetStream goes from one node and comes back", func(t *testing.T) {
		leader := c.StreamLeader("KV_b")
		began := time.Now()
		since := func() time.Duration { return time.Since(began).Round(time.Millisecond) }
		leader.DisableJetStream()
		t.Logf("gone after %v", since())
		eventuallyPut(t, kv, "k", "without it")
		t.Logf("written after %v", since())
		if now := c.StreamLeader("KV_b"); now == leader {
			t.Errorf("%s leads without JetStream", now.name)
		}
		c.WaitReady() // the two that have it
		t.Logf("ready without it after %v", since())
		if got := failureOf(t, func(tb testing.TB) { leader.t = tb; leader.EnableJetStream() }); !strings.Contains(got, "use Restart") {
			t.Errorf("enable JetStream in a cluster: %q", got)
		}
		leader.t = t
		leader.Restart()
		c.WaitReady()
		eventuallyHas(t, kv, "k", "without it")
	})
}

func TestCluster_otherAccountsAndOptions(t *testing.T) {
	c := StartCluster(t, 2, With(func(o *server.Options) {
		app := server.NewAccount("APP")
		o.Accounts = []*server.Account{app}
		o.Users = []*server.User{{Username: "app", Password: "secret", Account: app}}
		o.Cluster.NoAdvertise = true
		o.Cluster.Name = "other" // not taken
	}), WithoutJetStream())
	a := Connect(t, c.Node(0).URL(), nats.UserInfo("app", "secret"))
	if got := a.DiscoveredServers(); len(got) != 0 {
		t.Errorf("told of %q", got)
	}
	if got := c.Node(0).Server().ClusterName(); got != "natstest" {
		t.Errorf("cluster is %s", got)
	}
	c.WaitReady()
}

// eventuallyPut writes again until it works: a leader may be missing just now.
func eventuallyPut(t *testing.T, kv jetstream.KeyValue, key, value string) {
	t.Helper()
	Eventually(t, 2*limit, "key "+key+" is written", func() bool {
		ctx, cancel := contextWithin(t, time.Second)
		defer cancel()
		_, err := kv.PutString(ctx, key, value)
		return err == nil
	})
}
