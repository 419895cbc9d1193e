package test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/functions/resolve/dns/dnstest"
	"muster/runtime/natstest"
	"muster/wire"
)

// zone is the records of a service with backends mgs0…, all with one TTL.
func zone(name string, ttl uint32, backends int) []string {
	var records []string
	for i := range backends {
		host := fmt.Sprintf("mgs%d.%s.rack.internal.", i, name)
		records = append(records, fmt.Sprintf("_%s._tcp.rack.internal. %d IN SRV 0 0 12225 %s", name, ttl, host),
			fmt.Sprintf("%s %d IN AAAA fd00:1122::%d", host, ttl, i+1))
	}
	return records
}

// defineDNS has a service resolved by a server.
func defineDNS(t *testing.T, nc *nats.Conn, op func(string) string, service string, server *dnstest.Server) {
	t.Helper()
	ask(t, nc, op("define."+service), fmt.Sprintf(`{"dns":{"name":"_%s._tcp.rack.internal","servers":[%q]}}`, service, server.Addr())).ok(t)
}

func plainSubject(op string) string { return "muster.resolve." + op }

// DNS gives three targets, then fails in each of its ways. It is the same three, stale, getting older, with the reason.
func TestField_B086_FailingDNSIsNotAnEmptyService(t *testing.T) {
	t.Parallel()
	r := newResolvers(t)
	type fault struct {
		reply  dnstest.Reply
		reason string
	}
	faults := map[string]fault{
		"servfail": {dnstest.ServFail(), "SERVFAIL"}, "refused": {dnstest.Refused(), "REFUSED"}, "silent": {dnstest.Silent(), "no answer"},
		"garbage": {dnstest.Garbage(), "unreadable"}, "cut": {dnstest.Truncated(), "truncated"},
		"referral": {dnstest.Referral("rack.internal. 60 IN NS ns.rack.internal."), "referral"},
	}
	servers := map[string]*dnstest.Server{}
	for service := range faults {
		servers[service] = dnstest.Start(t)
		servers[service].Zone(zone(service, 1, 3)...)
		defineDNS(t, r.nc, r.a.subject, service, servers[service])
	}
	targets := map[string]string{}
	for service := range faults {
		natstest.Eventually(t, startLimit, service+" is resolved", func() bool {
			f, err := look(r.nc, r.b, service, "")
			targets[service] = f.names()
			return err == nil && f.Status == wire.StatusFresh && f.Complete && len(f.Backends) == 3
		})
	}
	began := time.Now()
	watches := map[string]*watching{}
	for service, f := range faults {
		servers[service].All(f.reply)
		for _, at := range []*replica{r.a, r.b} {
			watches[service+" "+at.name] = watchLookups(t, r.nc, at, service, 50*time.Millisecond, func(f found) error {
				if f.code != "" || f.names() != targets[service] {
					return errors.New("not the same three")
				}
				return nil
			})
		}
	}
	for service, fault := range faults {
		for _, at := range []*replica{r.a, r.b} {
			natstest.Eventually(t, startLimit, service+" is stale for its reason at "+at.name, func() bool {
				f, err := look(r.nc, at, service, "")
				return err == nil && f.Status == wire.StatusStale && strings.Contains(f.Reason, fault.reason)
			})
		}
	}
	natstest.Eventually(t, startLimit, "it lasts", func() bool { return time.Since(began) > 6*time.Second })
	for what, w := range watches {
		w.stop()
		var last sighting
		for _, s := range w.all() {
			if s.Status == "" {
				continue
			}
			into := s.at.Sub(began)
			if into > 3*time.Second+late && s.Status == wire.StatusFresh { // its TTL and 2 s
				t.Errorf("%s: fresh %v after DNS failed", what, into)
			}
			if into > 3*time.Second && last.Status == wire.StatusStale && (s.Status == wire.StatusFresh || s.AgeMS < last.AgeMS-100 || s.Reason == "") {
				t.Errorf("%s: from %s to %s", what, last.raw, s.raw)
			}
			last = s
		}
		if real := last.at.Sub(began).Milliseconds(); last.AgeMS < real-1000 || last.AgeMS > real+3000 {
			t.Errorf("%s: an age of %d ms, %d ms after DNS failed", what, last.AgeMS, real)
		}
	}
	ask(t, r.nc, r.b.subject("lookup.servfail"), `{"max_age":"2s"}`).refused(t, wire.TooStale)
	for _, s := range servers {
		s.All()
	}
	for service := range servers {
		becomes(t, r.nc, r.b, service, "fresh "+targets[service], startLimit)
	}
	for service, s := range servers {
		if n, name, qtype := s.Busiest(); n > 1 {
			t.Errorf("%s: %d queries within a second for %s %s", service, n, name, qtype)
		}
	}
}

