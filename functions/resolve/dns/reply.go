package dns

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	mdns "github.com/miekg/dns"
)

// kind is what a reply is worth.
type kind int

const (
	found     kind = iota + 1 // records of the type asked for
	absent                    // there are none: NXDOMAIN or NODATA
	truncated                 // ask again over TCP
	broken                    // the server, or all of them, cannot say
	foreign                   // not an answer to this question at all; wait for another packet
)

// reply is what was said to one question.
type reply struct {
	kind   kind
	srv    []*mdns.SRV   // of an SRV question, as they came
	addrs  []netip.Addr  // of an address question, as they came
	glue   map[key]reply // address records that came with an SRV answer
	ttl    time.Duration // the smallest of the records used, not clamped
	reason string        // of absent and broken
	silent bool          // broken because nothing came
	cut    bool          // broken because the caller had no more time, which says nothing about the servers
	at     time.Time     // when it came; read leaves that to the one who asked
}

// noTTL is for an absence that does not say how long it holds.
const noTTL = maxEmptyTTL

func brokenf(format string, args ...any) reply {
	return reply{kind: broken, reason: fmt.Sprintf(format, args...)}
}

// read judges one packet as the answer to a query. It believes nothing that does not parse to its end: a server that
// sends half of its records must not make the other half vanish.
func read(query *mdns.Msg, packet []byte) reply {
	m := new(mdns.Msg)
	err := m.Unpack(packet)
	if len(packet) < headerSize || m.Id != query.Id || !m.Response || m.Opcode != mdns.OpcodeQuery {
		return reply{kind: foreign}
	}
	failed := m.Rcode != mdns.RcodeSuccess && m.Rcode != mdns.RcodeNameError
	if bare := count(packet, 0) == 0 && len(packet) == headerSize; bare && failed && err == nil {
		return brokenf("%s", rcode(m.Rcode)) // some servers refuse with a header alone
	}
	if len(m.Question) != 1 || !sameQuestion(m.Question[0], query.Question[0]) {
		return reply{kind: foreign}
	}
	if m.Truncated {
		return reply{kind: truncated}
	}
	// Unpack takes a packet that ends before its counts are reached for a shorter one.
	if err != nil || len(m.Answer) != count(packet, 1) || len(m.Ns) != count(packet, 2) || len(m.Extra) != count(packet, 3) {
		return reply{kind: foreign}
	}
	if failed {
		return brokenf("%s", rcode(m.Rcode))
	}
	return readRecords(m)
}

const headerSize = 12

// count is how many entries the header announces for section i: question, answer, authority, additional.
func count(packet []byte, i int) int { return int(binary.BigEndian.Uint16(packet[4+2*i:])) }

func sameQuestion(a, b mdns.Question) bool {
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && sameName(a.Name, b.Name)
}

func sameName(a, b string) bool { return mdns.CanonicalName(a) == mdns.CanonicalName(b) }

func rcode(code int) string {
	if s, ok := mdns.RcodeToString[code]; ok {
		return s
	}
	return fmt.Sprintf("RCODE %d", code)
}

// maxAliases bounds a chain of CNAME records; a loop ends there too.
const maxAliases = 16

// readRecords reads a whole answer with a good return code.
func readRecords(m *mdns.Msg) reply {
	name, qtype := mdns.CanonicalName(m.Question[0].Name), m.Question[0].Qtype
	r := reply{kind: found, ttl: -1}
	aliases := 0
	for {
		next := ""
		for _, rr := range m.Answer {
			if rr.Header().Class != mdns.ClassINET || mdns.CanonicalName(rr.Header().Name) != name {
				continue
			}
			if alias, ok := rr.(*mdns.CNAME); ok {
				next = mdns.CanonicalName(alias.Target)
				r.lower(rr)
			} else if rr.Header().Rrtype == qtype && r.take(rr) {
				r.lower(rr)
			}
		}
		if next == "" || len(r.srv)+len(r.addrs) > 0 {
			break
		}
		if aliases++; aliases > maxAliases {
			return brokenf("an alias that never ends")
		}
		name = next
	}
	if len(r.srv)+len(r.addrs) == 0 {
		return readAbsence(m, aliases > 0)
	}
	if m.Rcode != mdns.RcodeSuccess {
		return brokenf("NXDOMAIN with records")
	}
	if qtype == mdns.TypeSRV {
		r.glue = readGlue(m.Extra)
	}
	return r
}

