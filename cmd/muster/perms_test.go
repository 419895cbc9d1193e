package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"golang.org/x/crypto/bcrypt"

	"muster/runtime/natstest"
)

// TestPerms_NamesThatBreakOut: what is put into a configuration and into subjects is a name, or it is refused.
func TestPerms_NamesThatBreakOut(t *testing.T) {
	for _, role := range []string{
		"", "nobody", "hive", "hive:", "hive:h1:h2", "hive:*", "hive:>", "hive:h1.h2", `hive:h"1`, "hive:h1\n", "hive:h1 x", "hive:{{name()}}", "hive:$PATH",
		"hive:_req", "sled", "sled:P", "sled:P:S:T", "sled:P:*", "sled:*:S", "sled::S", "function", "function:", "function:nothing", "function:>",
		"operator:a:b", "operator:a.b", "operator:", "reader:>", "trigger:*", "hive:" + strings.Repeat("h", 65),
	} {
		for _, format := range []string{"conf", "jwt"} {
			dir := filepath.Join(t.TempDir(), "users")
			if r := muster("perms", "--format", format, "--out", dir, "--role", role); r.code != exitUsage || r.err == "" {
				t.Errorf("role %q as %s: exit %d, %s", role, format, r.code, r.out)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("role %q as %s left something behind", role, format)
			}
		}
	}
}

// TestPerms_ServersAreSaidOnce: who adds a user, or runs the command again, leaves the contexts that are there as they are.
func TestPerms_ServersAreSaidOnce(t *testing.T) {
	for _, format := range []string{"conf", "jwt"} {
		dir := filepath.Join(t.TempDir(), "users")
		perms := func(args ...string) {
			t.Helper()
			if r := muster(append([]string{"perms", "--format", format, "--out", dir}, args...)...); r.code != exitOK {
				t.Fatalf("%v: exit %d, %s", args, r.code, r.err)
			}
		}
		says := func(user, url, ca string) {
			t.Helper()
			var s struct{ URL, CA string }
			if err := json.Unmarshal([]byte(relative(t, dir)[user+".json"]), &s); err != nil || s.URL != url || s.CA != ca {
				t.Errorf("%s: the context of %s says %+v, %v", format, user, s, err)
			}
		}
		perms("--role", "operator")
		says("operator.operator", "nats://127.0.0.1:4222", "")
		perms("--role", "operator", "--url", "tls://n1:4222", "--tlsca", "/ca.crt")
		perms("--role", "hive:h1")
		perms()
		says("operator.operator", "tls://n1:4222", "/ca.crt")
		says("hive.h1", "tls://n1:4222", "/ca.crt")
		perms("--role", "hive:h1", "--url", "nats://n2:4222")
		says("hive.h1", "nats://n2:4222", "")
	}
}

// TestPerms_FilesAreTheOwnersAlone, hold no secret where the server reads, and stay when users are added.
func TestPerms_FilesAreTheOwnersAlone(t *testing.T) {
	for _, format := range []string{"conf", "jwt"} {
		dir := filepath.Join(t.TempDir(), "users")
		perms := func(roles ...string) {
			t.Helper()
			args := []string{"perms", "--format", format, "--out", dir}
			for _, r := range roles {
				args = append(args, "--role", r)
			}
			if r := muster(args...); r.code != exitOK {
				t.Fatalf("%v: exit %d, %s", args, r.code, r.err)
			}
		}
		perms("operator", "hive:h1")
		before := relative(t, dir)
		perms("hive:h2")
		after := relative(t, dir)
		for name, text := range before {
			if name != "accounts.conf" && after[name] != text {
				t.Errorf("%s: %s was changed by adding a user", format, name)
			}
		}
		if token := strings.TrimSpace(after["keys/operator.jwt"]); !strings.Contains(after["accounts.conf"], token) || format == "jwt" && token == "" {
			t.Errorf("%s: a server that runs would not reload: it is another operator's", format)
		}
		perms() // after an upgrade: nobody comes in
		if again := relative(t, dir); len(again) != len(after) {
			t.Errorf("%s: %d files after another call without roles, %d before", format, len(again), len(after))
		}
		if len(after) != len(before)+2 {
			t.Errorf("%s: %d files, %d before", format, len(after), len(before))
		}
		for name := range after {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %s has mode %v, %v", format, name, info.Mode(), err)
			}
			if name == "accounts.conf" && regexp.MustCompile(`\bS[UAOX][A-Z2-7]{56}\b`).MatchString(after[name]) {
				t.Errorf("%s: the server's file holds a seed", format)
			}
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: the folder has mode %v, %v", format, info.Mode(), err)
		}
		for _, user := range []string{"operator.operator", "hive.h1", "hive.h2"} {
			if after[user+".json"] == "" || format == "conf" && !strings.Contains(after["accounts.conf"], "# "+user+"\n") {
				t.Errorf("%s: %s is not let in", format, user)
			}
		}
		other := map[string]string{"conf": "jwt", "jwt": "conf"}[format]
		if r := muster("perms", "--format", other, "--out", dir, "--role", "operator"); r.code != exitUsage {
			t.Errorf("%s over %s: exit %d", other, format, r.code)
		}
	}
	if r := muster("perms", "--format", "jwt"); r.code != exitUsage {
		t.Errorf("jwt without a folder: exit %d, %s", r.code, r.out)
	}
}

