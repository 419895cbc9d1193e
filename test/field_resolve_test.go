package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/functions/resolve/dns/dnstest"
	"muster/runtime/natstest"
	"muster/wire"
)

func TestField_B045_GarbageToResolve(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	p := serveProcess(t, s.URL(), "resolve")
	nc := natstest.Connect(t, s.URL())
	id := micro(t, nc, "$SRV.PING.muster-resolve").ID
	l := register(t, nc, nil, "orderly", "b", "1h")
	becomes(t, nc, nil, "orderly", "fresh b", startLimit) // a registration may take a moment to show
	orderly := watchLookups(t, nc, nil, "orderly", time.Millisecond, func(f found) error {
		if f.String() != "fresh b" {
			return fmt.Errorf("hurt: %s", f)
		}
		return nil
	})
	asked := 0
	refused := func(op, subject, body string) {
		t.Helper()
		asked++
		if got := ask(t, nc, subject, body); got.failure == nil || got.failure.Code != wire.InvalidRequest {
			t.Errorf("%s of %.100q: %.200s", op, body, got.raw)
		} else if len(body) > 60 && strings.Contains(got.failure.Message, body) {
			t.Errorf("%s: the message repeats the body: %s", op, got.failure.Message)
		}
	}
	schemas := schemasIn(t, nc, "resolve")
	for op, e := range endpointsOf(t, nc, "resolve") {
		subject := requestSubject(e.Subject, schemas[op].Subject)
		for _, body := range garbage() {
			refused(op, subject, body)
		}
		properties := schemas[op].Request.Properties
		nulls := map[string]json.RawMessage{}
		for member, property := range properties {
			nulls[member] = json.RawMessage("null")
			for _, v := range wrongTypes(property.Type) {
				body := map[string]json.RawMessage{"address": json.RawMessage(`"[fd00::1]:80"`), "lease": json.RawMessage(`"x"`)}
				maps.DeleteFunc(body, func(name string, _ json.RawMessage) bool { _, ok := properties[name]; return !ok })
				body[member] = json.RawMessage(v)
				b, err := json.Marshal(body)
				if err != nil {
					t.Fatal(err)
				}
				refused(op, subject, string(b))
			}
		}
		b, err := json.Marshal(nulls)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []string{"", " ", "{}", string(b)} {
			asked++
			got := ask(t, nc, subject, body)
			required := schemas[op].Request.Required
			switch {
			case len(required) > 0:
				if e := got.refused(t, wire.InvalidRequest); e.Details["field"] != required[0] {
					t.Errorf("%s of %q: field %v, want %s", op, body, e.Details["field"], required[0])
				}
			case op == "define":
				got.refused(t, wire.InvalidRequest)
			case op == "lookup", op == "remove":
				got.refused(t, wire.ServiceNotFound)
			default:
				got.ok(t)
			}
		}
	}
	orderly.stop()
	ask(t, nc, "muster.resolve.heartbeat.orderly.b", withLease(l.Lease)).ok(t)
	if got := micro(t, nc, "$SRV.PING.muster-resolve").ID; got != id || !p.running() {
		t.Errorf("service id %s, was %s", got, id)
	}
	_, metrics := p.get("/metrics")
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "muster_panics_total") && !strings.HasSuffix(line, " 0\n") {
			t.Errorf("a panic: %s", line)
		}
	}
	if f := mustLook(t, nc, nil, "h1"); f.code != wire.ServiceNotFound {
		t.Errorf("garbage was stored: %s", f.raw)
	}
	if asked < 400 || len(orderly.all()) < 20 {
		t.Errorf("%d requests of garbage beside %d orderly ones show little", asked, len(orderly.all()))
	}
}

