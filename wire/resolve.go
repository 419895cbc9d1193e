package wire

import "time"

// Source is the body of resolve.define: where the backends of a service come from. Exactly one member is set.
type Source struct {
	DNS    *DNSSource        `json:"dns,omitzero"`
	Static map[string]string `json:"static,omitzero"` // address by name of the backend
	Leases *struct{}         `json:"leases,omitzero"` // those that register
}

// DNSSource finds backends by an SRV record and the AAAA and A records of its targets.
type DNSSource struct {
	Name    string   `json:"name"`
	Servers []string `json:"servers,omitempty"` // "[::1]:53"; none: the system's
}

// Kinds of a Source, as answers name them.
const (
	SourceDNS    = "dns"
	SourceStatic = "static"
	SourceLeases = "leases"
)

// Kind names the member that is set, "" for none.
func (s *Source) Kind() string {
	switch {
	case s == nil:
	case s.DNS != nil:
		return SourceDNS
	case s.Static != nil:
		return SourceStatic
	case s.Leases != nil:
		return SourceLeases
	}
	return ""
}

// ServiceDefined is the reply of resolve.define.
type ServiceDefined struct {
	Service  string `json:"service"`
	Revision uint64 `json:"revision"` // of the service's record
}

// ServiceRemoved is the reply of resolve.remove.
type ServiceRemoved struct {
	Service string `json:"service"`
}

// Lookup is the body of resolve.lookup.
type Lookup struct {
	MaxAge string `json:"max_age,omitempty"` // Go duration; an answer that is older is TooStale
}

// Backend is one of those that serve a service.
type Backend struct {
	Name      string     `json:"name"`
	Address   string     `json:"address"` // host:port, IPv6 in brackets
	Priority  uint16     `json:"priority"`
	Weight    uint16     `json:"weight"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // when it is no longer one, unless it is heard of again before
}

// Statuses of an Answer.
const (
	StatusFresh = "fresh"
	StatusStale = "stale" // the last that is known; whether it still holds is not
)

// Answer is the reply of resolve.lookup.
type Answer struct {
	Service    string    `json:"service"`
	Status     string    `json:"status"`
	Complete   bool      `json:"complete"` // false: some backends have the address they had before
	Backends   []Backend `json:"backends"`
	Source     string    `json:"source"`
	Revision   uint64    `json:"revision"`    // of the service's record; 0 for one that has none
	ObservedAt time.Time `json:"observed_at"` // when the source last gave this answer
	AgeMS      int64     `json:"age_ms"`      // how long ago that is
	Reason     string    `json:"reason"`      // why it is stale or not complete
}

// LeaseTTL is a Go duration from 1 s to 1 h.
type LeaseTTL string

// JSONKind tells what a member of this type must be.
func (LeaseTTL) JSONKind() string { return "a Go duration in quotes, from 1s to 1h, as in \"30s\"" }

// Register is the body of resolve.register.
type Register struct {
	Address string   `json:"address"`
	TTL     LeaseTTL `json:"ttl,omitempty"`   // default 30s
	Lease   string   `json:"lease,omitempty"` // the current one, to go on with it; none takes the name over
}

// Heartbeat is the body of resolve.heartbeat and resolve.deregister.
type Heartbeat struct {
	Lease string `json:"lease"`
}

// Lease is the reply of resolve.register and resolve.heartbeat.
type Lease struct {
	Lease     string    `json:"lease"` // proves who registered
	TTL       string    `json:"ttl"`
	ExpiresAt time.Time `json:"expires_at"`
	Revision  uint64    `json:"revision"` // of the backend's key
}

// Deregistered is the reply of resolve.deregister.
type Deregistered struct {
	Service string `json:"service"`
	Backend string `json:"backend"`
}

// Services is the reply of resolve.services.
type Services struct {
	Services []ServiceLine `json:"services"`
	Next     string        `json:"next"`
}

// StatusUnresolved is the status of a ServiceLine that has no answer yet.
const StatusUnresolved = "unresolved"

// ServiceLine is one service of a list.
type ServiceLine struct {
	Service  string `json:"service"`
	Source   string `json:"source"`
	Status   string `json:"status"`
	Backends int    `json:"backends"`
	Error    Code   `json:"error_code,omitempty"` // CorruptRecord: the record cannot be read
}