// TestPerms_PrintedConfIsTaken by a server, with passwords, and with bcrypt hashes of them, from its environment.
func TestPerms_PrintedConfIsTaken(t *testing.T) {
	r := muster("perms", "--role", "hive:h-1", "--role", "operator")
	if r.code != exitOK {
		t.Fatal(r.err)
	}
	const secret = "not-in-the-file"
	hash, err := bcrypt.GenerateFromPassword([]byte(secret), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MUSTER_PASSWORD_hive_h_1", strconv.Quote(string(hash)))
	t.Setenv("MUSTER_PASSWORD_operator_operator", secret)
	file := write(t, filepath.Join(t.TempDir(), "server.conf"), "jetstream: {}\n"+r.out)
	node := natstest.StartConfig(t, file)
	nc := natstest.Connect(t, node.URL(), nats.UserInfo("hive.h-1", secret))
	if _, err := nc.Request("muster.declare.view.h-1", nil, 100*time.Millisecond); err == nil {
		t.Error("a hive may ask")
	}
	natstest.Connect(t, node.URL(), nats.UserInfo("operator.operator", secret))
	if bad, err := nats.Connect(node.URL(), nats.UserInfo("operator.operator", "other")); err == nil {
		bad.Close()
		t.Error("let in with another password")
	}
}

// TestPerms_SigningKeysAreScoped: the holder of the key for hives makes hives, and cannot give them more than hives have.
func TestPerms_SigningKeysAreScoped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "users")
	if r := muster("perms", "--format", "jwt", "--out", dir, "--role", "operator"); r.code != exitOK {
		t.Fatal(r.err)
	}
	a, err := openAuthority(filepath.Join(dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	conf := write(t, filepath.Join(dir, "server.conf"), "jetstream: {}\ninclude accounts.conf\n")
	node := natstest.StartConfig(t, conf)
	creds, err := a.credentials(role{roleHive, []string{"h9"}})
	if err != nil {
		t.Fatal(err)
	}
	nc := natstest.Connect(t, node.URL(), nats.UserCredentials(write(t, filepath.Join(dir, "h9.creds"), string(creds))))
	m, err := nc.Request("$SYS.REQ.USER.INFO", nil, 100*time.Millisecond) // a hive's inboxes are its own: the answer comes another way
	if err == nil {
		t.Fatalf("a hive took another's inbox: %s", m.Data)
	}
	nc = natstest.Connect(t, node.URL(), nats.UserCredentials(filepath.Join(dir, "h9.creds")), nats.CustomInboxPrefix("_INBOX.hive.h9"))
	if m, err = nc.Request("$SYS.REQ.USER.INFO", nil, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	permissions := string(m.Data)
	if want := `$KV.muster_reported.h9`; !strings.Contains(permissions, want) || strings.Contains(permissions, "{{") {
		t.Errorf("a hive added without touching the server has %s", permissions)
	}
	// Who has that key alone makes hives with it, and nobody else.
	enrol := filepath.Join(t.TempDir(), "enrol")
	for _, name := range []string{"outside.pub", "signs.hive.nk"} {
		key, err := os.ReadFile(filepath.Join(dir, "keys", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(enrol, "keys", name), string(key))
	}
	if r := muster("perms", "--format", "jwt", "--out", enrol, "--role", "hive:h10"); r.code != exitOK {
		t.Fatal(r.err)
	}
	natstest.Connect(t, node.URL(), nats.UserCredentials(filepath.Join(enrol, "hive.h10.creds")))
	if r := muster("perms", "--format", "jwt", "--out", enrol, "--role", "operator"); r.code != exitUsage {
		t.Errorf("an operator by the hives' key: exit %d, %s", r.code, r.err)
	}
	if files := relative(t, enrol); files["accounts.conf"] != "" || len(files) != 4 {
		t.Errorf("%d files where hives are enrolled", len(files))
	}
	// One who gives itself everything is not let in: the key's scope is all there is.
	token, err := jwt.ParseDecoratedJWT(creds)
	if err != nil {
		t.Fatal(err)
	}
	c, err := jwt.DecodeUserClaims(token)
	if err != nil {
		t.Fatal(err)
	}
	c.SetScoped(false)
	c.Permissions.Pub.Allow.Add(">")
	forged, err := c.Encode(a.signing[roleHive])
	if err != nil {
		t.Fatal(err)
	}
	seed, err := jwt.ParseDecoratedUserNKey(creds)
	if err != nil {
		t.Fatal(err)
	}
	text, err := seed.Seed()
	if err != nil {
		t.Fatal(err)
	}
	both, err := jwt.FormatUserConfig(forged, text)
	if err != nil {
		t.Fatal(err)
	}
	if nc, err := nats.Connect(node.URL(), nats.UserCredentials(write(t, filepath.Join(dir, "forged.creds"), string(both)))); err == nil {
		nc.Close()
		t.Error("a hive's key gave more than a hive has")
	}
	for name, s := range scopes() {
		for _, list := range [][]string{s.Publish, s.Subscribe} {
			for _, subject := range list {
				if strings.Contains(subject, "$1") || strings.Contains(subject, "$2") || strings.Contains(subject, "..") {
					t.Errorf("%s: %s", name, subject)
				}
			}
		}
	}
}

// TestConnection_PrivateInboxes: who muster perms made takes its own inboxes, whatever brings it.
func TestConnection_PrivateInboxes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "users")
	if r := muster("perms", "--format", "jwt", "--out", dir, "--role", "sled:P:S", "--role", "operator:Alice"); r.code != exitOK {
		t.Fatal(r.err)
	}
	creds := func(user string) string { return filepath.Join(dir, user+".creds") }
	other := write(t, filepath.Join(t.TempDir(), "other.json"), `{"url":"nats://u:p@127.0.0.1:1","inbox_prefix":"_INBOX.theirs"}`)
	for want, c := range map[string]connection{
		"_INBOX.sled.P.S":       {NATS: "nats://127.0.0.1:1", Creds: creds("sled.P.S")},
		"_INBOX.operator.Alice": {NATS: "nats://127.0.0.1:1", Creds: creds("operator.Alice")},
		"_INBOX.hive.h1":        {NATS: "nats://hive.h1:secret@127.0.0.1:1"},
		"_INBOX.operator.Bob":   {Context: write(t, filepath.Join(t.TempDir(), "c.json"), `{"url":"nats://127.0.0.1:1","user":"operator.Bob","password":"x"}`)},
		"_INBOX.theirs":         {Context: other},
		"_INBOX.mine":           {Context: other, Inbox: "_INBOX.mine"},
		"":                      {NATS: "nats://somebody:secret@127.0.0.1:1"},
	} {
		nc, err := c.dial(nats.RetryOnFailedConnect(true))
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if nc.Opts.InboxPrefix != want {
			t.Errorf("%+v: inboxes %q, want %q", c, nc.Opts.InboxPrefix, want)
		}
		nc.Close()
	}
	nc, err := connection{Context: other, Creds: creds("sled.P.S")}.dial(nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if nc.Opts.InboxPrefix != "_INBOX.sled.P.S" {
		t.Errorf("credentials over a context of another user: inboxes %q", nc.Opts.InboxPrefix)
	}
}
