package hive

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// declared makes the record of agents given as "a:up b:paused".
func declared(agents string) []byte {
	var members []string
	for _, a := range strings.Fields(agents) {
		name, state, _ := strings.Cut(a, ":")
		members = append(members, fmt.Sprintf(`%q:{"state":%q}`, name, state))
	}
	return []byte(`{"agents":{` + strings.Join(members, ",") + `}}`)
}

// failer is what both [testing.T] and [rapid.T] are.
type failer interface {
	Helper()
	Fatal(...any)
}

func must(t failer, p *plan, revision uint64, agents string) {
	t.Helper()
	if err := p.declare(revision, declared(agents)); err != nil {
		t.Fatal(err)
	}
}

// todo starts what is due and lists it.
func todo(p *plan, now time.Time) string {
	var out []string
	for _, a := range p.start(now) {
		out = append(out, a.agent+":"+string(a.state))
	}
	return strings.Join(out, " ")
}

// reports lists what is reported, with an exclamation mark for an error.
func reports(p *plan) string {
	r := p.report(start)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.Agents)) {
		mark := ""
		if r.Agents[name].Error != "" {
			mark = "!"
		}
		out = append(out, name+":"+string(r.Agents[name].State)+mark)
	}
	return strings.Join(out, " ")
}

// settled makes a plan that has carried out a declaration.
func settled(t failer, agents string) *plan {
	p := newPlan()
	must(t, p, 1, agents)
	for actions := p.start(start); len(actions) > 0; actions = p.start(start) {
		for _, a := range actions {
			p.done(a, "", start)
		}
	}
	return p
}

func TestPlan_NothingIsKnownSoNothingIsDone(t *testing.T) {
	p := newPlan()
	if got := todo(p, start); got != "" || !p.next().IsZero() {
		t.Errorf("a plan that has seen nothing does %q, next at %v", got, p.next())
	}
	want := wire.Report{WantedRevision: 0, ReportedAt: start, Agents: map[string]wire.ReportAgent{}}
	if d := cmp.Diff(want, p.report(start.In(time.FixedZone("far", 3600)))); d != "" {
		t.Errorf("want -, got +\n%s", d)
	}
}

func TestPlan_CarriesOutADeclaration(t *testing.T) {
	p := newPlan()
	must(t, p, 7, "b:paused a:up c:destroyed")
	if got := reports(p); got != "a:unknown b:unknown c:unknown" {
		t.Errorf("before anything is done it reports %s", got)
	}
	if got := todo(p, start); got != "a:up b:paused c:destroyed" {
		t.Errorf("does %s", got)
	}
	if got := todo(p, start); got != "" {
		t.Errorf("does %s a second time", got)
	}
	for _, a := range []action{{"a", wire.Up}, {"b", wire.Paused}, {"c", wire.Destroyed}} {
		p.done(a, "", start)
	}
	if got := reports(p); got != "a:up b:paused c:destroyed" || p.report(start).WantedRevision != 7 {
		t.Errorf("reports %s of revision %d", got, p.report(start).WantedRevision)
	}
	if got := todo(p, start.Add(time.Hour)); got != "" || !p.next().IsZero() {
		t.Errorf("an hour later it does %q", got)
	}
}

func TestPlan_DoesOnlyWhatChanged(t *testing.T) {
	p := settled(t, "a:up b:up c:up")
	must(t, p, 2, "a:up b:paused c:up d:offline")
	if got := todo(p, start); got != "b:paused d:offline" {
		t.Errorf("does %s", got)
	}
}

