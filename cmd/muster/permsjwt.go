package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	"github.com/synadia-io/orbit.go/natscontext"

	"muster/runtime"
)

// roleTag begins the tag by which a user's credentials say what kind of role they are for.
const roleTag = "muster-role:"

// scope is what the users that one signing key makes are permitted. Its holder can make such users and no others.
type scope struct {
	name string // also of the key's file: the kind, for functions with the function's name
	runtime.Permissions
}

// scope is that of a role. The names of hives, sleds and callers are left to the server, which puts each user's name in.
func (r role) scope() scope {
	if r.kind == roleFunction {
		return scope{r.user(), r.permissions()}
	}
	open := role{kind: r.kind, names: []string{"$1"}}
	if r.kind == roleSled {
		open.names = []string{"$1", "$2"} // part and serial number are one name with a dot in it
	}
	p := open.permissions()
	for _, list := range [][]string{p.Publish, p.Subscribe} {
		for i, s := range list {
			if strings.Contains(s, "$1") {
				s, _, _ = strings.Cut(s, " ") // a template takes no queue group
			}
			list[i] = strings.ReplaceAll(s, strings.Join(open.names, "."), "{{name()}}")
		}
	}
	return scope{r.kind, p}
}

// scopes are all there are, by name.
func scopes() map[string]scope {
	all := map[string]scope{}
	for _, fn := range append(functionNames(), allFunctions) {
		s := role{roleFunction, []string{fn}}.scope()
		all[s.name] = s
	}
	for _, kind := range roleKinds {
		if kind != roleFunction {
			all[kind] = role{kind: kind}.scope()
		}
	}
	return all
}

// template is the scope as the account says it.
func (s scope) template(key string) *jwt.UserScope {
	t := jwt.NewUserScope()
	t.Key, t.Role = key, s.name
	t.Template.Pub.Allow, t.Template.Sub.Allow = s.Publish, s.Subscribe
	if s.Answers {
		t.Template.Resp = &jwt.ResponsePermission{MaxMsgs: 1, Expires: runtime.AnswerWithin}
	}
	return t
}

// authority is the folder of the keys that make users. One that holds signing keys and knows whose they are, but has no
// operator, makes users and nothing else.
type authority struct {
	operator, account, system nkeys.KeyPair            // nil without an operator
	public                    string                   // the account's public key
	signing                   map[string]nkeys.KeyPair // by scope
}

// accountFile holds the public key of the account, for those who have no more than a signing key.
const accountFile = "account.pub"

// openAuthority reads the keys, and makes those that are not there.
func openAuthority(dir string) (a authority, err error) {
	if public, err := os.ReadFile(filepath.Join(dir, accountFile)); err == nil && !there(filepath.Join(dir, "operator"+seedSuffix)) {
		return signers(dir, string(bytes.TrimSpace(public)))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return a, fmt.Errorf("make the folder of the signing keys: %w", err)
	}
	key := func(name string, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
		k, kErr := keepKey(filepath.Join(dir, name+seedSuffix), create)
		err = errors.Join(err, kErr)
		return k
	}
	a.operator, a.account, a.system = key("operator", nkeys.CreateOperator), key("account", nkeys.CreateAccount), key("system", nkeys.CreateAccount)
	a.signing = map[string]nkeys.KeyPair{}
	for name := range scopes() {
		a.signing[name] = key("signs."+name, nkeys.CreateAccount)
	}
	if err != nil {
		return a, err
	}
	if a.public, err = a.account.PublicKey(); err != nil {
		return a, fmt.Errorf("read the account's key: %w", err)
	}
	return a, keepFile(filepath.Join(dir, accountFile), []byte(a.public+"\n"))
}

// signers is an authority of the signing keys that are there.
func signers(dir, account string) (authority, error) {
	a := authority{public: account, signing: map[string]nkeys.KeyPair{}}
	for name := range scopes() {
		file := filepath.Join(dir, "signs."+name+seedSuffix)
		if !there(file) {
			continue
		}
		key, err := keepKey(file, nkeys.CreateAccount)
		if err != nil {
			return a, err
		}
		a.signing[name] = key
	}
	return a, nil
}