// Each code of resolve's own, and those of others that it can give for reasons of its own.
func TestField_B048_ResolveErrorCodes(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	startResolve(t, s.URL(), "resolve", 1)
	nc := natstest.Connect(t, s.URL())
	server := dnstest.Start(t)
	server.Zone(zone("mgs", 60, 1)...)
	server.Script("_dead._tcp.rack.internal.", "SRV", dnstest.ServFail())
	defineDNS(t, nc, plainSubject, "mgs", server)
	defineDNS(t, nc, plainSubject, "dead", server)
	becomes(t, nc, nil, "mgs", "fresh mgs0", startLimit)
	ask(t, nc, "muster.resolve.define.used", `{"leases":{}}`, "Muster-Request-Id", "used").ok(t)
	natstest.Eventually(t, startLimit, "the answer is a moment old", func() bool { return mustLook(t, nc, nil, "mgs").AgeMS > 20 })
	covered := map[wire.Code]bool{}
	for _, c := range []struct {
		code          wire.Code
		subject, body string
		headers       []string
	}{
		{wire.ServiceNotFound, "lookup.unknown", "", nil},
		{wire.ServiceNotFound, "remove.unknown", "", nil},
		{wire.LeaseExpired, "heartbeat.unknown.b", withLease("x"), nil},
		{wire.LeaseExpired, "deregister.unknown.b", withLease("x"), nil},
		{wire.LeaseExpired, "register.unknown2.b", `{"address":"[fd00::1]:80","lease":"never-given"}`, nil},
		{wire.NotResolvedYet, "lookup.dead", "", nil},
		{wire.TooStale, "lookup.mgs", `{"max_age":"1ms"}`, nil},
		{wire.InvalidRequest, "lookup.mgs", `{"max_age":"soon"}`, nil},
		{wire.InvalidRequest, "lookup.mgs", `{"max_age":"-1s"}`, nil},
		{wire.InvalidRequest, "define.mgs", `{"static":{},"leases":{}}`, nil},
		{wire.InvalidRequest, "define.mgs", `{"static":{"a":"fd00::1:80"}}`, nil},
		{wire.InvalidRequest, "register.x.b", `{"address":"fd00::1:80"}`, nil},
		{wire.InvalidRequest, "register.mgs.b", `{"address":"[fd00::1]:80"}`, nil}, // its backends come from DNS
		{wire.RequestIDReused, "define.used", `{"static":{}}`, []string{"Muster-Request-Id", "used"}},
		{wire.UnsupportedAPIVersion, "lookup.mgs", "", []string{"Muster-Api-Version", "3"}},
		{wire.TooLarge, "define.mgs", `{"leases":{}` + strings.Repeat(" ", 300<<10) + "}", nil},
	} {
		ask(t, nc, "muster.resolve."+c.subject, c.body, c.headers...).refused(t, c.code)
		covered[c.code] = true
	}
	declared := map[string]bool{}
	for _, op := range schemasIn(t, nc, "resolve") {
		for _, code := range op.Errors {
			declared[code] = true
		}
	}
	for code := range resolveContract {
		if !covered[code] || !declared[string(code)] {
			t.Errorf("%s: covered %t, in some op's list of errors %t", code, covered[code], declared[string(code)])
		}
	}
	for _, ok := range []string{`{"max_age":"1h"}`, "", "{}"} {
		ask(t, nc, "muster.resolve.lookup.mgs", ok).ok(t)
	}
	ask(t, nc, "muster.resolve.lookup.used", `{"max_age":"0s"}`).ok(t) // leases are known now
}

// What resolve sends whether anybody asks or not.
var resolvesOwn = regexp.MustCompile(`^(_INBOX\..*|\$JS\.EVENT\.ADVISORY\..*|\$JS\.ACK\..*|\$KV\.muster_resolved\._resolver|` +
	`\$JS\.API\.(STREAM\.(INFO|MSG\.GET)|CONSUMER\.(CREATE|DELETE|INFO))\.(KV_muster_(services|backends|resolved)|MUSTER_[A-Z]+)(\..*)?|` +
	`\$JS\.API\.(STREAM\.NAMES|INFO|CONSUMER\.MSG\.NEXT\.MUSTER_TRIGGERS\.muster-resolve)|\$JS\.S\.[A-Za-z0-9]+)$`)