// What cannot be read, is missing, or is out of sight changes nothing at all.
func TestPlan_NeverActsOnSilence(t *testing.T) {
	unreadable := map[string]string{
		"nothing": "", "array": "[]", "words": "up", "cut short": `{"agents":{"a":{"state":"paused"}`,
		"agents is an array": `{"agents":[]}`, "agents twice": `{"agents":{"a":{"state":"paused"}},"agents":{}}`,
		"an agent twice": `{"agents":{"a":{"state":"paused"},"a":{"state":"up"}}}`, "trailing": `{"agents":{}}{}`,
		"broken UTF-8": "{\"agents\":{\"a\":{\"state\":\"paused\"}},\"x\":\"\xff\"}",
	}
	for _, first := range []bool{true, false} {
		p, want := newPlan(), ""
		if !first {
			p, want = settled(t, "a:up b:paused"), "a:up b:paused"
		}
		config := Config{Name: "h", Log: slog.New(slog.DiscardHandler)}
		check := func(what string) {
			t.Helper()
			if got := todo(p, start.Add(time.Hour)); got != "" {
				t.Errorf("%s makes it do %s", what, got)
			}
			if got := reports(p); got != want || p.revision > 1 {
				t.Errorf("after %s it reports %q of revision %d, want %q", what, got, p.revision, want)
			}
		}
		for name, record := range unreadable {
			if err := p.declare(9, []byte(record)); err == nil {
				t.Errorf("%s: no error", name)
			}
			config.take(p, runtime.Sight{Revision: store.Revision{Key: "h", Revision: 9, Value: []byte(record)}})
			check(name)
		}
		config.take(p, runtime.Sight{Blind: errors.New("not connected")})
		check("a blind watch")
		config.take(p, runtime.Sight{Revision: store.Revision{Key: "h"}})
		check("no declaration")
		config.take(p, runtime.Sight{Revision: store.Revision{Key: "h", Revision: 9, Marker: true}})
		check("a deleted declaration")
	}
}

func TestPlan_WhatIsLeftOutStays(t *testing.T) {
	for _, record := range []string{`{}`, `{"agents":{}}`, `{"agents":{"b":{"state":"paused"}}}`} {
		p := settled(t, "a:up b:paused")
		if err := p.declare(2, []byte(record)); err != nil {
			t.Fatal(err)
		}
		if got := todo(p, start); got != "" || reports(p) != "a:up b:paused" {
			t.Errorf("%s makes it do %q and report %s", record, got, reports(p))
		}
	}
}

func TestPlan_AgentWithAnUnreadableStateIsLeftAlone(t *testing.T) {
	for _, value := range []string{`{"state":"banana"}`, `{}`, `7`, `null`, `{"state":7}`, `{"State":"paused"}`, `{"state":"unknown"}`} {
		p := settled(t, "a:up b:up")
		if err := p.declare(2, []byte(`{"agents":{"a":`+value+`,"b":{"state":"paused"},"c":`+value+`}}`)); err != nil {
			t.Fatal(err)
		}
		if got := todo(p, start); got != "b:paused" {
			t.Errorf("%s: does %s", value, got)
		}
		if got := reports(p); got != "a:up! b:up c:unknown!" {
			t.Errorf("%s: reports %s", value, got)
		}
		must(t, p, 3, "a:up b:paused c:up")
		if got := todo(p, start); got != "c:up" || reports(p) != "a:up b:up c:unknown" {
			t.Errorf("%s: once it is mended it does %s and reports %s", value, got, reports(p))
		}
	}
}

func TestPlan_UnreadableStateDuringAChange(t *testing.T) {
	for _, problem := range []string{"", "exit status 1"} {
		p := newPlan()
		must(t, p, 1, "a:up")
		todo(p, start)
		if err := p.declare(2, []byte(`{"agents":{"a":{"state":"banana"}}}`)); err != nil {
			t.Fatal(err)
		}
		p.done(action{"a", wire.Up}, problem, start)
		want := "a:up!"
		if problem != "" {
			want = "a:unknown!"
		}
		if got := reports(p); got != want {
			t.Errorf("problem %q: reports %s, want %s", problem, got, want)
		}
		if got := todo(p, start.Add(time.Hour)); got != "" {
			t.Errorf("problem %q: does %s", problem, got)
		}
	}
}

func TestPlan_FailedChangeIsTriedAgainAfterGrowingPauses(t *testing.T) {
	p := newPlan()
	must(t, p, 1, "a:up")
	now := start
	for i, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
		pause *= time.Second
		if got := todo(p, now); got != "a:up" {
			t.Fatalf("try %d: does %q", i+1, got)
		}
		p.done(action{"a", wire.Up}, fmt.Sprint("problem ", i), now)
		if r := p.report(now).Agents["a"]; r.State != wire.StateUnknown || r.Error != fmt.Sprint("problem ", i) {
			t.Errorf("after try %d it reports %+v", i+1, r)
		}
		if at := p.next(); !at.Equal(now.Add(pause)) {
			t.Fatalf("after try %d it waits %v, want %v", i+1, at.Sub(now), pause)
		}
		if got := todo(p, now.Add(pause-1)); got != "" {
			t.Errorf("try %d comes too early", i+2)
		}
		now = now.Add(pause)
	}
	todo(p, now)
	p.done(action{"a", wire.Up}, "", now)
	if got := reports(p); got != "a:up" {
		t.Errorf("once it went well it reports %s", got)
	}
	must(t, p, 2, "a:paused")
	todo(p, now)
	p.done(action{"a", wire.Paused}, "no", now)
	if at := p.next(); !at.Equal(now.Add(time.Second)) {
		t.Errorf("the next failure is not a first one: it waits %v", at.Sub(now))
	}
}

