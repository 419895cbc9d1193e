package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
	"muster/wire"
)

func TestDead(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	url := node.URL()
	if r := muster("dead", "list", "--nats", url); r.code != exitUnavailable || !strings.Contains(r.err, "is muster serving here?") {
		t.Errorf("before the stream is there: %+v", r)
	}
	serving(t, url)
	js, err := jetstream.New(natstest.Connect(t, url))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // the agent is destroyed when they come, and created before they are replayed
		m := &nats.Msg{Subject: "muster.trigger.declare.set.h1.a", Header: nats.Header{"X-Mine": {"kept"}}}
		m.Data = fmt.Appendf(nil, `{"specversion":"1.0","id":"%d","source":"/s","type":"t","data":{"state":"paused"}}`, i)
		if i == 0 {
			if r := muster("call", "--nats", url, "declare.set.h1.a", `{"state":"destroyed"}`); r.code != exitOK {
				t.Fatalf("%+v", r)
			}
		}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	list := func() []string {
		r := muster("dead", "list", "--nats", url)
		if r.code != exitOK {
			t.Fatalf("list: %+v", r)
		}
		return strings.FieldsFunc(r.out, func(r rune) bool { return r == '\n' })
	}
	natstest.Eventually(t, 20*time.Second, "three are dead", func() bool { return len(list()) == 3 })
	line := regexp.MustCompile(`^\d+ \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ muster\.dead\.declare\.set\.h1\.a AgentDestroyed 1$`)
	for _, l := range list() {
		if !line.MatchString(l) {
			t.Errorf("line %q", l)
		}
	}
	if r := muster("dead", "show", "2", "--nats", url); r.code != exitOK || !strings.Contains(r.out, "X-Mine: kept\n") || !strings.Contains(r.out, "Muster-Error-Code: AgentDestroyed\n") ||
		!strings.Contains(r.out, `"data":{"state":"paused"}`) {
		t.Errorf("show: %+v", r)
	}
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"show", "9"}, exitRefused}, {[]string{"replay", "9"}, exitRefused}, {[]string{"replay", "0"}, exitRefused}, {[]string{"replay"}, exitUsage},
		{[]string{"replay", "1", "--all"}, exitUsage}, {[]string{"show"}, exitUsage}, {[]string{"show", "x"}, exitUsage},
	} {
		if r := muster(append([]string{"dead", "--nats", url}[:1:1], append(c.args, "--nats", url)...)...); r.code != c.code || r.err == "" {
			t.Errorf("%v: %+v, want exit %d and why", c.args, r, c.code)
		}
	}
	if r := muster("call", "--nats", url, "declare.create.h1.a", `{"state":"up"}`); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	if r := muster("dead", "replay", "1", "--nats", url); r.code != exitOK || r.out != "1 muster.trigger.declare.set.h1.a\n" {
		t.Errorf("replay: %+v", r)
	}
	natstest.Eventually(t, 20*time.Second, "it is applied", func() bool {
		return strings.Contains(muster("call", "--nats", url, "declare.view.h1").out, "paused")
	})
	muster("call", "--nats", url, "declare.set.h1.a", `{"state":"offline"}`)
	if r := muster("dead", "replay", "1", "--nats", url); r.code != exitOK || r.out != "" || r.err == "" { // twice is safe
		t.Errorf("replayed again: %+v", r)
	}
	if r := muster("dead", "replay", "--all", "--nats", url); r.code != exitOK || strings.Count(r.out, "\n") != 2 {
		t.Errorf("replay --all: %+v", r)
	}
	if r := muster("dead", "replay", "--all", "--nats", url); r.code != exitOK || r.out != "" {
		t.Errorf("replay --all again: %+v", r)
	}
	natstest.Eventually(t, 20*time.Second, "none is left", func() bool {
		s, err := js.Stream(t.Context(), wire.StreamTriggers)
		return err == nil && s.CachedInfo().State.Msgs == 0
	})
	if l := list(); len(l) != 0 {
		t.Errorf("left: %q", l)
	}
	// The one that a broken connection left on the list is replayed again, and taken once.
	s, err := js.Stream(t.Context(), wire.StreamDead)
	if err != nil {
		t.Fatal(err)
	}
	m := &jetstream.RawStreamMsg{Subject: "muster.dead.declare.set.h1.a", Sequence: 7, Data: []byte(`{"specversion":"1.0","id":"broken","source":"/s","type":"t","data":{"state":"up"}}`)}
	for range 2 {
		if err := replayed(t.Context(), js, s, m); err != nil {
			t.Fatal(err)
		}
	}
	triggers, err := js.Stream(t.Context(), wire.StreamTriggers)
	if err != nil {
		t.Fatal(err)
	}
	if last := triggers.CachedInfo().State.LastSeq; last != 7 { // three, three replayed, and this one
		t.Errorf("%d triggers were published, want 7", last)
	}
}

func TestWatchHive_Causes(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	serving(t, node.URL())
	w := background(t, "watch", "hive", "h1", "--causes", "--nats", node.URL())
	natstest.Eventually(t, 20*time.Second, "the cause is shown", func() bool {
		muster("call", "--nats", node.URL(), "--id", "why-1", "declare.set.h1.a", `{"state":"up"}`)
		return strings.Contains(w.out.String(), "h1 revision 2 at ") && strings.Contains(w.out.String(), "requestid=why-1")
	})
	w.stop(t)
}