func there(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// accountClaims are the account's, with its scopes.
func (a authority) accountClaims() (*jwt.AccountClaims, error) {
	c := jwt.NewAccountClaims(a.public)
	c.Name = "MUSTER"
	c.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
	}
	all := scopes()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		key, err := a.signing[name].PublicKey()
		if err != nil {
			return nil, fmt.Errorf("read the signing key of %s: %w", name, err)
		}
		c.SigningKeys.AddScopedSigner(all[name].template(key))
	}
	results := jwt.CreateValidationResults()
	c.Validate(results)
	return c, errors.Join(results.Errors()...)
}

// serverConf is the part of a server's configuration that trusts the operator and knows the accounts.
func (a authority) serverConf() ([]byte, error) {
	public, err := a.operator.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("read the operator's key: %w", err)
	}
	operator := jwt.NewOperatorClaims(public)
	operator.Name = "muster"
	system, err := a.system.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("read the system account's key: %w", err)
	}
	operator.SystemAccount = system
	systemClaims := jwt.NewAccountClaims(system)
	systemClaims.Name = "SYS"
	account, err := a.accountClaims()
	if err != nil {
		return nil, fmt.Errorf("make the account: %w", err)
	}
	var encoded []string
	for _, c := range []jwt.Claims{operator, account, systemClaims} {
		token, err := c.Encode(a.operator)
		if err != nil {
			return nil, fmt.Errorf("sign: %w", err)
		}
		encoded = append(encoded, token)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Made by muster perms from what the functions declare that they touch; do not edit.\n")
	fmt.Fprintf(&b, "operator: %q\nsystem_account: %q\nresolver: MEMORY\nresolver_preload {\n  %s: %q\n  %s: %q\n}\n",
		encoded[0], system, account.Subject, encoded[1], system, encoded[2])
	return b.Bytes(), nil
}

// credentials makes a user for a role.
func (a authority) credentials(r role) ([]byte, error) {
	signer := a.signing[r.scope().name]
	if signer == nil {
		return nil, &exit{exitUsage, fmt.Errorf("the signing key for %s is not in the folder keys of --out", r.scope().name)}
	}
	user, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make user key: %w", err)
	}
	public, err := user.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("make user key: %w", err)
	}
	c := jwt.NewUserClaims(public)
	c.Name = strings.Join(r.names, ".")
	c.Tags.Add(roleTag + r.kind)
	c.SetScoped(true)
	c.IssuerAccount = a.public
	token, err := c.Encode(signer)
	if err != nil {
		return nil, fmt.Errorf("sign user %s: %w", r.user(), err)
	}
	seed, err := user.Seed()
	if err != nil {
		return nil, fmt.Errorf("make user key: %w", err)
	}
	return jwt.FormatUserConfig(token, seed)
}

// writeJWT makes the operator, the account and credentials for each role. Those that are there stay.
func (c perms) writeJWT(roles []role, out io.Writer) error {
	a, err := openAuthority(filepath.Join(c.Out, "keys"))
	if err != nil {
		return err
	}
	if a.operator != nil {
		conf, err := a.serverConf()
		if err != nil {
			return err
		}
		if err := keepFile(filepath.Join(c.Out, "accounts.conf"), conf); err != nil {
			return err
		}
	}
	for _, r := range roles {
		creds := filepath.Join(c.Out, r.user()+".creds")
		if !there(creds) {
			data, err := a.credentials(r)
			if err != nil {
				return err
			}
			if err := keepFile(creds, data); err != nil {
				return err
			}
		}
		if err := c.writeContext(r, natscontext.Settings{Creds: creds}); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d users of account %s in %s\n", len(roles), a.public, c.Out)
	return nil
}

// userOf is the name of the user whom a token was made for, as [role.user] has it; "" when it is for none of ours.
func userOf(token string) string {
	c, err := jwt.DecodeUserClaims(token)
	if err != nil {
		return ""
	}
	for _, tag := range c.Tags {
		if kind, ok := strings.CutPrefix(tag, roleTag); ok {
			return kind + "." + c.Name
		}
	}
	return ""
}
