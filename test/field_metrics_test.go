package test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
)

func TestField_B129_SeriesStayFew(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	p := serveProcess(t, s.URL())
	nc := natstest.Connect(t, s.URL())
	before := series(t, p)
	const hives, batch = 5000, 250
	for from := 0; from < hives; from += batch {
		for i, got := range together(t, nc, batch, func(i int) request {
			return request{
				fmt.Sprintf("muster.declare.apply.userhive-%d", from+i),
				`{"agents":{"useragent-a":{"state":"up"},"useragent-b":{"state":"offline"}}}`, nil,
			}
		}) {
			if got.failure != nil {
				t.Fatalf("hive %d: %s", from+i, got.raw)
			}
		}
	}
	for _, got := range together(t, nc, 1000, func(i int) request { // half of them unknown
		return request{fmt.Sprintf("muster.declare.view.userhive-%d", hives-500+i), "", nil}
	}) {
		if got.failure != nil {
			got.refused(t, "HiveNotDeclared")
		}
	}
	for i, got := range together(t, nc, 500, func(i int) request { // each wrong in a way of its own
		return request{
			fmt.Sprintf("muster.declare.set.userhive-%d.useragent-%d", i, i), fmt.Sprintf(`{"usermember-%d":%d}`, i, i),
			[]string{"Muster-Request-Id", fmt.Sprintf("userid-%d", i)},
		}
	}) {
		if got.failure == nil {
			t.Fatalf("request %d: %s", i, got.raw)
		}
	}
	for i := range 300 {
		ask(t, nc, fmt.Sprintf("muster.declare.set.userhive-%d.useragent-a", i), `{"state":"paused"}`, "Muster-Request-Id", fmt.Sprintf("userid-ok-%d", i)).ok(t)
		ask(t, nc, fmt.Sprintf("muster.declare.view.user@hive-%d", i), "").refused(t, "InvalidRequest")
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
	t.Logf("%d series, were %d", len(after), len(before))
}

// series are the lines of /metrics: names with labels to values.
func series(t *testing.T, p *program) map[string]string {
	t.Helper()
	status, body := p.get("/metrics")
	if status != 200 {
		t.Fatalf("/metrics: status %d", status)
	}
	found := map[string]string{}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			t.Errorf("a line that is no sample: %q", line)
		}
		found[name] = value
	}
	return found
}

// Zero from the start: each op's totals, and each error code that the op can give.
func TestField_B129_SeriesExistFromTheStart(t *testing.T) {
	s := natstest.Start(t)
	p := serveProcess(t, s.URL())
	got := series(t, p)
	nc := natstest.Connect(t, s.URL())
	for op, schema := range schemasOf(t, nc) {
		for _, name := range []string{"muster_requests_total", "muster_no_reply_total", "muster_panics_total"} {
			zero(t, got, fmt.Sprintf(`%s{function="declare",op=%q}`, name, op))
		}
		if len(schema.Errors) == 0 {
			t.Errorf("%s declares no errors", op)
		}
		for _, code := range schema.Errors {
			zero(t, got, fmt.Sprintf(`muster_request_errors_total{error_code=%q,function="declare",op=%q}`, code, op))
		}
	}
	ask(t, nc, "muster.declare.view.nowhere", "").refused(t, "HiveNotDeclared")
	ask(t, nc, "muster.declare.set.h1.a", state("up")).ok(t)
	got = series(t, p)
	for name, want := range map[string]string{
		`muster_request_errors_total{error_code="HiveNotDeclared",function="declare",op="view"}`: "1",
		`muster_requests_total{function="declare",op="view"}`:                                    "1",
		`muster_requests_total{function="declare",op="set"}`:                                     "1",
		`muster_requests_in_flight{function="declare",op="set"}`:                                 "0",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %s", name, got[name], want)
		}
	}
}

func zero(t *testing.T, got map[string]string, name string) {
	t.Helper()
	if got[name] != "0" {
		t.Errorf("%s is %q at the start, want 0", name, got[name])
	}
}

var noReplySeries = regexp.MustCompile(`^muster_no_reply_total\{.*op="([a-z]+)"`)

// A request without a reply subject, as `nats pub` sends it, is not applied but counted.
func TestNoReply(t *testing.T) {
	s := natstest.Start(t)
	p := serveProcess(t, s.URL())
	nc := natstest.Connect(t, s.URL())
	ask(t, nc, "muster.declare.set.h1.a", state("up")).ok(t)
	kv := wanted(t, nc)
	before, rev := kv.value("h1")
	sent := map[string]string{"set": "h1.a", "create": "h1.b", "apply": "h1", "view": "h1", "status": "h1"}
	for op, ids := range sent {
		body := state("paused")
		if op == "apply" {
			body = `{"agents":{"a":{"state":"paused"}}}`
		}
		if err := nc.PublishMsg(&nats.Msg{Subject: "muster.declare." + op + "." + ids, Data: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, startLimit, "all are counted", func() bool {
		counted := 0
		for name, value := range series(t, p) {
			if m := noReplySeries.FindStringSubmatch(name); m != nil && sent[m[1]] != "" && value == "1" {
				counted++
			}
		}
		return counted == len(sent)
	})
	ask(t, nc, "muster.declare.set.h2.a", state("up")).ok(t) // whatever was behind them is done
	if after, at := kv.value("h1"); after != before || at != rev {
		t.Errorf("applied without a reply subject: %s at %d", after, at)
	}
}
