package dns

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	mdns "github.com/miekg/dns"
)

// addressTypes are the families of addresses; both are backends.
var addressTypes = []uint16{mdns.TypeAAAA, mdns.TypeA}

// assemble makes the result of SRV records and of what is known about the addresses of their targets.
func assemble(srv reply, known map[key]reply) Result {
	res := Result{Outcome: Answer, At: srv.at, TTL: clamp(srv.ttl, maxTTL)}
	var why []string
	for _, s := range distinct(srv.srv) {
		host := mdns.CanonicalName(s.Target)
		shown := strings.TrimSuffix(host, ".")
		origin := shown + ":" + strconv.Itoa(int(s.Port))
		hole := Gap{Host: origin, Priority: s.Priority, Weight: s.Weight}
		if s.Port == 0 {
			res.Outcome, res.Gaps, why = Partial, append(res.Gaps, hole), append(why, shown+": port 0")
			continue
		}
		var failed, failures, absences []string
		usable := false
		for _, qtype := range addressTypes {
			r := known[key{host, qtype}]
			if r.kind == absent {
				absences = append(absences, r.reason)
				continue
			}
			if r.kind != found {
				failed, failures = append(failed, mdns.TypeToString[qtype]), append(failures, r.reason)
				continue
			}
			usable = true
			res.TTL = min(res.TTL, r.left(srv.at))
			for _, a := range r.addrs {
				res.Targets = append(res.Targets, Target{
					Host: origin, Address: netip.AddrPortFrom(a, s.Port).String(), Priority: s.Priority, Weight: s.Weight,
				})
			}
		}
		switch {
		case !usable:
			res.Outcome = Partial
		case len(failed) == 1:
			hole.Type = failed[0]
		default:
			continue
		}
		if len(failures) == 0 {
			failures = absences
		}
		res.Gaps = append(res.Gaps, hole)
		why = append(why, shown+": "+strings.Join(slices.Compact(failures), ", "))
	}
	res.Targets = arrange(res.Targets)
	res.Reason = bounded(strings.Join(why, "; "))
	return res
}

// distinct are the SRV records by host and port, each once: the most preferred of several.
func distinct(records []*mdns.SRV) []*mdns.SRV {
	all := slices.DeleteFunc(slices.Clone(records), func(s *mdns.SRV) bool { return s.Target == "." })
	place := func(a, b *mdns.SRV) int {
		return cmp.Or(cmp.Compare(mdns.CanonicalName(a.Target), mdns.CanonicalName(b.Target)), cmp.Compare(a.Port, b.Port))
	}
	slices.SortFunc(all, func(a, b *mdns.SRV) int {
		return cmp.Or(place(a, b), cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.Weight, a.Weight))
	})
	return slices.CompactFunc(all, func(a, b *mdns.SRV) bool { return place(a, b) == 0 })
}

// arrange names the targets and puts them in order; equal ones become one.
func arrange(targets []Target) []Target {
	slices.SortFunc(targets, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Address, b.Address))
	})
	targets = slices.CompactFunc(targets, func(a, b Target) bool { return a.Host == b.Host && a.Address == b.Address })
	giveNames(targets)
	slices.SortFunc(targets, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
	})
	return targets
}

// Merge closes the gaps of an Answer or a Partial result with the last targets, and tells whether the list is complete,
// that is, without anything kept or missing. A target that is in the zone no more is not kept. An Empty result is complete
// and has no targets.
//
// Absent and Failure bring nothing to merge: the last targets come back, and are incomplete. A list that is empty and
// incomplete is no empty service: nobody knows a backend.
func Merge(last []Target, r Result) (targets []Target, complete bool) {
	switch r.Outcome {
	case Absent, Failure:
		return last, false
	case Empty:
		return nil, true
	case Answer, Partial:
	}
	targets, complete = slices.Clone(r.Targets), true
	for _, g := range r.Gaps {
		if g.Type == "" {
			complete = false
		}
		for _, t := range last {
			if t.Host != g.Host || g.Type != "" && g.Type != family(t.Address) {
				continue
			}
			complete = false
			t.Priority, t.Weight = g.Priority, g.Weight
			targets = append(targets, t)
		}
	}
	return arrange(targets), complete
}

// family is the type of the record that an address comes from.
func family(address string) string {
	if strings.HasPrefix(address, "[") {
		return mdns.TypeToString[mdns.TypeAAAA]
	}
	return mdns.TypeToString[mdns.TypeA]
}
