package test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/functions/join"
	"muster/runtime/natstest"
	"muster/wire"
)

// joinBody is a join request with sleds of these serial numbers. The md5 key in it is a secret.
func joinBody(infraLast string, serials ...string) string {
	var peers []string
	for _, s := range serials {
		peers = append(peers, fmt.Sprintf(`{"part_number":"913-0000019","serial_number":"%s"}`, s))
	}
	return fmt.Sprintf(`{"trust_quorum_peers":[%s],"rack_network_config":{"rack_subnet":"fd00:1122:3344:200::/56",
		"infra_ip_first":"172.20.15.21","infra_ip_last":"%s","bgp":[{"asn":65547,"originate":[]}],
		"ports":[{"port":"qsfp0","switch":"switch0","addresses":[{"address":{"type":"static","ip_net":"172.20.15.53/24"}}],"routes":[],
		"bgp_peers":[{"asn":65547,"port":"qsfp0","addr":{"type":"numbered","target_addr":"172.20.15.51"},"md5_auth_key":"hush-hush"}],
		"uplink_port_speed":"speed100_g"}]}}`, strings.Join(peers, ","), infraLast)
}

func serials(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("2FAKE%03d", i+1))
	}
	return all
}

// waitState waits until a rack is in a state.
func waitState(t *testing.T, nc *nats.Conn, rack string, want join.State) (s join.Status) {
	t.Helper()
	natstest.Eventually(t, startLimit, fmt.Sprintf("rack %s is %s", rack, want), func() bool {
		a, err := try(nc, 5*time.Second, "muster.join.status."+rack, "")
		if err != nil || a.failure != nil {
			return false
		}
		s = join.Status{}
		a.into(t, &s)
		return s.State == want
	})
	return s
}

// An operator mistypes a sled, sees which one is awaited, sends the request again, and the join goes on under the same id.
func TestJoinOfAMistypedSled(t *testing.T) {
	up := launch(t, "up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store", t.TempDir(), "--hives", "0")
	url, _ := up.waitReady()
	nc := natstest.Connect(t, url)
	var first, again wire.JoinStarted
	ask(t, nc, "muster.join.start.r2", joinBody("172.20.15.22", "2FAKE001", "2FAKE002", "2FAKE0O3")).into(t, &first)
	s := waitState(t, nc, "r2", join.Preparing)
	natstest.Eventually(t, startLimit, "only the mistyped sled is awaited", func() bool {
		s = waitState(t, nc, "r2", join.Preparing)
		return len(s.Missing) == 1 && s.Missing[0].SerialNumber == "2FAKE0O3"
	})
	ask(t, nc, "muster.join.start.r2", joinBody("172.20.15.22", serials(3)...)).into(t, &again)
	if again.ID != first.ID || again.Generation != first.Generation || !again.Changed {
		t.Errorf("the correction got %+v after %+v", again, first)
	}
	s = waitState(t, nc, "r2", join.AwaitingCompletion)
	for _, sled := range s.Sleds {
		if sled.StartState.Type != "started" {
			t.Errorf("sled %s is %s", sled.Baseboard, sled.StartState.Type)
		}
	}
	// Another network config while completion is awaited: complete is refused until it is written, then answers it.
	var third wire.JoinStarted
	ask(t, nc, "muster.join.start.r2", joinBody("172.20.15.23", serials(3)...)).into(t, &third)
	if third.Generation <= first.Generation || third.ID != first.ID {
		t.Errorf("another config got %+v after %+v", third, first)
	}
	var done wire.JoinCompleted
	natstest.Eventually(t, startLimit, "the join is completed", func() bool {
		a := ask(t, nc, "muster.join.complete.r2", "")
		if a.failure != nil {
			a.refused(t, wire.MultirackJoinPendingConfigUpdate)
			return false
		}
		a.into(t, &done)
		return true
	})
	if done.BootstoreGeneration != third.Generation {
		t.Errorf("completed with generation %d, accepted was %d", done.BootstoreGeneration, third.Generation)
	}
	before := len(wantedOf(t, nc, wire.BucketRacks).history("r2"))
	answers := together(t, nc, 10, func(int) request { return request{subject: "muster.join.complete.r2"} })
	for _, a := range answers {
		var same wire.JoinCompleted
		if a.into(t, &same); same != done {
			t.Errorf("complete again: %s", a.raw)
		}
	}
	if after := len(wantedOf(t, nc, wire.BucketRacks).history("r2")); after != before {
		t.Errorf("completing again changed the record: %d revisions, were %d", after, before)
	}
	ask(t, nc, "muster.join.start.r2", joinBody("172.20.15.24", serials(3)...)).refused(t, wire.MultirackJoinCompleted)
	if network := ask(t, nc, "muster.join.network.r2", ""); !strings.Contains(string(network.raw), "redacted") {
		t.Errorf("network: %s", network.raw)
	}
	for _, e := range wantedOf(t, nc, wire.BucketRacks).history("r2") {
		if strings.Contains(string(e.Value()), "hush") {
			t.Error("a rack record holds a secret")
		}
	}
	if strings.Contains(up.err.String(), "hush") || strings.Contains(up.out.String(), "hush") {
		t.Error("the log holds a secret")
	}
	// A clean slate, and the same sleds join again.
	ask(t, nc, "muster.join.reset.r2", `{"confirm":"r2","force":true}`).into(t, &wire.RackWasReset{})
	waitState(t, nc, "r2", join.Uninitialized)
	ask(t, nc, "muster.join.start.r2", joinBody("172.20.15.22", serials(3)...)).into(t, &wire.JoinStarted{})
	waitState(t, nc, "r2", join.AwaitingCompletion)
}

