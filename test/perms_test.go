package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/functions/join"
	"muster/functions/resolve"
	"muster/runtime/natstest"
	"muster/wire"
)

// trace keeps what clients publish and subscribe to, by the number of their connection.
type trace struct {
	mu  sync.Mutex
	did map[string]map[string]bool // connection, then "PUB subject" or "SUB subject [queue]"
}

var traced = regexp.MustCompile(`cid:(\d+).* - <<- \[(H?PUB|SUB) (\S+)(?: (\S+) )?`)

func (*trace) Noticef(string, ...any) {}
func (*trace) Warnf(string, ...any)   {}
func (*trace) Fatalf(string, ...any)  {}
func (*trace) Errorf(string, ...any)  {}
func (*trace) Debugf(string, ...any)  {}
func (l *trace) Tracef(format string, v ...any) {
	m := traced.FindStringSubmatch(fmt.Sprintf(format, v...))
	if m == nil {
		return
	}
	what := strings.TrimPrefix(m[2], "H") + " " + m[3]
	if m[2] == "SUB" && m[4] != "" {
		what += " " + m[4]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.did[m[1]] == nil {
		l.did[m[1]] = map[string]bool{}
	}
	l.did[m[1]][what] = true
}

// TestPerms_EverythingRunsOnThem runs functions, sleds, a hive and an operator, each with its own generated permissions.
func TestPerms_EverythingRunsOnThem(t *testing.T) {
	t.Parallel()
	roles := []string{"function:declare", "function:join", "function:resolve", "operator", "reader", "trigger", "dead", "hive:h1"}
	for _, serial := range serials(3) {
		roles = append(roles, "sled:913-0000019:"+serial)
	}
	for _, format := range []string{"conf", "jwt"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := startLocked(t, format, "", roles...)
			log := &trace{did: map[string]map[string]bool{}}
			s.Server().SetLogger(log, false, true)
			all := []*program{
				launch(t, s.as("function.declare", "serve", "declare", "--http", "127.0.0.1:0")...),
				launch(t, s.as("function.join", "serve", "join", "--http", "127.0.0.1:0")...),
				launch(t, s.as("function.resolve", "serve", "resolve", "--http", "127.0.0.1:0")...),
			}
			for _, p := range all {
				p.waitReady()
			}
			store := t.TempDir()
			for i, serial := range serials(3) {
				all = append(all, launch(t, s.as("sled.913-0000019."+serial, "sled", "--part", "913-0000019", "--serial", serial,
					"--store", filepath.Join(store, fmt.Sprint(i)), "--http", "127.0.0.1:0")...))
			}
			all = append(all, launch(t, s.as("hive.h1", "hive", "--name", "h1", "--http", "127.0.0.1:0")...))
			operator, reader := s.connect("operator.operator"), s.connect("reader.reader")
			useDeclare(t, operator, reader)
			useJoin(t, operator, reader)
			useResolve(t, operator, reader)
			useTriggers(t, s.connect("trigger.trigger"))
			s.useDead(t)
			unlock := launch(t, s.as("sled.913-0000019.2FAKE001", "sled", "unlock", "--part", "913-0000019", "--serial", "2FAKE001",
				"--store", filepath.Join(store, "0"))...)
			if code := unlock.waitExit(startLimit); code != 0 {
				t.Errorf("unlock: exit %d", code)
			}
			ask(t, operator, "muster.join.reset.r1", `{"confirm":"r1"}`).into(t, &wire.RackWasReset{})
			for _, p := range all[3:] {
				if status, body := fetch(t, p.httpAddress()+"/readyz"); status != 200 {
					t.Errorf("readyz of %v: %d %s", p.cmd.Args[1:3], status, body)
				}
			}
			if format == "conf" {
				var unused []string
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("not done: %s", strings.Join(unused, "; "))
					}
				})
				natstest.Eventually(t, startLimit, "all is done that is permitted, but leaving", func() bool {
					unused = slices.DeleteFunc(s.unused(log), func(what string) bool { return strings.Contains(what, "CONSUMER.DELETE") })
					return len(unused) == 0
				})
				for _, p := range all[:3] { // leaving takes permissions, too
					p.signal(syscall.SIGTERM)
				}
				for _, p := range all[:3] {
					if code := p.waitExit(startLimit); code != 0 {
						t.Errorf("%v: exit %d", p.cmd.Args[1:3], code)
					}
				}
				natstest.Eventually(t, startLimit, "all is done that is permitted", func() bool { // the server has seen them leave
					unused = s.unused(log)
					return len(unused) == 0
				})
			}
			for _, p := range append(all, unlock) {
				if strings.Contains(strings.ToLower(p.err.String()), "permissions violation") {
					t.Errorf("%v was refused something: %s", p.cmd.Args[1:3], tail(p.err.String(), 2000))
				}
			}
		})
	}
}

