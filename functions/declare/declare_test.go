package declare

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

func TestSet_FirstDeclarationAndItsReply(t *testing.T) {
	r := newRig()
	a := <-begin(t, r.set, &runtime.Request[wire.Set]{IDs: []string{"h1", "atlas"}, Body: wire.Set{State: wire.Up}})
	got := string(a.reply.(runtime.Appender).AppendJSON(nil))
	if want := `{"hive":"h1","revision":1,"changed":true,"agents":{"atlas":{"state":"up"}}}`; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if value, revision := r.stored(t, "h1"); value != `{"agents":{"atlas":{"state":"up"}}}` || revision != 1 {
		t.Errorf("stored at %d: %s", revision, value)
	}
}

func TestBrief_LeavesOutTheAgents(t *testing.T) {
	r := newRig()
	for name, answers := range map[string]chan answer{
		"set":    begin(t, r.set, &runtime.Request[wire.Set]{IDs: []string{"set", "a"}, Body: wire.Set{State: wire.Up, Reply: "brief"}}),
		"create": begin(t, r.create, &runtime.Request[wire.Set]{IDs: []string{"create", "a"}, Body: wire.Set{State: wire.Up, Reply: "brief"}}),
		"apply": begin(t, r.apply, &runtime.Request[wire.Apply]{IDs: []string{"apply"}, Body: wire.Apply{
			Agents: map[string]*wire.Agent{"a": {State: wire.Up}}, Reply: "brief"}}),
		"dry": begin(t, r.apply, &runtime.Request[wire.Apply]{IDs: []string{"dry"}, Body: wire.Apply{
			Agents: map[string]*wire.Agent{"a": {State: wire.Up}}, Reply: "brief", DryRun: true}}),
	} {
		a := <-answers
		if a.err != nil {
			t.Fatal(a.err)
		}
		if b := string(a.reply.(runtime.Appender).AppendJSON(nil)); strings.Contains(b, "agents") || !strings.Contains(b, `"changed":true`) {
			t.Errorf("%s: %s", name, b)
		}
	}
}

// What a handler refuses, it refuses before it asks the store anything.
func TestHandlers_RefuseBeforeTheStoreIsAsked(t *testing.T) {
	apply := func(agents map[string]*wire.Agent, reply string) wire.Apply {
		return wire.Apply{Agents: agents, Reply: reply}
	}
	up := &wire.Agent{State: wire.Up}
	const noName = "must match " + wire.NamePattern
	for name, c := range map[string]struct {
		body  any
		field string
		says  string
	}{
		"set without state":      {wire.Set{}, "state", "state is required"},
		"set to no state":        {wire.Set{State: "banana"}, "state", "one of up, offline, paused, destroyed"},
		"set to unknown":         {wire.Set{State: "unknown"}, "state", "one of"},
		"set in capitals":        {wire.Set{State: "UP"}, "state", "one of"},
		"set with another reply": {wire.Set{State: wire.Up, Reply: "full"}, "reply", "brief"},
		"apply without agents":   {apply(nil, ""), "agents", "agents is required"},
		"apply of null":          {apply(map[string]*wire.Agent{"a": nil}, ""), "agents.a", "agents.a must be an object"},
		"apply without state":    {apply(map[string]*wire.Agent{"a": {}, "b": up}, ""), "agents.a.state", "agents.a.state is required"},
		"apply to no state":      {apply(map[string]*wire.Agent{"a": {State: "banana"}, "b": up}, ""), "agents.a.state", "one of"},
		"apply of no name":       {apply(map[string]*wire.Agent{"a b": up, "b": up}, ""), "agents.a b", noName},
		"apply of a dotted name": {apply(map[string]*wire.Agent{"a.b": up}, ""), "agents.a.b", noName},
		"apply of no name, null": {apply(map[string]*wire.Agent{"_": nil}, ""), "agents._", noName},
		"apply of an empty name": {apply(map[string]*wire.Agent{"": up}, ""), "agents.", noName},
		"apply of a long name":   {apply(map[string]*wire.Agent{strings.Repeat("é", 100000): up}, ""), "agents." + strings.Repeat("é", 32) + "…", noName},
		"apply of an odd length": {apply(map[string]*wire.Agent{"a" + strings.Repeat("é", 99): up}, ""), "agents.a" + strings.Repeat("é", 31) + "…", noName},
		"apply, another reply":   {apply(map[string]*wire.Agent{"a": up}, "Brief"), "reply", "brief"},
	} {
		r := newRig()
		r.wantedLog.Fault(func(op, key string) error { return fmt.Errorf("%s of %s: the store was asked", op, key) })
		var errs []*wire.Error
		switch body := c.body.(type) {
		case wire.Set:
			_, err1 := ask(t, r.set, body, "h", "a")
			_, err2 := ask(t, r.create, body, "h", "a")
			errs = append(errs, err1, err2)
		case wire.Apply:
			_, err1 := ask(t, r.apply, body, "h")
			body.DryRun = true
			_, err2 := ask(t, r.apply, body, "h")
			errs = append(errs, err1, err2)
		}
		for _, err := range errs {
			if err == nil || err.Code != wire.InvalidRequest || err.Details["field"] != c.field || !strings.Contains(err.Message, c.says) {
				t.Errorf("%s: %v, details %v, want field %q and %q", name, err, err.Details, c.field, c.says)
			}
		}
	}
}

