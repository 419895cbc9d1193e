package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/edge/hive"
	"muster/edge/sled"
	"muster/functions/declare"
	"muster/functions/join"
	"muster/functions/resolve"
	"muster/runtime"
	"muster/wire"
)

// role is somebody whom a NATS server lets in: what is permitted, and who it is.
type role struct {
	kind  string
	names []string // function, hive, part and serial number, or a person's or program's own name
}

// Kinds of roles.
const (
	roleFunction = wire.Functions // serves one function, or all
	roleOperator = "operator"     // asks for everything
	roleTrigger  = "trigger"      // publishes triggers
	roleReader   = "reader"       // asks for what changes nothing, and hears events
	roleDead     = "dead"         // looks at dead triggers and replays them
	roleHive     = wire.Hive
	roleSled     = wire.Sled
)

var roleKinds = []string{roleFunction, roleOperator, roleTrigger, roleReader, roleDead, roleHive, roleSled}

// allFunctions is the name of the role that serves every function in one process.
const allFunctions = "all"

// roleForms is what a role may look like, for help and errors.
const roleForms = "function:NAME (or function:all), operator, trigger, reader, dead (each perhaps with :NAME), hive:NAME, sled:PART:SERIAL"

// parseRole reads a role as the command line has it. Names that would break out of a subject or of a configuration file
// are refused.
func parseRole(s string) (role, error) { return roleOf(strings.Split(s, ":")) }

// userRole reads the name of a NATS user that was made for a role.
func userRole(user string) (role, error) { return roleOf(strings.Split(user, ".")) }

func roleOf(parts []string) (role, error) {
	r := role{kind: parts[0], names: parts[1:]}
	if !slices.Contains(roleKinds, r.kind) {
		return r, errors.New("no such role; there are " + roleForms)
	}
	want := 1
	switch r.kind {
	case roleSled:
		want = 2
	case roleOperator, roleTrigger, roleReader, roleDead:
		if len(r.names) == 0 {
			r.names = []string{r.kind}
		}
	}
	if len(r.names) != want {
		return r, fmt.Errorf("role %s takes %d names; there are %s", r.kind, want, roleForms)
	}
	for _, name := range r.names {
		if err := wire.CheckName("role "+r.kind, name); err != nil {
			return r, err
		}
	}
	if r.kind == roleFunction && r.names[0] != allFunctions && !slices.ContainsFunc(values(), func(fn runtime.Function) bool { return fn.Name == r.names[0] }) {
		return r, errors.New("no such function; there are " + strings.Join(functionNames(), ", ") + ", " + allFunctions)
	}
	return r, nil
}

// user is the name of the NATS user: the kind and the names with dots between them.
func (r role) user() string { return r.kind + "." + strings.Join(r.names, ".") }

// inbox is the prefix of the user's private inboxes.
func (r role) inbox() string { return wire.Inbox(r.user()) }

// values are all functions, for what they tell of themselves; they cannot serve.
func values() []runtime.Function {
	return []runtime.Function{declare.New(declare.Deps{}), join.New(join.Deps{}), resolve.New(resolve.Deps{})}
}

func functionNames() []string {
	var names []string
	for _, fn := range values() {
		names = append(names, fn.Name)
	}
	return names
}

// Accounts of the NATS server: functions trust each other, everybody else is in another account.
const (
	accountInside  = "MUSTER"
	accountOutside = "MUSTER_OUTSIDE"
)

// account is the one that the user is in.
func (r role) account() string {
	if r.kind == roleFunction {
		return accountInside
	}
	return accountOutside
}

// border is what the one account imports from the other, whoever is in them.
func border() runtime.Border {
	inside := []runtime.Permissions{role{roleFunction, []string{allFunctions}}.permissions()}
	var outside []runtime.Permissions
	for _, kind := range roleKinds {
		anybody := role{kind, []string{"*"}}
		if kind == roleSled {
			anybody.names = []string{"*", "*"}
		}
		if anybody.account() == accountOutside {
			outside = append(outside, anybody.permissions())
		}
	}
	return runtime.BorderOf(inside, outside)
}

// functions are those that a process in this role serves.
func (r role) functions() []runtime.Function {
	switch r.kind {
	case roleFunction:
		return slices.DeleteFunc(values(), func(fn runtime.Function) bool {
			return r.names[0] != allFunctions && fn.Name != r.names[0]
		})
	case roleHive:
		return []runtime.Function{hive.Function(r.names[0])}
	case roleSled:
		return []runtime.Function{sled.Function(wire.Baseboard{PartNumber: r.names[0], SerialNumber: r.names[1]})}
	}
	return nil
}

// permissions are what the role must be let do, and no more.
func (r role) permissions() runtime.Permissions {
	switch r.kind {
	case roleOperator:
		return runtime.CallerPermissions(values(), true, r.inbox())
	case roleReader:
		return runtime.CallerPermissions(values(), false, r.inbox())
	case roleTrigger:
		return runtime.TriggerPermissions(values(), r.inbox())
	case roleDead:
		return runtime.DeadPermissions(values(), r.inbox())
	}
	return runtime.PermissionsOf(r.functions(), r.inbox())
}
