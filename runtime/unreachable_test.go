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
			return nats.Connect("nats://127.0.0.1:1", append(o, nats.SetCustomDialer(dialer(func() {
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
	const says = `msg="cannot connect to NATS, trying on" cause="no way there"`
	natstest.Eventually(t, limit, "it is said", func() bool { return log.count(says) > 0 })
	if n := log.count(says); n != 1 {
		t.Errorf("it is said %d times", n)
	}
}

// dialer fails, and tells of each attempt.
type dialer func()

func (d dialer) Dial(string, string) (net.Conn, error) {
	d()
	return nil, errors.New("no way there")
}
