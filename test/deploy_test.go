package test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"muster/runtime/natstest"
)

// asNATSServer is set in the environment of a process of the test's binary that stands in for the program nats-server.
const asNATSServer = "MUSTER_TEST_NATS_SERVER"

// natsServer is what the program nats-server does, and does not return.
func natsServer() {
	options, err := server.ConfigureOptions(flag.NewFlagSet("nats-server", flag.ExitOnError), os.Args[1:], func() {}, func() {}, func() {})
	if err == nil && options != nil {
		var s *server.Server
		if s, err = server.NewServer(options); err == nil {
			s.ConfigureLogger()
			if err = server.Run(s); err == nil {
				s.WaitForShutdown()
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nats-server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// site is a folder in which a document's commands are run as they stand, but for the ports.
type site struct {
	t     *testing.T
	dir   string
	ports *strings.Replacer
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir()}
	client, route := threePorts(t), threePorts(t)
	s.ports = strings.NewReplacer(":423", ":"+client, ":623", ":"+route)
	deploy := s.path("deploy/nats")
	if err := os.MkdirAll(deploy, 0o700); err != nil {
		t.Fatal(err)
	}
	conf, err := os.ReadFile("../deploy/nats/cluster.conf")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"deploy/nats/cluster.conf": s.ports.Replace(string(conf)),
		"nats-server":              fmt.Sprintf("#!/bin/sh\n%s=1 exec %s \"$@\"\n", asNATSServer, self),
	} {
		if err := os.WriteFile(s.path(name), []byte(text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	if err := os.Symlink(binary, s.path("muster")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range s.servers() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if logs, _ := filepath.Glob(s.path("cluster/*.log")); t.Failed() {
			for _, log := range logs {
				text, _ := os.ReadFile(log)
				t.Logf("%s:\n%s", filepath.Base(log), tail(string(text), 3000))
			}
		}
	})
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// threePorts is the beginning of three free port numbers, to which 1, 2 and 3 are put.
func threePorts(t *testing.T) string {
	t.Helper()
	for range 100 {
		begin, free := strconv.Itoa(1100+rand.IntN(2000)), 0
		for n := 1; n <= 3; n++ {
			if l, err := net.Listen("tcp", "127.0.0.1:"+begin+strconv.Itoa(n)); err == nil {
				free++
				l.Close()
			}
		}
		if free == 3 {
			return begin
		}
	}
	t.Fatal("no three free ports beside each other")
	return ""
}

// servers are the processes that the document's commands left running.
func (s *site) servers() (pids []int) {
	files, _ := filepath.Glob(s.path("cluster/*.pid"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// run runs one command to its end and returns what it prints.
func (s *site) run(command string) string {
	s.t.Helper()
	out, err := os.CreateTemp(s.dir, "out-") // not a pipe: what goes on in the background holds it open
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	var problem bytes.Buffer
	errs, err := os.CreateTemp(s.dir, "err-")
	if err != nil {
		s.t.Fatal(err)
	}
	defer errs.Close()
	cmd := exec.CommandContext(s.t.Context(), "sh", "-c", command)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, s.env(), out, errs
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(errs.Name())
		s.t.Fatalf("$ %s\n%v %s\n%s", command, err, problem.String(), text)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

func (s *site) env() []string {
	return append(bare(os.Environ()), "PATH="+s.dir+":"+os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0")
}

// launch starts one of our own programs that runs until it is stopped.
func (s *site) launch(command string) *program {
	s.t.Helper()
	p := prepare(s.t, strings.Fields(command)[1:]...)
	p.cmd.Dir = s.dir
	p.start()
	return p
}

// TestDeployReadme_ThreeServers runs the README's commands: three servers with TLS, users and a hive on one machine. Then a
// server is killed.
func TestDeployReadme_ThreeServers(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"conf", "jwt"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			all := steps(t, "../deploy/nats/README.md")
			if len(all) != 10 {
				t.Fatalf("%d commands in the README", len(all))
			}
			for _, step := range all {
				command := s.ports.Replace(step.command)
				switch {
				case strings.HasPrefix(command, "go build"): // it is built, and lies where the command puts it
					continue
				case strings.HasPrefix(command, "./muster serve"):
					launched := s.launch(command + " --http 127.0.0.1:0")
					natstest.Eventually(t, 3*startLimit, "ready", func() bool { return strings.HasPrefix(launched.out.String(), "ready nats=tls://") })
					continue
				case strings.HasPrefix(command, "./muster hive"):
					s.launch(command)
					continue
				case format == "jwt" && strings.HasPrefix(command, "./muster perms"):
					command += " --format jwt"
					step.output = ""
				case format == "jwt" && strings.Contains(command, "--signal reload"): // nothing changed for the servers
					continue
				}
				if got := s.run(command); step.output != "" && steady(got) != steady(step.output) {
					t.Fatalf("$ %s\nprints\n%s\nthe README says\n%s", step.command, got, step.output)
				}
			}
			synced := func() bool {
				cmd := exec.Command(binary, "call", "--context", s.path("cluster/reader.reader.json"), "declare.status.h1")
				out, err := cmd.Output()
				return err == nil && strings.Contains(string(out), `"in_sync":true`) && strings.Contains(string(out), `"stale":false`)
			}
			natstest.Eventually(t, startLimit, "the hive does what is declared", synced)

			if pids := s.servers(); len(pids) == 3 {
				_ = syscall.Kill(pids[0], syscall.SIGKILL)
			} else {
				t.Fatalf("servers %v", pids)
			}
			began := time.Now()
			natstest.Eventually(t, startLimit, "requests are answered without one of the servers", func() bool {
				return exec.Command(binary, "call", "--context", s.path("cluster/operator.operator.json"), "declare.set.h1.iris", `{"state":"up"}`).Run() == nil
			})
			t.Logf("answered %v after a server was killed", time.Since(began))
		})
	}
}
