package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/synadia-io/orbit.go/natscontext"

	"muster/runtime"
)

// perms is the command `muster perms`.
type perms struct {
	Role   []string `placeholder:"ROLE" sep:"none" help:"Who is to be let in, again for each: function:NAME (function:all for muster serve with all of them), operator, trigger, reader, dead (operator:alice for more than one), hive:NAME, sled:PART:SERIAL. None is those that --out holds; at first function:all, operator, trigger and reader."`
	Format string   `enum:"conf,jwt" default:"conf" help:"conf: accounts for a server's configuration; jwt: an operator, accounts and credentials, so that users are added without touching a server (default ${default})."`
	Out    string   `placeholder:"DIR" help:"Where to write keys and who may use them, for their owner alone. What is there is kept: another call adds users. Without it conf prints the accounts, which then take passwords from the server's environment."`
	URL    string   `name:"url" placeholder:"URL" help:"Servers, for the NATS contexts that are written beside the keys (default those that contexts in --out name, with their authority; at first nats://127.0.0.1:4222)."`
	TLSCA  string   `name:"tlsca" placeholder:"FILE" help:"Certificate authority of the servers, for the same contexts."`
}

// Help is printed by muster perms --help.
func (perms) Help() string {
	return `Permissions follow from what the functions themselves declare that they touch. With --out there is a NATS context for each user, to be used as in:

    muster serve --context DIR/function.all.json`
}

func (c perms) Run(std streams) error {
	if len(c.Role) == 0 && !c.hasUsers() {
		c.Role = []string{roleFunction + ":" + allFunctions, roleOperator, roleTrigger, roleReader}
	}
	var roles []role
	for _, s := range c.Role {
		r, err := parseRole(s)
		if err != nil {
			return &exit{exitUsage, fmt.Errorf("--role: %w", err)}
		}
		if !slices.ContainsFunc(roles, func(o role) bool { return o.user() == r.user() }) {
			roles = append(roles, r)
		}
	}
	if err := c.oneFormat(); err != nil {
		return err
	}
	switch {
	case c.Out != "" && c.Format == "jwt":
		return c.writeJWT(roles, std.out)
	case c.Out != "":
		return c.writeConf(roles, std.out)
	case c.Format == "jwt":
		return &exit{exitUsage, errors.New("--format jwt makes keys: say where with --out")}
	}
	var users []confUser
	for _, r := range roles {
		users = append(users, confUser{role: r})
	}
	_, err := std.out.Write(accountsConf(users))
	return err
}

// hasUsers tells whether --out was filled before.
func (c perms) hasUsers() bool {
	there, _ := filepath.Glob(filepath.Join(c.Out, "accounts.conf"))
	return c.Out != "" && len(there) > 0
}

// oneFormat refuses a folder that was filled in the other way: its users would lose their server.
func (c perms) oneFormat() error {
	other := map[string]string{"conf": "*.creds", "jwt": "*" + seedSuffix}[c.Format]
	if there, _ := filepath.Glob(filepath.Join(c.Out, other)); c.Out != "" && len(there) > 0 {
		return &exit{exitUsage, errors.New("--out holds users of the other --format; take another folder")}
	}
	return nil
}

// writeConf makes a key for each role and the accounts that let them in.
func (c perms) writeConf(roles []role, out io.Writer) error {
	if err := os.MkdirAll(c.Out, 0o700); err != nil {
		return fmt.Errorf("make the folder of --out: %w", err)
	}
	known, err := filepath.Glob(filepath.Join(c.Out, "*"+seedSuffix))
	if err != nil {
		return fmt.Errorf("look for users in --out: %w", err)
	}
	for _, file := range known {
		r, err := userRole(strings.TrimSuffix(filepath.Base(file), seedSuffix))
		if err == nil && !slices.ContainsFunc(roles, func(o role) bool { return o.user() == r.user() }) {
			roles = append(roles, r)
		}
	}
	slices.SortFunc(roles, func(a, b role) int { return cmp.Compare(a.user(), b.user()) })
	var users []confUser
	for _, r := range roles {
		file := filepath.Join(c.Out, r.user()+seedSuffix)
		key, err := keepKey(file, nkeys.CreateUser)
		if err != nil {
			return err
		}
		public, err := key.PublicKey()
		if err != nil {
			return fmt.Errorf("read key %s: %w", file, err)
		}
		users = append(users, confUser{r, public})
		if err := c.writeContext(r, natscontext.Settings{NKey: file}); err != nil {
			return err
		}
	}
	file := filepath.Join(c.Out, "accounts.conf")
	if err := keepFile(file, accountsConf(users)); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d users in %s\n", len(users), file)
	return nil
}

const seedSuffix = ".nk"

// keepKey reads a key from a file, or makes it.
func keepKey(file string, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, error) {
	seed, err := os.ReadFile(file)
	if err == nil {
		key, err := nkeys.FromSeed(bytes.TrimSpace(seed))
		if err != nil {
			return nil, fmt.Errorf("read key %s: %w", file, err)
		}
		return key, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read key: %w", err)
	}
	key, err := create()
	if err != nil {
		return nil, fmt.Errorf("make key %s: %w", file, err)
	}
	if seed, err = key.Seed(); err != nil {
		return nil, fmt.Errorf("make key %s: %w", file, err)
	}
	return key, keepFile(file, append(seed, '\n'))
}

