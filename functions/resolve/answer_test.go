package resolve

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/runtime"
	"muster/wire"
)

// start is the time that these tests count from. What is stored keeps its monotonic reading, as what a mirror hears does.
var start = time.Now()

func at(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

func recorded(s *wire.Source, last *found) *runtime.Item[*record] {
	return &runtime.Item[*record]{Key: "mgs", Revision: 7, Value: &record{Source: s, Answer: last, of: sourceOf(s)}}
}

var (
	dnsSource    = &wire.Source{DNS: &wire.DNSSource{Name: "_mgs._tcp.rack.internal"}}
	otherSource  = &wire.Source{DNS: &wire.DNSSource{Name: "_other._tcp.rack.internal"}}
	staticSource = &wire.Source{Static: map[string]string{"mgs1": "[fd00::1]:80", "mgs0": "[fd00::]:80"}}
	leasesSource = &wire.Source{Leases: &struct{}{}}
)

// named are backends of these names.
func named(names ...string) []backend {
	all := []backend{}
	for i, n := range names {
		all = append(all, backend{Backend: wire.Backend{Name: n, Address: "[fd00::" + string(rune('1'+i)) + "]:80"}})
	}
	return all
}

func names(all []backend) string {
	var n []string
	for _, b := range all {
		n = append(n, b.Name)
	}
	return strings.Join(n, " ")
}

// copyOf is a copy stored at 0 s, of an answer that was ageMS old then.
func copyOf(s *wire.Source, status string, ageMS int64, ttl time.Duration, reason string, backends ...string) *runtime.Item[*copied] {
	return &runtime.Item[*copied]{Key: "mgs", Stored: start, Value: &copied{
		Service: "mgs", Status: status, Complete: true, Backends: named(backends...), AgeMS: ageMS, Reason: reason, Of: sourceOf(s), ttl: ttl,
	}}
}

func gone(c *runtime.Item[*copied]) *runtime.Item[*copied] { c.Gone = true; return c }

// leased is a lease of a backend, stored at a time.
func leased(name string, stored, ttl float64) runtime.Item[*lease] {
	return runtime.Item[*lease]{Key: "mgs." + name, Revision: 3, Stored: at(stored), Value: &lease{
		Address: "[fd00::1]:80", Lease: "token", ttl: time.Duration(ttl * float64(time.Second)),
	}}
}

func ended(l runtime.Item[*lease]) runtime.Item[*lease] { l.Value.Ended = true; return l }

func unreadable(name string) runtime.Item[*lease] {
	return runtime.Item[*lease]{Key: "mgs." + name, Revision: 9, Err: errors.New("not JSON")}
}

func TestJudge(t *testing.T) {
	blind := func(since float64) doubt { return doubt{why: errors.New("blind"), since: at(since)} }
	never := doubt{why: errors.New("blind"), since: at(0), never: true}
	badRecord := &runtime.Item[*record]{Key: "mgs", Revision: 5, Err: errors.New("not JSON")}
	badCopy := &runtime.Item[*copied]{Key: "mgs", Stored: start, Err: errors.New("not JSON")}
	last := &found{Backends: named("a", "b"), Complete: true, ObservedAt: at(-60)}
	for name, c := range map[string]struct {
		seen       seen
		doubt      doubt
		now        float64
		code       wire.Code // of the error, or
		status     string
		backends   string
		age        float64
		incomplete bool
		reason     string // a part of it
	}{
		"nothing at all": {code: wire.ServiceNotFound},
		"removed":        {seen: seen{record: recorded(nil, nil)}, code: wire.ServiceNotFound},
		"record cannot be read": {seen: seen{record: badRecord, leases: []runtime.Item[*lease]{leased("a", 0, 9)}},
			code: wire.CorruptRecord},

		"static":            {seen: seen{record: recorded(staticSource, nil)}, now: 100, status: "fresh", backends: "mgs0 mgs1"},
		"static of nothing": {seen: seen{record: recorded(&wire.Source{Static: map[string]string{}}, nil)}, status: "fresh"},
		"static, blind": {seen: seen{record: recorded(staticSource, nil)}, doubt: blind(3), now: 10, status: "stale", backends: "mgs0 mgs1", age: 7,
			reason: "blind"},

		"leases, none":              {seen: seen{record: recorded(leasesSource, nil)}, status: "fresh"},
		"leases without a record":   {seen: seen{leases: []runtime.Item[*lease]{leased("a", 0, 9)}}, status: "fresh", backends: "a"},
		"leases of a removed":       {seen: seen{record: recorded(nil, nil), leases: []runtime.Item[*lease]{leased("a", 0, 9)}}, status: "fresh", backends: "a"},
		"lease just before its end": {seen: seen{record: recorded(leasesSource, nil), leases: []runtime.Item[*lease]{leased("a", 0, 2)}}, now: 1.99, status: "fresh", backends: "a"},
		"lease at its end":          {seen: seen{record: recorded(leasesSource, nil), leases: []runtime.Item[*lease]{leased("a", 0, 2)}}, now: 2, status: "fresh"},
		"last lease over, no record": {seen: seen{leases: []runtime.Item[*lease]{leased("a", 0, 2)}}, now: 2,
			status: "fresh"},
		"one lease over": {seen: seen{record: recorded(leasesSource, nil), leases: []runtime.Item[*lease]{leased("a", 0, 2), leased("b", 0, 30)}}, now: 3, status: "fresh", backends: "b"},
		"ended":          {seen: seen{record: recorded(leasesSource, nil), leases: []runtime.Item[*lease]{ended(leased("a", 0, 30)), leased("b", 0, 30)}}, status: "fresh", backends: "b"},
		"leases, blind: who was live then": {seen: seen{record: recorded(leasesSource, nil), leases: []runtime.Item[*lease]{leased("a", 0, 2), leased("b", 0, 30)}},
			doubt: blind(1), now: 100, status: "stale", backends: "a b", age: 99, reason: "blind"},
		"leases, blind: who was not then": {seen: seen{record: recorded(leasesSource, nil), leases: []runtime.Item[*lease]{leased("a", 0, 2), leased("b", 0, 30)}},
			doubt: blind(2), now: 100, status: "stale", backends: "b", age: 98, reason: "blind"},
		"leases, never seen": {seen: seen{record: recorded(leasesSource, nil)}, doubt: never, now: 1, code: wire.NotResolvedYet},
		"a lease cannot be read": {seen: seen{record: recorded(leasesSource, nil), leases: []runtime.Item[*lease]{leased("a", 0, 9), unreadable("b")}},
			status: "fresh", backends: "a", incomplete: true, reason: "backend b"},
		"only a lease that cannot be read": {seen: seen{record: recorded(leasesSource, nil), leases: []runtime.Item[*lease]{unreadable("b")}}, code: wire.CorruptRecord},
		"an old lease and one that cannot be read": {seen: seen{record: recorded(leasesSource, nil), leases: []runtime.Item[*lease]{leased("a", 0, 2), unreadable("b")}}, now: 3,
			code: wire.CorruptRecord},

		"dns, never":            {seen: seen{record: recorded(dnsSource, nil)}, code: wire.NotResolvedYet},
		"dns, first answer due": {seen: seen{record: recorded(dnsSource, nil), copied: copyOf(dnsSource, "unresolved", 0, 0, "SERVFAIL")}, code: wire.NotResolvedYet, reason: "SERVFAIL"},
		"dns, first answer due, nobody asks": {seen: seen{record: recorded(dnsSource, nil), copied: gone(copyOf(dnsSource, "unresolved", 0, 0, "SERVFAIL"))},
			code: wire.NotResolvedYet, reason: "nobody"},
		"dns": {seen: seen{record: recorded(dnsSource, last), copied: copyOf(dnsSource, "fresh", 500, 5*time.Second, "", "a", "c")},
			now: 1, status: "fresh", backends: "a c", age: 1.5},
		"dns, said to be empty": {seen: seen{record: recorded(dnsSource, last), copied: copyOf(dnsSource, "fresh", 0, 5*time.Second, "")},
			now: 1, status: "fresh", age: 1},
		"dns, some kept": {seen: seen{record: recorded(dnsSource, last), copied: func() *runtime.Item[*copied] {
			c := copyOf(dnsSource, "fresh", 0, 5*time.Second, "b: SERVFAIL", "a", "b")
			c.Value.Complete = false
			return c
		}()}, now: 1, status: "fresh", backends: "a b", age: 1, incomplete: true, reason: "b: SERVFAIL"},
		"dns, TTL over, the next under way": {seen: seen{record: recorded(dnsSource, last), copied: copyOf(dnsSource, "fresh", 0, 5*time.Second, "", "a")},
			now: 6.5, status: "fresh", backends: "a", age: 6.5},
		"dns, 2 s after its TTL": {seen: seen{record: recorded(dnsSource, last), copied: copyOf(dnsSource, "fresh", 0, 5*time.Second, "", "a")},
			now: 7, status: "stale", backends: "a", age: 7, reason: "no newer answer"},
		"dns, 2 s after its TTL, age counted from the answer": {seen: seen{record: recorded(dnsSource, last), copied: copyOf(dnsSource, "fresh", 6000, 5*time.Second, "", "a")},
			now: 1, status: "stale", backends: "a", age: 7, reason: "no newer answer"},
		"dns, failing": {seen: seen{record: recorded(dnsSource, last), copied: copyOf(dnsSource, "stale", 60_000, 5*time.Second, "SERVFAIL", "a")},
			now: 10, status: "stale", backends: "a", age: 70, reason: "SERVFAIL"},
		"dns, nobody resolves": {seen: seen{record: recorded(dnsSource, last), copied: gone(copyOf(dnsSource, "fresh", 0, time.Minute, "", "a"))},
			now: 12, status: "stale", backends: "a", age: 12, reason: "nobody is resolving"},
		"dns, copy of another source": {seen: seen{record: recorded(dnsSource, nil), copied: copyOf(otherSource, "fresh", 0, time.Minute, "", "a")}, code: wire.NotResolvedYet},
		"dns, copy of another source, remembered": {seen: seen{record: recorded(dnsSource, last), copied: copyOf(otherSource, "fresh", 0, time.Minute, "", "c")},
			status: "stale", backends: "a b", age: 60, reason: "nobody is resolving"},
		"dns, copy cannot be read": {seen: seen{record: recorded(dnsSource, last), copied: badCopy}, status: "stale", backends: "a b", age: 60, reason: "nobody is resolving"},
		"dns, copy never seen":     {seen: seen{record: recorded(dnsSource, last)}, doubt: never, now: 1, status: "stale", backends: "a b", age: 61, reason: "blind"},
		"dns, blind": {seen: seen{record: recorded(dnsSource, last), copied: copyOf(dnsSource, "fresh", 0, time.Minute, "", "a")}, doubt: blind(9), now: 10,
			status: "stale", backends: "a", age: 10, reason: "blind"},
		"dns, blind, first answer due": {seen: seen{record: recorded(dnsSource, nil)}, doubt: blind(9), now: 10, code: wire.NotResolvedYet, reason: "blind"},
	} {
		t.Run(name, func(t *testing.T) {
			c.seen.service = "mgs"
			now := at(c.now)
			a, err := judge(c.seen, c.doubt, now)
			if c.code != "" {
				if e := wire.AsError(err); err == nil || e.Code != c.code || !strings.Contains(e.Message, c.reason) {
					t.Fatalf("got %+v, %v; want %s that says %q", a, err, c.code, c.reason)
				} else if c.code == wire.CorruptRecord && (e.Details["bucket"] == nil || e.Details["key"] == nil || e.Details["revision"] == nil) {
					t.Errorf("details %v lack where it is", e.Details)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if a.status != c.status || names(a.backends) != c.backends || a.complete == c.incomplete || !strings.Contains(a.reason, c.reason) {
				t.Errorf("got %s %q complete %t %q; want %s %q complete %t %q", a.status, names(a.backends), a.complete, a.reason, c.status, c.backends, !c.incomplete, c.reason)
			}
			if a.status == "fresh" && !c.incomplete && a.reason != "" {
				t.Errorf("fresh, and a reason: %s", a.reason)
			}
			if want := time.Duration(c.age * float64(time.Second)); a.age != want || !a.observed.Equal(now.Add(-want)) {
				t.Errorf("age %v, observed %v before now; want %v", a.age, now.Sub(a.observed), want)
			}
		})
	}
}

func TestWithin(t *testing.T) {
	a := answer{service: "mgs", age: 2 * time.Second, reason: "SERVFAIL"}
	if err := a.within(2 * time.Second); err != nil {
		t.Errorf("as old as allowed: %v", err)
	}
	e := wire.AsError(a.within(2*time.Second - 1))
	if e.Code != wire.TooStale || e.Details["age_ms"] != int64(2000) || e.Details["reason"] != "SERVFAIL" {
		t.Errorf("got %v with %v, want TooStale with the age", e, e.Details)
	}
}

// The answer encodes itself; what it writes must be what the type on the wire reads.
func TestAnswerAsJSON(t *testing.T) {
	expires := time.Date(2030, 1, 2, 3, 4, 5, 600, time.FixedZone("east", 3600))
	a := answer{
		service: "mgs", source: "dns", status: "stale", reason: "a \"quoted\" \x00 \xff reason\n", revision: 1<<64 - 1,
		observed: expires, age: 1234 * time.Millisecond, complete: true,
		backends: []backend{
			{Backend: wire.Backend{Name: "mgs0", Address: "[fd00::1]:80", Priority: 65535, Weight: 1, ExpiresAt: &expires}, Target: "not shown"},
			{Backend: wire.Backend{Name: "mgs\"1", Address: "10.0.0.1:80"}},
		},
	}
	for _, a := range []answer{a, {service: "none", observed: start}} {
		raw := a.AppendJSON(nil)
		var got wire.Answer
		dec := json.NewDecoder(strings.NewReader(string(raw)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&got); err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
		if got.Backends == nil || got.Service != a.service || got.Status != a.status || got.Complete != a.complete || got.Source != a.source || got.Revision != a.revision ||
			got.AgeMS != a.age.Milliseconds() || !got.ObservedAt.Equal(a.observed) || got.ObservedAt.Location() != time.UTC ||
			got.Reason != strings.ToValidUTF8(a.reason, "\uFFFD") {
			t.Errorf("got %+v of %s", got, raw)
		}
		if !slices.EqualFunc(got.Backends, a.backends, func(g wire.Backend, w backend) bool {
			same := (g.ExpiresAt == nil) == (w.ExpiresAt == nil) && (g.ExpiresAt == nil || g.ExpiresAt.Equal(*w.ExpiresAt))
			g.ExpiresAt, w.ExpiresAt = nil, nil
			return same && g == w.Backend
		}) {
			t.Errorf("backends %+v of %s", got.Backends, raw)
		}
	}
}

// What expired tells must be true, or nothing: heartbeats are refused on its word.
func TestExpired(t *testing.T) {
	leases := []runtime.Item[*lease]{leased("a", 0, 2), unreadable("b")}
	for _, c := range []struct {
		what, key string
		revision  uint64
		now       float64
		want      bool
	}{
		{"before its end", "mgs.a", 3, 1.9, false}, {"at its end", "mgs.a", 3, 2, true}, {"another revision", "mgs.a", 4, 9, false},
		{"not heard of", "mgs.c", 3, 9, false}, {"cannot be read", "mgs.b", 9, 9, false},
	} {
		if got := expired(leases, c.key, c.revision, at(c.now)); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}
