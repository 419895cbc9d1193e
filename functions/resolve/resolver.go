package resolve

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"muster/functions/resolve/dns"
	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

// How the replica that resolves works.
const (
	resolverTick  = 200 * time.Millisecond
	resolverPause = 1200 * time.Millisecond // before its first questions: the one before may just have asked
	resolverAsks  = 256                     // services that DNS is asked for at once
	askLimit      = 8 * time.Second
)

// resolver is the replica that resolves, while it does: it asks DNS, follows the leases, and writes what it finds, to the
// service's record when it changes and to the expiring copy always anew.
type resolver struct {
	*function
	dns   *dns.Client
	held  func() bool
	begun time.Time
	asks  chan struct{}
	found chan asked
	done  chan func()
	wg    sync.WaitGroup
	known map[string]*subject
}

// subject is one service at work.
type subject struct {
	of       string
	progress progress
	asking   bool
	next     time.Time // for DNS

	follows uint64 // last revision of the copy
	written time.Time
	writing bool
	sure    bool // follows is known
	last    found
	status  string
	missed  bool // something was not written, it is tried again
}

type asked struct {
	service, of string
	result      dns.Result
}

// resolve works until ctx ends.
func (f *function) resolve(ctx context.Context, held func() bool) {
	r := &resolver{
		function: f, dns: dns.New(dns.Config{May: held}), held: held, begun: time.Now(), asks: make(chan struct{}, resolverAsks), found: make(chan asked, resolverAsks), done: make(chan func(), 64),
		known: map[string]*subject{},
	}
	defer r.wg.Wait()
	tick := time.NewTicker(resolverTick)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case a := <-r.found:
			r.learn(ctx, a)
		case settle := <-r.done:
			settle()
		case <-f.news.C:
			for _, service := range f.news.Take() {
				r.look(ctx, service, time.Now())
			}
		case now := <-tick.C:
			r.round(ctx, now)
		}
	}
}

// round looks at every service.
func (r *resolver) round(ctx context.Context, now time.Time) {
	if _, why := r.services.Doubt(now); why != nil {
		return // what is written on a doubtful view could be wrong
	}
	all := map[string]bool{}
	for _, service := range r.services.Groups() {
		all[service] = true
	}
	for _, service := range r.backends.Groups() {
		all[service] = true
	}
	for service := range all {
		r.look(ctx, service, now)
	}
	for service := range r.known {
		if !all[service] {
			r.look(ctx, service, now)
		}
	}
}

// look does what is due for one service.
func (r *resolver) look(ctx context.Context, service string, now time.Time) {
	s := r.see(service)
	kind := s.kind()
	if kind == "" || s.record != nil && s.record.Err != nil {
		if k := r.known[service]; k != nil && !k.writing {
			delete(r.known, service)
			if k.sure && r.held() {
				r.forget(ctx, service, k.follows)
			}
		}
		return
	}
	of := ""
	if s.record != nil {
		of = s.record.Value.of
	}
	k := r.known[service]
	if k == nil {
		k = &subject{next: r.begun.Add(resolverPause)}
		r.known[service] = k
	}
	if k.of != of || k.status == "" {
		k.of, k.status, k.written = of, wire.StatusUnresolved, time.Time{}
		if kind == wire.SourceDNS {
			k.next = r.begun.Add(resolverPause)
			if c := s.copied; c != nil && c.Err == nil && !c.Gone && c.Value.Of == of && c.Value.Status != wire.StatusUnresolved {
				k.progress = resume(c.Value, c.Stored)
				k.status = k.progress.status
				if due := k.progress.observed.Add(k.progress.ttl); k.status == wire.StatusFresh && due.After(k.next) {
					k.next = due
				}
			} else {
				k.progress = begin(s.record.Value, func() time.Time { return r.lastHeard(s, now) })
			}
		}
	}
	if kind == wire.SourceDNS {
		r.ask(ctx, service, k, s.record.Value, now)
		r.publish(ctx, service, k, r.dnsAnswer(service, k, now), now)
		return
	}
	d := r.doubt(kind, now)
	if d.why != nil {
		return
	}
	a, err := judge(s, d, now)
	if err != nil {
		return
	}
	r.publish(ctx, service, k, a, now)
}

// lastHeard is when the source of a service was last heard, as far as it is stored.
func (r *resolver) lastHeard(s seen, now time.Time) time.Time {
	if c := s.copied; c != nil && c.Err == nil && c.Value.Of == s.record.Value.of && c.Value.Status != wire.StatusUnresolved {
		return c.Stored.Add(-time.Duration(c.Value.AgeMS) * time.Millisecond)
	}
	if at := s.record.Value.Answer.ObservedAt; at.Before(now) {
		return at
	}
	return now
}

// ask asks DNS when it is time.
func (r *resolver) ask(ctx context.Context, service string, k *subject, rec *record, now time.Time) {
	if k.asking || now.Before(k.next) || !r.held() {
		return
	}
	select {
	case r.asks <- struct{}{}:
	default:
		return
	}
	k.asking = true
	name, servers, of := rec.Source.DNS.Name, rec.Source.DNS.Servers, rec.of
	r.wg.Go(func() {
		defer func() { <-r.asks }()
		limited, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		result := r.dns.Ask(limited, name, servers)
		select {
		case r.found <- asked{service, of, result}:
		case <-ctx.Done():
		}
	})
}

