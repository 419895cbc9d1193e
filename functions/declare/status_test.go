package declare

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/runtime"
	"muster/wire"
)

func encoded(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestCompare(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	by := now.Add(-time.Hour) // the hive's clock is wrong, and does not matter
	const record = `{"agents":{"a":{"state":"up"},"b":{"state":"paused"}}}`
	type states map[string]wire.ReportAgent
	type lines map[string]wire.AgentStatus
	asWanted := states{"a": {State: "up"}, "b": {State: "paused"}}
	for name, c := range map[string]struct {
		record  string
		agents  states // nil: never reported
		seen    uint64 // wanted_revision of the report; the record is at 12
		age     time.Duration
		stale   bool
		inSync  bool
		ageMS   int64
		reports lines
	}{
		"never reported is unknown, and not down": {
			record, nil, 0, 0, true, false, 0,
			lines{"a": {Wanted: "up", Reported: "unknown"}, "b": {Wanted: "paused", Reported: "unknown"}},
		},
		"in sync": {
			record, asWanted, 12, 1500 * time.Millisecond, false, true, 1500,
			lines{"a": {Wanted: "up", Reported: "up", InSync: true}, "b": {Wanted: "paused", Reported: "paused", InSync: true}},
		},
		"fresh for 30 s": {
			record, asWanted, 12, 30 * time.Second, false, true, 30000,
			lines{"a": {Wanted: "up", Reported: "up", InSync: true}, "b": {Wanted: "paused", Reported: "paused", InSync: true}},
		},
		"stale after 30 s; what was reported last stays to be seen": {
			record, asWanted, 12, 30*time.Second + time.Millisecond, true, false, 30001,
			lines{"a": {Wanted: "up", Reported: "up"}, "b": {Wanted: "paused", Reported: "paused"}},
		},
		"a report from the future is new, not old": {
			record, asWanted, 12, -5 * time.Second, false, true, 0,
			lines{"a": {Wanted: "up", Reported: "up", InSync: true}, "b": {Wanted: "paused", Reported: "paused", InSync: true}},
		},
		"the hive follows an older declaration, though its agents are right": {
			record, asWanted, 11, 0, false, false, 0,
			lines{"a": {Wanted: "up", Reported: "up", InSync: true}, "b": {Wanted: "paused", Reported: "paused", InSync: true}},
		},
		"one agent is not there yet": {
			record, states{"a": {State: "offline"}, "b": {State: "paused"}}, 12, 0, false, false, 0,
			lines{"a": {Wanted: "up", Reported: "offline"}, "b": {Wanted: "paused", Reported: "paused", InSync: true}},
		},
		"one agent has an error": {
			record, states{"a": {State: "up", Error: "exit status 1"}, "b": {State: "paused"}}, 12, 0, false, false, 0,
			lines{"a": {Wanted: "up", Reported: "up", Error: "exit status 1"}, "b": {Wanted: "paused", Reported: "paused", InSync: true}},
		},
		"one agent is unknown to the hive": {
			record, states{"a": {State: "unknown", Error: "exit status 1"}, "b": {State: "paused"}}, 12, 0, false, false, 0,
			lines{"a": {Wanted: "up", Reported: "unknown", Error: "exit status 1"}, "b": {Wanted: "paused", Reported: "paused", InSync: true}},
		},
		"one agent is left out of the report": {
			record, states{"b": {State: "paused"}}, 12, 0, false, false, 0,
			lines{"a": {Wanted: "up", Reported: "unknown"}, "b": {Wanted: "paused", Reported: "paused", InSync: true}},
		},
		"one agent is reported without a state": {
			record, states{"a": {}, "b": {State: "paused"}}, 12, 0, false, false, 0,
			lines{"a": {Wanted: "up", Reported: "unknown"}, "b": {Wanted: "paused", Reported: "paused", InSync: true}},
		},
		"an agent that nobody declared is the hive's affair": {
			record, states{"a": {State: "up"}, "b": {State: "paused"}, "z": {State: "up"}}, 12, 0, false, true, 0,
			lines{"a": {Wanted: "up", Reported: "up", InSync: true}, "b": {Wanted: "paused", Reported: "paused", InSync: true}},
		},
		"what is wanted cannot be read, so nothing is in sync with it": {
			`{"agents":{"a":{"state":"banana"},"b":5}}`, states{"a": {State: "banana"}, "b": {}}, 12, 0, false, false, 0,
			lines{"a": {Wanted: "banana", Reported: "banana"}, "b": {Wanted: "", Reported: "unknown"}},
		},
		"a destroyed agent is in sync once it is reported so": {
			`{"agents":{"a":{"state":"destroyed"}}}`, states{"a": {State: "destroyed"}}, 12, 0, false, true, 0,
			lines{"a": {Wanted: "destroyed", Reported: "destroyed", InSync: true}},
		},
		"no agents, none reported":  {`{"agents":{}}`, states{}, 12, 0, false, true, 0, lines{}},
		"no agents, never reported": {`{"agents":{}}`, nil, 0, 0, true, false, 0, lines{}},
	} {
		t.Run(name, func(t *testing.T) {
			want := wire.HiveStatus{Hive: "h", Revision: 12, Stale: c.stale, InSync: c.inSync, Agents: c.reports}
			var report *wire.Report
			if c.agents != nil {
				report = &wire.Report{WantedRevision: c.seen, ReportedAt: by, Agents: c.agents}
				want.WantedRevisionSeen, want.ReportedAt, want.AgeMS = &c.seen, &by, &c.ageMS
			}
			got := wire.HiveStatus{Hive: "h", Revision: 12, Stale: true, Agents: map[string]wire.AgentStatus{}}
			compare(&got, read(t, c.record), report, now.Add(-c.age), now)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("want -, got +\n%s", d)
			}
		})
	}
}

