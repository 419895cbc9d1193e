package natstest

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestJetStream_goesAndComes(t *testing.T) {
	n := Start(t)
	var disconnects atomic.Int32
	nc := Connect(t, n.URL(), nats.DisconnectErrHandler(func(*nats.Conn, error) { disconnects.Add(1) }))
	echo(t, Connect(t, n.URL()), "echo")
	kv := bucket(t, nc, "b", 1)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		put(t, kv, "k", "v")

		n.DisableJetStream()
		if _, err := nc.Request("$JS.API.INFO", nil, short); !errors.Is(err, nats.ErrTimeout) {
			t.Errorf("an API request without JetStream: %v", err)
		}
		if _, err := js.Publish(t.Context(), "$KV.b.k", nil, jetstream.WithRetryAttempts(0)); !errors.Is(err, jetstream.ErrNoStreamResponse) {
			t.Errorf("publishing without JetStream: %v", err)
		}
		mustAnswer(t, nc, "echo")

		n.EnableJetStream()
		eventuallyHas(t, kv, "k", "v")
	}
	if disconnects.Load() != 0 {
		t.Errorf("the client was disconnected %d times", disconnects.Load())
	}

	n.DisableJetStream()
	n.Restart()
	Eventually(t, limit, "the client is back", nc.IsConnected)
	eventuallyHas(t, kv, "k", "v")
}

// The race detector is the judge of this one.
func TestJetStream_goesAndComesUnderLoad(t *testing.T) {
	n := Start(t)
	kv := bucket(t, Connect(t, n.URL()), "b", 1)
	var load sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		nc := Connect(t, n.URL())
		load.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				// Most fail: what is asked for is not there half of the time.
				_, _ = nc.Request("$JS.API.STREAM.INFO.KV_b", nil, time.Millisecond)
				_, _ = nc.Request("$KV.b.k", []byte("load"), time.Millisecond)
			}
		})
	}
	for range 5 {
		n.DisableJetStream()
		n.EnableJetStream()
		eventuallyHas(t, kv, "k", "load")
	}
	close(done)
	load.Wait()
}

func TestJetStream_failures(t *testing.T) {
	n := Start(t, WithoutJetStream())
	for name, call := range map[string]func(){"disable": n.DisableJetStream, "enable": n.EnableJetStream} {
		if got := failureOf(t, func(tb testing.TB) { n.t = tb; call() }); !strings.Contains(got, name+" JetStream") {
			t.Errorf("%s on a server without JetStream: %q", name, got)
		}
	}
	n.t = t
}
