// Package declare keeps what each hive should run. A hive's record is the map of every agent on it, in one key of one
// bucket, so that a hive reads one consistent document.
//
// The rules are pure and stand in wanted.go; the record's form in document.go; what the bus sees in this file. What
// always holds: the stored map holds every agent that was ever declared there, whoever wrote at the same time; only
// create moves an agent off destroyed, and it changes nothing about any other; a record that cannot be read is an error
// and is never written over.
package declare

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

// Version is the version of the function on the bus.
const Version = "1.0.0"

// Deps are what the function needs to run. A Function made of none tells what it is but cannot serve.
type Deps struct {
	Wanted   store.Log // bucket of record [runtime.Wanted]
	Reported store.Log // bucket [runtime.Reported]
	Now      func() time.Time
}

type function struct {
	wanted   *store.Store[*document]
	reported store.Log
	now      func() time.Time
}

// New makes the function.
func New(deps Deps) runtime.Function {
	f := &function{reported: deps.Reported, now: deps.Now}
	if deps.Wanted != nil {
		f.wanted = store.New(deps.Wanted, codec, store.Config{EventType: runtime.Wanted.EventType, Now: deps.Now})
	}
	hive, agent := []string{"hive"}, []string{"hive", "agent"}
	writes := []wire.Code{
		wire.AgentDestroyed, wire.RevisionMismatch, wire.RequestIDReused, wire.CorruptRecord, wire.Contended,
	}
	reads := []wire.Code{wire.HiveNotDeclared, wire.CorruptRecord}
	return runtime.Function{
		Name: wire.Declare, Version: Version, Description: "what each hive should run",
		Buckets: []runtime.Use{{Bucket: runtime.Wanted, Writes: true}, {Bucket: runtime.Reported}},
		Ops: []runtime.Op{
			runtime.NewOp[wire.Set, wire.Declaration](runtime.Op{
				Name: "set", IDs: agent, Changes: true, Codes: writes,
				Description: "adds or changes one agent; every other stays",
			}, f.set),
			runtime.NewOp[wire.Set, wire.Declaration](runtime.Op{
				Name: "create", IDs: agent, Changes: true, Codes: writes,
				Description: "declares a newly made agent; one that is there and not destroyed is left as it is",
			}, f.create),
			runtime.NewOp[wire.Apply, wire.Declaration](runtime.Op{
				Name: "apply", IDs: hive, Changes: true, Codes: writes,
				Description: "sets many agents in one revision, or nothing at all",
			}, f.apply),
			runtime.NewOp[struct{}, wire.Declaration](runtime.Op{
				Name: "view", IDs: hive, Codes: reads,
				Description: "the declaration of a hive",
			}, f.view),
			runtime.NewOp[wire.Page, wire.Hives](runtime.Op{
				Name:        "list",
				Description: "all hives, in pages",
			}, f.list),
			runtime.NewOp[struct{}, wire.HiveStatus](runtime.Op{
				Name: "status", IDs: hive, Codes: reads,
				Description: "what a hive should run beside what it says it runs",
			}, f.status),
		},
	}
}

func (f *function) set(ctx context.Context, r *runtime.Request[wire.Set]) (any, error) {
	return f.one(ctx, r, false)
}

func (f *function) create(ctx context.Context, r *runtime.Request[wire.Set]) (any, error) {
	return f.one(ctx, r, true)
}

func (f *function) one(ctx context.Context, r *runtime.Request[wire.Set], fresh bool) (any, error) {
	if err := errors.Join(checkState("state", r.Body.State), checkReply(r.Body.Reply)); err != nil {
		return nil, err
	}
	changes := []change{{agent: r.IDs[1], state: r.Body.State, fresh: fresh}}
	return f.update(ctx, r.IDs[0], r.Origin, changes, r.Body.IfRevision, r.Body.Reply)
}