func (r *rig) statusOf(hive string) (wire.HiveStatus, error) {
	reply, err := r.status(context.Background(), &runtime.Request[struct{}]{IDs: []string{hive}})
	s, _ := reply.(wire.HiveStatus)
	return s, err
}

func TestStatus_NeverReported(t *testing.T) {
	r := newRig()
	r.mustSet(t, "h", "a", wire.Up)
	s, err := r.statusOf("h")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"hive":"h","revision":1,"wanted_revision_seen":null,"reported_at":null,"age_ms":null,"stale":true,"in_sync":false,` +
		`"agents":{"a":{"wanted":"up","reported":"unknown","in_sync":false,"error":""}}}`
	if got := encoded(t, s); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestStatus_AgeCountsFromArrival(t *testing.T) {
	r := newRig()
	r.mustSet(t, "h", "a", wire.Up)
	r.reportedLog.Put("h", []byte(`{"wanted_revision":1,"reported_at":"2001-01-01T00:00:00Z","agents":{"a":{"state":"up","error":""}},"later":{}}`))
	s, err := r.statusOf("h")
	if err != nil || s.Stale || !s.InSync || *s.AgeMS > 20000 || s.ReportedAt.Year() != 2001 {
		t.Errorf("just come: %s, %v", encoded(t, s), err)
	}
	r.now = func() time.Time { return time.Now().Add(31 * time.Second) }
	s, err = r.statusOf("h")
	if err != nil || !s.Stale || s.InSync || *s.AgeMS < 31000 || s.Agents["a"].Reported != "up" {
		t.Errorf("31 s later: %s, %v", encoded(t, s), err)
	}
	r.reportedLog.Delete("h", false)
	s, err = r.statusOf("h")
	if err != nil || s.ReportedAt != nil || s.Agents["a"].Reported != "unknown" {
		t.Errorf("report removed by hand: %s, %v", encoded(t, s), err)
	}
}

func TestStatus_Refusals(t *testing.T) {
	r := newRig()
	r.reportedLog.Put("h", []byte(`{"agents":{}}`))
	_, notDeclared := r.statusOf("h")
	r.mustSet(t, "h", "a", wire.Up)
	r.reportedLog.Put("h", []byte(`[]`))
	_, corrupt := r.statusOf("h")
	r.reportedLog.Fault(func(string, string) error { return wire.Errorf(wire.Unavailable, "away") })
	_, away := r.statusOf("h")
	for want, err := range map[wire.Code]error{
		wire.HiveNotDeclared: notDeclared, wire.CorruptRecord: corrupt, wire.Unavailable: away,
	} {
		e, ok := errors.AsType[*wire.Error](err)
		if !ok || e.Code != want {
			t.Errorf("%v, want %s", err, want)
		}
		if want == wire.CorruptRecord && (e.Details["bucket"] != "muster_reported" || e.Details["key"] != "h" || e.Details["revision"] != uint64(2)) {
			t.Errorf("details %v", e.Details)
		}
	}
}