var httpPrinted = regexp.MustCompile(`(?m)^http=(\S+)$`)

// httpAddress is where an edge program serves HTTP.
func (p *program) httpAddress() string {
	p.t.Helper()
	var m []string
	natstest.Eventually(p.t, startLimit, "the program says where it serves HTTP", func() bool {
		m = httpPrinted.FindStringSubmatch(p.out.String())
		return m != nil
	})
	return m[1]
}

// useDeclare has an operator use every op of declare, with and without an id, and a reader see it.
func useDeclare(t *testing.T, operator, reader *nats.Conn) {
	t.Helper()
	events, err := reader.SubscribeSync("muster.event.hive.h1")
	if err := errors.Join(err, reader.Flush()); err != nil {
		t.Fatal(err)
	}
	ask(t, operator, "muster.declare.create.h1.a", state("up")).ok(t)
	if m, err := events.NextMsg(startLimit); err != nil || m.Header.Get("ce-type") != "muster.hive.declared.v1" {
		t.Errorf("the reader hears no event: %v", err)
	}
	ask(t, operator, "muster.declare.set.h1.a", state("paused"), "Muster-Request-Id", "once").ok(t)
	ask(t, operator, "muster.declare.set.h1.a", state("paused"), "Muster-Request-Id", "once").ok(t)
	ask(t, operator, "muster.declare.apply.h1", `{"agents":{"b":{"state":"up"}}}`).ok(t)
	ask(t, reader, "muster.declare.view.h1", "").ok(t)
	natstest.Eventually(t, startLimit, "the hive does what is declared", func() bool {
		var status wire.HiveStatus
		ask(t, reader, "muster.declare.status.h1", "").into(t, &status)
		return status.InSync
	})
	ask(t, reader, "muster.declare.list", "").into(t, &wire.Hives{})
}

// useJoin does the same with join, and leaves a rack that has joined.
func useJoin(t *testing.T, operator, reader *nats.Conn) {
	t.Helper()
	natstest.Eventually(t, startLimit, "three sleds answer", func() bool {
		var sleds wire.Sleds
		ask(t, reader, "muster.join.sleds", "").into(t, &sleds)
		return len(sleds.Sleds) == 3
	})
	ask(t, operator, "muster.join.start.r1", joinBody("172.20.15.22", serials(3)...), "Muster-Request-Id", "once").into(t, &wire.JoinStarted{})
	waitState(t, reader, "r1", join.AwaitingCompletion)
	ask(t, operator, "muster.join.complete.r1", "").into(t, &wire.JoinCompleted{})
	ask(t, reader, "muster.join.network.r1", "").into(t, &wire.RackNetwork{})
	if m, err := reader.Request("muster.join.operation.r1", nil, 5*time.Second); err != nil || !strings.Contains(string(m.Data), "multirack_join_completed") {
		t.Errorf("operation: %v, %s", err, m.Data)
	}
	ask(t, reader, "muster.join.racks", "").into(t, &wire.Racks{})
}

// useResolve does the same with resolve.
func useResolve(t *testing.T, operator, reader *nats.Conn) {
	t.Helper()
	ask(t, operator, "muster.resolve.define.fixed", `{"static":{"one":"[fd00::1]:80"}}`, "Muster-Request-Id", "once").into(t, &wire.ServiceDefined{})
	var lease wire.Lease
	ask(t, operator, "muster.resolve.register.leased.one", `{"address":"[fd00::2]:80"}`, "Muster-Request-Id", "once").into(t, &lease)
	ask(t, operator, "muster.resolve.heartbeat.leased.one", `{"lease":"`+lease.Lease+`"}`).into(t, &lease)
	for _, service := range []string{"fixed", "leased"} {
		natstest.Eventually(t, startLimit, service+" is resolved", func() bool {
			var answer wire.Answer
			m, err := reader.Request("muster.resolve.lookup."+service, nil, 5*time.Second)
			return err == nil && json.Unmarshal(m.Data, &answer) == nil && answer.Status == wire.StatusFresh && len(answer.Backends) == 1
		})
	}
	ask(t, reader, "muster.resolve.services", "").into(t, &wire.Services{})
	w, err := resolve.Watch(t.Context(), reader, "fixed")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	natstest.Eventually(t, startLimit, "the reader watches a service", func() bool {
		backends, err := w.Backends()
		return err == nil && len(backends) == 1
	})
	ask(t, operator, "muster.resolve.deregister.leased.one", `{"lease":"`+lease.Lease+`"}`).into(t, &wire.Deregistered{})
	ask(t, operator, "muster.resolve.remove.fixed", "").into(t, &wire.ServiceRemoved{})
}