// readAbsence judges an answer without records. Absence is believed when it is said: by NXDOMAIN, by a SOA record, or by
// nothing at all. A referral to other servers, an alias that leads out of the answer or records of other names say that
// this server does not know.
func readAbsence(m *mdns.Msg, aliased bool) reply {
	r := reply{kind: absent, ttl: -1, reason: "no records"}
	refers := false
	for _, rr := range m.Ns {
		switch rr := rr.(type) {
		case *mdns.SOA:
			r.lower(rr)
			r.ttl = min(r.ttl, seconds(rr.Minttl))
		case *mdns.NS:
			refers = true
		}
	}
	said := r.ttl >= 0
	if !said {
		r.ttl = noTTL
	}
	switch {
	case m.Rcode == mdns.RcodeNameError:
		r.reason = "NXDOMAIN"
	case said:
	case aliased:
		return brokenf("an alias without its records")
	case len(m.Answer) > 0:
		return brokenf("records that do not answer the question")
	case refers:
		return brokenf("referral to other servers")
	}
	return r
}

// readGlue are the addresses in the additional section.
func readGlue(extra []mdns.RR) map[key]reply {
	glue := map[key]reply{}
	for _, rr := range extra {
		h := rr.Header()
		if h.Class != mdns.ClassINET || !slices.Contains(addressTypes, h.Rrtype) {
			continue
		}
		k := key{mdns.CanonicalName(h.Name), h.Rrtype}
		r, ok := glue[k]
		if !ok {
			r = reply{kind: found, ttl: -1}
		}
		if r.take(rr) {
			r.lower(rr)
			glue[k] = r
		}
	}
	return glue
}

// take adds a record. It tells whether it is one that can be used: an address of all zeros is none.
func (r *reply) take(rr mdns.RR) bool {
	var raw []byte
	switch rr := rr.(type) {
	case *mdns.SRV:
		r.srv = append(r.srv, rr)
		return true
	case *mdns.AAAA:
		raw = rr.AAAA.To16()
	case *mdns.A:
		raw = rr.A.To4()
	}
	a, ok := netip.AddrFromSlice(raw)
	if !ok || a.IsUnspecified() {
		return false
	}
	r.addrs = append(r.addrs, a)
	return true
}

// lower brings the TTL down to that of a record.
func (r *reply) lower(rr mdns.RR) {
	if t := seconds(rr.Header().Ttl); r.ttl < 0 || t < r.ttl {
		r.ttl = t
	}
}

// seconds reads a TTL: one with the top bit set counts as 0 (RFC 2181, section 8).
func seconds(ttl uint32) time.Duration {
	if ttl > 1<<31-1 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}

func clamp(ttl, most time.Duration) time.Duration { return min(max(ttl, minTTL), most) }

// left is what remained of the TTL at a time; nothing has passed before the reply came.
func (r reply) left(at time.Time) time.Duration {
	return clamp(clamp(r.ttl, maxTTL)-max(0, at.Sub(r.at)), maxTTL)
}

// hosts are the names that SRV records point to, each once, sorted; none if they all say that there is no such service.
func (r reply) hosts() []string {
	var hosts []string
	for _, s := range r.srv {
		if s.Target != "." {
			hosts = append(hosts, mdns.CanonicalName(s.Target))
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// maxReason bounds what an operator has to read.
const maxReason = 300

// bounded makes a reason fit. All that comes from a packet was escaped to printable
// ASCII before, so it may be cut anywhere.
func bounded(reason string) string {
	reason = strings.ToValidUTF8(reason, "?")
	if len(reason) > maxReason {
		return strings.TrimRight(reason[:maxReason-3], " ;,") + "..."
	}
	return reason
}
