package declare

import (
	"cmp"
	"context"
	"time"

	"github.com/go-json-experiment/json"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

func (f *function) status(ctx context.Context, r *runtime.Request[struct{}]) (any, error) {
	hive := r.IDs[0]
	wanted, err := f.wanted.View(ctx, hive)
	if err = known(hive, wanted, err); err != nil {
		return nil, err
	}
	reported, err := store.Read(ctx, f.reported, hive)
	if err != nil {
		return nil, err
	}
	status := wire.HiveStatus{Hive: hive, Revision: wanted.Revision, Stale: true, Agents: map[string]wire.AgentStatus{}}
	var report *wire.Report
	if !reported.Absent() {
		report = new(wire.Report)
		if err := json.Unmarshal(reported.Value, report); err != nil {
			return nil, store.Corrupt(f.reported.Bucket(), reported, err)
		}
	}
	compare(&status, wanted.Doc, report, reported.Time, f.now())
	return status, nil
}

// compare fills a status with what is wanted beside what was reported. A report's age counts from its arrival. Silence
// is unknown: an agent of which nothing is known is never said to be down.
func compare(s *wire.HiveStatus, wanted *document, report *wire.Report, arrived, now time.Time) {
	if report != nil {
		age := max(now.Sub(arrived), 0)
		ms := age.Milliseconds()
		s.WantedRevisionSeen, s.ReportedAt, s.AgeMS = &report.WantedRevision, &report.ReportedAt, &ms
		s.Stale = age > wire.ReportStale
	}
	s.InSync = !s.Stale && report.WantedRevision == s.Revision
	for _, a := range wanted.agents {
		line := wire.AgentStatus{Wanted: cmp.Or(a.state, a.unknown), Reported: wire.StateUnknown}
		if report != nil {
			if r, ok := report.Agents[a.name]; ok {
				line.Reported, line.Error = cmp.Or(r.State, wire.StateUnknown), r.Error
			}
		}
		line.InSync = a.state != "" && !s.Stale && line.Reported == line.Wanted && line.Error == ""
		s.InSync = s.InSync && line.InSync
		s.Agents[a.name] = line
	}
}
