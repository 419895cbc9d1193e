package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/runtime/natstest"
)

// natsProcess is a nats-server as a process of its own: it can be killed and stopped as those of natstest cannot.
type natsProcess struct {
	*program
	name, conf   string
	url, monitor string
}

// natsConf is what deploy/nats/cluster.conf says, without users and TLS, and with little room for who reads slowly.
const natsConf = `
server_name: %q
listen: %q
http: %q
max_payload: 256KB
max_pending: 1MB
write_deadline: "2s"
logtime: false
jetstream { store_dir: %q, sync_interval: always, max_file_store: 1GB, max_memory_store: 64MB }
`

const natsClusterConf = `cluster { name: whole, listen: %q, routes: [ %s ] }
`

// startServers starts n servers, a cluster if there are several, and returns once all follow a leader.
func startServers(t testing.TB, n int) []*natsProcess {
	t.Helper()
	address := func() string { return strings.TrimPrefix(natstest.Reserve(t).URL(), "nats://") }
	var routes, quoted []string
	for range n {
		routes = append(routes, address())
		quoted = append(quoted, fmt.Sprintf("%q", "nats-route://"+routes[len(routes)-1]))
	}
	var all []*natsProcess
	for i := range n {
		s := &natsProcess{name: fmt.Sprintf("n%d", i+1)}
		client, monitor, dir := address(), address(), t.TempDir()
		s.url, s.monitor, s.conf = "nats://"+client, "http://"+monitor, filepath.Join(dir, "server.conf")
		conf := fmt.Sprintf(natsConf, s.name, client, monitor, dir)
		if n > 1 {
			conf += fmt.Sprintf(natsClusterConf, routes[i], strings.Join(quoted, ", "))
		}
		if err := os.WriteFile(s.conf, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	for _, s := range all {
		s.up(t)
	}
	for _, s := range all {
		s.waitWhole(n)
	}
	return all
}

// urlOf is the address of all servers, as NATS_URL takes it.
func urlOf(servers []*natsProcess) string {
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.url)
	}
	return strings.Join(urls, ",")
}

// up starts the server, on what it stored before.
func (s *natsProcess) up(t testing.TB) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.program = prepare(t)
	env := append(s.cmd.Env, asNATSServer+"=1")
	s.cmd = exec.Command(self, "-c", s.conf)
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = env, s.out, s.err
	s.start()
}

// kill ends the server as a power cut does its process, but for what the kernel holds.
func (s *natsProcess) kill() {
	s.t.Helper()
	s.signal(syscall.SIGKILL)
	s.waitExit(startLimit)
}

// waitWhole waits until the server has JetStream, a leader, n-1 others, and all that it holds copies of.
func (s *natsProcess) waitWhole(n int) {
	s.t.Helper()
	natstest.Eventually(s.t, wholeLimit, "server "+s.name+" is whole again", func() bool {
		var health struct{ Status string }
		var routes struct {
			Routes []struct {
				Name string `json:"remote_name"`
			}
		}
		if !s.ask("/healthz", &health) || health.Status != "ok" || !s.ask("/routez", &routes) {
			return false
		}
		others := map[string]bool{}
		for _, r := range routes.Routes {
			others[r.Name] = true
		}
		return len(others) == n-1
	})
}

// slowConsumers is how many clients the server has cut off since they read too slowly.
func (s *natsProcess) slowConsumers() int {
	var v struct {
		Slow int `json:"slow_consumers"`
	}
	if !s.ask("/varz", &v) {
		return -1
	}
	return v.Slow
}

// ask asks the server's monitor; false when it does not answer.
func (s *natsProcess) ask(path string, v any) bool {
	u, err := url.JoinPath(s.monitor, path)
	if err != nil {
		return false
	}
	r, err := (&http.Client{Timeout: 2 * time.Second}).Get(u)
	if err != nil {
		return false
	}
	defer r.Body.Close()
	return json.NewDecoder(r.Body).Decode(v) == nil
}