func TestField_B124_NamesOfServices(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	startResolve(t, s.URL(), "resolve", 1)
	nc := natstest.Connect(t, s.URL())
	ask(t, nc, "muster.resolve.services", "").ok(t)
	spy := startSpy(t, s.URL())
	raw := rawConnect(t, s.URL())
	for _, name := range noNames {
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		const inBody = "muster.resolve.define.good"
		spy.own(inBody)
		e := ask(t, nc, inBody, fmt.Sprintf(`{"static":{%s:"[fd00::1]:80"}}`, quoted)).refused(t, wire.InvalidRequest)
		if !strings.Contains(e.Message, pattern) && name == strings.ToValidUTF8(name, "") {
			t.Errorf("%q in a static list: %s", name, e.Message)
		}
		if !sendable(name) {
			continue
		}
		for op, field := range map[string]string{
			"lookup.%s": "service", "define.%s": "service", "remove.%s": "service", "register.%s.b": "service", "register.mgs.%s": "backend",
			"heartbeat.%s.b": "service", "heartbeat.mgs.%s": "backend", "deregister.mgs.%s": "backend",
		} {
			subject := "muster.resolve." + fmt.Sprintf(op, name)
			spy.own(subject)
			body := `{"address":"[fd00::1]:80"}`
			if !strings.HasPrefix(op, "register") {
				body = "{}"
			}
			got, delivered := raw.ask(subject, body)
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
			if !strings.Contains(name, ".") && e.Details["field"] != field {
				t.Errorf("%q: field %v, want %s", subject, e.Details["field"], field)
			}
		}
	}
	ask(t, nc, "muster.resolve.services", "").ok(t) // whatever was behind them is done
	spy.mu.Lock()
	defer spy.mu.Unlock()
	for _, subject := range slices.Sorted(maps.Keys(spy.saw)) {
		if !spy.ours[subject] && !resolvesOwn.MatchString(subject) && subject != "muster.resolve.services" {
			t.Errorf("the spy saw a message on %q", subject)
		}
	}
	if len(spy.saw) < 20 {
		t.Error("the spy did not see the requests: nothing was shown")
	}
}

// 1,000 lookups, half of them unknown, and 1,000 registrations.
func TestField_B129_SeriesOfResolve(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	p := serveProcess(t, s.URL(), "resolve")
	nc := natstest.Connect(t, s.URL())
	before := series(t, p)
	for op, schema := range schemasIn(t, nc, "resolve") {
		for _, code := range schema.Errors {
			zero(t, before, fmt.Sprintf(`muster_request_errors_total{error_code=%q,function="resolve",op=%q}`, code, op))
		}
	}
	for from := 0; from < 1000; from += 250 {
		for _, got := range together(t, nc, 250, func(i int) request {
			return request{fmt.Sprintf("muster.resolve.register.userservice-%d.userbackend-%d", (from+i)%500, from+i), `{"address":"[fd00::1]:80"}`, []string{"Muster-Request-Id", fmt.Sprintf("userid-%d", from+i)}}
		}) {
			got.ok(t)
		}
	}
	missing := 0
	for _, got := range together(t, nc, 1000, func(i int) request {
		return request{fmt.Sprintf("muster.resolve.lookup.userservice-%d", i), "", nil}
	}) {
		if got.failure != nil {
			got.refused(t, wire.ServiceNotFound)
			missing++
		}
	}
	if missing != 500 {
		t.Errorf("%d of 1,000 lookups found nothing, want 500", missing)
	}
	after := series(t, p)
	if len(after) >= 500 || len(after)-len(before) >= 50 {
		t.Errorf("%d series, were %d at the start; must stay under 500 and grow by under 50", len(after), len(before))
	}
	for name := range after {
		if strings.Contains(name, "user") {
			t.Errorf("a label holds what users made: %s", name)
		}
	}
}
