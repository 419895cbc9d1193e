package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
	"muster/wire"
)

const pattern = `^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`

// noNames are the names of the report, and more of their kind.
var noNames = []string{
	"a b", "a..b", ".a", "a.", "*", ">", "a:b", "é", "", "$KV", "_", "a/b", "a\tb", "a\r\nb", "а", // the last is Cyrillic
	"-", "_a", "-a", "a b c", " a", "a ", "a.b", "a*", "*.a", ">.a", "a>", "a\\b", "a%2Eb", "a@b", "a+b", "a=b", "a,b", "a|b", `"`, "'",
	"\u00a0", "a\u200b", "ａ", "𝒂", "$JS", "$SYS", "_INBOX", "_req", "a\x00b", "a\x7fb",
	strings.Repeat("a", 65), strings.Repeat("a", 200),
}

// A name with white space cannot be sent as part of a subject: the protocol ends the subject there, and what comes is
// another request or none. Subjects with an empty token the server gives to nobody: "no responders". Those names go where
// they can be sent: into bodies, headers, and the command line.
func sendable(name string) bool { return !strings.ContainsAny(name, " \t\r\n") }

func TestField_B124_NamesInSubjects(t *testing.T) {
	s := natstest.Start(t)
	startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	ask(t, nc, "muster.declare.list", "").ok(t)
	spy := startSpy(t, s.URL())
	raw := rawConnect(t, s.URL())
	for _, name := range noNames {
		if !sendable(name) {
			continue
		}
		for op, field := range map[string]string{
			"set.%s.a": "hive", "set.h1.%s": "agent", "create.%s.a": "hive", "create.h1.%s": "agent",
			"apply.%s": "hive", "view.%s": "hive", "status.%s": "hive", "set.%[1]s.%[1]s": "hive",
		} {
			subject := "muster.declare." + fmt.Sprintf(op, name)
			spy.own(subject)
			got, delivered := raw.ask(subject, state("up"))
			if empty := strings.Contains(subject+".", ".."); empty != !delivered {
				t.Errorf("%q: delivered %t", subject, delivered)
			}
			if !delivered {
				continue
			}
			e := got.refused(t, wire.InvalidRequest)
			if !strings.Contains(e.Message, pattern) {
				t.Errorf("%q: the message lacks the pattern: %s", subject, e.Message)
			}
			if !strings.Contains(name, ".") && e.Details["field"] != field { // with a dot it is not one name in one place
				t.Errorf("%q: field %v, want %s", subject, e.Details["field"], field)
			}
		}
	}
	for _, subject := range []string{"muster.declare.set.h1", "muster.declare.set.h1.a.b", "muster.declare.view.h1.a", "muster.declare.apply.h1.a"} {
		spy.own(subject)
		got, _ := raw.ask(subject, state("up"))
		got.refused(t, wire.InvalidRequest)
	}
	spy.sawNothingElse()
	names, err := wanted(t, nc).kv.ListKeys(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	for key := range names.Keys() {
		t.Errorf("key %q was stored", key)
	}
}

func TestField_B124_NamesInBodiesAndHeaders(t *testing.T) {
	s := natstest.Start(t)
	startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	ask(t, nc, "muster.declare.list", "").ok(t)
	spy := startSpy(t, s.URL())
	refused := func(what, subject, body, field string, headers ...string) {
		t.Helper()
		spy.own(subject)
		e := ask(t, nc, subject, body, headers...).refused(t, wire.InvalidRequest)
		if got, _ := e.Details["field"].(string); field != "" && got != field {
			t.Errorf("%s: field %q, want %q", what, got, field)
		}
	}
	for _, name := range append(noNames, strings.Repeat("a", 4096)) {
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"agents":{"good":{"state":"up"},%s:{"state":"up"}}}`, quoted)
		e := ask(t, nc, "muster.declare.apply.h1", body).refused(t, wire.InvalidRequest)
		spy.own("muster.declare.apply.h1")
		if field, _ := e.Details["field"].(string); !strings.Contains(e.Message, pattern) || !strings.HasPrefix(field, "agents.") || len(field) > 300 {
			t.Errorf("%.80q: %v %s", name, e.Details, e.Message)
		}
		if name != "" { // the beginning of the list
			refused(name, "muster.declare.list", fmt.Sprintf(`{"after":%s}`, quoted), "after")
		}
		if name != "_" && name != "-" && name != "_a" && name != "-a" && name != "_req" && name != "_INBOX" && !strings.ContainsAny(name, "\r\n\x00") &&
			name == strings.TrimSpace(name) { // what headers can carry and ids may not be
			refused(name, "muster.declare.set.h1.a", state("up"), "Muster-Request-Id", "Muster-Request-Id", name)
		}
	}
	spy.sawNothingElse()
	for _, name := range []string{"a", "Z", "0", "a_b-c", "a-", "a_", strings.Repeat("a", 64), "NUL", "true", "null"} { // that are names
		ask(t, nc, "muster.declare.set."+name+"."+name, state("up")).ok(t)
		ask(t, nc, "muster.declare.view."+name, "").ok(t)
	}
}

// spy listens to everything in the account.
type spy struct {
	t    *testing.T
	nc   *nats.Conn
	mu   sync.Mutex
	saw  map[string]int
	ours map[string]bool
}

func startSpy(t *testing.T, url string) *spy {
	t.Helper()
	s := &spy{t: t, nc: natstest.Connect(t, url), saw: map[string]int{}, ours: map[string]bool{}}
	if _, err := s.nc.Subscribe(">", func(m *nats.Msg) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.saw[m.Subject]++
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return s
}

// own says that the test itself publishes to a subject.
func (s *spy) own(subject string) { s.ours[subject] = true }

// sawNothingElse checks that beside the test's own requests and the answers to them there was only what a replica asks
// whether anybody makes requests or not.
func (s *spy) sawNothingElse() {
	s.t.Helper()
	end := "test.end"
	s.ours[end] = true
	if err := s.nc.Publish(end, nil); err != nil {
		s.t.Fatal(err)
	}
	natstest.Eventually(s.t, 5*time.Second, "the spy has seen everything", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.saw[end] > 0
	})
	s.mu.Lock()
	seen := maps.Clone(s.saw)
	s.mu.Unlock()
	requests := 0
	for subject := range seen {
		switch {
		case s.ours[subject]:
			requests++
		case strings.HasPrefix(subject, "_INBOX."), strings.HasPrefix(subject, "$JS.EVENT.ADVISORY.STREAM.CREATED.KV_muster_"), subject == "$JS.EVENT.ADVISORY.API",
			subject == "$JS.API.STREAM.INFO.KV_muster_wanted", subject == "$JS.API.STREAM.INFO.KV_muster_reported":
		default:
			s.t.Errorf("the spy saw a message on %q", subject)
		}
	}
	if requests < 2 {
		s.t.Error("the spy did not see the requests: nothing was shown")
	}
}

// rawConn speaks the client protocol by itself, since clients check subjects.
type rawConn struct {
	t  *testing.T
	c  net.Conn
	r  *bufio.Reader
	id int
}

func rawConnect(t *testing.T, url string) *rawConn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	r := &rawConn{t: t, c: c, r: bufio.NewReader(c)}
	r.send("CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"lang\":\"raw\",\"version\":\"1\"}\r\n")
	return r
}

func (r *rawConn) send(s string) {
	r.t.Helper()
	if _, err := r.c.Write([]byte(s)); err != nil {
		r.t.Fatalf("write %.100q: %v", s, err)
	}
}

// ask sends a request with any subject. Not delivered means that the server says at once that nobody answers there.
func (r *rawConn) ask(subject, body string) (_ answer, delivered bool) {
	r.t.Helper()
	r.id++
	reply := "_INBOX.raw." + strconv.Itoa(r.id)
	r.send(fmt.Sprintf("SUB %s %d\r\nPUB %s %s %d\r\n%s\r\n", reply, r.id, subject, reply, len(body), body))
	if err := r.c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	for {
		line, err := r.r.ReadString('\n')
		if err != nil {
			r.t.Fatalf("no answer to %q: %v", subject, err)
		}
		words := strings.Fields(line)
		switch words[0] {
		case "-ERR":
			r.t.Fatalf("request %q: server says %s", subject, line)
		case "PING":
			r.send("PONG\r\n")
		case "MSG", "HMSG":
			return r.message(subject, words)
		}
	}
}

func (r *rawConn) message(subject string, words []string) (_ answer, delivered bool) {
	r.t.Helper()
	number := func(i int) int {
		n, err := strconv.Atoi(words[len(words)-i])
		if err != nil {
			r.t.Fatalf("message %v: %v", words, err)
		}
		return n
	}
	b := make([]byte, number(1)+len("\r\n"))
	if _, err := io.ReadFull(r.r, b); err != nil {
		r.t.Fatal(err)
	}
	b = b[:len(b)-2]
	m := &nats.Msg{Data: b}
	if words[0] == "HMSG" {
		h, err := nats.DecodeHeadersMsg(b[:number(2)])
		if err != nil {
			r.t.Fatalf("answer to %q: headers %q: %v", subject, b, err)
		}
		m.Header, m.Data = h, b[number(2):]
	}
	if m.Header.Get("Status") == "503" && len(m.Data) == 0 {
		return answer{}, false
	}
	a, err := read(subject, m)
	if err != nil {
		r.t.Fatalf("answer to %q, headers %v: %v", subject, m.Header, err)
	}
	return a, true
}
