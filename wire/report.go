package wire

import "time"

// Report is what a hive writes to its key of [BucketReported].
type Report struct {
	WantedRevision uint64                 `json:"wanted_revision"` // the revision it follows, 0 for none seen
	ReportedAt     time.Time              `json:"reported_at"`     // by the hive's clock
	Agents         map[string]ReportAgent `json:"agents"`
}

// ReportAgent is one agent in a report.
type ReportAgent struct {
	State State  `json:"state"` // what it does, "unknown" when the hive cannot tell
	Error string `json:"error"` // why it is not what is wanted; "" for none
}

// StateUnknown is said of an agent of which nobody has reported anything. It can not be declared.
const StateUnknown State = "unknown"

// Limits of reports.
const (
	ReportEvery = 10 * time.Second // a hive repeats its report that often
	ReportStale = 30 * time.Second // and is stale when none came for that long
)

// HiveStatus is the reply of declare.status: wanted beside reported.
type HiveStatus struct {
	Hive               string                 `json:"hive"`
	Revision           uint64                 `json:"revision"`
	WantedRevisionSeen *uint64                `json:"wanted_revision_seen"` // null: never reported
	ReportedAt         *time.Time             `json:"reported_at"`          // null: never reported
	AgeMS              *int64                 `json:"age_ms"`               // since the report arrived; null: never reported
	Stale              bool                   `json:"stale"`
	InSync             bool                   `json:"in_sync"`
	Agents             map[string]AgentStatus `json:"agents"`
}

// AgentStatus is one agent of a HiveStatus.
type AgentStatus struct {
	Wanted   State  `json:"wanted"`
	Reported State  `json:"reported"` // "unknown" when nothing was reported
	InSync   bool   `json:"in_sync"`
	Error    string `json:"error"`
}