// learn takes a result of DNS.
func (r *resolver) learn(ctx context.Context, a asked) {
	k := r.known[a.service]
	if k == nil || ctx.Err() != nil {
		return
	}
	k.asking = false
	if k.of != a.of || !r.held() {
		return
	}
	before := k.progress.status
	k.progress = k.progress.after(a.result)
	wait := dns.Next(a.result, k.progress.failures, rand.Float64())
	if a.result.TTL == time.Second { // the least it can be; an answer shared with another service is older than that
		wait -= time.Since(a.result.At)
	}
	k.next = time.Now().Add(wait)
	if k.progress.status != before {
		r.Log.Info("service resolved otherwise", "service", a.service, "old", before, "new", k.progress.status, "backends", len(k.progress.backends), "reason", k.progress.reason)
	}
	r.look(ctx, a.service, time.Now())
}

// dnsAnswer is the answer of a DNS source as it stands.
func (r *resolver) dnsAnswer(service string, k *subject, now time.Time) answer {
	p := k.progress
	a := answer{service: service, source: wire.SourceDNS, status: p.status, reason: p.reason, complete: p.complete, observed: p.observed}
	if !p.answered {
		return a
	}
	a.age = max(now.Sub(p.observed), 0)
	if a.status == wire.StatusFresh && a.age > p.ttl+freshFor {
		a.stale("no newer answer came")
	}
	expires := now.Add(p.ttl - a.age).UTC()
	for _, b := range p.backends {
		if p.ttl > 0 {
			b.ExpiresAt = &expires
		}
		a.backends = append(a.backends, b)
	}
	return a
}

// publish writes an answer: to the record if it is another one, to the copy if it is, or the copy must be kept alive.
func (r *resolver) publish(ctx context.Context, service string, k *subject, a answer, now time.Time) {
	set := found{Backends: a.backends, Complete: a.complete}
	age := now.Sub(k.written)
	due := k.status != a.status || !k.last.same(set) || age >= copyRefresh
	if k.missed {
		due = age >= copyRetry
	}
	if !due || k.writing || !r.held() {
		return
	}
	c := &copied{
		Service: service, Status: a.status, Complete: a.complete, Backends: a.backends, Source: a.source,
		ObservedAt: a.observed.UTC(), Reason: a.reason, Of: k.of,
	}
	if c.Backends == nil {
		c.Backends = []backend{}
	}
	if a.source == wire.SourceDNS && k.progress.ttl > 0 {
		c.TTL = k.progress.ttl.String()
	}
	k.writing, k.status, k.last, k.written, k.missed = true, a.status, set, now, false
	of, known, last, sure := k.of, a.status != wire.StatusUnresolved, k.follows, k.sure
	age = a.age
	r.wg.Go(func() {
		missed := false
		if known && of != "" {
			missed = !r.record(ctx, service, of, set, a.observed)
		}
		follows, ok := r.copy(ctx, service, last, sure, func() []byte {
			c.AgeMS = (age + time.Since(now)).Milliseconds() // of this moment: the record may have taken long
			return encode(c)
		})
		settle := func() {
			k.writing, k.follows, k.sure, k.missed = false, follows, ok, missed || !ok
			r.news.Add(service) // it may have changed meanwhile
		}
		select {
		case r.done <- settle:
		case <-ctx.Done():
		}
	})
}

// record notes a new answer with the service; nothing when it is the one that is there.
func (r *resolver) record(ctx context.Context, service, of string, f found, at time.Time) bool {
	if s := r.see(service); s.record != nil && s.record.Err == nil && s.record.Value.of == of &&
		s.record.Value.Answer != nil && s.record.Value.Answer.same(f) {
		return true
	}
	f.ObservedAt = at.UTC()
	_, err := r.records.Update(ctx, service, store.Origin{}, func(doc *record, _ uint64) (bool, error) {
		if !r.held() { // one that goes on after a stop would write an old answer over a newer one
			return false, errNotHeld
		}
		g := f
		g.Backends = append([]backend{}, f.Backends...)
		return doc.answered(of, g), nil
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, errNotHeld) {
		r.Log.Warn("answer not recorded", "service", service, "cause", err)
	}
	return err == nil
}

// copy writes the expiring copy over the last one. It names the revision it follows, so that a replica that resolved
// before, and does not know yet that it no longer does, overwrites nothing.
func (r *resolver) copy(ctx context.Context, service string, follows uint64, sure bool, value func() []byte) (uint64, bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for range 2 {
		if !sure {
			rev, err := store.Read(ctx, r.copies, service)
			if err != nil {
				return 0, false
			}
			follows = rev.Revision
		}
		if !r.held() {
			return 0, false
		}
		rev, err := r.copies.Write(ctx, []store.Entry{{Key: service, Value: value(), Follows: follows, TTL: copyTTL}})
		if err == nil {
			return rev, true
		}
		if _, lost := errors.AsType[*store.Conflict](err); !lost {
			return 0, false
		}
		sure = false
	}
	return 0, false
}

var errNotHeld = errors.New("another replica resolves now")

// forget removes the copy of a service that is no more. If it is another one than the last it stays: the service may have
// been defined again, and if not, the copy expires.
func (r *resolver) forget(ctx context.Context, service string, follows uint64) {
	r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		gone := map[string][]string{wire.HeaderKVOperation: {wire.KVPurge}, wire.HeaderRollup: {wire.RollupSubject}}
		if _, err := r.copies.Write(ctx, []store.Entry{{Key: service, Header: gone, Follows: follows}}); err != nil && ctx.Err() == nil {
			r.Log.Debug("copy not removed", "service", service, "cause", err)
		}
	})
}

// chair is the work of resolving, which one replica does: one that sees what there is, and so goes on where another ended.
func (f *function) chair(ctx context.Context) {
	for !f.sees() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	runtime.Chair{Log: f.copies, Key: wire.KeyResolver, Name: "resolver", Say: f.Log}.Hold(ctx, f.resolve)
}