func TestRecordThatCannotBeRead_IsAnErrorAndIsNeverWrittenOver(t *testing.T) {
	for _, record := range []string{`[]`, `{"agents":`, ``, `{"agents":{"a":{},"a":{}}}`, `null`} {
		r := newRig()
		r.mustSet(t, "h", "a", wire.Up)
		r.mustSet(t, "other", "a", wire.Up)
		r.wantedLog.Put("h", []byte(record))
		up := map[string]*wire.Agent{"b": {State: wire.Up}}
		for op, try := range map[string]func() (wire.Declaration, *wire.Error){
			"set": func() (wire.Declaration, *wire.Error) { return ask(t, r.set, wire.Set{State: wire.Up}, "h", "b") },
			"destroy": func() (wire.Declaration, *wire.Error) {
				return ask(t, r.set, wire.Set{State: wire.Destroyed}, "h", "a")
			},
			"create": func() (wire.Declaration, *wire.Error) { return ask(t, r.create, wire.Set{State: wire.Up}, "h", "b") },
			"apply":  func() (wire.Declaration, *wire.Error) { return ask(t, r.apply, wire.Apply{Agents: up}, "h") },
			"dry": func() (wire.Declaration, *wire.Error) {
				return ask(t, r.apply, wire.Apply{Agents: up, DryRun: true}, "h")
			},
			"first": func() (wire.Declaration, *wire.Error) {
				return ask(t, r.set, wire.Set{State: wire.Up, IfRevision: new(uint64)}, "h", "b")
			},
			"view": func() (wire.Declaration, *wire.Error) { return ask(t, r.view, struct{}{}, "h") },
			"status": func() (wire.Declaration, *wire.Error) {
				_, err := r.status(context.Background(), &runtime.Request[struct{}]{IDs: []string{"h"}})
				return wire.Declaration{}, wire.AsError(err)
			},
		} {
			_, err := try()
			if err == nil || err.Code != wire.CorruptRecord || err.Details["bucket"] != "muster_wanted" ||
				err.Details["key"] != "h" || err.Details["revision"] != uint64(3) {
				t.Errorf("%s over %q: %v, %v", op, record, err, err.Details)
			}
			if value, revision := r.stored(t, "h"); value != record || revision != 3 {
				t.Errorf("%s wrote over %q: %q at %d", op, record, value, revision)
			}
		}
		if d := r.mustSet(t, "other", "a", wire.Paused); !d.Changed {
			t.Errorf("%q: another hive is held up", record)
		}
		r.wantedLog.Put("h", []byte(`{"agents":{"a":{"state":"paused"}}}`))
		if d := r.mustSet(t, "h", "b", wire.Up); len(d.Agents) != 2 {
			t.Errorf("once it is mended: %+v", d)
		}
	}
}

func TestAgentThatCannotBeRead_NamesRecordAndRevision(t *testing.T) {
	r := newRig()
	r.wantedLog.Put("h", []byte(`{"agents":{"a":{"state":"banana"},"b":{"state":"up"}}}`))
	for name, h := range map[string]handler[wire.Set]{"set": r.set, "create": r.create} {
		_, err := ask(t, h, wire.Set{State: wire.Up}, "h", "a")
		if err == nil || err.Code != wire.CorruptRecord || err.Details["bucket"] != "muster_wanted" || err.Details["key"] != "h" ||
			err.Details["revision"] != uint64(1) || err.Details["agent"] != "a" {
			t.Errorf("%s: %v, %v", name, err, err.Details)
		}
	}
	a := <-begin(t, r.view, &runtime.Request[struct{}]{IDs: []string{"h"}})
	if b := string(a.reply.(runtime.Appender).AppendJSON(nil)); !strings.Contains(b, `"a":{"state":"banana"}`) {
		t.Errorf("it is not listed with its raw value: %s", b)
	}
	if d := r.mustSet(t, "h", "b", wire.Paused); !d.Changed {
		t.Error("another agent is held up")
	}
}