// What the zone says is there, and what it does not: five outcomes that are told apart.
func TestDNSSaysThatThereIsNothing(t *testing.T) {
	t.Parallel()
	r := newResolvers(t)
	s := dnstest.Start(t)
	name := func(service string) string { return "_" + service + "._tcp.rack.internal." }
	s.Zone(zone("gone", 1, 2)...)
	s.Zone(zone("flicker", 1, 2)...)
	s.Zone(zone("partly", 1, 2)...)
	s.Script(name("dot"), "SRV", dnstest.Records(name("dot")+" 1 IN SRV 0 0 0 ."))
	s.Script(name("never"), "SRV", dnstest.NXDomain(3600))
	s.Script(name("dead"), "SRV", dnstest.ServFail())
	s.Script(name("lame"), "SRV", dnstest.Records(name("lame")+" 1 IN SRV 0 0 80 nowhere.rack.internal."))
	for _, service := range []string{"gone", "flicker", "partly", "dot", "never", "dead", "lame"} {
		defineDNS(t, r.nc, r.a.subject, service, s)
		if f := mustLook(t, r.nc, r.b, service); f.Status == wire.StatusFresh && len(f.Backends) == 0 && service != "dot" && service != "never" {
			t.Errorf("%s right after it was defined: %s", service, f.raw)
		}
	}
	for _, service := range []string{"gone", "flicker", "partly"} {
		natstest.Eventually(t, startLimit, service+" is resolved", func() bool {
			f, err := look(r.nc, r.b, service, "")
			return err == nil && f.Status == wire.StatusFresh && f.Complete && len(f.Backends) == 2
		})
	}
	never := map[string]*watching{}
	for _, service := range []string{"flicker", "partly", "dead", "lame"} {
		never[service] = watchLookups(t, r.nc, r.b, service, 20*time.Millisecond, neverEmpty)
	}
	s.Script(name("gone"), "SRV", dnstest.NXDomain(1))
	flicker := dnstest.Records(zone("flicker", 1, 2)[0], zone("flicker", 1, 2)[2])
	var script []dnstest.Reply
	for range 3 {
		script = append(script, dnstest.NXDomain(1), flicker, dnstest.NoData(1), dnstest.ServFail(), flicker)
	}
	s.Script(name("flicker"), "SRV", append(script, flicker)...)
	s.Script("mgs1.partly.rack.internal.", "AAAA", dnstest.ServFail())
	s.Script("mgs1.partly.rack.internal.", "A", dnstest.ServFail())
	becomes(t, r.nc, r.b, "gone", "fresh -", startLimit)
	becomes(t, r.nc, r.b, "dot", "fresh -", startLimit)
	becomes(t, r.nc, r.b, "never", "fresh -", startLimit)
	becomes(t, r.nc, r.b, "dead", string(wire.NotResolvedYet), startLimit)
	becomes(t, r.nc, r.b, "lame", string(wire.NotResolvedYet), startLimit)
	natstest.Eventually(t, startLimit, "partly keeps what it has", func() bool {
		f, err := look(r.nc, r.b, "partly", "")
		return err == nil && f.Status == wire.StatusFresh && !f.Complete && len(f.Backends) == 2 && f.Reason != ""
	})
	natstest.Eventually(t, startLimit, "the zone has flickered", func() bool { return s.Count(name("flicker"), "SRV") > 6 })
	for _, w := range never {
		w.stop()
	}
	s.Zone(zone("gone", 1, 2)...)
	natstest.Eventually(t, 7*time.Second, "what was gone is found within 5 s", func() bool {
		f, err := look(r.nc, r.b, "gone", "")
		return err == nil && f.Status == wire.StatusFresh && len(f.Backends) == 2
	})
	if n, name, qtype := s.Busiest(); n > 1 {
		t.Errorf("%d queries within a second for %s %s", n, name, qtype)
	}
}

// holder is the one of several processes that resolves.
func holder(t *testing.T, since map[*program]int, all ...*program) *program {
	t.Helper()
	var is *program
	natstest.Eventually(t, startLimit, "one of the replicas resolves", func() bool {
		for _, p := range all {
			if strings.Count(p.err.String(), "chair taken") > since[p] && p.running() {
				is = p
			}
		}
		return is != nil
	})
	return is
}

