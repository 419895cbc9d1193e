package test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
	"muster/wire"
)

// The server that leads both the declarations and the events is killed. By themselves the events would wait half a minute
// for an answer of the dead; the replicas see that they stand still, and have them begin anew.
func TestEventsGoOnWhenTheirServerIsKilled(t *testing.T) {
	t.Parallel()
	servers := startServers(t, 3)
	url := urlOf(servers)
	for range 2 {
		serveProcess(t, url, "declare", "--replicas", "3")
	}
	nc := natstest.Connect(t, url)
	heard, err := nc.SubscribeSync("muster.event.hive.*")
	if err != nil {
		t.Fatal(err)
	}
	ask(t, nc, "muster.declare.set.before.a", state("up")).ok(t)
	if _, err := heard.NextMsg(startLimit); err != nil {
		t.Fatalf("no event: %v", err)
	}
	leader := ""
	natstest.Eventually(t, wholeLimit, "one server leads both", func() bool {
		leader = leaderOf(t, nc, wire.StreamEvents)
		if leader == leaderOf(t, nc, "KV_muster_wanted") {
			return true
		}
		_, _ = nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.KV_muster_wanted", nil, time.Second)
		return false
	})
	for _, s := range servers {
		if s.name == leader {
			s.kill()
		}
	}
	killed := time.Now()
	var written time.Time
	natstest.Eventually(t, wholeLimit, "writes work again", func() bool {
		a, err := try(nc, time.Second, "muster.declare.set.after.a", state("up"))
		written = time.Now()
		return err == nil && a.failure == nil
	})
	var m *nats.Msg
	natstest.Eventually(t, 25*time.Second, "the event of a write after the kill", func() bool {
		m, err = heard.NextMsg(100 * time.Millisecond)
		return err == nil && m.Subject == "muster.event.hive.after"
	})
	t.Logf("written %v after the kill, its event %v after that", written.Sub(killed).Round(time.Millisecond), time.Since(written).Round(time.Millisecond))
}

// leaderOf is the server that leads a stream.
func leaderOf(t testing.TB, nc *nats.Conn, stream string) (name string) {
	t.Helper()
	natstest.Eventually(t, wholeLimit, fmt.Sprintf("%s has a leader", stream), func() bool {
		var info struct {
			Cluster struct{ Leader string }
		}
		m, err := nc.Request(wire.APIStreamInfo(stream), nil, 2*time.Second)
		if err != nil || json.Unmarshal(m.Data, &info) != nil {
			return false
		}
		name = info.Cluster.Leader
		return name != ""
	})
	return name
}
