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
	name    string // also of the key's file: the kind, for functions with the function's name
	account string // whose users they are
	runtime.Permissions
}

// scope is that of a role. The names of hives, sleds and callers are left to the server, which puts each user's name in.
func (r role) scope() scope {
	if r.kind == roleFunction {
		return scope{r.user(), r.account(), r.permissions()}
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
	return scope{r.kind, r.account(), p}
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
	operator, system nkeys.KeyPair     // nil without an operator
	token            string            // the operator's: a server that runs takes no other when it is told to reload
	public           map[string]string // public keys of the accounts, by name
	accounts         map[string]nkeys.KeyPair
	signing          map[string]nkeys.KeyPair // by scope
}

// accountFiles are the names of the accounts' key files. One with the ending publicSuffix holds the public key, for those
// who have no more than a signing key.
var accountFiles = map[string]string{accountInside: "account", accountOutside: "outside"}

const publicSuffix = ".pub"

// openAuthority reads the keys, and makes those that are not there.
func openAuthority(dir string) (a authority, err error) {
	if public, _ := filepath.Glob(filepath.Join(dir, "*"+publicSuffix)); len(public) > 0 && !there(filepath.Join(dir, "operator"+seedSuffix)) {
		return signers(dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return a, fmt.Errorf("make the folder of the signing keys: %w", err)
	}
	key := func(name string, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
		k, kErr := keepKey(filepath.Join(dir, name+seedSuffix), create)
		err = errors.Join(err, kErr)
		return k
	}
	a.operator, a.system = key("operator", nkeys.CreateOperator), key("system", nkeys.CreateAccount)
	a.public, a.accounts, a.signing = map[string]string{}, map[string]nkeys.KeyPair{}, map[string]nkeys.KeyPair{}
	for account, file := range accountFiles {
		a.accounts[account] = key(file, nkeys.CreateAccount)
	}
	for name := range scopes() {
		a.signing[name] = key("signs."+name, nkeys.CreateAccount)
	}
	if err != nil {
		return a, err
	}
	for account, file := range accountFiles {
		if a.public[account], err = a.accounts[account].PublicKey(); err != nil {
			return a, fmt.Errorf("read the key of account %s: %w", account, err)
		}
		if err := keepFile(filepath.Join(dir, file+publicSuffix), []byte(a.public[account]+"\n")); err != nil {
			return a, err
		}
	}
	a.token, err = a.keepOperator(filepath.Join(dir, "operator.jwt"))
	return a, err
}

// keepOperator reads the operator's token from a file, or signs it.
func (a authority) keepOperator(file string) (string, error) {
	if token, err := os.ReadFile(file); err == nil {
		return string(bytes.TrimSpace(token)), nil
	}
	public, err := a.operator.PublicKey()
	if err != nil {
		return "", fmt.Errorf("read the operator's key: %w", err)
	}
	c := jwt.NewOperatorClaims(public)
	c.Name = "muster"
	if c.SystemAccount, err = a.system.PublicKey(); err != nil {
		return "", fmt.Errorf("read the system account's key: %w", err)
	}
	token, err := c.Encode(a.operator)
	if err != nil {
		return "", fmt.Errorf("sign the operator: %w", err)
	}
	return token, keepFile(file, []byte(token+"\n"))
}

// signers is an authority of the signing keys that are there, for the accounts whose public keys are.
func signers(dir string) (authority, error) {
	a := authority{public: map[string]string{}, signing: map[string]nkeys.KeyPair{}}
	for account, file := range accountFiles {
		if public, err := os.ReadFile(filepath.Join(dir, file+publicSuffix)); err == nil {
			a.public[account] = string(bytes.TrimSpace(public))
		}
	}
	for name, s := range scopes() {
		file := filepath.Join(dir, "signs."+name+seedSuffix)
		if !there(file) || a.public[s.account] == "" {
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

// accountClaims are an account's, with its scopes and what passes between it and the other one.
func (a authority) accountClaims(account string) (*jwt.AccountClaims, error) {
	c := jwt.NewAccountClaims(a.public[account])
	c.Name = account
	if account == accountInside {
		c.Limits.JetStreamLimits = jwt.JetStreamLimits{
			MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
		}
		c.Exports.Add(everything(jwt.Service), everything(jwt.Stream))
	} else {
		border := border()
		if err := errors.Join(a.imports(c, jwt.Service, border.Asked), a.imports(c, jwt.Stream, border.Heard)); err != nil {
			return nil, err
		}
	}
	all := scopes()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].account != account {
			continue
		}
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

// everything is the export of all services or streams to those whom the account gives a token for them.
func everything(kind jwt.ExportType) *jwt.Export {
	return &jwt.Export{Name: "everything", Subject: ">", Type: kind, TokenReq: true}
}

// imports adds subjects of the functions' account, with its token.
func (a authority) imports(c *jwt.AccountClaims, kind jwt.ExportType, subjects []string) error {
	allowed := jwt.NewActivationClaims(c.Subject)
	allowed.ImportSubject, allowed.ImportType = ">", kind
	token, err := allowed.Encode(a.accounts[accountInside])
	if err != nil {
		return fmt.Errorf("sign what account %s may import: %w", c.Name, err)
	}
	for _, s := range subjects {
		c.Imports.Add(&jwt.Import{Name: s, Subject: jwt.Subject(s), Account: a.public[accountInside], Token: token, Type: kind})
	}
	return nil
}

// serverConf is the part of a server's configuration that trusts the operator and knows the accounts.
func (a authority) serverConf() ([]byte, error) {
	system, err := a.system.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("read the system account's key: %w", err)
	}
	systemClaims := jwt.NewAccountClaims(system)
	systemClaims.Name = "SYS"
	inside, err := a.accountClaims(accountInside)
	if err != nil {
		return nil, fmt.Errorf("make account %s: %w", accountInside, err)
	}
	outside, err := a.accountClaims(accountOutside)
	if err != nil {
		return nil, fmt.Errorf("make account %s: %w", accountOutside, err)
	}
	var encoded []string
	for _, c := range []jwt.Claims{inside, outside, systemClaims} {
		token, err := c.Encode(a.operator)
		if err != nil {
			return nil, fmt.Errorf("sign: %w", err)
		}
		encoded = append(encoded, token)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Made by muster perms from what the functions declare that they touch; do not edit.\n")
	fmt.Fprintf(&b, "operator: %q\nsystem_account: %q\nresolver: MEMORY\nresolver_preload {\n  %s: %q\n  %s: %q\n  %s: %q\n}\n",
		a.token, system, inside.Subject, encoded[0], outside.Subject, encoded[1], system, encoded[2])
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
	c.IssuerAccount = a.public[r.account()]
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

// writeJWT makes the operator, the accounts and credentials for each role. Those that are there stay.
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
	fmt.Fprintf(out, "%d users in %s\n", len(roles), c.Out)
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
