package wire

// State is what an agent should do.
type State string

// States. Destroyed is terminal: only create brings the name back.
const (
	Up        State = "up"
	Offline   State = "offline"
	Paused    State = "paused"
	Destroyed State = "destroyed"
)

// States lists every state.
func States() []State { return []State{Up, Offline, Paused, Destroyed} }

// Valid tells whether s is in the list.
func (s State) Valid() bool {
	switch s {
	case Up, Offline, Paused, Destroyed:
		return true
	case StateUnknown:
	}
	return false
}

// Agent is what one agent should do.
type Agent struct {
	State State `json:"state" jsonschema:"enum=up,enum=offline,enum=paused,enum=destroyed"`
}

// ReplyBrief as "reply" leaves "agents" out of the reply.
const ReplyBrief = "brief"

// Set is the body of declare.set and declare.create.
type Set struct {
	State      State   `json:"state" jsonschema:"enum=up,enum=offline,enum=paused,enum=destroyed"`
	IfRevision *uint64 `json:"if_revision,omitempty"` // only if the hive is at this revision; 0: only if it is not declared
	Reply      string  `json:"reply,omitempty" jsonschema:"enum=brief"`
}

// Apply is the body of declare.apply.
type Apply struct {
	Agents     map[string]*Agent `json:"agents"`
	DryRun     bool              `json:"dry_run,omitempty"`
	IfRevision *uint64           `json:"if_revision,omitempty"`
	Reply      string            `json:"reply,omitempty" jsonschema:"enum=brief"`
}

// Declaration is the reply of declare's set, create, apply and view: the record at that revision.
type Declaration struct {
	Hive     string           `json:"hive"`
	Revision uint64           `json:"revision"` // opaque, only increasing; 0: not declared
	Changed  bool             `json:"changed"`
	Agents   map[string]Agent `json:"agents,omitempty"`
}

// Page is the body of every list.
type Page struct {
	After string `json:"after,omitempty"` // names behind this one; "" from the beginning
	Limit int    `json:"limit,omitempty"` // 1 to 1000, default 1000; a page may be shorter to fit a message
}

// Limits of a page.
const (
	PageDefault = 1000
	PageMax     = 1000
)

// Hives is the reply of declare.list.
type Hives struct {
	Hives []HiveLine `json:"hives"`
	Next  string     `json:"next"` // the next page's "after"; "" on the last
}

// HiveLine is one hive of a list.
type HiveLine struct {
	Hive     string `json:"hive"`
	Revision uint64 `json:"revision"`
	Agents   int    `json:"agents"`
	Error    Code   `json:"error_code,omitempty"` // CorruptRecord: the record cannot be read
}
