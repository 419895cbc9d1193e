package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
	"muster/wire"
)

// longName makes distinct names of the greatest length.
func longName(i int) string { return fmt.Sprintf("%05d", i) + strings.Repeat("x", 59) }

// many is an apply body of n long-named agents from a number on.
func many(from, n int, s string) string {
	var b strings.Builder
	b.WriteString(`{"reply":"brief","agents":{`)
	for i := from; i < from+n; i++ {
		if i > from {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `%q:{"state":%q}`, longName(i), s)
	}
	return b.String() + "}}"
}

const small = 64 << 10 // max_payload of the servers here
const limit = small - 16<<10

func TestField_B017_RecordGrowsUntilRefused(t *testing.T) {
	s := natstest.Start(t, natstest.MaxPayload(small))
	r := startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	kv := wanted(t, nc)
	agents := 0
	for ; ; agents += 50 { // by fifties, and then one by one
		if got := ask(t, nc, "muster.declare.apply.h1", many(agents, 50, "up")); got.failure != nil {
			tooLarge(t, got)
			break
		}
	}
	value, rev := kv.value("h1")
	var refused answer
	for ; refused.failure == nil; agents++ {
		refused = ask(t, nc, "muster.declare.set.h1."+longName(agents), state("up"))
		if refused.failure == nil {
			value, rev = kv.value("h1")
		}
	}
	agents--
	tooLarge(t, refused)
	for _, op := range []string{"create.h1.newcomer", "set.h1.newcomer"} {
		if got := ask(t, nc, "muster.declare."+op, state("destroyed")); got.failure != nil {
			tooLarge(t, got)
		} else {
			value, rev = kv.value("h1") // a shorter name may still fit
		}
	}
	if after, at := kv.value("h1"); after != value || at != rev {
		t.Errorf("a refused change moved the record from revision %d to %d", rev, at)
	}
	if len(value) > limit || len(value) < limit*2/3 {
		t.Errorf("the record was refused at %d bytes of %d", len(value), limit)
	}

	quick(t, "change an agent of the full hive", func() {
		if d := ask(t, nc, "muster.declare.set.h1."+longName(0), state("paused")).ok(t); !d.Changed || d.Revision <= rev {
			t.Errorf("changed %t at %d", d.Changed, d.Revision)
		}
	})
	quick(t, "declare a new small hive", func() {
		ask(t, nc, "muster.declare.create.h2.a", state("up")).ok(t)
	})
	// Every agent of a full hive can still be given the longest state there is.
	ask(t, nc, "muster.declare.apply.h1", many(0, agents/2, "destroyed")).ok(t)
	ask(t, nc, "muster.declare.apply.h1", many(agents/2, agents-agents/2, "destroyed")).ok(t)
	quick(t, "view the full hive", func() {
		if d := ask(t, nc, "muster.declare.view.h1", "").ok(t); len(d.Agents) < agents {
			t.Errorf("%d agents, want %d", len(d.Agents), agents)
		}
	})
	if n := r.bus.Conn().Stats().Reconnects; n != 0 {
		t.Errorf("the function lost its connection %d times", n)
	}
}

// tooLarge checks that a refusal says how large, and how large is possible.
func tooLarge(t *testing.T, a answer) {
	t.Helper()
	e := a.refused(t, wire.TooLarge)
	if size, most := detail(e, "size"), detail(e, "limit"); most != limit || size <= most {
		t.Errorf("sizes of %s: the limit is %d", a.raw, limit)
	}
}

// quick fails the test when f takes more than a second.
func quick(t *testing.T, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > time.Second {
		t.Errorf("%s took %v", what, took)
	}
}