// Field report B001, its rules.
func TestField_B001_RemovedByHandIsNotDeclared(t *testing.T) {
	r := newRig()
	last := r.mustSet(t, "h", "a", wire.Up).Revision
	for i := range 10 {
		r.wantedLog.Delete("h", i%2 == 1)
		if _, err := ask(t, r.view, struct{}{}, "h"); err == nil || err.Code != wire.HiveNotDeclared {
			t.Fatalf("view: %v", err)
		}
		d, err := ask(t, r.set, wire.Set{State: wire.Paused, IfRevision: new(uint64)}, "h", "a")
		if err != nil || !d.Changed || d.Revision <= last+1 || len(d.Agents) != 1 {
			t.Fatalf("round %d: %+v, %v", i, d, err)
		}
		last = d.Revision
	}
}

// Field report B002, its rules.
func TestField_B002_IfRevision(t *testing.T) {
	r := newRig()
	first := r.mustSet(t, "h", "a", wire.Up).Revision
	r.mustSet(t, "other", "a", wire.Up)
	second := r.mustSet(t, "h", "a", wire.Paused).Revision
	now := r.mustSet(t, "h", "a", wire.Up).Revision
	agents := map[string]*wire.Agent{"a": {State: wire.Offline}}
	for name, revision := range map[string]uint64{
		"two writes ago": first, "one write ago": second, "not declared": 0, "of another hive": first + 1, "to come": now + 1, "absurd": 1 << 63,
	} {
		for op, try := range map[string]func() (wire.Declaration, *wire.Error){
			"set": func() (wire.Declaration, *wire.Error) {
				return ask(t, r.set, wire.Set{State: wire.Offline, IfRevision: &revision}, "h", "a")
			},
			"no-op": func() (wire.Declaration, *wire.Error) {
				return ask(t, r.set, wire.Set{State: wire.Up, IfRevision: &revision}, "h", "a")
			},
			"create": func() (wire.Declaration, *wire.Error) {
				return ask(t, r.create, wire.Set{State: wire.Up, IfRevision: &revision}, "h", "b")
			},
			"apply": func() (wire.Declaration, *wire.Error) {
				return ask(t, r.apply, wire.Apply{Agents: agents, IfRevision: &revision}, "h")
			},
			"dry": func() (wire.Declaration, *wire.Error) {
				return ask(t, r.apply, wire.Apply{Agents: agents, IfRevision: &revision, DryRun: true}, "h")
			},
		} {
			d, err := try()
			if err == nil || err.Code != wire.RevisionMismatch || err.Details["revision"] != now {
				t.Errorf("%s, %s: %+v, %v, want RevisionMismatch at %d", op, name, d, err, now)
			}
		}
	}
	if _, err := ask(t, r.set, wire.Set{State: wire.Up, IfRevision: &now}, "nobody", "a"); err == nil || err.Details["revision"] != uint64(0) {
		t.Errorf("a hive not declared is at revision 0: %v", err)
	}
	if d, err := ask(t, r.set, wire.Set{State: wire.Up, IfRevision: &now}, "h", "a"); err != nil || d.Changed || d.Revision != now {
		t.Errorf("right, and nothing to change: %+v, %v", d, err)
	}
	if d, err := ask(t, r.set, wire.Set{State: wire.Paused, IfRevision: &now}, "h", "a"); err != nil || !d.Changed {
		t.Errorf("right: %+v, %v", d, err)
	}
}

