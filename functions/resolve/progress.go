package resolve

import (
	"time"

	"muster/functions/resolve/dns"
	"muster/wire"
)

// progress is how far the replica that resolves has come with a DNS source.
type progress struct {
	answered bool // by the zone, at some time
	backends []backend
	complete bool
	observed time.Time     // of the last good answer
	ttl      time.Duration // of it
	status   string
	reason   string
	absent   bool // the last answer said that there is nothing; one alone is not believed
	failures int  // in a row, answers with gaps among them
}

// begin goes on from what is stored of a service.
func begin(r *record, age func() time.Time) progress {
	p := progress{status: wire.StatusUnresolved, reason: "the first answer is awaited"}
	if a := r.Answer; a != nil {
		p.answered, p.backends, p.complete = true, a.Backends, a.Complete
		p.observed, p.status, p.reason = age(), wire.StatusStale, "resolving was taken over, the first answer is awaited"
	}
	return p
}

// resume goes on from a copy that the replica before has kept until now. What it was told still holds.
func resume(c *copied, stored time.Time) progress {
	return progress{
		answered: true, backends: c.Backends, complete: c.Complete, observed: stored.Add(-time.Duration(c.AgeMS) * time.Millisecond),
		ttl: c.ttl, status: c.Status, reason: c.Reason,
	}
}

// after is the progress once a result has come.
//
//	answer, partial   fresh; what could not be resolved keeps its last address
//	empty             fresh, no backends
//	absent            believed when it comes twice in a row; until then the last backends, stale
//	failure           the last backends, stale; so is a partial answer that leaves none
func (p progress) after(r dns.Result) progress {
	n := p
	n.reason = r.Reason
	n.absent = r.Outcome == dns.Absent
	n.failures = 0
	if r.Outcome == dns.Partial || r.Outcome == dns.Failure {
		n.failures = p.failures + 1
	}
	targets, complete := dns.Merge(targetsOf(p.backends), r)
	switch {
	case r.Outcome == dns.Absent && p.believes():
		targets, complete = nil, true
	case r.Outcome == dns.Failure, r.Outcome == dns.Absent, len(targets) == 0 && !complete:
		if n.answered {
			n.status = wire.StatusStale
		}
		return n
	}
	n.complete = complete
	n.answered, n.backends, n.observed, n.ttl, n.status = true, backendsOf(targets), r.At, r.TTL, wire.StatusFresh
	if n.complete {
		n.reason = ""
	}
	return n
}

// believes tells whether an absence that comes now is certain.
func (p progress) believes() bool { return p.absent || p.answered && len(p.backends) == 0 }

func backendsOf(targets []dns.Target) []backend {
	all := make([]backend, len(targets))
	for i, t := range targets {
		all[i] = backend{
			Backend: wire.Backend{Name: t.Name, Address: t.Address, Priority: t.Priority, Weight: t.Weight}, Target: t.Host,
		}
	}
	return all
}

func targetsOf(backends []backend) []dns.Target {
	all := make([]dns.Target, len(backends))
	for i, b := range backends {
		all[i] = dns.Target{Name: b.Name, Address: b.Address, Priority: b.Priority, Weight: b.Weight, Host: b.Target}
	}
	return all
}