// A body larger than the product takes, and records of others' making that are larger than a reply may be.
func TestField_B017_LargeBodiesAndRecords(t *testing.T) {
	s := natstest.Start(t)
	r := startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	body := `{"state":"up"` + strings.Repeat(" ", 256<<10) + "}"
	e := ask(t, nc, "muster.declare.set.h1.a", body).refused(t, wire.TooLarge)
	if detail(e, "size") != int64(len(body)) || detail(e, "limit") != 256<<10 {
		t.Errorf("sizes %v of a body of %d bytes", e.Details, len(body))
	}
	kv := wanted(t, nc)
	large := 1<<20 - 16<<10
	kv.put("h1", `{"agents":{"a":{"state":"up"}},"by-hand":"`+strings.Repeat("x", large)+`"}`)
	before, rev := kv.value("h1")
	if got := ask(t, nc, "muster.declare.set.h1.b", state("up")).refused(t, wire.TooLarge); detail(got, "limit") != int64(large) {
		t.Errorf("limit %v, want %d", got.Details, large)
	}
	if after, at := kv.value("h1"); after != before || at != rev {
		t.Error("a refused change was stored")
	}
	ask(t, nc, "muster.declare.set.h2.b", state("up")).ok(t)
	if n := r.bus.Conn().Stats().Reconnects; n != 0 {
		t.Errorf("the function lost its connection %d times", n)
	}
}

func TestField_B041_PagesFitASmallServer(t *testing.T) {
	s := natstest.Start(t, natstest.MaxPayload(small))
	startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	const hives = 1000
	names := make([]string, hives)
	for from := 0; from < hives; from += 100 {
		for i, got := range together(t, nc, 100, func(i int) request {
			names[from+i] = longName(from + i)
			return request{"muster.declare.apply." + names[from+i], many(0, 20, "destroyed"), nil}
		}) {
			if got.failure != nil {
				t.Fatalf("hive %d: %s", from+i, got.raw)
			}
		}
	}
	for _, limit := range []int{0, 1000, 999, 100} {
		if got := pages(t, nc, limit); strings.Join(got, " ") != strings.Join(names, " ") {
			t.Errorf("pages of %d hold %d hives in this order: %.200v, want all %d in theirs", limit, len(got), got, hives)
		}
	}
	quick(t, "view", func() {
		if d := ask(t, nc, "muster.declare.view."+names[999], "").ok(t); len(d.Agents) != 20 {
			t.Errorf("%d agents", len(d.Agents))
		}
	})
	// One record by hand that no reply can carry.
	wanted(t, nc).put("huge", `{"agents":{"a":{"state":"up"}`+strings.Repeat(" ", small-8<<10)+"}}")
	quick(t, "view a record larger than a reply", func() {
		if got := ask(t, nc, "muster.declare.view.huge", ""); got.failure != nil {
			tooLarge(t, got)
		}
	})
	quick(t, "status of it", func() {
		if got := ask(t, nc, "muster.declare.status.huge", ""); got.failure != nil {
			tooLarge(t, got)
		}
	})
	ask(t, nc, "muster.declare.apply.full", many(0, 300, "up")).ok(t)
	quick(t, "status of a full hive", func() {
		if got := ask(t, nc, "muster.declare.status.full", ""); got.failure != nil {
			tooLarge(t, got)
		}
	})
}

// pages reads all pages of the list and returns the hives' names.
func pages(t *testing.T, nc *nats.Conn, limit int) (names []string) {
	t.Helper()
	for after := ""; ; {
		var page struct {
			Hives []wire.HiveLine `json:"hives"`
			Next  *string         `json:"next"`
		}
		body := fmt.Sprintf(`{"after":%q,"limit":%d}`, after, limit)
		if limit == 0 {
			body = fmt.Sprintf(`{"after":%q}`, after)
		}
		quick(t, "a page", func() { ask(t, nc, "muster.declare.list", body).into(t, &page) })
		if page.Next == nil || len(page.Hives) == 0 || limit > 0 && len(page.Hives) > limit {
			t.Fatalf("page after %q: %d hives, next %v", after, len(page.Hives), page.Next)
		}
		for _, h := range page.Hives {
			names = append(names, h.Hive)
			if h.Agents != 20 || h.Revision == 0 {
				t.Errorf("line %+v, want 20 agents and a revision", h)
			}
		}
		if after = *page.Next; after == "" {
			return names
		}
	}
}
