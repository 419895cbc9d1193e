package dns

import (
	"strings"
	"testing"

	mdns "github.com/miekg/dns"
)

// wholeAnswer is a query and an answer to it with records in all sections.
func wholeAnswer(t testing.TB) (query *mdns.Msg, packet []byte) {
	query = newQuery(key{"a.x.", mdns.TypeSRV})
	query.Id = 7
	m := zone(query, "a.x. 3 IN SRV 0 0 80 t.x.", "a.x. 3 IN SRV 0 0 80 u.x.", "a.x. 3 IN SRV 0 0 80 v.x.")
	for _, r := range []string{"t.x. 3 IN A 192.0.2.1", "t.x. 3 IN A 192.0.2.2", "t.x. 3 IN AAAA fd00::1"} {
		rr, err := mdns.NewRR(r)
		if err != nil {
			t.Fatal(err)
		}
		m.Extra = append(m.Extra, rr)
	}
	packet, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return query, packet
}

// Some records of an answer are worse than none: the others would look gone.
func TestACutAnswerIsNeverBelieved(t *testing.T) {
	t.Parallel()
	query, packet := wholeAnswer(t)
	if r := read(query, packet); r.kind != found || len(r.srv) != 3 || len(r.glue) != 2 {
		t.Fatalf("the whole answer: %+v", r)
	}
	for n := range packet {
		if r := read(query, packet[:n]); r.kind != foreign {
			t.Errorf("cut to %d of %d bytes: kind %d", n, len(packet), r.kind)
		}
	}
	// Without the other sections the count of answers alone tells.
	m := zone(query, "a.x. 3 IN SRV 0 0 80 t.x.", "a.x. 3 IN SRV 0 0 80 u.x.")
	packet, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	packet[7]++
	if r := read(query, packet); r.kind != foreign {
		t.Errorf("two records of three: kind %d", r.kind)
	}
}

func TestReadAliases(t *testing.T) {
	t.Parallel()
	const soa = "x. 9 IN SOA ns.x. host.x. 1 2 3 4 5"
	for name, tc := range map[string]struct {
		answer, ns []string
		kind       kind
		reason     string
	}{
		"a loop":                      {answer: []string{"t.x. 3 IN CNAME u.x.", "u.x. 3 IN CNAME t.x."}, kind: broken, reason: "an alias that never ends"},
		"out of the answer":           {answer: []string{"t.x. 3 IN CNAME u.y."}, kind: broken, reason: "an alias without its records"},
		"to a name without addresses": {answer: []string{"t.x. 3 IN CNAME u.x."}, ns: []string{soa}, kind: absent, reason: "no records"},
		"only other names":            {answer: []string{"u.x. 3 IN A 192.0.2.1"}, kind: broken, reason: "records that do not answer the question"},
		"only zeros":                  {answer: []string{"t.x. 3 IN A 0.0.0.0"}, kind: broken, reason: "records that do not answer the question"},
		"a referral with its zone":    {ns: []string{"x. 3 IN NS ns.x."}, kind: broken, reason: "referral to other servers"},
		"name servers and SOA":        {ns: []string{"x. 3 IN NS ns.x.", soa}, kind: absent, reason: "no records"},
	} {
		query := newQuery(key{"t.x.", mdns.TypeA})
		m := new(mdns.Msg)
		m.SetReply(query)
		for _, s := range tc.answer {
			rr, _ := mdns.NewRR(s)
			m.Answer = append(m.Answer, rr)
		}
		for _, s := range tc.ns {
			rr, _ := mdns.NewRR(s)
			m.Ns = append(m.Ns, rr)
		}
		packet, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if got := read(query, packet); got.kind != tc.kind || got.reason != tc.reason {
			t.Errorf("%s: kind %d, reason %q; want %d, %q", name, got.kind, got.reason, tc.kind, tc.reason)
		}
	}
}

func FuzzReply(f *testing.F) {
	query, packet := wholeAnswer(f)
	f.Add(packet)
	f.Add(packet[:headerSize])
	f.Add([]byte{})
	refused, err := fail(query, mdns.RcodeRefused).Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(refused)
	f.Add(refused[:headerSize])
	f.Fuzz(func(t *testing.T, packet []byte) {
		r := read(query, packet)
		if r.kind < found || r.kind > foreign {
			t.Fatalf("kind %d", r.kind)
		}
		if ours := len(packet) >= headerSize && packet[0] == 0 && packet[1] == 7 && packet[2]&0x80 != 0; !ours && r.kind != foreign {
			t.Errorf("a packet under another id or no response is taken: %+v", r)
		}
		if (r.kind == found) != (len(r.srv) > 0) || (r.kind == absent || r.kind == broken) != (r.reason != "") {
			t.Errorf("kind %d with %d records and reason %q", r.kind, len(r.srv), r.reason)
		}
		if r.kind == found && r.ttl < 0 || r.kind == absent && r.ttl < 0 {
			t.Errorf("TTL %v", r.ttl)
		}
		if r.kind != found {
			return
		}
		known := map[key]reply{}
		for k, g := range r.glue {
			known[k] = g
		}
		res := assemble(r, known)
		if res.TTL < minTTL || res.TTL > maxTTL || len(res.Reason) > maxReason ||
			strings.ContainsFunc(res.Reason, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("TTL %v, reason %q", res.TTL, res.Reason)
		}
		names := map[string]bool{}
		for _, target := range res.Targets {
			if !validName(target.Name) || names[target.Name] {
				t.Errorf("name %q in %+v", target.Name, res.Targets)
			}
			names[target.Name] = true
		}
	})
}