// Requests that wait for one write share it. But of those that name a revision only one can have come next.
func TestIfRevision_OfManyAtOnceOneWins(t *testing.T) {
	for _, withID := range []bool{false, true} {
		r := newRig()
		base := r.mustSet(t, "h", "a", wire.Up).Revision
		held, hold := make(chan struct{}), make(chan struct{})
		var once sync.Once
		r.wantedLog.Fault(func(op, _ string) error {
			if op == "write" {
				once.Do(func() { close(held); <-hold }) // all others wait behind this one
			}
			return nil
		})
		// The one that holds up the others is for another revision than theirs.
		first := begin(t, r.set, &runtime.Request[wire.Set]{IDs: []string{"h", "first"}, Body: wire.Set{State: wire.Up, IfRevision: &base}})
		<-held
		next := base + 1
		var others []chan answer
		for i := range 20 {
			body := wire.Set{State: wire.States()[i%3], IfRevision: &next}
			if i%5 == 4 {
				body.IfRevision = nil
			}
			from := store.Origin{}
			if withID {
				id := fmt.Sprint("r", i)
				from = store.Origin{RequestID: id, Digest: id, MemoKey: wire.MemoKey("set", []string{"h", "a"}, id)}
			}
			others = append(others, begin(t, r.set, &runtime.Request[wire.Set]{IDs: []string{"h", fmt.Sprint("b", i)}, Body: body, Origin: from}))
		}
		close(hold)
		if d, err := wait(t, first); err != nil || d.Revision != next {
			t.Fatalf("%+v, %v", d, err)
		}
		won := 0
		for i, a := range others {
			d, err := wait(t, a)
			switch {
			case i%5 == 4 && (err != nil || !d.Changed):
				t.Errorf("one that names no revision: %+v, %v", d, err)
			case i%5 == 4:
			case err == nil && d.Changed:
				won++
			case err == nil:
				t.Errorf("one that names a revision changes nothing: %+v", d)
			case err.Code != wire.RevisionMismatch || err.Details["revision"].(uint64) <= next:
				t.Errorf("one that comes too late: %v, %v", err, err.Details)
			}
		}
		if won > 1 {
			t.Errorf("request ids %v: %d requests were the next behind revision %d", withID, won, next)
		}
	}
}

func TestDryRun_ShowsAndStoresNothing(t *testing.T) {
	r := newRig()
	body := wire.Apply{Agents: map[string]*wire.Agent{"a": {State: wire.Paused}, "b": {State: wire.Up}}, DryRun: true}
	d, err := ask(t, r.apply, body, "h")
	if err != nil || d.Revision != 0 || !d.Changed || len(d.Agents) != 2 {
		t.Errorf("of a hive not declared: %+v, %v", d, err)
	}
	if _, err := ask(t, r.view, struct{}{}, "h"); err == nil || err.Code != wire.HiveNotDeclared {
		t.Errorf("it was declared by a dry run: %v", err)
	}
	base := r.mustSet(t, "h", "a", wire.Up)
	for range 2 {
		d, err = ask(t, r.apply, body, "h")
		if err != nil || d.Revision != base.Revision || !d.Changed || d.Agents["a"].State != wire.Paused || d.Agents["b"].State != wire.Up {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if value, revision := r.stored(t, "h"); value != `{"agents":{"a":{"state":"up"}}}` || revision != base.Revision {
		t.Errorf("stored at %d: %s", revision, value)
	}
	r.mustSet(t, "h", "a", wire.Destroyed)
	if _, err := ask(t, r.apply, body, "h"); err == nil || err.Code != wire.AgentDestroyed {
		t.Errorf("a dry run is refused as the real one: %v", err)
	}
	d, err = ask(t, r.apply, wire.Apply{Agents: map[string]*wire.Agent{"a": {State: wire.Destroyed}}, DryRun: true}, "h")
	if err != nil || d.Changed {
		t.Errorf("nothing to change: %+v, %v", d, err)
	}
}

func TestApply_EmptyChangesNothing(t *testing.T) {
	r := newRig()
	d, err := ask(t, r.apply, wire.Apply{Agents: map[string]*wire.Agent{}}, "h")
	if err != nil || d.Changed || d.Revision != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := ask(t, r.view, struct{}{}, "h"); err == nil || err.Code != wire.HiveNotDeclared {
		t.Errorf("it made a record: %v", err)
	}
}

func TestStoreAway_IsUnavailableAndNeverNotDeclared(t *testing.T) {
	r := newRig()
	r.mustSet(t, "h", "a", wire.Up)
	away := wire.Errorf(wire.Unavailable, "not connected to NATS").With("reason", wire.NotConnected)
	r.wantedLog.Fault(func(string, string) error { return away })
	_, err1 := ask(t, r.view, struct{}{}, "nobody")
	_, err2 := ask(t, r.set, wire.Set{State: wire.Paused}, "h", "a")
	_, err3 := ask(t, r.apply, wire.Apply{Agents: map[string]*wire.Agent{}, DryRun: true}, "nobody")
	_, err4 := r.list(context.Background(), &runtime.Request[wire.Page]{})
	for i, err := range []error{err1, err2, err3, err4} {
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.Unavailable {
			t.Errorf("%d: %v", i, err)
		}
	}
}
