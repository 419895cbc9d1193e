package declare_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"muster/functions/declare"
	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

// served is the function on a real server, with its real buckets.
type served struct {
	nc     *nats.Conn
	wanted jetstream.KeyValue
	reg    *prometheus.Registry
}

func serve(t *testing.T, opts ...natstest.Option) served {
	t.Helper()
	node := natstest.Start(t, opts...)
	bus, err := runtime.Connect(runtime.Options{Name: t.Name(), Dial: runtime.URL(node.URL()), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	fn := declare.New(declare.Deps{Wanted: bus.Bucket(runtime.Wanted), Reported: bus.Bucket(runtime.Reported), Now: time.Now})
	reg := prometheus.NewRegistry()
	svc, err := bus.Serve(ctx, fn, reg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := bus.Stop(ctx, svc); err != nil {
			t.Error(err)
		}
		if err := bus.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	s := served{nc: natstest.Connect(t, node.URL()), reg: reg}
	js, err := jetstream.New(s.nc)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, 20*time.Second, "the function made its bucket", func() bool {
		s.wanted, err = js.KeyValue(ctx, wire.BucketWanted)
		return err == nil
	})
	return s
}

// ask sends a request and returns its reply as it came, and as an error if it is one.
func (s served) ask(t *testing.T, subject, body string) (string, wire.ErrorBody) {
	t.Helper()
	m, err := s.nc.Request(subject, []byte(body), 10*time.Second)
	if err != nil {
		t.Fatalf("%s %.100s: %v", subject, body, err)
	}
	var e wire.ErrorBody
	if err := json.Unmarshal(m.Data, &e); err != nil {
		t.Fatalf("%s %.100s: reply %.200s: %v", subject, body, m.Data, err)
	}
	if failed := e.Code != ""; failed != (m.Header.Get(wire.HeaderErrorCode) == fmt.Sprint(e.Status) && failed) {
		t.Errorf("%s: header %q beside body %.200s", subject, m.Header.Get(wire.HeaderErrorCode), m.Data)
	}
	return string(m.Data), e
}

func (s served) stored(t *testing.T, hive string) (string, uint64) {
	t.Helper()
	e, err := s.wanted.Get(context.Background(), hive)
	if err != nil {
		t.Fatalf("get %s: %v", hive, err)
	}
	return string(e.Value()), e.Revision()
}

func (s served) panics(t *testing.T) (n float64) {
	t.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "muster_panics_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

func TestBus_TheWayThrough(t *testing.T) {
	s := serve(t)
	for _, c := range []struct{ subject, body, want string }{
		{"view.h1", ``, `HiveNotDeclared`},
		{"create.h1.atlas", `{"state":"up"}`, `{"hive":"h1","revision":1,"changed":true,"agents":{"atlas":{"state":"up"}}}`},
		{"create.h1.atlas", `{"state":"paused"}`, `{"hive":"h1","revision":1,"changed":false,"agents":{"atlas":{"state":"up"}}}`},
		{"set.h1.iris", `{"state":"offline","if_revision":1,"reply":"brief"}`, `{"hive":"h1","revision":2,"changed":true}`},
		{"set.h1.iris", `{"state":"up","if_revision":1}`, `RevisionMismatch`},
		{"apply.h1", `{"agents":{"atlas":{"state":"destroyed"},"zed":{"state":"up"}},"dry_run":true}`,
			`{"hive":"h1","revision":2,"changed":true,"agents":{"atlas":{"state":"destroyed"},"iris":{"state":"offline"},"zed":{"state":"up"}}}`},
		{"apply.h1", `{"agents":{"atlas":{"state":"destroyed"},"zed":{"state":"up"}}}`,
			`{"hive":"h1","revision":3,"changed":true,"agents":{"atlas":{"state":"destroyed"},"iris":{"state":"offline"},"zed":{"state":"up"}}}`},
		{"set.h1.atlas", `{"state":"up"}`, `AgentDestroyed`},
		{"view.h1", `{}`, `{"hive":"h1","revision":3,"changed":false,"agents":{"atlas":{"state":"destroyed"},"iris":{"state":"offline"},"zed":{"state":"up"}}}`},
		{"create.h2.a", `{"state":"up","if_revision":0,"reply":"brief"}`, `{"hive":"h2","revision":4,"changed":true}`},
		{"list", `{"limit":1}`, `{"hives":[{"hive":"h1","revision":3,"agents":3}],"next":"h1"}`},
		{"list", `{"after":"h1"}`, `{"hives":[{"hive":"h2","revision":4,"agents":1}],"next":""}`},
		{"status.h2", ``, `{"hive":"h2","revision":4,"wanted_revision_seen":null,"reported_at":null,"age_ms":null,"stale":true,"in_sync":false,` +
			`"agents":{"a":{"wanted":"up","reported":"unknown","in_sync":false,"error":""}}}`},
	} {
		got, e := s.ask(t, "muster.declare."+c.subject, c.body)
		if got != c.want && (e.Code == "" || string(e.Code) != c.want) {
			t.Errorf("%s %s\n got %s\nwant %s", c.subject, c.body, got, c.want)
		}
	}
	if value, _ := s.stored(t, "h2"); value != `{"agents":{"a":{"state":"up"}}}` {
		t.Errorf("stored: %s", value)
	}
}

// Field report B118: a typo never becomes an unconditional write.
func TestField_B118_Typos(t *testing.T) {
	s := serve(t)
	s.ask(t, "muster.declare.set.h.a", `{"state":"up"}`)
	before, revision := s.stored(t, "h")
	for _, c := range []struct{ op, body, field string }{
		{"set.h.a", `{"stat":"up"}`, "stat"},
		{"set.h.a", `{"state":"paused","if_revison":7}`, "if_revison"},
		{"set.h.a", `{"state":"paused","If_revision":7}`, "If_revision"},
		{"set.h.a", `{"state":"paused","if_revision":"7"}`, "if_revision"},
		{"set.h.a", `{"state":"paused","if_revision":7.5}`, "if_revision"},
		{"set.h.a", `{"state":"paused","if_revision":1e400}`, "if_revision"},
		{"set.h.a", `{"state":"paused","dry_run":true}`, "dry_run"},
		{"set.h.a", `{"state":"paused","state":"up"}`, "state"},
		{"set.h.a", `{"state":"pasued"}`, "state"},
		{"set.h.a", `{"ſtate":"paused"}`, "ſtate"},
		{"create.h.b", `{"state":"up","if_revison":0}`, "if_revison"},
		{"apply.h", `{"agents":{"a":{"state":"paused","if_revision":1}}}`, "agents.a.if_revision"},
		{"apply.h", `{"agents":{"a":{"stat":"paused"}}}`, "agents.a.stat"},
		{"apply.h", `{"agents":{"a":{"state":"pasued"}}}`, "agents.a.state"},
		{"apply.h", `{"agents":{"a":{"state":"paused"},"b":{}}}`, "agents.b.state"},
		{"apply.h", `{"agents":{"a":{"state":"paused"},"b c":{"state":"up"}}}`, "agents.b c"},
		{"apply.h", `{"agents":{"a":{"state":"paused"}},"dryrun":true}`, "dryrun"},
		{"apply.h", `{"agent":{"a":{"state":"paused"}}}`, "agent"},
		{"view.h", `{"revision":1}`, "revision"},
		{"list", `{"Limit":1}`, "Limit"},
	} {
		got, e := s.ask(t, "muster.declare."+c.op, c.body)
		if e.Code != wire.InvalidRequest || e.Details["field"] != c.field {
			t.Errorf("%s %s: %s, want InvalidRequest for %q", c.op, c.body, got, c.field)
		}
	}
	if after, now := s.stored(t, "h"); after != before || now != revision {
		t.Errorf("one of them was written: %s at %d", after, now)
	}
}

// Field report B138 in a real bucket, written by hand as an operator would.
func TestField_B138_UnknownMembersInTheBucket(t *testing.T) {
	s := serve(t)
	const rest = `,"n":9007199254740993,"by":{"x":[1.0, 2]}}`
	put := `{"agents":{"a":{"state":"up","n":9007199254740993,"deep":{"n":9007199254740993}},"b":{"state":"up","n":1e2}}` + rest
	if _, err := s.wanted.Put(context.Background(), "h1", []byte(put)); err != nil {
		t.Fatal(err)
	}
	const a, b = `"n":9007199254740993,"deep":{"n":9007199254740993}}`, `,"b":{"state":"up","n":1e2}`
	for _, c := range []struct{ op, body, want string }{
		{"set.h1.c", `{"state":"up"}`, `{"agents":{"a":{"state":"up",` + a + b + `,"c":{"state":"up"}}` + rest},
		{"set.h1.a", `{"state":"paused"}`, `{"agents":{"a":{"state":"paused",` + a + b + `,"c":{"state":"up"}}` + rest},
		{"apply.h1", `{"agents":{"a":{"state":"offline"},"c":{"state":"paused"}}}`, `{"agents":{"a":{"state":"offline",` + a + b + `,"c":{"state":"paused"}}` + rest},
		{"set.h1.c", `{"state":"destroyed"}`, `{"agents":{"a":{"state":"offline",` + a + b + `,"c":{"state":"destroyed"}}` + rest},
		{"create.h1.c", `{"state":"up"}`, `{"agents":{"a":{"state":"offline",` + a + b + `,"c":{"state":"up"}}` + rest},
	} {
		if got, e := s.ask(t, "muster.declare."+c.op, c.body); e.Code != "" {
			t.Fatalf("%s %s: %s", c.op, c.body, got)
		}
		if got, _ := s.stored(t, "h1"); got != c.want {
			t.Errorf("after %s %s\n got %s\nwant %s", c.op, c.body, got, c.want)
		}
	}
	s.ask(t, "muster.declare.set.h1.a", `{"state":"destroyed"}`)
	if got, _ := s.stored(t, "h1"); !strings.HasSuffix(got, b+`,"c":{"state":"up"}}`+rest) {
		t.Errorf("after the destroy of a: %s", got)
	}
}

// Field report B017 against a real max_payload.
func TestField_B017_RecordUpToMaxPayload(t *testing.T) {
	s := serve(t, natstest.MaxPayload(64<<10))
	const limit = 48 << 10
	var refused wire.ErrorBody
	agents := 0
	for refused.Code == "" { // 20 at a time, until they do not fit
		var members []string
		for i := range 20 {
			members = append(members, fmt.Sprintf(`"a%04d%s":{"state":"up"}`, agents+i, strings.Repeat("x", 50)))
		}
		_, refused = s.ask(t, "muster.declare.apply.big", `{"agents":{`+strings.Join(members, ",")+`}}`)
		agents += 20
	}
	agents -= 20
	size, _ := refused.Details["size"].(float64)
	if refused.Code != wire.TooLarge || refused.Details["limit"] != float64(limit) || size <= limit {
		t.Fatalf("%+v", refused)
	}
	record, _ := s.stored(t, "big")
	if n := strings.Count(record, "state"); n != agents || agents < 400 {
		t.Errorf("%d agents are stored, %d were accepted", n, agents)
	}
	if got, e := s.ask(t, "muster.declare.set.big.a0000"+strings.Repeat("x", 50), `{"state":"destroyed"}`); e.Code != "" {
		t.Errorf("change one that is there: %.200s", got)
	}
	if got, e := s.ask(t, "muster.declare.create.small.a", `{"state":"up"}`); e.Code != "" {
		t.Errorf("a small new hive: %.200s", got)
	}
	if got, e := s.ask(t, "muster.declare.view.big", ``); e.Code != "" {
		t.Errorf("view: %.200s", got)
	}
	if s.nc.Stats().Reconnects != 0 {
		t.Error("the connection was lost")
	}
}

// Field report B045 on every endpoint of declare: nothing that is sent can be anything but refused or served.
func TestField_B045_EveryBodyToEveryEndpoint(t *testing.T) {
	s := serve(t)
	s.ask(t, "muster.declare.create.h.a", `{"state":"up"}`)
	_, before := s.stored(t, "h")
	ping := func() string {
		m, err := s.nc.Request("$SRV.PING.muster-declare", nil, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var p struct{ ID string }
		if err := json.Unmarshal(m.Data, &p); err != nil || p.ID == "" {
			t.Fatalf("%s: %v", m.Data, err)
		}
		return p.ID
	}
	id := ping()
	bodies := []string{"", "null", "[]", "{}", `""`, "7", "true", strings.Repeat("[", 10000), `{"agents":` + strings.Repeat(`[`, 10000), strings.Repeat(`{"a":`, 10000), "{", "\x00", "\uFEFF{}"}
	for _, name := range []string{"state", "if_revision", "reply", "agents", "dry_run", "after", "limit"} {
		for _, value := range []string{`null`, `true`, `-7`, `1e400`, `[]`, `{}`, `"x y"`, `[null]`, `{"a":null}`} {
			bodies = append(bodies, `{"`+name+`":`+value+`}`)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		b := make([]byte, random.IntN(200))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		bodies = append(bodies, string(b), `{"state":"`+string(b)+`"}`)
	}
	lawful := map[string][]string{ // what an endpoint may serve of all this
		"set.h.a": nil, "create.h.a": nil, "apply.h": {`{"agents":{}}`},
		"view.h": {"", "{}"}, "status.h": {"", "{}"}, "schema": {"", "{}"},
		"list": {"", "{}", `{"limit":null}`, `{"after":null}`},
	}
	for _, op := range slices.Sorted(maps.Keys(lawful)) {
		for _, body := range bodies {
			got, e := s.ask(t, "muster.declare."+op, body)
			if want := slices.Contains(lawful[op], body); want != (e.Code == "") || !want && e.Code != wire.InvalidRequest {
				t.Errorf("%s %.60q: %.200s", op, body, got)
			}
		}
	}
	if now := ping(); now != id {
		t.Errorf("service %s became %s", id, now)
	}
	if n := s.panics(t); n != 0 {
		t.Errorf("%v panics", n)
	}
	if value, revision := s.stored(t, "h"); revision != before {
		t.Errorf("something was written: %s", value)
	}
}
