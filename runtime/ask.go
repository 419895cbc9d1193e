package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"muster/wire"
)

// ErrSilent says that nobody answered a request in time. Whether it was carried out is not known.
var ErrSilent = errors.New("no answer")

// Ask sends a request to a service that answers as functions do, and decodes the reply into reply, which may be nil.
// A body with a method Headers() map[string]string
// has these sent beside it. It fails with the [*wire.Error] that was answered, or with [ErrSilent]. A reply with members that are not known is taken;
// one that cannot be read is an error, also where nothing of it is wanted.
func (b *Bus) Ask(ctx context.Context, subject string, body, reply any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body, json.Deterministic(true)); err != nil {
			return fmt.Errorf("encode request to %s: %w", subject, err)
		}
	}
	if !b.nc.IsConnected() {
		return errNotConnected()
	}
	request := &nats.Msg{Subject: subject, Data: data}
	if h, ok := body.(interface{ Headers() map[string]string }); ok {
		request.Header = nats.Header{}
		for name, value := range h.Headers() {
			request.Header.Set(name, value)
		}
	}
	msg, err := b.nc.RequestMsgWithContext(ctx, request)
	if err != nil {
		if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return fmt.Errorf("ask %s: %w", subject, ErrSilent)
		}
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	return readReply(msg, reply)
}

// readReply reads a reply. Its body alone tells success from failure; a header that says failure is believed, too.
func readReply(msg *nats.Msg, reply any) error {
	var form struct {
		Code wire.Code `json:"error_code"`
	}
	err := json.Unmarshal(msg.Data, &form)
	switch {
	case form.Code != "" || msg.Header.Get(wire.HeaderErrorCode) != "":
		var e wire.ErrorBody
		if err := json.Unmarshal(msg.Data, &e); err != nil || e.Code == "" {
			return wire.Errorf(wire.Internal, "an error that cannot be read was answered")
		}
		return &wire.Error{Code: e.Code, Message: e.Message, Details: e.Details}
	case err == nil && jsontext.Value(msg.Data).Kind() != jsontext.KindBeginObject:
		err = errors.New("it is no object")
	case err == nil && reply != nil:
		err = json.Unmarshal(msg.Data, reply)
	}
	if err != nil {
		return wire.Errorf(wire.Internal, "a reply that cannot be read was answered").Because(err)
	}
	return nil
}