// keepFile writes a file that only its owner may read, whole or not at all.
func keepFile(file string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-") // with mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", file, err), os.Remove(f.Name()))
	}
	return nil
}

// writeContext writes a NATS context for a role: where the servers are, who it is, and its private inboxes.
func (c perms) writeContext(r role, s natscontext.Settings) error {
	context := filepath.Join(c.Out, r.user()+".json")
	if c.URL == "" {
		c = c.asBefore(context)
	}
	for _, file := range []*string{&s.NKey, &s.Creds, &c.TLSCA} {
		if *file == "" {
			continue
		}
		abs, err := filepath.Abs(*file)
		if err != nil {
			return fmt.Errorf("find %s: %w", *file, err)
		}
		*file = abs
	}
	s.Description, s.URL, s.CA, s.InboxPrefix = "muster "+r.user(), c.URL, c.TLSCA, r.inbox()
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode NATS context: %w", err)
	}
	return keepFile(context, append(b, '\n'))
}

// asBefore takes the servers from what a context said so far, or from another one beside it: who adds a user, or runs the
// command again after an upgrade, need not say them once more.
func (c perms) asBefore(context string) perms {
	beside, _ := filepath.Glob(filepath.Join(c.Out, "*.json"))
	for _, file := range append([]string{context}, beside...) {
		var before natscontext.Settings
		if b, err := os.ReadFile(file); err == nil && json.Unmarshal(b, &before) == nil && before.URL != "" {
			c.URL, c.TLSCA = before.URL, cmp.Or(c.TLSCA, before.CA)
			return c
		}
	}
	c.URL = nats.DefaultURL
	return c
}

// confUser is a user of a server's configuration. Without a key it has a password.
type confUser struct {
	role
	nkey string
}

// accountsConf is the part of a server's configuration that lets users in. All that is put in was checked: subjects are
// made of names, and names hold neither quotes nor braces nor dollars.
func accountsConf(users []confUser) []byte {
	var b bytes.Buffer
	border := border()
	fmt.Fprintf(&b, "# Made by muster perms from what the functions declare that they touch; do not edit.\n")
	fmt.Fprintf(&b, "accounts {\n  # Functions trust each other.\n  %s {\n    jetstream: enabled\n", accountInside)
	fmt.Fprintf(&b, "    exports: [\n      { service: \">\", accounts: [%s] }\n      { stream: \">\", accounts: [%[1]s] }\n    ]\n", accountOutside)
	confUsers(&b, accountInside, users)
	fmt.Fprintf(&b, "  }\n  # Everybody else is here, where an answer that is sent astray is not stored.\n  %s {\n", accountOutside)
	fmt.Fprintf(&b, "    imports: [\n")
	confImports(&b, "service", border.Asked)
	confImports(&b, "stream", border.Heard)
	fmt.Fprintf(&b, "    ]\n")
	confUsers(&b, accountOutside, users)
	fmt.Fprintf(&b, "  }\n}\n")
	return b.Bytes()
}

func confImports(b *bytes.Buffer, kind string, subjects []string) {
	for _, s := range subjects {
		fmt.Fprintf(b, "      { %s: { account: %s, subject: %q } }\n", kind, accountInside, s)
	}
}

// confUsers are the users that are in an account.
func confUsers(b *bytes.Buffer, account string, users []confUser) {
	fmt.Fprintf(b, "    users: [\n")
	for _, u := range users {
		if u.account() != account {
			continue
		}
		p := u.permissions()
		fmt.Fprintf(b, "      {\n")
		if u.nkey != "" {
			fmt.Fprintf(b, "        nkey: %q # %s\n", u.nkey, u.user())
		} else {
			fmt.Fprintf(b, "        user: %q, password: $%s\n", u.user(), passwordVariable(u.role))
		}
		fmt.Fprintf(b, "        permissions {\n")
		confList(b, "publish", p.Publish)
		confList(b, "subscribe", p.Subscribe)
		if p.Answers {
			fmt.Fprintf(b, "          allow_responses { max: 1, expires: %q }\n", runtime.AnswerWithin)
		}
		fmt.Fprintf(b, "        }\n      }\n")
	}
	fmt.Fprintf(b, "    ]\n")
}

func confList(b *bytes.Buffer, name string, subjects []string) {
	fmt.Fprintf(b, "          %s { allow: [\n", name)
	for _, s := range subjects {
		fmt.Fprintf(b, "            %q\n", s)
	}
	fmt.Fprintf(b, "          ] }\n")
}

// passwordVariable is where a server takes a user's password, or its bcrypt hash, from.
func passwordVariable(r role) string {
	return "MUSTER_PASSWORD_" + strings.NewReplacer(".", "_", "-", "_").Replace(r.user())
}
