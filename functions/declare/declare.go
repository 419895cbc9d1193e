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
		Buckets: []runtime.Use{{Bucket: runtime.Wanted, Writes: true, Views: true}, {Bucket: runtime.Reported}},
		Ops: []runtime.Op{
			runtime.NewHotOp[wire.Set, wire.Declaration](runtime.Op{
				Name: "set", IDs: agent, Changes: true, Codes: writes,
				Description: "adds or changes one agent; every other stays",
			}, f.set),
			runtime.NewHotOp[wire.Set, wire.Declaration](runtime.Op{
				Name: "create", IDs: agent, Changes: true, Codes: writes,
				Description: "declares a newly made agent; one that is there and not destroyed is left as it is",
			}, f.create),
			runtime.NewHotOp[wire.Apply, wire.Declaration](runtime.Op{
				Name: "apply", IDs: hive, Changes: true, Codes: writes,
				Description: "sets many agents in one revision, or nothing at all",
			}, f.apply),
			runtime.NewHotOp[struct{}, wire.Declaration](runtime.Op{
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

func (f *function) set(ctx context.Context, r *runtime.Request[wire.Set], answer func(any, error)) {
	f.one(ctx, r, false, answer)
}

func (f *function) create(ctx context.Context, r *runtime.Request[wire.Set], answer func(any, error)) {
	f.one(ctx, r, true, answer)
}

func (f *function) one(ctx context.Context, r *runtime.Request[wire.Set], fresh bool, answer func(any, error)) {
	if err := errors.Join(checkState("state", r.Body.State), checkReply(r.Body.Reply)); err != nil {
		answer(nil, err)
		return
	}
	changes := []change{{agent: r.IDs[1], state: r.Body.State, fresh: fresh}}
	f.update(ctx, r.IDs[0], r.Origin, changes, r.Body.IfRevision, r.Body.Reply, answer)
}

func (f *function) apply(ctx context.Context, r *runtime.Request[wire.Apply], answer func(any, error)) {
	changes, err := applied(r.Body)
	if err != nil {
		answer(nil, err)
		return
	}
	hive := r.IDs[0]
	if !r.Body.DryRun {
		f.update(ctx, hive, r.Origin, changes, r.Body.IfRevision, r.Body.Reply, answer)
		return
	}
	f.wanted.ViewThen(ctx, hive, func(base store.Result[*document], err error) {
		if err != nil {
			answer(nil, err)
			return
		}
		doc := codec.Clone(base.Doc)
		changed, err := f.changer(changes, hive, r.Body.IfRevision)(doc, base.Revision)
		if err != nil {
			answer(nil, err)
			return
		}
		doc.encode()
		answer(reply(hive, store.Result[*document]{Revision: base.Revision, Changed: changed, Doc: doc}, r.Body.Reply), nil)
	})
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
		if !wire.ValidName(name) {
			return nil, wire.Invalid("agents."+short(name), "a member of agents is not a name: it must match %s", wire.NamePattern)
		}
		field := "agents." + name
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

// short is what an error tells of a name that is none, however long it is.
func short(name string) string {
	const limit = 64
	if len(name) <= limit {
		return name
	}
	return strings.ToValidUTF8(name[:limit], "") + "…"
}

func (f *function) update(ctx context.Context, hive string, from store.Origin, changes []change, ifRevision *uint64, form string, answer func(any, error)) {
	change := f.changer(changes, hive, ifRevision)
	var then func(store.Result[*document], error)
	then = func(r store.Result[*document], err error) {
		switch {
		case errors.Is(err, errOvertaken):
			f.wanted.UpdateThen(ctx, hive, from, change, then)
		case err != nil:
			answer(nil, err)
		default:
			answer(reply(hive, r, form), nil)
		}
	}
	f.wanted.UpdateThen(ctx, hive, from, change, then)
}

// errOvertaken says that a request with if_revision found its revision, but in a group whose earlier requests change it.
// It is judged again on what becomes of them.
var errOvertaken = errors.New("an earlier request of the same write changes the record")

// changer makes the change of one request.
func (f *function) changer(changes []change, hive string, ifRevision *uint64) store.Change[*document] {
	return func(d *document, revision uint64) (bool, error) {
		if ifRevision != nil && *ifRevision != revision {
			return false, wire.Errorf(wire.RevisionMismatch, "hive %s is at revision %d", hive, revision).With("revision", revision)
		}
		if ifRevision != nil && d.json == nil {
			return false, errOvertaken
		}
		changed, err := redeclare(d, changes, f.wanted.MaxValue())
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.CorruptRecord {
			return false, e.With("bucket", wire.BucketWanted).With("key", hive).With("revision", revision)
		}
		return changed, err
	}
}

func reply(hive string, r store.Result[*document], form string) declaration {
	d := declaration{hive: hive, revision: r.Revision, changed: r.Changed}
	if form != wire.ReplyBrief && !r.Partial {
		d.agents = r.Doc.json
	}
	return d
}

func (f *function) view(ctx context.Context, r *runtime.Request[struct{}], answer func(any, error)) {
	hive := r.IDs[0]
	f.wanted.ViewThen(ctx, hive, func(doc store.Result[*document], err error) {
		if err = known(hive, doc, err); err != nil {
			answer(nil, err)
			return
		}
		answer(reply(hive, doc, ""), nil)
	})
}

// known turns a view of a hive that holds nothing into HiveNotDeclared.
func known(hive string, r store.Result[*document], err error) error {
	if err == nil && r.Revision == 0 {
		return wire.Errorf(wire.HiveNotDeclared, "hive %s is not declared; create or set an agent on it", hive)
	}
	return err
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
