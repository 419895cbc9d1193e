package runtime

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"muster/wire"
)

// deadLetter is the message that a trigger becomes when it failed for good: as it came, and why. What would not fit into a
// message any more loses its data, and in the end its headers; the reason is always there.
func deadLetter(trigger *nats.Msg, e *wire.Error, deliveries int, sequence uint64, limit int64) *nats.Msg {
	reason := nats.Header{
		wire.HeaderDeadCode:       {string(e.Code)},
		wire.HeaderDeadError:      {oneLine(e.Message)},
		wire.HeaderDeliveries:     {strconv.Itoa(deliveries)},
		wire.HeaderStreamSequence: {strconv.FormatUint(sequence, 10)},
	}
	header := plainHeaders(trigger.Header)
	maps.Copy(header, reason)
	msg := &nats.Msg{Subject: wire.DeadSubject(trigger.Subject), Header: header, Data: trigger.Data}
	const room = 1024 // for what the client adds
	if int64(msg.Size())+room > limit {
		msg.Data = nil
		msg.Header[wire.HeaderDeadError] = []string{oneLine(e.Message) + " (its data did not fit in here)"}
	}
	if int64(msg.Size())+room > limit {
		msg.Header = reason
	}
	return msg
}

// plainHeaders are the headers of a message without those by which NATS is told what to do with it.
func plainHeaders(h nats.Header) nats.Header {
	plain := nats.Header{}
	for name, values := range h {
		if !strings.HasPrefix(name, "Nats-") {
			plain[name] = slices.Clone(values)
		}
	}
	return plain
}

// Revived is the trigger that a dead letter was, to be published once more.
func Revived(subject string, header nats.Header, data []byte) *nats.Msg {
	h := plainHeaders(header)
	for _, name := range []string{wire.HeaderDeadCode, wire.HeaderDeadError, wire.HeaderDeliveries, wire.HeaderStreamSequence} {
		delete(h, name)
	}
	return &nats.Msg{Subject: wire.LiveSubject(subject), Header: h, Data: data}
}
