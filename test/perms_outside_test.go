package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"muster/runtime/natstest"
)

// startJail makes users for outsiders and functions, and one server or several with them. A root of each account may do
// everything there.
func startJail(t *testing.T, format string, servers int) *lockedServer {
	t.Helper()
	s := &lockedServer{t: t, dir: filepath.Join(t.TempDir(), "users")}
	s.makeUsers(format, append(outsiders, "function:all")...)
	for _, account := range []string{"MUSTER", "MUSTER_OUTSIDE"} {
		s.makeRoot(format, account)
	}
	file := filepath.Join(s.dir, "server.conf")
	if err := os.WriteFile(file, []byte("jetstream: {}\ninclude accounts.conf\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if servers == 1 {
		s.Node = natstest.StartConfig(t, file)
		return s
	}
	s.cluster = natstest.StartCluster(t, servers, natstest.With(func(o *server.Options) {
		read, err := server.ProcessConfigFile(file)
		if err != nil {
			t.Errorf("read %s: %v", file, err)
			return
		}
		*o = *read
	}))
	s.Node = s.cluster.Node(0)
	return s
}

// makeRoot makes a user of an account who has no permissions, and so all: in a configuration that was made, or by the
// account's own key.
func (s *lockedServer) makeRoot(format, account string) {
	s.t.Helper()
	key, err := nkeys.CreateUser()
	if err != nil {
		s.t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		s.t.Fatal(err)
	}
	seed, err := key.Seed()
	if err != nil {
		s.t.Fatal(err)
	}
	if format == "conf" {
		file := filepath.Join(s.dir, "accounts.conf")
		text, err := os.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		head, tail, found := strings.Cut(string(text), "  "+account+" {\n")
		if !found {
			s.t.Fatalf("no account %s in %s", account, file)
		}
		tail = strings.Replace(tail, "users: [", "users: [\n{nkey: "+public+"}", 1)
		s.write("accounts.conf", head+"  "+account+" {\n"+tail)
		s.write("root."+account+".nk", string(seed))
		return
	}
	signer, err := os.ReadFile(filepath.Join(s.dir, "keys", map[string]string{"MUSTER": "account", "MUSTER_OUTSIDE": "outside"}[account]+".nk"))
	if err != nil {
		s.t.Fatal(err)
	}
	by, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(signer))))
	if err != nil {
		s.t.Fatal(err)
	}
	token, err := jwt.NewUserClaims(public).Encode(by)
	if err != nil {
		s.t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("root."+account+".creds", string(creds))
}

func (s *lockedServer) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// root is a client that may do everything in an account.
func (s *lockedServer) root(account string) *nats.Conn {
	s.t.Helper()
	return s.connect("root." + account)
}

// servers are the addresses of each.
func (s *lockedServer) servers() []string {
	if s.cluster != nil {
		return s.cluster.URLs()
	}
	return []string{s.Node.URL()}
}

// astray are where an answer must not arrive, or not as anything that is taken: keys of buckets, subjects of streams, and
// requests.
var astray = []string{
	"$KV.muster_wanted.astray", "$KV.muster_reported.astray", "$KV.muster_racks.astray", "$KV.muster_networks.astray.", "$KV.muster_sleds.P.astray",
	"$KV.muster_services.astray", "$KV.muster_backends.astray.", "$KV.muster_resolved.astray", "muster.trigger.declare.set.astray.",
	"muster.dead.declare.set.astray.", "muster.declare.set.astray.", "muster.sled.P.two.astray", "muster.event.hive.astray",
	"$JS.API.CONSUMER.CREATE.KV_muster_wanted.c.$KV.muster_wanted.astray", "$SRV.PING.astray", "_INBOX.function.all.astray",
}

// TestPerms_AnswersStayOutside: whoever is not a function has the answer to whatever it may ask sent to somebody else's key, and
// to all else that is kept. It arrives in the account of those outside, where there is no stream, and no further.
func TestPerms_AnswersStayOutside(t *testing.T) {
	t.Parallel()
	asks := &lockedServer{t: t, dir: filepath.Join(t.TempDir(), "users")}
	asks.makeUsers("conf", outsiders...)
	for _, format := range []string{"conf", "jwt"} {
		for _, servers := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d servers", format, servers), func(t *testing.T) {
				t.Parallel()
				s := startJail(t, format, servers)
				launch(t, s.as("function.all", "serve", "--replicas", strconv.Itoa(servers), "--http", "127.0.0.1:0")...).waitReady()
				inside, outside := s.root("MUSTER"), s.root("MUSTER_OUTSIDE")
				if _, err := inside.Request("muster.dead.declare.set.h1.a", []byte("kept"), startLimit); err != nil {
					t.Fatal(err)
				}
				s.askSled(t)
				taken, arrived := hearAstray(t, inside), hearAstray(t, outside)
				sent := 0
				for user, may := range asks.permits() {
					conn := s.connectTo(s.servers()[sent%servers], user, nats.IgnoreDiscoveredServers())
					for _, subject := range may.publish {
						if strings.HasPrefix(subject, "muster.sled.") || strings.HasPrefix(subject, "_") {
							continue // nobody is there
						}
						subject = strings.NewReplacer("*", "x", ">", "x").Replace(subject)
						for _, reply := range astray {
							sent++
							if err := conn.PublishRequest(subject, reply+strconv.Itoa(sent), []byte("{}")); err != nil {
								t.Fatal(err)
							}
						}
						if err := conn.PublishRequest(subject, "$JS.API.STREAM.MSG.DELETE.MUSTER_DEAD", []byte("{}")); err != nil {
							t.Fatal(err)
						}
					}
					if err := conn.Flush(); err != nil {
						t.Fatal(err)
					}
				}
				if sent < 60*len(astray) {
					t.Fatalf("only %d were tried", sent)
				}
				natstest.Eventually(t, startLimit, "all answers arrive outside", func() bool {
					return len(arrived.all()) == sent || len(taken.all()) > 0
				})
				if err := errors.Join(inside.Flush(), outside.Flush()); err != nil {
					t.Fatal(err)
				}
				if all := taken.all(); len(all) > 0 {
					t.Fatalf("%d arrived inside: %v", len(all), all)
				}
				for subject, times := range arrived.all() {
					if times != 1 {
						t.Fatalf("%d answers arrived at %s", times, subject)
					}
				}
				if keys := subjectsOf(t, inside, "MUSTER_DEAD"); !slices.Contains(keys, "muster.dead.declare.set.h1.a") {
					t.Errorf("an answer was taken for a request: of dead triggers are left %v", keys)
				}
				for _, stream := range []string{
					"KV_muster_wanted", "KV_muster_reported", "KV_muster_racks", "KV_muster_networks", "KV_muster_sleds", "KV_muster_services",
					"KV_muster_backends", "KV_muster_resolved", "MUSTER_EVENTS", "MUSTER_TRIGGERS", "MUSTER_DEAD",
				} {
					if keys := subjectsOf(t, inside, stream); strings.Contains(strings.Join(keys, " "), "astray") {
						t.Errorf("%s holds %v", stream, keys)
					}
				}
			})
		}
	}
}

