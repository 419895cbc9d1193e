package test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"muster/runtime/natstest"
	"muster/wire"
)

func TestUp(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "store")
	args := []string{"up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store", store, "--hives", "3"}
	p := launch(t, args...)
	url, http := p.waitReady()
	if strings.HasSuffix(url, ":0") || strings.HasSuffix(http, ":0") || strings.Contains(url, ":-1") {
		t.Errorf("ports are not the chosen ones: %s %s", url, http)
	}
	lines := strings.Split(strings.TrimSpace(p.out.String()), "\n")
	if !strings.HasPrefix(lines[len(lines)-1], "ready ") || !strings.Contains(p.out.String(), "call --nats "+url) {
		t.Errorf("the ready line is not the last, or what to try does not name the server: %s", p.out)
	}
	if status, body := fetch(t, http+"/readyz"); status != 200 {
		t.Errorf("/readyz: %d %s", status, body)
	}
	for _, hive := range []string{"h1", "h2", "h3"} {
		for _, c := range [][2]string{{"create", "up"}, {"set", "paused"}, {"set", "destroyed"}} {
			if code, out, errOut := call(t, url, "", "declare."+c[0]+"."+hive+".atlas", state(c[1])); code != 0 {
				t.Fatalf("%s %s: exit code %d: %s%s", c[0], hive, code, out, errOut)
			}
			takenUp(t, url, hive, c[1])
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.waitExit(25 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}

	again := launch(t, args...) // what was acknowledged is there
	url, _ = again.waitReady()
	takenUp(t, url, "h1", "destroyed")
	again.signal(syscall.SIGKILL)
	again.waitExit(5 * time.Second)
	third := launch(t, args...) // also after a kill
	url, _ = third.waitReady()
	takenUp(t, url, "h2", "destroyed")
}

// takenUp waits until a hive reports that it does what is declared.
func takenUp(t *testing.T, url, hive, st string) {
	t.Helper()
	nc := natstest.Connect(t, url)
	defer nc.Close()
	var a answer
	var status wire.HiveStatus
	natstest.Eventually(t, startLimit, "hive "+hive+" is "+st+" and in sync", func() bool {
		a = ask(t, nc, "muster.declare.status."+hive, "")
		status = wire.HiveStatus{}
		if err := json.Unmarshal(a.raw, &status); err != nil || a.failure != nil {
			t.Fatalf("status: %v: %s", err, a.raw)
		}
		return status.InSync
	})
	agent := status.Agents["atlas"]
	if string(agent.Wanted) != st || string(agent.Reported) != st || !agent.InSync || status.Stale ||
		status.WantedRevisionSeen == nil || *status.WantedRevisionSeen != status.Revision || status.ReportedAt == nil || status.AgeMS == nil {
		t.Errorf("status %s", a.raw)
	}
}

// A hive as a process of its own runs the operator's command for each change, and goes on without its server.
func TestHiveProcess(t *testing.T) {
	s := natstest.Start(t)
	r := startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	log := filepath.Join(t.TempDir(), "log")
	hive := launch(t, "hive", "--nats", s.URL(), "--name", "h1", "--on-change", `echo "$MUSTER_HIVE $MUSTER_AGENT $MUSTER_STATE" >>`+log)
	var silent struct {
		Seen   *uint64                    `json:"wanted_revision_seen"`
		At     *time.Time                 `json:"reported_at"`
		Stale  bool                       `json:"stale"`
		Agents map[string]json.RawMessage `json:"agents"`
	}
	ask(t, nc, "muster.declare.set.nobody.atlas", state("up")).ok(t)
	ask(t, nc, "muster.declare.status.nobody", "").into(t, &silent)
	if silent.Seen != nil || silent.At != nil || !silent.Stale || !strings.Contains(string(silent.Agents["atlas"]), `"reported":"unknown"`) {
		t.Errorf("a hive that never reported: %+v", silent)
	}
	ask(t, nc, "muster.declare.create.h1.atlas", state("up")).ok(t)
	takenUp(t, s.URL(), "h1", "up")
	wanted(t, nc).remove("h1", false) // silence is no reason to do anything
	s.Restart()
	natstest.Eventually(t, startLimit, "the function is ready again", func() bool { return r.problem(ctx(t)) == "" })
	ask(t, nc, "muster.declare.create.h1.atlas", state("paused")).ok(t)
	takenUp(t, s.URL(), "h1", "paused")
	if got := lines(t, log); strings.Join(got, ", ") != "h1 atlas up, h1 atlas paused" {
		t.Errorf("commands run: %v", got)
	}
	hive.signal(syscall.SIGTERM)
	if code := hive.waitExit(25 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A hive whose user may only follow its own key and report to its own key needs nothing else.
func TestHiveWithItsOwnPermissions(t *testing.T) {
	s := natstest.Start(t, natstest.With(func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "operator", Password: "o"},
			{Username: "h1", Password: "h", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{
					"$JS.API.CONSUMER.CREATE.KV_muster_wanted.*.$KV.muster_wanted.h1", "$KV.muster_reported.h1",
				}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}},
		}
	}))
	as := func(user string) string { return strings.Replace(s.URL(), "nats://", "nats://"+user+"@", 1) }
	startReplica(t, as("operator:o"), "declare", 1)
	nc := natstest.Connect(t, as("operator:o"))
	ask(t, nc, "muster.declare.set.h1.atlas", state("up")).ok(t)
	hive := launch(t, "hive", "--nats", as("h1:h"), "--name", "h1")
	takenUp(t, as("operator:o"), "h1", "up")
	ask(t, nc, "muster.declare.set.h1.atlas", state("paused")).ok(t)
	takenUp(t, as("operator:o"), "h1", "paused")
	if strings.Contains(strings.ToLower(hive.err.String()), "violation") {
		t.Error("the hive was refused something")
	}
}