// useTriggers publishes a trigger for each function that is good for nothing. It is taken, and kept as one that failed.
func useTriggers(t *testing.T, nc *nats.Conn) {
	t.Helper()
	for i, subject := range []string{"muster.trigger.declare.set.h1.t", "muster.trigger.join.start.r9", "muster.trigger.resolve.define.x"} {
		header := nats.Header{
			"ce-specversion": {"1.0"}, "ce-id": {fmt.Sprint(i)}, "ce-source": {"/test"}, "ce-type": {"test"}, "ce-datacontenttype": {"application/json"},
		}
		if err := nc.PublishMsg(&nats.Msg{Subject: subject, Header: header, Data: []byte(`{"nothing":1}`)}); err != nil {
			t.Fatal(err)
		}
	}
}

// useDead has the three dead triggers listed, one shown and all replayed, which die again.
func (s *lockedServer) useDead(t *testing.T) {
	t.Helper()
	dead := func(args ...string) string {
		p := launch(t, s.as("dead.dead", append([]string{"dead"}, args...)...)...)
		if code := p.waitExit(startLimit); code != 0 {
			t.Errorf("muster dead %v: exit %d, %s", args, code, p.err.String())
		}
		return p.out.String()
	}
	natstest.Eventually(t, startLimit, "three triggers are dead", func() bool { return strings.Count(dead("list"), "\n") == 3 })
	if out := dead("show", "1"); !strings.Contains(out, `{"nothing":1}`) {
		t.Errorf("shown: %s", out)
	}
	if out := dead("replay", "--all"); strings.Count(out, "\n") != 3 {
		t.Errorf("replayed: %s", out)
	}
	natstest.Eventually(t, startLimit, "all three are dead again", func() bool {
		out := dead("list")
		return strings.Count(out, "\n") == 3 && !strings.HasPrefix(out, "1 ")
	})
}

// seldom are permissions for what does not happen in every run.
var seldom = map[string]string{
	"$JS.API.CONSUMER.INFO.KV_muster_racks.muster-join": "the work queue is there with other settings",
	"$JS.API.STREAM.LEADER.STEPDOWN.MUSTER_EVENTS":      "the events stand still, on several servers",
}

// unused holds what was permitted to what was done: who was permitted something and never did it has too much.
func (s *lockedServer) unused(log *trace) (all []string) {
	s.t.Helper()
	conns, err := s.Server().Connz(&server.ConnzOptions{Username: true, Limit: 1000, State: server.ConnAll})
	if err != nil {
		s.t.Fatal(err)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	board := regexp.MustCompile(`2FAKE00\d`) // sleds do different things: together they must do all
	did, anybody := map[string]map[string]bool{}, map[string]bool{}
	for _, by := range log.did {
		for what := range by {
			anybody[what] = true
		}
	}
	for user, p := range s.permits() {
		user = board.ReplaceAllString(user, "*")
		if did[user] == nil {
			did[user] = map[string]bool{}
		}
		for _, c := range conns.Conns {
			for what := range log.did[fmt.Sprint(c.Cid)] {
				did[user][what] = did[user][what] || c.AuthorizedUser == p.nkey
			}
		}
	}
	for user, p := range s.permits() {
		if kind, _, _ := strings.Cut(user, "."); slices.Contains([]string{"operator", "reader", "trigger", "dead"}, kind) {
			continue
		}
		for verb, subjects := range map[string][]string{"PUB ": p.publish, "SUB ": p.subscribe} {
			for _, subject := range subjects {
				by := did[board.ReplaceAllString(user, "*")]
				if strings.Contains(subject, ".STREAM.CREATE.") || strings.Contains(subject, ".STREAM.INFO.") {
					by = anybody // the first function that needs a bucket or a stream looks for what it is made of, and makes it
				}
				if seldom[subject] == "" && !used(by, verb+subject) {
					all = append(all, fmt.Sprintf("%s may %s%s and never did", user, verb, subject))
				}
			}
		}
	}
	return all
}

func used(did map[string]bool, pattern string) bool {
	for what, yes := range did {
		if yes && server.SubjectsCollide(strings.ReplaceAll(what, " ", "."), strings.ReplaceAll(pattern, " ", ".")) {
			return true
		}
	}
	return false
}
