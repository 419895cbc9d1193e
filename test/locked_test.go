package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
)

// lockedServer is a server that lets in only users that `muster perms` made.
type lockedServer struct {
	*natstest.Node
	t       *testing.T
	dir     string
	cluster *natstest.Cluster // nil when it is one server
}

// URL is where all servers are.
func (s *lockedServer) URL() string {
	if s.cluster != nil {
		return s.cluster.URL()
	}
	return s.Node.URL()
}

// startLocked makes users for roles, and a server with them and perhaps more of a configuration.
func startLocked(t *testing.T, format, more string, roles ...string) *lockedServer {
	t.Helper()
	s := &lockedServer{t: t, dir: filepath.Join(t.TempDir(), "users")}
	s.makeUsers(format, roles...)
	file := filepath.Join(s.dir, "server.conf")
	if err := os.WriteFile(file, []byte("jetstream: {}\ninclude accounts.conf\n"+more), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Node = natstest.StartConfig(t, file)
	return s
}

func (s *lockedServer) makeUsers(format string, roles ...string) {
	s.t.Helper()
	args := []string{"perms", "--format", format, "--out", s.dir}
	for _, r := range roles {
		args = append(args, "--role", r)
	}
	p := launch(s.t, args...)
	if code := p.waitExit(startLimit); code != 0 {
		s.t.Fatalf("muster perms: exit %d", code)
	}
}

// as are the arguments of a program that is a user.
func (s *lockedServer) as(user string, args ...string) []string {
	return append(args, "--nats", s.URL(), "--context", filepath.Join(s.dir, user+".json"))
}

// connect is a client that is a user and minds its private inboxes. What it is refused goes to refused.
func (s *lockedServer) connect(user string, options ...nats.Option) *nats.Conn {
	s.t.Helper()
	return s.connectTo(s.URL(), user, options...)
}

func (s *lockedServer) connectTo(url, user string, options ...nats.Option) *nats.Conn {
	s.t.Helper()
	option := nats.UserCredentials(filepath.Join(s.dir, user+".creds"))
	if seed := filepath.Join(s.dir, user+".nk"); exists(seed) {
		var err error
		if option, err = nats.NkeyOptionFromSeed(seed); err != nil {
			s.t.Fatal(err)
		}
	}
	return natstest.Connect(s.t, url, append([]nats.Option{option, nats.CustomInboxPrefix("_INBOX." + user)}, options...)...)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// permits is what the file of a configuration says that its users may, by their names.
func (s *lockedServer) permits() map[string]permits {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "accounts.conf"))
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[string]permits{}
	for _, m := range userInConf.FindAllStringSubmatch(string(text), -1) {
		all[m[2]] = permits{nkey: m[1], publish: quotedText(m[3]), subscribe: quotedText(m[4])}
	}
	return all
}

type permits struct {
	nkey               string
	publish, subscribe []string
}

var userInConf = regexp.MustCompile(`(?s)nkey: "(\w+)" # (\S+)\n\s+permissions \{\n\s+publish \{ allow: \[\n(.*?)\] \}\n\s+subscribe \{ allow: \[\n(.*?)\] \}`)

func quotedText(s string) (all []string) {
	for line := range strings.Lines(s) {
		if q := strings.TrimSpace(line); q != "" {
			all = append(all, strings.Trim(q, `"`))
		}
	}
	return all
}