// askSled has functions on each server ask a sled.
func (s *lockedServer) askSled(t *testing.T) {
	t.Helper()
	sled := s.connect("sled.P.two")
	_, err := sled.QueueSubscribe("muster.sled.P.two.identity", "sled", func(m *nats.Msg) { _ = m.Respond([]byte("two")) })
	if err := errors.Join(err, sled.Flush()); err != nil {
		t.Fatal(err)
	}
	for _, url := range s.servers() {
		function := s.connectTo(url, "function.all", nats.IgnoreDiscoveredServers())
		natstest.Eventually(t, startLimit, "a function asks a sled, from "+url, func() bool { // once the servers know of it
			m, err := function.Request("muster.sled.P.two.identity", nil, time.Second)
			return err == nil && string(m.Data) == "two"
		})
	}
}

// ear counts what went astray in an account, by subject.
type ear struct {
	mu       sync.Mutex
	subjects map[string]int
}

func hearAstray(t *testing.T, nc *nats.Conn) *ear {
	t.Helper()
	e := &ear{subjects: map[string]int{}}
	_, err := nc.Subscribe(">", func(m *nats.Msg) {
		if strings.Contains(m.Subject, "astray") {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.subjects[m.Subject]++
		}
	})
	if err := errors.Join(err, nc.Flush()); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *ear) all() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.subjects)
}

func subjectsOf(t *testing.T, nc *nats.Conn, stream string) (all []string) {
	t.Helper()
	m, err := nc.Request("$JS.API.STREAM.INFO."+stream, []byte(`{"subjects_filter":">"}`), startLimit)
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		State struct{ Subjects map[string]int }
		Error any
	}
	if err := json.Unmarshal(m.Data, &info); err != nil || info.Error != nil {
		t.Fatalf("info of %s: %v, %s", stream, err, m.Data)
	}
	for s := range info.State.Subjects {
		all = append(all, s)
	}
	return all
}

// TestPerms_NoPermissionBySelf: what a hostile sled or hive may do, it cannot make more of by asking itself, or by headers.
func TestPerms_NoPermissionBySelf(t *testing.T) {
	t.Parallel()
	s, root := jail(t)
	sled, hive := s.imprison(t, "sled.P.one"), s.connect("hive.h1")
	// Who may answer anywhere it is asked to may publish anywhere.
	asked, err := sled.QueueSubscribeSync("muster.sled.P.one.identity", "sled")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"$KV.muster_wanted.h2", "$KV.muster_sleds.P.two", "$KV.muster_reported.h2", "muster.declare.set.h2.a", "muster.trigger.declare.set.h2.a"} {
		if err := sled.PublishRequest("muster.sled.P.one.identity", key, nil); err != nil {
			t.Fatal(err)
		}
		if m, err := asked.NextMsg(startLimit); err != nil || m.Reply != key {
			t.Fatalf("a sled that asks itself: %v", err)
		}
		sled.mayNot([]string{key}, nil)
	}
	// A message may say that all before it are to go, of all keys.
	for _, key := range []string{"$KV.muster_reported.h2", "$KV.muster_sleds.P.two"} {
		if _, err := root.Request(key, []byte("{}"), startLimit); err != nil {
			t.Fatal(err)
		}
	}
	all := nats.Header{"Nats-Rollup": {"all"}}
	for subject, conn := range map[string]*nats.Conn{"$KV.muster_reported.h1": hive, "$KV.muster_sleds.P.one": sled.Conn} {
		if _, err := conn.RequestMsg(&nats.Msg{Subject: subject, Header: all, Data: []byte("{}")}, startLimit); err != nil {
			t.Fatal(err)
		}
	}
	if keys := subjectsOf(t, root, "KV_muster_reported"); !slices.Contains(keys, "$KV.muster_reported.h2") {
		t.Errorf("a hive left of all reports %v", keys)
	}
	if keys := subjectsOf(t, root, "KV_muster_sleds"); !slices.Contains(keys, "$KV.muster_sleds.P.two") {
		t.Errorf("a sled left of all announcements %v", keys)
	}
}
