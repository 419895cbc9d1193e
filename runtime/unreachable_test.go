package runtime_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/runtime"
	"muster/runtime/natstest"
)

// lines is a log that can be looked at while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(of string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), of)
}

// Who starts a function with a wrong address must find that in the log, and not thousands of lines of it.
func TestConnectSaysThatThereIsNoServer(t *testing.T) {
	t.Parallel()
	var log lines
	tries := 0
	var mu sync.Mutex
	bus, err := runtime.Connect(runtime.Options{
		Name: t.Name(), Log: slog.New(slog.NewTextHandler(&log, nil)),
		Dial: func(o ...nats.Option) (*nats.Conn, error) {
			return nats.Connect("nats://127.0.0.1:1", append(o, nats.CustomDialer(dialer(func() {
				mu.Lock()
				defer mu.Unlock()
				tries++
			})))...)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close(t.Context()) })
	natstest.Eventually(t, limit, "some attempts", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return tries >= 4
	})
	if n := log.count("cannot connect to NATS"); n != 1 {
		t.Errorf("it is said %d times", n)
	}
	if log.count("no way there") != 1 {
		t.Error("the cause is not said")
	}
}

// dialer fails, and tells of each attempt.
type dialer func()

func (d dialer) Dial(string, string) (net.Conn, error) {
	d()
	return nil, errors.New("no way there")
}