// wantedOf is a bucket as an operator sees it.
func wantedOf(t *testing.T, nc *nats.Conn, name string) bucket {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return bucket{t: t, js: js, kv: kv}
}

// Replicas are killed one after the other while racks join; another goes on from the record.
func TestJoinOutlivesReplicas(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	nc := natstest.Connect(t, s.URL())
	replica := serveProcess(t, s.URL())
	for i := range 3 {
		launch(t, "sled", "--nats", s.URL(), "--part", "913-0000019", "--serial", fmt.Sprintf("2FAKE%03d", i+1), "--store", t.TempDir(),
			"--on-start", "sleep 0.5")
	}
	ask(t, nc, "muster.join.start.r1", joinBody("172.20.15.22", serials(3)...)).into(t, &wire.JoinStarted{})
	for _, state := range []join.State{join.Preparing, join.StartingAgents} {
		waitReached(t, nc, state)
		replica.signal(syscall.SIGKILL)
		replica = serveProcess(t, s.URL())
	}
	var done wire.JoinCompleted
	natstest.Eventually(t, startLimit, "the join is completed", func() bool {
		a, err := try(nc, 10*time.Second, "muster.join.complete.r1", "")
		if err != nil || a.failure != nil {
			return false
		}
		a.into(t, &done)
		return true
	})
	if done.BootstoreGeneration != 1 {
		t.Errorf("generation %d", done.BootstoreGeneration)
	}
}

// waitReached waits until rack r1 has reached a state or is past it.
func waitReached(t *testing.T, nc *nats.Conn, want join.State) {
	t.Helper()
	order := []join.State{join.Requested, join.Starting, join.Reconfiguring, join.Preparing, join.Committing, join.StartingAgents,
		join.ConfiguringNetwork, join.AwaitingCompletion}
	at := func(s join.State) int {
		for i, o := range order {
			if o == s {
				return i
			}
		}
		return -1
	}
	natstest.Eventually(t, startLimit, fmt.Sprintf("rack r1 is %s or further", want), func() bool {
		a, err := try(nc, 5*time.Second, "muster.join.status.r1", "")
		if err != nil || a.failure != nil {
			return false
		}
		var s join.Status
		a.into(t, &s)
		return at(s.State) >= at(want)
	})
}
