package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"muster/runtime/natstest"
)

// door lets everybody in and remembers who muster call said it was.
type door struct{ last atomic.Pointer[visitor] }

type visitor struct {
	user  string
	sig   []byte // over nonce, by the key of a credentials file
	nonce []byte
}

func (d *door) Check(c server.ClientAuthentication) bool {
	if o := c.GetOpts(); o.Name == "muster call" {
		sig, err := base64.RawURLEncoding.DecodeString(o.Sig)
		d.last.Store(&visitor{o.Username, sig, c.GetNonce()})
		return err == nil
	}
	return true
}

// named starts a server that answers muster.who.are.you with its name.
func named(t *testing.T, name string) (url string, d *door) {
	t.Helper()
	d = &door{}
	node := natstest.Start(t, natstest.WithoutJetStream(), natstest.With(func(o *server.Options) {
		o.CustomClientAuthentication, o.AlwaysEnableNonce = d, true
	}))
	nc := natstest.Connect(t, node.URL())
	if _, err := nc.Subscribe("muster.who.are.you", func(m *nats.Msg) {
		if err := m.Respond([]byte(name)); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return node.URL(), d
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// credentials writes a creds file and a seed file of one user, as a context can name them.
func credentials(t *testing.T, dir, name string) (creds, seed string, pair nkeys.KeyPair) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds = write(t, filepath.Join(dir, name+".creds"), "-----BEGIN NATS USER JWT-----\n"+name+
		"\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n"+string(key)+"\n------END USER NKEY SEED------\n")
	return creds, write(t, filepath.Join(dir, name+".nk"), string(key)+"\n"), pair
}

func TestConnection_FlagsThenEnvironmentThenSelectedContext(t *testing.T) {
	a, doorA := named(t, "A")
	b, doorB := named(t, "B")
	away := natstest.Reserve(t).URL()
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	creds, _, given := credentials(t, home, "given")
	contextCreds, seed, ofContext := credentials(t, home, "of-context")
	context := func(name string, settings map[string]string) string {
		text, err := json.Marshal(settings)
		if err != nil {
			t.Fatal(err)
		}
		return write(t, filepath.Join(home, "nats", "context", name+".json"), string(text))
	}
	fileOfA := context("a", map[string]string{"url": a, "user": "anna", "password": "secret"})
	context("b", map[string]string{"url": b, "creds": contextCreds})
	context("key", map[string]string{"url": a, "nkey": seed})
	context("nowhere", map[string]string{"user": "anna", "password": "secret"})

	tests := map[string]struct {
		env      map[string]string
		selected string
		flags    []string
		server   string
		user     string // or
		creds    nkeys.KeyPair
	}{
		"selected context":                           {selected: "a", server: "A", user: "anna"},
		"NATS_URL goes before the selected context":  {selected: "a", env: map[string]string{"NATS_URL": b}, server: "B"},
		"NATS_CONTEXT goes before the selected one":  {selected: "a", env: map[string]string{"NATS_CONTEXT": "b"}, server: "B", creds: ofContext},
		"NATS_URL with NATS_CONTEXT":                 {env: map[string]string{"NATS_URL": b, "NATS_CONTEXT": "a"}, server: "B", user: "anna"},
		"NATS_URL with NATS_CREDS":                   {env: map[string]string{"NATS_URL": b, "NATS_CREDS": creds}, server: "B", creds: given},
		"NATS_CREDS with the selected context":       {selected: "a", env: map[string]string{"NATS_CREDS": creds}, server: "A", creds: given},
		"--nats goes before NATS_URL":                {env: map[string]string{"NATS_URL": a}, flags: []string{"--nats", b}, server: "B"},
		"--nats goes before the selected context":    {selected: "a", flags: []string{"--nats", b}, server: "B"},
		"--creds goes before NATS_CREDS":             {env: map[string]string{"NATS_URL": b, "NATS_CREDS": contextCreds}, flags: []string{"--creds", creds}, server: "B", creds: given},
		"--context goes before the selected one":     {selected: "b", flags: []string{"--context", "a"}, server: "A", user: "anna"},
		"--context goes before NATS_CONTEXT":         {env: map[string]string{"NATS_CONTEXT": "b"}, flags: []string{"--context", "a"}, server: "A", user: "anna"},
		"--context is not bent by NATS_URL":          {env: map[string]string{"NATS_URL": b}, flags: []string{"--context", "a"}, server: "A", user: "anna"},
		"--context is not bent by NATS_CREDS":        {env: map[string]string{"NATS_CREDS": creds}, flags: []string{"--context", "a"}, server: "A", user: "anna"},
		"--nats goes before --context's servers":     {flags: []string{"--context", "a", "--nats", b}, server: "B", user: "anna"},
		"--creds goes before --context's user":       {flags: []string{"--context", "a", "--creds", creds}, server: "A", creds: given},
		"--context's nkey":                           {flags: []string{"--context", "key"}, server: "A", creds: ofContext},
		"--creds goes before --context's credential": {flags: []string{"--context", "b", "--creds", creds}, server: "B", creds: given},
		"--creds goes before --context's nkey":       {flags: []string{"--context", "key", "--creds", creds}, server: "A", creds: given},
		"--context as a file":                        {flags: []string{"--context", fileOfA}, server: "A", user: "anna"},
		"several servers":                            {flags: []string{"--nats", away + ", " + b}, server: "B"},
		"several servers with a context":             {flags: []string{"--context", "a", "--nats", away + ", " + b}, server: "B", user: "anna"},
		"a context without servers":                  {flags: []string{"--context", "nowhere", "--nats", b}, server: "B", user: "anna"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			write(t, filepath.Join(home, "nats", "context.txt"), test.selected)
			r := muster(append([]string{"call", "who.are.you"}, test.flags...)...)
			if r.code != exitOK || r.out != test.server+"\n" {
				t.Fatalf("got %q, exit %d, want to be at %s; standard error: %s", r.out, r.code, test.server, r.err)
			}
			was := map[string]*door{"A": doorA, "B": doorB}[test.server].last.Load()
			if was.user != test.user {
				t.Errorf("was user %q, want %q", was.user, test.user)
			}
			if test.creds == nil && len(was.sig) > 0 || test.creds != nil && test.creds.Verify(was.nonce, was.sig) != nil {
				t.Errorf("did not show the credentials it should, signature %x", was.sig)
			}
		})
	}
}

func TestConnection_EveryCommandTakesContexts(t *testing.T) {
	node := natstest.Start(t, natstest.With(func(o *server.Options) { o.Username, o.Password = "anna", "secret" }))
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	write(t, filepath.Join(home, "nats", "context", "fleet.json"), `{"url":"`+node.URL()+`","user":"anna","password":"secret"}`)

	background(t, "serve", "--context", "fleet", "--http", "127.0.0.1:0").ready(t)
	background(t, "hive", "--context", "fleet", "--name", "h1")
	if r := muster("call", "--context", "fleet", "declare.set.h1.atlas", `{"state":"up"}`); r.code != exitOK {
		t.Fatalf("call: %+v", r)
	}
	inSync(t, "h1", "--context", "fleet")
	if r := muster("bench", "--context", "fleet", "--time", "100ms", "--callers", "2", "--only", "echo"); r.code != exitOK {
		t.Errorf("bench: %+v", r)
	}
	if r := muster("call", "--nats", node.URL(), "declare.view.h1"); r.code != exitUnavailable {
		t.Errorf("a stranger got in: %+v", r)
	}
}
