// Package resolve tells which backends serve a service now, and never lets "cannot tell" look like "there are none".
//
// Roles: a service's record says where its backends come from; backends register and hold leases, or stand in the DNS; one
// replica, which holds the chair, asks DNS for the whole deployment, follows the leases, and writes what it finds, to the
// record when it changes and always anew to an expiring copy; every replica answers lookups from what it sees of the
// buckets, without waiting for anything; a caller's Watch follows the copy.
//
// What always holds: an answer is right, or says that it is stale and how old it is. A copy that nobody renews is gone. A
// lease that is over shows nowhere, a late heartbeat does not bring it back, and who was replaced can remove nothing. What
// makes progress: a chair that is not renewed is taken by another replica; a view that falls silent is read again. The gap:
// a registration shows on other replicas once they have heard of it, usually within milliseconds.
//
// The decisions are pure: answer.go judges what is known at a time, progress.go what a result of DNS means, record.go and
// lease.go change what is stored.
package resolve

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

// Version is the version of the function on the bus.
const Version = "1.0.0"

// Deps are what the function needs to run. A Function made of none tells what it is but cannot serve.
type Deps struct {
	Bus   *runtime.Bus
	NewID func() string // makes lease tokens
	Log   *slog.Logger
}

type function struct {
	Deps
	started time.Time
	news    *runtime.News // services about which something was heard

	services *runtime.Mirror[*record]
	backends *runtime.Mirror[*lease]
	copied   *runtime.Mirror[*copied]
	records  *store.Store[*record]
	held     *store.Store[*lease]
	log      store.Log // of the leases
	copies   store.Log

	judgements runtime.Recent[*judgement]
}

// New makes the function.
func New(deps Deps) runtime.Function {
	f := &function{Deps: deps, started: time.Now(), news: runtime.NewNews()}
	if deps.Bus != nil {
		f.services = runtime.NewMirror(deps.Bus, runtime.Services, decodeRecord, f.news.Add, false)
		f.backends = runtime.NewMirror(deps.Bus, runtime.Backends, decodeLease, f.news.Add, false)
		f.copied = runtime.NewMirror(deps.Bus, runtime.Resolved, decodeCopied, nil, true)
		f.records = runtime.Store(deps.Bus.Bucket(runtime.Services), codec)
		f.held = runtime.Store(deps.Bus.Bucket(runtime.Backends), leases)
		f.log, f.copies = deps.Bus.Bucket(runtime.Backends), deps.Bus.Bucket(runtime.Resolved)
	}
	service, backend := []string{"service"}, []string{"service", "backend"}
	writes := []wire.Code{wire.RequestIDReused, wire.CorruptRecord, wire.Contended}
	return runtime.Function{
		Name: wire.Resolve, Version: Version, Description: "which backends serve a service now",
		Buckets: []runtime.Use{
			{Bucket: runtime.Services, Writes: true, Mirror: true}, {Bucket: runtime.Backends, Writes: true, Mirror: true},
			{Bucket: runtime.Resolved, Writes: true, Mirror: true, Log: true, Shown: true},
		},
		Tasks: []func(context.Context){f.services.Run, f.backends.Run, f.copied.Run, f.chair},
		Ready: f.ready,
		Ops: []runtime.Op{
			runtime.NewHotOp[wire.Lookup, wire.Answer](runtime.Op{
				Name: "lookup", IDs: service, Codes: []wire.Code{wire.ServiceNotFound, wire.NotResolvedYet, wire.TooStale, wire.CorruptRecord},
				Description: "the backends of a service, and how sure that is",
			}, f.lookup),
			runtime.NewOp[wire.Source, wire.ServiceDefined](runtime.Op{
				Name: "define", IDs: service, Changes: true, Codes: writes, Description: "says where the backends of a service come from",
			}, f.define),
			runtime.NewOp[struct{}, wire.ServiceRemoved](runtime.Op{
				Name: "remove", IDs: service, Changes: true, Codes: append(writes, wire.ServiceNotFound),
				Description: "forgets a service and its leases",
			}, f.remove),
			runtime.NewOp[wire.Register, wire.Lease](runtime.Op{
				Name: "register", IDs: backend, Changes: true, Codes: append(writes, wire.LeaseExpired),
				Description: "adds a backend for as long as its lease is renewed",
			}, f.register),
			runtime.NewOp[wire.Heartbeat, wire.Lease](runtime.Op{
				Name: "heartbeat", IDs: backend, Changes: true, Codes: append(writes, wire.LeaseExpired), Description: "renews a lease",
			}, f.heartbeat),
			runtime.NewOp[wire.Heartbeat, wire.Deregistered](runtime.Op{
				Name: "deregister", IDs: backend, Changes: true, Codes: append(writes, wire.LeaseExpired), Description: "ends a lease",
			}, f.deregister),
			runtime.NewOp[wire.Page, wire.Services](runtime.Op{
				Name: "services", Description: "all services, in pages",
			}, f.list),
		},
	}
}

