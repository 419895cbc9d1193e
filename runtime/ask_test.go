package runtime

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
	"muster/wire"
)

// Only what has the form of a reply counts as one, also where nothing of it is wanted.
func TestAsk_TellsRepliesFromGarbage(t *testing.T) {
	node := natstest.Start(t)
	nc := natstest.Connect(t, node.URL())
	bus := &Bus{nc: nc}
	none := wire.Code("")
	for _, x := range []struct {
		body, header string
		code         wire.Code
	}{
		{`{}`, "", none},
		{` {"status":"initialized","new":1}`, "", none},
		{`{"error_code":"Busy","message":"m","request_id":"r","status":503,"retryable":true,"details":{}}`, "503", wire.Busy},
		{`{"error_code":"Busy","message":"m","request_id":"r","status":503,"retryable":true,"details":{}}`, "", wire.Busy},
		{`{"error_code":"Busy"}`, "", wire.Busy},
		{`{}`, "500", wire.Internal},
		{`{"error_code":"Busy","status":"high"}`, "", wire.Internal},
		{`{"error_code":7}`, "", wire.Internal},
		{``, "", wire.Internal},
		{`null`, "", wire.Internal},
		{`[]`, "", wire.Internal},
		{`7`, "", wire.Internal},
		{"\xff", "", wire.Internal},
		{`{"status":`, "", wire.Internal},
	} {
		sub, err := nc.Subscribe("service", func(m *nats.Msg) {
			reply := nats.NewMsg(m.Reply)
			reply.Data = []byte(x.body)
			if x.header != "" {
				reply.Header.Set(wire.HeaderErrorCode, x.header)
			}
			if err := nc.PublishMsg(reply); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, into := range []any{nil, &struct{}{}} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			err := bus.Ask(ctx, "service", nil, into)
			cancel()
			e, _ := errors.AsType[*wire.Error](err)
			if (err == nil) != (x.code == none) || e != nil && e.Code != x.code {
				t.Errorf("%q with header %q into %T: %v, want %q", x.body, x.header, into, err, x.code)
			}
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := bus.Ask(ctx, "nobody", nil, nil); !errors.Is(err, ErrSilent) {
		t.Errorf("nobody there: %v", err)
	}
}