func (f *function) apply(ctx context.Context, r *runtime.Request[wire.Apply]) (any, error) {
	changes, err := applied(r.Body)
	if err != nil {
		return nil, err
	}
	hive := r.IDs[0]
	if !r.Body.DryRun {
		return f.update(ctx, hive, r.Origin, changes, r.Body.IfRevision, r.Body.Reply)
	}
	base, err := f.wanted.View(ctx, hive)
	if err != nil {
		return nil, err
	}
	doc := codec.Clone(base.Doc)
	changed, err := f.changer(changes, hive, r.Body.IfRevision)(doc, base.Revision)
	if err != nil {
		return nil, err
	}
	doc.encode()
	return answer(hive, store.Result[*document]{Revision: base.Revision, Changed: changed, Doc: doc}, r.Body.Reply), nil
}

// applied checks the body of an apply, and lists what it wants in the order of the agents' names.
func applied(body wire.Apply) ([]change, error) {
	if body.Agents == nil {
		return nil, wire.Invalid("agents", "agents is required")
	}
	if err := checkReply(body.Reply); err != nil {
		return nil, err
	}
	changes := make([]change, 0, len(body.Agents))
	for name, agent := range body.Agents {
		field := "agents." + name
		if !wire.ValidName(name) {
			return nil, wire.Invalid(field, "a member of agents is not a name: it must match %s", wire.NamePattern)
		}
		if agent == nil {
			return nil, wire.Invalid(field, "%s must be an object", field)
		}
		if err := checkState(field+".state", agent.State); err != nil {
			return nil, err
		}
		changes = append(changes, change{agent: name, state: agent.State})
	}
	slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.agent, b.agent) })
	return changes, nil
}

func (f *function) update(ctx context.Context, hive string, from store.Origin, changes []change, ifRevision *uint64, reply string) (any, error) {
	r, err := f.wanted.Update(ctx, hive, from, f.changer(changes, hive, ifRevision))
	if err != nil {
		return nil, err
	}
	return answer(hive, r, reply), nil
}

// changer makes the change of one request.
func (f *function) changer(changes []change, hive string, ifRevision *uint64) store.Change[*document] {
	return func(d *document, revision uint64) (bool, error) {
		if ifRevision != nil && *ifRevision != revision {
			return false, wire.Errorf(wire.RevisionMismatch, "hive %s is at revision %d", hive, revision).With("revision", revision)
		}
		changed, err := redeclare(d, changes, f.wanted.MaxValue())
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.CorruptRecord {
			return false, e.With("bucket", wire.BucketWanted).With("key", hive).With("revision", revision)
		}
		return changed, err
	}
}

func answer(hive string, r store.Result[*document], reply string) declaration {
	d := declaration{hive: hive, revision: r.Revision, changed: r.Changed}
	if reply != wire.ReplyBrief && !r.Partial {
		d.agents = r.Doc.json
	}
	return d
}

func (f *function) view(ctx context.Context, r *runtime.Request[struct{}]) (any, error) {
	doc, err := f.declared(ctx, r.IDs[0])
	if err != nil {
		return nil, err
	}
	return answer(r.IDs[0], doc, ""), nil
}

// declared reads a hive's record; HiveNotDeclared when there is none.
func (f *function) declared(ctx context.Context, hive string) (store.Result[*document], error) {
	r, err := f.wanted.View(ctx, hive)
	if err == nil && r.Revision == 0 {
		err = wire.Errorf(wire.HiveNotDeclared, "nothing was ever declared for hive %s; create or set an agent on it", hive)
	}
	return r, err
}

func checkState(field string, s wire.State) error {
	if s == "" {
		return wire.Invalid(field, "%s is required: one of up, offline, paused, destroyed", field)
	}
	if !s.Valid() {
		return wire.Invalid(field, "%s must be one of up, offline, paused, destroyed", field)
	}
	return nil
}

func checkReply(reply string) error {
	if reply != "" && reply != wire.ReplyBrief {
		return wire.Invalid("reply", "reply must be brief, or be left out")
	}
	return nil
}
