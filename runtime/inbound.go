package runtime

import (
	"regexp"
	"strings"
	"time"

	"muster/wire"
)

// Limits of Muster-Timeout.
const (
	timeoutDefault = 4 * time.Second
	timeoutMax     = 60 * time.Second
)

// traceparent is the form that W3C Trace Context gives it; anything else is ignored, as it says.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// inbound is one request as it came, whatever brought it.
type inbound struct {
	subject string
	reply   string
	data    []byte
	header  map[string][]string
	arrived time.Time

	ids       []string
	room      [2]string // for them
	requestID string
	cause     string // CloudEvents id of the trigger
	trigger   bool   // it is one: nobody waits for an answer
	trace     string
	api       int
	timeout   time.Duration
}

// parse reads subject and headers. What it could read is set even when it fails.
func (in *inbound) parse(function string, op *Op) error {
	in.timeout, in.api = timeoutDefault, 2
	if t := in.first(wire.HeaderTraceparent); t != "" && traceparent.MatchString(t) {
		in.trace = t
	}
	if v := in.first(wire.HeaderTimeout); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return wire.Invalid(wire.HeaderTimeout, "%s must be a duration above 0, as in 4s", wire.HeaderTimeout)
		}
		in.timeout = min(d, timeoutMax)
	}
	if v, ok := in.header[wire.HeaderRequestID]; ok {
		if len(v) != 1 || !wire.ValidRequestID(v[0]) {
			return wire.Invalid(wire.HeaderRequestID, "%s must be 1 to 64 letters, digits, - or _", wire.HeaderRequestID)
		}
		in.requestID = v[0]
	}
	switch in.first(wire.HeaderAPIVersion) {
	case "", "2":
	case "1":
		in.api = 1
	default:
		return wire.Errorf(wire.UnsupportedAPIVersion, "%s must be 1 or 2", wire.HeaderAPIVersion)
	}
	in.ids = wire.SubjectIDs(in.room[:0], in.subject, function, op.Name)
	if len(in.ids) != len(op.IDs) {
		return wire.Invalid("subject", "the subject must be %s, each name matching %s",
			wire.Subject(function, op.Name, brackets(op.IDs)...), wire.NamePattern)
	}
	for i, id := range in.ids {
		if err := wire.CheckName(op.IDs[i], id); err != nil {
			return err
		}
	}
	if len(in.data) > maxBody {
		return wire.Errorf(wire.TooLarge, "the body is %d bytes, the limit is %d", len(in.data), maxBody).
			With("size", len(in.data)).With("limit", maxBody)
	}
	return nil
}

func (in *inbound) first(header string) string {
	if v := in.header[header]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func brackets(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = "<" + strings.ToLower(n) + ">"
	}
	return out
}
