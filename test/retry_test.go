package test

import (
	"bytes"
	"fmt"
	"testing"

	"muster/runtime/natstest"
	"muster/wire"
)

// A request with an id gets its first outcome again, whatever was done to the hive by hand meanwhile, and does nothing.
func TestRetryAcrossHandWork(t *testing.T) { onEach(t, retryAcrossHandWork) }

func retryAcrossHandWork(t *testing.T, copies int) {
	s := startNodes(t, copies)
	a, b := pair(t, s.URL(), s.URL(), copies)
	nc := natstest.Connect(t, s.URL())
	kv := wanted(t, nc)
	n := 0
	for _, op := range []struct{ ids, body, other string }{
		{"set.%s.a", state("up"), state("paused")},
		{"create.%s.new", state("up"), state("paused")},
		{"create.%s.z", state("up"), state("paused")}, // changes nothing: it is there
		{"apply.%s", `{"agents":{"a":{"state":"up"},"b":{"state":"offline"}}}`, `{"agents":{"a":{"state":"up"}}}`},
		{"set.%s.a", `{"state":"up","reply":"brief"}`, `{"state":"up"}`},
	} {
		for what, byHand := range map[string]func(string) uint64{
			"put":    func(hive string) uint64 { return kv.put(hive, `{"agents":{"a":{"state":"destroyed"}}}`) },
			"broken": func(hive string) uint64 { return kv.put(hive, "not json") },
			"delete": func(hive string) uint64 { return kv.remove(hive, false) },
			"purge":  func(hive string) uint64 { return kv.remove(hive, true) },
		} {
			n++
			hive := fmt.Sprintf("h%d", n)
			subject := fmt.Sprintf(op.ids, hive)
			ask(t, nc, a.subject("set."+hive+".z"), state("offline")).ok(t)
			first := ask(t, nc, a.subject(subject), op.body, "Muster-Request-Id", "one")
			first.ok(t)
			rev := byHand(hive)
			for _, r := range []*replica{a, b} {
				again := ask(t, nc, r.subject(subject), op.body, "Muster-Request-Id", "one")
				if !bytes.Equal(again.raw, first.raw) {
					t.Errorf("%s %s, %s by hand, retried at %s: %s, was %s", op.ids, op.body, what, r.name, again.raw, first.raw)
				}
				ask(t, nc, r.subject(subject), op.other, "Muster-Request-Id", "one").refused(t, wire.RequestIDReused)
			}
			if last := kv.last(hive).Sequence; last != rev {
				t.Errorf("%s, %s by hand at %d: a retry wrote revision %d", op.ids, what, rev, last)
			}
		}
	}
	// The same content in another form is the same; another subject is another request; a failure is judged anew.
	ask(t, nc, a.subject("set.h1.a"), `{"state":"up","reply":"brief"}`, "Muster-Request-Id", "form")
	kv.put("h1", `{"agents":{}}`)
	first := ask(t, nc, a.subject("set.h1.a"), `{"state":"up","reply":"brief"}`, "Muster-Request-Id", "form2").ok(t)
	again := ask(t, nc, b.subject("set.h1.a"), " {\n \"reply\":\"brief\", \"st\\u0061te\":\"up\" } ", "Muster-Request-Id", "form2").ok(t)
	if again.Revision != first.Revision || !again.Changed {
		t.Errorf("another form of the same body: %+v, was %+v", again, first)
	}
	if other := ask(t, nc, b.subject("set.h1.b"), state("paused"), "Muster-Request-Id", "form2").ok(t); other.Revision <= first.Revision {
		t.Errorf("the same id on another subject got %+v", other)
	}
	e := ask(t, nc, a.subject("set.h1.a"), `{"state":"paused","if_revision":1}`, "Muster-Request-Id", "failed").refused(t, wire.RevisionMismatch)
	if e.RequestID != "failed" {
		t.Errorf("request_id %q", e.RequestID)
	}
	body := fmt.Sprintf(`{"state":"paused","if_revision":%d}`, detail(e, "revision"))
	ask(t, nc, b.subject("set.h1.a"), body, "Muster-Request-Id", "failed").ok(t)
	ask(t, nc, a.subject("set.h1.a"), body, "Muster-Request-Id", "failed").ok(t) // no conflict with its own first attempt
}
