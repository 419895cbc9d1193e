package runtime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
	"muster/wire"
)

// FACTS 5: the library refuses what is too large, and the connection lives on.
func TestAssumeTooLargeIsNotSent(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Start(t, natstest.MaxPayload(4096)).URL())
	if nc.MaxPayload() != 4096 {
		t.Errorf("the client was told of %d", nc.MaxPayload())
	}
	large := nats.NewMsg("subject")
	large.Data = make([]byte, 4000)
	large.Header.Set("X-Test", strings.Repeat("h", 200)) // headers count
	if err := nc.PublishMsg(large); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("publish: %v", err)
	}
	if _, err := nc.RequestMsgWithContext(within(t), large); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("request: %v", err)
	}
	if err := nc.FlushTimeout(limit); err != nil || nc.Reconnects != 0 {
		t.Errorf("afterwards: %v, %d reconnects", err, nc.Reconnects)
	}
}

// FACTS 5: therefore names are checked before anything is asked of NATS.
func TestAssumeLongKeyEndsTheConnection(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Start(t).URL(), nats.NoReconnect())
	if err := nc.Publish(wire.KeySubject("bucket", strings.Repeat("k", 4<<10)), nil); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, limit, "the server hangs up", nc.IsClosed)
}

// Subjects are lines: a space in a key makes another message of it, whose answer goes elsewhere.
func TestAssumeSpaceInAKeyIsNotAnswered(t *testing.T) {
	t.Parallel()
	r := newRaw(t, natstest.Start(t).URL(), 1)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if m, err := r.nc.RequestMsgWithContext(ctx, r.message("a b", "1")); err == nil {
		t.Errorf("it was answered: %s", m.Data)
	}
}

// FACTS 13: not connected, with the product's options nothing is kept to be sent later, and the caller is told at once.
func TestAssumeNotConnectedFailsAtOnce(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	nc := connect(t, node.URL(), 1).Conn()
	natstest.Eventually(t, limit, "connected", nc.IsConnected)
	node.Stop()
	natstest.Eventually(t, limit, "not connected", func() bool { return !nc.IsConnected() })
	began := time.Now()
	if err := nc.Publish("subject", nil); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("publish: %v", err)
	}
	if _, err := nc.RequestWithContext(within(t), "subject", nil); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("request: %v", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
}

// FACTS 13 and 23: when JetStream vanishes from a running server a publish is told that nobody takes it, and the API is
// silent.
func TestAssumeJetStreamVanishes(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	r := newRaw(t, node.URL(), 1)
	node.DisableJetStream()
	if _, err := r.nc.RequestMsgWithContext(within(t), r.message("key", "1")); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("publish: %v", err)
	}
	for _, subject := range []string{wire.APIStreamInfo(wire.BucketStream(testBucket.Name)), wire.APIMessageGet(wire.BucketStream(testBucket.Name))} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		m, err := r.nc.RequestWithContext(ctx, subject, nil)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, %v", subject, m, err)
		}
	}
}

// Who asks with an inbox of his own is told that nobody listens by a message with a status and no body.
func TestAssumeNoRespondersIsAStatus(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Start(t).URL())
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("nobody", sub.Subject, nil); err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsgWithContext(within(t))
	if !errors.Is(err, nats.ErrNoResponders) && (err != nil || m.Header.Get("Status") != "503" || len(m.Data) != 0) {
		t.Errorf("got %v, %v", m, err)
	}
	heard := make(chan *nats.Msg, 1)
	async, err := nc.Subscribe(nc.NewInbox(), func(m *nats.Msg) { heard <- m })
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("nobody", async.Subject, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-heard:
		if m.Header.Get("Status") != "503" || len(m.Data) != 0 {
			t.Errorf("got %v, %q", m.Header, m.Data)
		}
	case <-time.After(limit):
		t.Error("nothing came")
	}
}

// A refused publish is answered by nobody; the connection is told its subject, in words.
func TestAssumeRefusedPublishNamesItsSubject(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t, natstest.With(func(o *server.Options) {
		o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"denied.>"}},
		}}}
	}))
	told := make(chan error, 1)
	nc := natstest.Connect(t, node.URL(), nats.UserInfo("u", "p"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { told <- err }))
	if err := nc.Publish("denied.subject", nil); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-told:
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), `Publish to "denied.subject"`) {
			t.Errorf("told was %v", err)
		}
	case <-time.After(limit):
		t.Error("nothing was told")
	}
}
