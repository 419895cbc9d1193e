package test

import (
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/functions/join"
	"muster/runtime/natstest"
)

// idleTime is longer than any pause in what runs while nothing happens: sleds announce themselves every 10 s.
const idleTime = 11 * time.Second

// Racks that have joined cost no traffic but their sleds' announcements. What a replica does whether there are racks or
// not, it asks after its buckets and for work, names no rack and no sled.
func TestIdleRacksCostNoTraffic(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	replica := serveProcess(t, f.node.URL(), "join")
	f.run("idle1", "idle2", "idle3", "idle4", "idle5", "idle6")
	f.start("waits", "172.20.15.22", "idle1", "idle2", "idle3")
	f.start("done", "172.20.15.22", "idle4", "idle5", "idle6")
	f.until(startLimit, "waits", "awaits completion", func(s join.Status) bool { return s.State == join.AwaitingCompletion })
	f.completes("done", "idle4", "idle5", "idle6")
	for _, line := range []string{`muster_racks{state="awaiting_completion"} 1`, `muster_racks{state="completed"} 1`, `muster_racks{state="failed"} 0`} {
		natstest.Eventually(t, startLimit, "the metrics have "+line, func() bool {
			_, metrics := replica.get("/metrics")
			return strings.Contains(metrics, "\n"+line+"\n")
		})
	}
	natstest.Eventually(t, startLimit, "the log says what has changed", func() bool { // after the answer
		log := replica.err.String()
		return strings.Contains(log, "msg=changed function=join rack=done") && strings.Contains(log, "state=completed old_state=awaiting_completion")
	})

	var mu sync.Mutex
	announced, traffic := map[string]int{}, map[string]int{}
	ofReplicas := regexp.MustCompile(`^(\$JS\.API\.(STREAM\.INFO|CONSUMER\.(MSG\.NEXT|CREATE|INFO))\.(KV_muster_|MUSTER_)|\$JS\.EVENT\.|\$JS\.S\.|_INBOX\.)`) // $JS.S: the events stream and the servers' own heartbeats
	spy := natstest.Connect(t, f.node.URL())
	begun := time.Now()
	if _, err := spy.Subscribe(">", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case strings.HasPrefix(m.Subject, "$KV.muster_sleds.913-0000019.idle"):
			announced[m.Subject]++
		case !ofReplicas.MatchString(m.Subject), strings.Contains(m.Subject, "idle"):
			traffic[m.Subject]++
		}
	}); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, 2*idleTime+startLimit, "the time is over and all sleds have announced themselves", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return time.Since(begun) > idleTime && len(announced) == 6
	})
	mu.Lock()
	defer mu.Unlock()
	if len(traffic) > 0 {
		t.Errorf("two idle racks cause %v", traffic)
	}
	for subject, n := range announced {
		if most := 2 + int(time.Since(begun)/(10*time.Second)); n > most {
			t.Errorf("%d messages on %s, want %d at most", n, subject, most)
		}
	}
}

// A rack of 32 joins undisturbed: its record is written 20 times at most, whatever the machine does meanwhile.
func TestJoinOf32(t *testing.T) {
	f := newFleet(t)
	serveProcess(t, f.node.URL(), "join")
	sleds := serials(32)
	f.run(sleds...)
	natstest.Eventually(t, startLimit, "all are announced", func() bool { return len(f.sledStates()) == 32 })
	began := time.Now()
	f.start("r32", "172.20.15.22", sleds...)
	f.until(startLimit, "r32", "awaits completion", func(s join.Status) bool { return s.State == join.AwaitingCompletion })
	took := time.Since(began)
	n := len(f.history("r32"))
	t.Logf("32 sleds joined after %v, with %d revisions", took.Round(time.Millisecond), n)
	if n > 20 {
		t.Errorf("%d revisions", n)
	}
	if limit := 3 * time.Second; took > limit && len(buildFlags) == 0 { // three times what it must reach: the machine is shared
		t.Errorf("it took %v", took)
	}
	f.completes("r32", sleds...)
}
