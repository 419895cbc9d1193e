package dnstest

import (
	"fmt"

	mdns "github.com/miekg/dns"
)

// Reply is what the server does with one query. Make one with the functions below.
type Reply struct {
	packets func(query *mdns.Msg, network string) [][]byte
}

// message replies with one well-formed message.
func message(fill func(m *mdns.Msg, network string)) Reply {
	return Reply{func(query *mdns.Msg, network string) [][]byte {
		m := new(mdns.Msg)
		m.SetReply(query)
		m.Authoritative = true
		m.Compress = true
		fill(m, network)
		if size := room(query); network == "udp" && m.Len() > size {
			m.Truncate(size)
		}
		packet, err := m.Pack()
		if err != nil {
			panic(fmt.Sprintf("dnstest: pack: %v", err))
		}
		return [][]byte{packet}
	}}
}

// room is how large an answer over UDP may be.
func room(query *mdns.Msg) int {
	if opt := query.IsEdns0(); opt != nil {
		return int(opt.UDPSize())
	}
	return mdns.MinMsgSize
}

// Records answers with records, written as in a zone file, in the order given.
func Records(records ...string) Reply { return RecordsAndGlue(records, nil) }

// RecordsAndGlue has records in the additional section too.
func RecordsAndGlue(records, glue []string) Reply {
	answer, extra := parseAll(records), parseAll(glue)
	return message(func(m *mdns.Msg, _ string) { m.Answer, m.Extra = answer, extra })
}

// Referral points to other name servers instead of answering.
func Referral(records ...string) Reply {
	ns := parseAll(records)
	return message(func(m *mdns.Msg, _ string) { m.Authoritative, m.Ns = false, ns })
}

// Truncated says over UDP that the answer does not fit, and gives the records over TCP. Without any it says the same
// over TCP.
func Truncated(records ...string) Reply {
	answer := parseAll(records)
	return message(func(m *mdns.Msg, network string) {
		if m.Truncated = network == "udp" || len(answer) == 0; !m.Truncated {
			m.Answer = answer
		}
	})
}

// Code fails with a return code as it is written, "SERVFAIL".
func Code(name string) Reply {
	code, ok := mdns.StringToRcode[name]
	if !ok {
		panic("dnstest: no return code: " + name)
	}
	return message(func(m *mdns.Msg, _ string) { m.Rcode = code })
}

// Replies that fail.
func ServFail() Reply { return Code("SERVFAIL") }
func Refused() Reply  { return Code("REFUSED") }

// NXDomain says that the name does not exist; minimum is how many seconds that holds.
func NXDomain(minimum uint32) Reply {
	return message(func(m *mdns.Msg, _ string) {
		m.Rcode, m.Ns = mdns.RcodeNameError, soa(minimum)
	})
}

// NoData says that the name has no records of this type.
func NoData(minimum uint32) Reply {
	return message(func(m *mdns.Msg, _ string) { m.Ns = soa(minimum) })
}

// NoDataBare says the same without a SOA record.
func NoDataBare() Reply { return message(func(*mdns.Msg, string) {}) }

// Silent does not answer. Over TCP it hangs up.
func Silent() Reply { return Raw() }

// Raw sends packets as they are.
func Raw(packets ...[]byte) Reply {
	return Reply{func(*mdns.Msg, string) [][]byte { return packets }}
}

// Garbage sends bytes that are no DNS message.
func Garbage() Reply { return Raw([]byte("\x00\xff\xfe this is no answer \x80\x81")) }

// Changed sends what change makes of the packet of another reply: a wrong id, a tail cut off.
func Changed(r Reply, change func(packet []byte) []byte) Reply {
	return Reply{func(query *mdns.Msg, network string) [][]byte {
		packets := r.packets(query, network)
		for i := range packets {
			packets[i] = change(packets[i])
		}
		return packets
	}}
}

// WrongID is another reply under another id.
func WrongID(r Reply) Reply {
	return Changed(r, func(p []byte) []byte { p[0] ^= 0xff; return p })
}

// WrongName is another reply to a question that was not asked.
func WrongName(r Reply) Reply {
	return Reply{func(query *mdns.Msg, network string) [][]byte {
		other := query.Copy()
		other.Question[0].Name = "other.invalid."
		return r.packets(other, network)
	}}
}

// Then sends the packets of several replies one after the other, as a forger and the real server would.
func Then(replies ...Reply) Reply {
	return Reply{func(query *mdns.Msg, network string) [][]byte {
		var all [][]byte
		for _, r := range replies {
			all = append(all, r.packets(query, network)...)
		}
		return all
	}}
}

func soa(minimum uint32) []mdns.RR {
	return parseAll([]string{fmt.Sprintf(". 3600 IN SOA ns.invalid. host.invalid. 1 3600 600 86400 %d", minimum)})
}

func parseAll(records []string) []mdns.RR {
	var all []mdns.RR
	for _, r := range records {
		all = append(all, parse(r))
	}
	return all
}

func parse(record string) mdns.RR {
	rr, err := mdns.NewRR(record)
	if err != nil || rr == nil {
		panic(fmt.Sprintf("dnstest: record %q: %v", record, err))
	}
	return rr
}