// Two processes. TTLs of 0, of 2^31-1 and one that has run out, 50 lookups a second each: one query a second for each
// name and type in the whole deployment, whatever happens to who asks. The one that asks is stopped for longer than its
// time and goes on, its successor is killed with -9, and what is then left is stopped in good order and begins again.
func TestField_B098_OneQueryASecond(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	nc := natstest.Connect(t, n.URL())
	s := dnstest.Start(t)
	ttls := map[string]uint32{"zero": 0, "huge": 1<<31 - 1, "top": 1 << 31, "one": 1}
	for service, ttl := range ttls {
		s.Zone(zone(service, ttl, 2)...)
	}
	p, q := serveProcess(t, n.URL(), "resolve"), serveProcess(t, n.URL(), "resolve")
	for service := range ttls {
		defineDNS(t, nc, plainSubject, service, s)
	}
	for service := range ttls {
		natstest.Eventually(t, startLimit, service+" is resolved", func() bool {
			f, err := look(nc, nil, service, "")
			return err == nil && f.Status == wire.StatusFresh && len(f.Backends) == 2
		})
	}
	ask(t, nc, "muster.resolve.define.again", fmt.Sprintf(`{"dns":{"name":"_zero._tcp.rack.internal.","servers":[%q]}}`, s.Addr())).ok(t) // the same name twice
	for service := range ttls {
		watchLookups(t, nc, nil, service, 20*time.Millisecond, neverEmpty)
	}
	asked := func() int { return s.Count("_zero._tcp.rack.internal.", "SRV") }
	takenOver := func(what string, since time.Time) {
		t.Helper()
		before := asked()
		natstest.Eventually(t, startLimit, "another asks", func() bool { return asked() > before+1 })
		var first time.Time
		for _, query := range s.Queries("_zero._tcp.rack.internal.", "SRV")[before:] {
			first = query.At
			break
		}
		took := first.Sub(since)
		t.Logf("%s: asked again after %v", what, took.Round(time.Millisecond))
		if took > 10*time.Second+late {
			t.Errorf("%s: nobody asked for %v", what, took)
		}
		becomes(t, nc, nil, "zero", "fresh mgs0 mgs1", startLimit)
	}
	first := holder(t, nil, p, q)
	second := map[*program]*program{p: q, q: p}[first]
	natstest.Eventually(t, startLimit, "it asks each second", func() bool { return asked() > 4 })
	if few := s.Count("_huge._tcp.rack.internal.", "SRV"); few > 2 {
		t.Errorf("a TTL of 2^31-1 was asked for %d times", few)
	}

	first.stop()
	takenOver("stopped", time.Now())
	first.signal(syscall.SIGCONT)
	mark := asked()
	natstest.Eventually(t, startLimit, "both go on", func() bool { return asked() > mark+3 })

	taken := map[*program]int{first: strings.Count(first.err.String(), "chair taken")}
	second.signal(syscall.SIGKILL)
	takenOver("killed", time.Now())
	if holder(t, taken, first) != first {
		t.Error("nobody took over")
	}

	first.signal(syscall.SIGTERM)
	if code := first.waitExit(startLimit); code != 0 {
		t.Errorf("exit code %d", code)
	}
	serveProcess(t, n.URL(), "resolve")
	takenOver("begun again", time.Now())
	if most, name, qtype := s.Busiest(); most > 1 {
		t.Errorf("%d queries within a second for %s %s", most, name, qtype)
	}
}

// The replica that resolves is gone, and no other is there: its copy goes within 15 s, and a replica that begins then says
// stale until it has asked.
func TestNobodyResolves(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	nc := natstest.Connect(t, n.URL())
	s := dnstest.Start(t)
	s.Zone(zone("mgs", 60, 2)...)
	p := serveProcess(t, n.URL(), "resolve")
	defineDNS(t, nc, plainSubject, "mgs", s)
	ask(t, nc, "muster.resolve.define.fixed", `{"static":{"a":"[fd00::1]:80"}}`).ok(t)
	natstest.Eventually(t, startLimit, "it is resolved", func() bool {
		f, err := look(nc, nil, "mgs", "")
		return err == nil && f.Status == wire.StatusFresh
	})
	kv := bucketNamed(t, nc, "muster_resolved")
	present := func(key string) bool { _, err := kv.Get(ctx(t), key); return err == nil }
	natstest.Eventually(t, startLimit, "there are copies", func() bool { return present("mgs") && present("fixed") })
	p.signal(syscall.SIGKILL)
	killed := time.Now()
	s.All(dnstest.ServFail())
	natstest.Eventually(t, startLimit, "the copies are gone", func() bool { return !present("mgs") && !present("fixed") })
	if gone := time.Since(killed); gone > 15*time.Second {
		t.Errorf("the copies stayed for %v", gone)
	}
	serveProcess(t, n.URL(), "resolve")
	f := mustLook(t, nc, nil, "mgs")
	if f.Status != wire.StatusStale || len(f.Backends) != 2 || f.AgeMS < 10_000 {
		t.Errorf("after a time without any replica: %s", f.raw)
	}
	if f := mustLook(t, nc, nil, "fixed"); f.String() != "fresh a" {
		t.Errorf("after a time without any replica: %s", f.raw)
	}
}
