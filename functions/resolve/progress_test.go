package resolve

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/functions/resolve/dns"
)

func target(name string) dns.Target {
	return dns.Target{Name: name, Host: name + ".rack.internal:80", Address: "[fd00::" + name + "]:80"}
}

func said(outcome dns.Outcome, second float64, targets ...string) dns.Result {
	r := dns.Result{Outcome: outcome, At: at(second), TTL: 5 * time.Second}
	for _, n := range targets {
		r.Targets = append(r.Targets, target(n))
	}
	if outcome != dns.Answer {
		r.Reason = outcome.String()
	}
	if outcome == dns.Failure {
		r.TTL = 0
	}
	return r
}

// without adds a target that could not be resolved.
func without(r dns.Result, name string) dns.Result {
	r.Gaps = append(r.Gaps, dns.Gap{Host: name + ".rack.internal:80"})
	return r
}

func TestProgress(t *testing.T) {
	type step struct {
		result     dns.Result
		status     string
		backends   string
		observed   float64
		incomplete bool
		failures   int
	}
	for name, steps := range map[string][]step{
		"an answer and another": {
			{result: said(dns.Answer, 1, "a", "b"), status: "fresh", backends: "a b", observed: 1},
			{result: said(dns.Answer, 2, "c"), status: "fresh", backends: "c", observed: 2},
		},
		"failures keep the last": {
			{result: said(dns.Failure, 1), status: "unresolved", failures: 1},
			{result: said(dns.Answer, 2, "a"), status: "fresh", backends: "a", observed: 2},
			{result: said(dns.Failure, 3), status: "stale", backends: "a", observed: 2, failures: 1},
			{result: said(dns.Failure, 4), status: "stale", backends: "a", observed: 2, failures: 2},
			{result: said(dns.Answer, 5, "a"), status: "fresh", backends: "a", observed: 5},
		},
		"absence twice in a row": {
			{result: said(dns.Answer, 1, "a"), status: "fresh", backends: "a", observed: 1},
			{result: said(dns.Absent, 2), status: "stale", backends: "a", observed: 1},
			{result: said(dns.Absent, 3), status: "fresh", observed: 3},
			{result: said(dns.Absent, 4), status: "fresh", observed: 4},
			{result: said(dns.Failure, 5), status: "stale", observed: 4, failures: 1},
			{result: said(dns.Absent, 6), status: "fresh", observed: 6},
		},
		"absence, a failure, absence": {
			{result: said(dns.Answer, 1, "a"), status: "fresh", backends: "a", observed: 1},
			{result: said(dns.Absent, 2), status: "stale", backends: "a", observed: 1},
			{result: said(dns.Failure, 3), status: "stale", backends: "a", observed: 1, failures: 1},
			{result: said(dns.Absent, 4), status: "stale", backends: "a", observed: 1},
			{result: said(dns.Absent, 5), status: "fresh", observed: 5},
		},
		"absence from the start": {
			{result: said(dns.Absent, 1), status: "unresolved"},
			{result: said(dns.Absent, 2), status: "fresh", observed: 2},
		},
		"there is no such service": {
			{result: said(dns.Answer, 1, "a"), status: "fresh", backends: "a", observed: 1},
			{result: said(dns.Empty, 2), status: "fresh", observed: 2},
		},
		"some cannot be resolved": {
			{result: said(dns.Answer, 1, "a", "b"), status: "fresh", backends: "a b", observed: 1},
			{result: without(said(dns.Partial, 2, "a"), "b"), status: "fresh", backends: "a b", observed: 2, incomplete: true, failures: 1},
			{result: without(said(dns.Partial, 3, "a", "c"), "b"), status: "fresh", backends: "a b c", observed: 3, incomplete: true, failures: 2},
			{result: said(dns.Answer, 4, "a", "c"), status: "fresh", backends: "a c", observed: 4},
		},
		"none can be resolved, all known": {
			{result: said(dns.Answer, 1, "a"), status: "fresh", backends: "a", observed: 1},
			{result: without(said(dns.Partial, 2), "a"), status: "fresh", backends: "a", observed: 2, incomplete: true, failures: 1},
		},
		"none can be resolved, none known": {
			{result: without(said(dns.Partial, 1), "a"), status: "unresolved", failures: 1},
			{result: said(dns.Answer, 2, "a"), status: "fresh", backends: "a", observed: 2},
			{result: without(said(dns.Partial, 3), "b"), status: "stale", backends: "a", observed: 2, failures: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := begin(&record{}, nil)
			for i, s := range steps {
				p = p.after(s.result)
				if p.status != s.status || names(p.backends) != s.backends || p.failures != s.failures {
					t.Fatalf("step %d: got %s %q after %d failures; want %s %q after %d", i, p.status, names(p.backends), p.failures, s.status, s.backends, s.failures)
				}
				if p.answered && (p.complete == s.incomplete || !p.observed.Equal(at(s.observed)) || p.ttl != 5*time.Second) {
					t.Errorf("step %d: complete %t, observed %v, TTL %v", i, p.complete, p.observed.Sub(start), p.ttl)
				}
				if good := p.status == "fresh" && p.complete; good != (p.reason == "") {
					t.Errorf("step %d: %s, complete %t, for the reason %q", i, p.status, p.complete, p.reason)
				}
			}
		})
	}
}

