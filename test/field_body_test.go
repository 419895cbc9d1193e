package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/runtime/natstest"
	"muster/wire"
)

// garbage is what no op takes as its body.
func garbage() map[string]string {
	bodies := map[string]string{
		"null": "null", "array": "[]", "array of objects": "[{}]", "string": `"up"`, "number": "7", "true": "true",
		"10,000 [": strings.Repeat("[", 10_000), "10,000 {\"a\":": strings.Repeat(`{"a":`, 10_000),
		"10,000 deep in a member": `{"state":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "}",
		"open object":             "{", "open string": `{"state":"up`, "half a member": `{"state"`, "no value": `{"state":}`,
		"trailing comma": `{"state":"up",}`, "behind the object": `{"state":"up"} x`, "two objects": `{"state":"up"}{"state":"up"}`,
		"comment": `{/**/"state":"up"}`, "single quotes": `{'state':'up'}`, "NaN": `{"limit":NaN}`,
		"byte order mark": "\xEF\xBB\xBF" + `{"state":"up"}`, "UTF-16": "\xFF\xFE{\x00}\x00", "NUL": "{\x00}",
		"invalid UTF-8": "{\"state\":\"\xC0\xAF\"}", "lone surrogate": `{"state":"\ud800"}`, "surrogate the wrong way": `{"state":"\udc00\ud800"}`,
		"twice": `{"state":"up","state":"up"}`, "twice, escaped": `{"state":"up","st\u0061te":"up"}`,
		"other letter case": `{"State":"up"}`, "long s": `{"` + "ſ" + `tate":"up"}`, "unknown member": `{"hive":"h1"}`,
		"unknown null": `{"x":null}`, "empty name": `{"":1}`, "prototype": `{"__proto__":{}}`, "space behind": `{"state ":"up"}`,
		"large number": `{"limit":1e400}`, "large member name": `{"` + strings.Repeat("x", 100_000) + `":1}`,
	}
	random := rand.New(rand.NewPCG(7, 45))
	for i := range 40 {
		b := make([]byte, 1+random.IntN(2000))
		for j := range b {
			b[j] = byte(random.Uint32())
		}
		bodies[fmt.Sprintf("random bytes %d", i)] = string(b)
	}
	return bodies
}

// wrongTypes are values of every type but one.
func wrongTypes(right string) []string {
	var values []string
	for kind, v := range map[string][]string{
		"string": {`"x"`, `""`}, "integer": {"7"}, "number": {"1.5", "-1", "1e30"}, "boolean": {"true", "false"},
		"object": {"{}", `{"a":1}`}, "array": {"[]", "[1]"},
	} {
		if kind != right {
			values = append(values, v...)
		}
	}
	if right == "integer" {
		values = append(values, "9007199254740993.5", "18446744073709551616", "1e3000")
	}
	return values
}

func TestField_B045_GarbageToEveryEndpoint(t *testing.T) {
	s := natstest.Start(t)
	p := serveProcess(t, s.URL())
	nc := natstest.Connect(t, s.URL())
	id := micro(t, nc, "$SRV.PING.muster-declare").ID
	schemas := schemasOf(t, nc)
	ask(t, nc, "muster.declare.set.h1.h1", state("up")).ok(t)

	var stop atomic.Bool
	var served atomic.Int64
	var wg sync.WaitGroup
	others := make([]error, 4)
	for i := range others { // that must not be hurt
		own := natstest.Connect(t, s.URL())
		wg.Go(func() {
			for n := 0; !stop.Load() && others[i] == nil; n++ {
				began := time.Now()
				a, err := try(own, 5*time.Second, fmt.Sprintf("muster.declare.set.other%d.a", i), state([]string{"up", "paused"}[n%2]))
				if took := time.Since(began); err != nil || a.failure != nil || took > 2*time.Second {
					others[i] = fmt.Errorf("after %v: %w: %s", took, err, a.raw)
				}
				served.Add(1)
			}
		})
	}
	asked := 0
	refused := func(op, what, subject, body string) {
		asked++
		got := ask(t, nc, subject, body)
		if got.failure == nil || got.failure.Code != wire.InvalidRequest {
			t.Errorf("%s, %s: %.200s", op, what, got.raw)
		} else if strings.Contains(got.failure.Message, "\uFFFD") || len(body) > 60 && strings.Contains(got.failure.Message, body) {
			t.Errorf("%s, %s: the message repeats the body: %s", op, what, got.failure.Message)
		}
	}
	for op, e := range endpoints(t, nc) {
		subject := requestSubject(e.Subject, schemas[op].Subject)
		for what, body := range garbage() {
			refused(op, what, subject, body)
		}
		properties := schemas[op].Request.Properties
		for member, p := range properties {
			for _, v := range wrongTypes(p.Type) {
				body := map[string]json.RawMessage{"state": json.RawMessage(`"up"`), "agents": json.RawMessage(`{}`)}
				maps.DeleteFunc(body, func(name string, _ json.RawMessage) bool { _, ok := properties[name]; return !ok })
				body[member] = json.RawMessage(v)
				b, err := json.Marshal(body)
				if err != nil {
					t.Fatal(err)
				}
				refused(op, "wrong type", subject, string(b))
			}
		}
		// Nothing, and nothing in it: what needs no member takes it, everything else says which one it misses.
		nulls := "{"
		for i, member := range slices.Sorted(maps.Keys(properties)) {
			nulls += fmt.Sprintf("%.*s%q:null", min(i, 1), ",", member)
		}
		for _, body := range []string{"", " ", "\n", "{}", " { } ", nulls + "}"} {
			asked++
			got := ask(t, nc, subject, body)
			if len(schemas[op].Request.Required) == 0 {
				got.ok(t)
			} else if e := got.refused(t, wire.InvalidRequest); e.Details["field"] != schemas[op].Request.Required[0] {
				t.Errorf("%s of %q: field %v, want %s", op, body, e.Details["field"], schemas[op].Request.Required[0])
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	for i, err := range others {
		if err != nil {
			t.Errorf("an orderly caller beside it, %d: %v", i, err)
		}
	}
	if got := micro(t, nc, "$SRV.PING.muster-declare").ID; got != id || !p.running() {
		t.Errorf("service id %s, was %s", got, id)
	}
	_, metrics := p.get("/metrics")
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "muster_panics_total") && !strings.HasSuffix(line, " 0\n") {
			t.Errorf("a panic: %s", line)
		}
	}
	if value, _ := wanted(t, nc).value("h1"); value != `{"agents":{"h1":{"state":"up"}}}` {
		t.Errorf("garbage was stored: %s", value)
	}
	if asked < 400 || served.Load() < 20 {
		t.Errorf("%d requests of garbage beside %d orderly ones show little", asked, served.Load())
	}
	t.Logf("%d requests of garbage beside %d orderly ones", asked, served.Load())
}

func TestField_B118_TypoIsRefused(t *testing.T) {
	s := natstest.Start(t)
	startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	kv := wanted(t, nc)
	ask(t, nc, "muster.declare.set.h1.a", state("paused")).ok(t)
	before, rev := kv.value("h1")
	for _, c := range []struct{ op, body, field string }{
		{"set.h1.a", `{"stat":"up"}`, "stat"},
		{"set.h1.a", `{"state":"up","if_revison":7}`, "if_revison"},
		{"set.h1.a", `{"state":"up","ifRevision":7}`, "ifRevision"},
		{"set.h1.a", `{"state":"up","If_revision":7}`, "If_revision"},
		{"set.h1.a", `{"state":"up","if_revision":"7"}`, "if_revision"},
		{"set.h1.a", `{"state":"up","if_revision":7.5}`, "if_revision"},
		{"set.h1.a", `{"state":"up","if_revision":-1}`, "if_revision"},
		{"set.h1.a", `{"state":"up","if_revision":18446744073709551616}`, "if_revision"},
		{"set.h1.a", `{"state":"up","if_revision":[7]}`, "if_revision"},
		{"set.h1.a", `{"state":"Up"}`, "state"},
		{"set.h1.a", `{"state":"running"}`, "state"},
		{"set.h1.a", `{"state":""}`, "state"},
		{"set.h1.a", `{"state":"up","reply":"full"}`, "reply"},
		{"set.h1.a", `{"state":"up","state":"paused"}`, "state"},
		{"create.h1.a", `{"stat":"up"}`, "stat"},
		{"create.h1.b", `{"state":"up","if_revison":0}`, "if_revison"},
		{"create.h1.b", `{"state":"up","dry_run":true}`, "dry_run"},
		{"apply.h1", `{"agents":{"a":{"stat":"up"}}}`, "agents.a.stat"},
		{"apply.h1", `{"agents":{"a":{"state":"up","hw":1}}}`, "agents.a.hw"},
		{"apply.h1", `{"agents":{"a":{"state":"on"}}}`, "agents.a.state"},
		{"apply.h1", `{"agents":{"a":{}}}`, "agents.a.state"},
		{"apply.h1", `{"agents":{"a":"up"}}`, "agents.a"},
		{"apply.h1", `{"agents":{"a":null}}`, "agents.a"},
		{"apply.h1", `{"agents":{"a":{"state":"up"},"a":{"state":"paused"}}}`, "agents.a"},
		{"apply.h1", `{"agent":{"a":{"state":"up"}}}`, "agent"},
		{"apply.h1", `{"agents":{"a":{"state":"up"}},"dryrun":true}`, "dryrun"},
		{"apply.h1", `{"agents":{"a":{"state":"up"}},"dry_run":"true"}`, "dry_run"},
		{"apply.h1", `{"agents":{"a":{"state":"up"}},"if_revison":7}`, "if_revison"},
		{"list", `{"limits":7}`, "limits"},
		{"list", `{"limit":"7"}`, "limit"},
		{"list", `{"limit":1001}`, "limit"},
		{"list", `{"limit":-1}`, "limit"},
		{"view.h1", `{"revision":7}`, "revision"},
		{"status.h1", `{"agent":"a"}`, "agent"},
	} {
		e := ask(t, nc, "muster.declare."+c.op, c.body).refused(t, wire.InvalidRequest)
		if e.Details["field"] != c.field || !strings.Contains(e.Message, c.field) {
			t.Errorf("%s %s: field %v, message %q; want %s named", c.op, c.body, e.Details["field"], e.Message, c.field)
		}
	}
	if after, at := kv.value("h1"); after != before || at != rev {
		t.Errorf("a typo was stored: %s at %d", after, at)
	}
}