// For ever is long: the pause neither grows past its limit nor wraps around.
func TestPlan_PauseStaysAtItsLimit(t *testing.T) {
	p := newPlan()
	must(t, p, 1, "a:up")
	now := start
	for range 200 {
		todo(p, now)
		p.done(action{"a", wire.Up}, "no", now)
		if pause := p.next().Sub(now); pause < time.Second || pause > 30*time.Second {
			t.Fatalf("it waits %v", pause)
		}
		now = p.next()
	}
}

func TestPlan_SameDeclarationAgainDoesNotHurryARetry(t *testing.T) {
	p := newPlan()
	must(t, p, 1, "a:up")
	todo(p, start)
	p.done(action{"a", wire.Up}, "no", start)
	must(t, p, 2, "a:up b:up")
	if got := todo(p, start); got != "b:up" {
		t.Errorf("does %s", got)
	}
}

func TestPlan_ChangedWishDuringAChange(t *testing.T) {
	for name, c := range map[string]struct {
		wishes  []string // that come while a is brought up
		problem string
		next    string // done right afterwards
		reports string
	}{
		"another one":                        {[]string{"a:paused"}, "", "a:paused", "a:up"},
		"another one, and the old one fails": {[]string{"a:paused"}, "no", "a:paused", "a:unknown"},
		"away and back":                      {[]string{"a:paused", "a:up"}, "", "", "a:up"},
		"away and back, and it fails":        {[]string{"a:paused", "a:up"}, "no", "", "a:unknown!"},
		"destroyed":                          {[]string{"a:destroyed"}, "", "a:destroyed", "a:up"},
		"the same":                           {[]string{"a:up", "a:up"}, "", "", "a:up"},
	} {
		p := newPlan()
		must(t, p, 1, "a:up")
		todo(p, start)
		for i, wish := range c.wishes {
			must(t, p, uint64(i+2), wish)
			if got := todo(p, start.Add(time.Hour)); got != "" {
				t.Errorf("%s: does %s while the first change is under way", name, got)
			}
		}
		p.done(action{"a", wire.Up}, c.problem, start)
		if got := reports(p); got != c.reports {
			t.Errorf("%s: reports %s, want %s", name, got, c.reports)
		}
		if got := todo(p, start); got != c.next {
			t.Errorf("%s: does %q, want %q", name, got, c.next)
		}
	}
}

// A new wish is not made to wait for what went wrong with the old one.
func TestPlan_ChangedWishEndsThePause(t *testing.T) {
	p := newPlan()
	must(t, p, 1, "a:up")
	for range 6 {
		todo(p, start.Add(time.Hour))
		p.done(action{"a", wire.Up}, "no", start)
	}
	must(t, p, 2, "a:paused")
	if got := todo(p, start); got != "a:paused" || reports(p) != "a:unknown" {
		t.Errorf("does %q and reports %s", got, reports(p))
	}
}

func TestPlan_RestartDoesEverythingOnceMore(t *testing.T) {
	settled(t, "a:up b:paused c:destroyed") // the process before
	p := newPlan()
	must(t, p, 1, "a:up b:paused c:destroyed")
	if got := todo(p, start); got != "a:up b:paused c:destroyed" {
		t.Errorf("does %s", got)
	}
}

func TestPlan_ChangesRunInParallelUpToABound(t *testing.T) {
	p := newPlan()
	var agents []string
	for i := range 3*parallel + 1 {
		agents = append(agents, fmt.Sprintf("a%02d:up", i))
	}
	must(t, p, 1, strings.Join(agents, " "))
	under := p.start(start)
	if len(under) != parallel || todo(p, start) != "" {
		t.Fatalf("%d run at once, want %d", len(under), parallel)
	}
	for ended := 0; len(under) > 0; ended++ {
		p.done(under[0], "", start)
		under = append(under[1:], p.start(start)...)
		if len(under) > parallel || len(under) < min(parallel, len(agents)-ended-1) {
			t.Fatalf("%d run at once after %d ended", len(under), ended+1)
		}
	}
	if got := reports(p); got != strings.Join(agents, " ") {
		t.Errorf("reports %s", got)
	}
}