// ready is a line of /readyz: whether this replica sees what it answers from.
func (f *function) ready() []runtime.Check {
	c := runtime.Check{Name: "view of services and backends", OK: true}
	if !f.sees() {
		c.OK, c.Detail = false, "not read yet"
	}
	return []runtime.Check{c}
}

// sees tells whether this replica has ever read what it answers from.
func (f *function) sees() bool {
	return f.services.Synced() && f.backends.Synced() && f.copied.Synced()
}

// see gathers what this replica knows of a service.
func (f *function) see(service string) seen {
	s := seen{service: service, leases: f.backends.Group(service)}
	if g := f.services.Group(service); len(g) == 1 {
		s.record = &g[0]
	}
	if g := f.copied.Group(service); len(g) == 1 {
		s.copied = &g[0]
	}
	return s
}

// doubt tells whether what is seen of a kind of source may not be so any more.
func (f *function) doubt(kind string, now time.Time) (d doubt) {
	take := func(since time.Time, why error) {
		if why == nil || d.why != nil && !since.Before(d.since) {
			return
		}
		d = doubt{why: why, since: since, never: since.IsZero()}
	}
	take(f.services.Doubt(now))
	defer func() {
		if d.never {
			d.since = f.started
		}
	}()
	switch kind {
	case wire.SourceDNS:
		take(f.copied.Doubt(now))
	case wire.SourceLeases, "":
		take(f.backends.Doubt(now))
	}
	return d
}

func (f *function) lookup(ctx context.Context, r *runtime.Request[wire.Lookup], answer func(any, error)) {
	maxAge := time.Duration(-1)
	if r.Body.MaxAge != "" {
		d, err := time.ParseDuration(r.Body.MaxAge)
		if err != nil || d < 0 {
			answer(nil, wire.Invalid("max_age", "max_age must be a Go duration in quotes that is not negative, as in \"5s\""))
			return
		}
		maxAge = d
	}
	service, now := r.IDs[0], time.Now()
	s := f.see(service)
	d := f.doubt(s.kind(), now)
	if s.kind() != "" || s.record != nil && s.record.Err != nil {
		f.reply(s, d, now, maxAge, answer)
		return
	}
	f.lookUnseen(ctx, s, d, now, maxAge, answer)
}

// reply answers a lookup from what is seen.
func (f *function) reply(s seen, d doubt, now time.Time, maxAge time.Duration, answer func(any, error)) {
	a, err := f.judged(s, d, now)
	if err == nil && maxAge >= 0 {
		err = a.within(maxAge)
	}
	if err != nil {
		answer(nil, err)
		return
	}
	answer(a, nil)
}

// lookUnseen answers for a service that is not seen here: another replica may have taken its definition a moment ago. The
// leader knows.
func (f *function) lookUnseen(ctx context.Context, s seen, d doubt, now time.Time, maxAge time.Duration, answer func(any, error)) {
	f.records.ViewThen(ctx, s.service, func(doc store.Result[*record], err error) {
		switch {
		case err != nil:
			answer(nil, err)
			return
		case d.why != nil && doc.Doc.Source == nil:
			answer(nil, wire.Errorf(wire.Unavailable, "service %s is not seen, but leases cannot be seen now", s.service).
				With("reason", reasonOf(d.why)).Because(d.why))
			return
		case doc.Revision != 0:
			s.record = &runtime.Item[*record]{Key: s.service, Value: doc.Doc, Revision: doc.Revision}
		}
		s.leases = f.backends.Group(s.service)
		f.reply(s, d, now, maxAge, answer)
	})
}

// reasonOf is the reason of Unavailable that an error stands for.
func reasonOf(err error) any {
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Details["reason"] != nil {
		return e.Details["reason"]
	}
	return wire.JetStreamUnavailable
}
