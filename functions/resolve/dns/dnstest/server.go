// Package dnstest is a real DNS server for tests: on loopback, UDP and TCP on one port, with an answer scripted for each
// name and record type, down to garbage and silence. It keeps the time of every query, so that a test can tell how often
// a question was asked.
package dnstest

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

// Server is a DNS server. What it has no script for does not exist: NXDOMAIN, or no records where the name has others.
type Server struct {
	addr string
	udp  net.PacketConn
	tcp  net.Listener

	mu      sync.Mutex
	scripts map[question][]Reply
	all     []Reply
	queries map[question][]Query
}

type question struct {
	name  string
	qtype uint16
}

// Query is one that came.
type Query struct {
	At      time.Time
	Network string // "udp" or "tcp"
}

// Start starts a server on a port of its own; it ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{scripts: map[question][]Reply{}, queries: map[question][]Query{}}
	if err := s.listen(); err != nil {
		t.Fatalf("dnstest: %v", err)
	}
	for _, srv := range []*mdns.Server{{PacketConn: s.udp, Handler: s}, {Listener: s.tcp, Handler: s}} {
		started, ended := make(chan struct{}), make(chan error, 1)
		srv.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- srv.ActivateAndServe() }()
		select {
		case <-started:
		case err := <-ended:
			t.Fatalf("dnstest: %v", err)
		}
		t.Cleanup(func() {
			if err := srv.Shutdown(); err != nil {
				t.Errorf("dnstest: stop: %v", err)
			}
			if err := <-ended; err != nil {
				t.Errorf("dnstest: serve: %v", err)
			}
		})
	}
	return s
}

// listen takes a port that is free for both networks.
func (s *Server) listen() error {
	var err error
	for range 20 {
		if s.udp, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			return err
		}
		s.addr = s.udp.LocalAddr().String()
		if s.tcp, err = net.Listen("tcp", s.addr); err == nil {
			return nil
		}
		_ = s.udp.Close() // another program has the port for TCP
	}
	return err
}

// Addr is where the server listens, "127.0.0.1:port".
func (s *Server) Addr() string { return s.addr }

// Script says what is replied to a question from now on: the replies in turn, the last one again and again. Without any
// the question has no script any more. The type is as it is written, "SRV".
func (s *Server) Script(name, qtype string, replies ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := ask(name, qtype)
	if len(replies) == 0 {
		delete(s.scripts, q)
		return
	}
	s.scripts[q] = replies
}

// Zone scripts records, as a zone file writes them, under the names and types they have. Other scripts stay.
//
//	s.Zone("_mgs._tcp.rack.internal. 5 IN SRV 0 0 80 mgs0.rack.internal.", "mgs0.rack.internal. 5 IN AAAA fd00::1")
func (s *Server) Zone(records ...string) {
	sets := map[question][]string{}
	for _, r := range records {
		h := parse(r).Header()
		q := question{mdns.CanonicalName(h.Name), h.Rrtype}
		sets[q] = append(sets[q], r)
	}
	for q, set := range sets {
		s.Script(q.name, mdns.TypeToString[q.qtype], Records(set...))
	}
}

// All gives every query the same reply, whatever its script: an outage. Without a reply the scripts are back.
func (s *Server) All(reply ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = reply
}

// Queries are all that came for a question, oldest first.
func (s *Server) Queries(name, qtype string) []Query {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Query(nil), s.queries[ask(name, qtype)]...)
}

// Count is how many queries came for a question.
func (s *Server) Count(name, qtype string) int { return len(s.Queries(name, qtype)) }

// MaxPerSecond is the most queries for a question that came within any one second.
func (s *Server) MaxPerSecond(name, qtype string) int { return busiest(s.Queries(name, qtype)) }

// Busiest is the most queries that came within any one second for any question, and which.
func (s *Server) Busiest() (most int, name, qtype string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for q, all := range s.queries {
		if n := busiest(all); n > most {
			most, name, qtype = n, q.name, mdns.TypeToString[q.qtype]
		}
	}
	return most, name, qtype
}

func busiest(all []Query) int {
	most, first := 0, 0
	for i, q := range all {
		for q.At.Sub(all[first].At) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// ServeDNS answers one query; it is for the server below.
func (s *Server) ServeDNS(w mdns.ResponseWriter, m *mdns.Msg) {
	at := time.Now()
	defer func() { _ = w.Close() }() // hangs up over TCP: a query has a connection of its own
	if len(m.Question) != 1 {
		return
	}
	network := w.LocalAddr().Network()
	for _, packet := range s.reply(m, network, at).packets(m, network) {
		if _, err := w.Write(packet); err != nil {
			return // the one who asked is gone
		}
	}
}

// reply counts a query and takes the next reply of its script.
func (s *Server) reply(m *mdns.Msg, network string, at time.Time) Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := question{mdns.CanonicalName(m.Question[0].Name), m.Question[0].Qtype}
	s.queries[q] = append(s.queries[q], Query{at, network})
	if len(s.all) > 0 {
		return s.all[0]
	}
	script, ok := s.scripts[q]
	if !ok {
		return s.unscripted(m)
	}
	if len(script) > 1 {
		s.scripts[q] = script[1:]
	}
	return script[0]
}

func (s *Server) unscripted(m *mdns.Msg) Reply {
	name := mdns.CanonicalName(m.Question[0].Name)
	for q := range s.scripts {
		if q.name == name {
			return NoData(1)
		}
	}
	return NXDomain(1)
}

func ask(name, qtype string) question {
	t, ok := mdns.StringToType[strings.ToUpper(qtype)]
	if !ok {
		panic("dnstest: no record type: " + qtype)
	}
	return question{mdns.CanonicalName(name), t}
}