func TestProgressGoesOnFromWhatIsStored(t *testing.T) {
	p := begin(&record{Answer: &found{Backends: named("a"), Complete: false}}, func() time.Time { return at(-30) })
	if p.status != "stale" || names(p.backends) != "a" || p.complete || !p.observed.Equal(at(-30)) {
		t.Errorf("got %+v", p)
	}
	if n := p.after(said(dns.Failure, 1)); n.status != "stale" || names(n.backends) != "a" || !n.observed.Equal(at(-30)) {
		t.Errorf("after a failure: %+v", n)
	}
	if n := p.after(said(dns.Absent, 1)); n.status != "stale" || names(n.backends) != "a" {
		t.Errorf("one absence is believed right after a takeover: %+v", n)
	}
}

func drawResult(t *rapid.T, second float64) dns.Result {
	r := said(dns.Outcome(rapid.IntRange(int(dns.Answer), int(dns.Failure)).Draw(t, "outcome")), second)
	some := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3, rapid.ID[string]).Draw(t, "hosts")
	known := map[dns.Outcome]int{dns.Answer: len(some)}[r.Outcome]
	if r.Outcome == dns.Partial {
		known = rapid.IntRange(0, len(some)-1).Draw(t, "resolved")
	}
	for i, n := range some {
		if i < known {
			r.Targets = append(r.Targets, target(n))
		} else if r.Outcome == dns.Partial {
			r = without(r, n)
		}
	}
	return r
}

func TestProgressNeverEmptyUnlessItWasSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := begin(&record{}, nil)
		var before dns.Result
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			r := drawResult(t, float64(i))
			n := p.after(r)
			emptied := n.status == "fresh" && len(n.backends) == 0
			confirmed := r.Outcome == dns.Absent && (before.Outcome == dns.Absent || p.answered && len(p.backends) == 0)
			if emptied && r.Outcome != dns.Empty && !confirmed {
				t.Fatalf("fresh and empty after %s then %s", before.Outcome, r.Outcome)
			}
			if r.Outcome == dns.Failure && (n.status == "fresh" || names(n.backends) != names(p.backends) || !n.observed.Equal(p.observed)) {
				t.Fatalf("a failure changed %+v to %+v", p, n)
			}
			if n.status == "fresh" && !n.observed.Equal(r.At) {
				t.Fatalf("fresh, and last heard at %v instead of %v", n.observed.Sub(start), r.At.Sub(start))
			}
			p, before = n, r
		}
	})
}

// A copy that is kept up is as good as the answers that it was made of.
func TestProgressGoesOnFromACopy(t *testing.T) {
	c := copyOf(dnsSource, "fresh", 500, 5*time.Second, "", "a", "b")
	p := resume(c.Value, c.Stored)
	if p.status != "fresh" || names(p.backends) != "a b" || !p.complete || !p.observed.Equal(at(-0.5)) || p.ttl != 5*time.Second || !p.answered {
		t.Errorf("got %+v", p)
	}
	if n := p.after(said(dns.Absent, 1)); n.status != "stale" || names(n.backends) != "a b" {
		t.Errorf("one absence is believed right after a takeover: %+v", n)
	}
}
