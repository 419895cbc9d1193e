package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/runtime/natstest"
)

// TestMain lets the test binary stand in for the program: bench starts itself for its echo, and some tests need a
// process to send signals to. It keeps the NATS of whoever runs the tests out of them.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "bench" || os.Getenv("MUSTER_TEST_MAIN") != "" {
		main()
	}
	home, err := os.MkdirTemp("", "muster-test-home")
	if err != nil {
		panic(err)
	}
	err = errors.Join(os.Unsetenv("NATS_URL"), os.Unsetenv("NATS_CREDS"), os.Unsetenv("NATS_CONTEXT"), os.Setenv("XDG_CONFIG_HOME", home))
	if err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(home); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// output takes what a command writes and can be read meanwhile.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// result is what a command left.
type result struct {
	code     int
	out, err string
}

// muster runs the program to its end.
func muster(args ...string) result { return musterIn("", args...) }

// musterIn does so with something on standard input.
func musterIn(stdin string, args ...string) result {
	var out, err output
	code := run(args, streams{strings.NewReader(stdin), &out, &err})
	return result{code, out.String(), err.String()}
}

// running is a command that runs until it is stopped.
type running struct {
	out, err output
	ask      context.CancelFunc // asks it to stop, as the first signal does
	code     chan int
}

// background starts a command that is stopped when the test ends, if it was not before.
func background(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{ask: cancel, code: make(chan int, 1)}
	go func() { r.code <- command(ctx, args, streams{strings.NewReader(""), &r.out, &r.err}) }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("muster %s: standard error:\n%s", strings.Join(args, " "), &r.err)
		}
	})
	t.Cleanup(func() { r.stop(t) })
	return r
}

// stop asks it to stop and returns its exit code.
func (r *running) stop(t *testing.T) int {
	t.Helper()
	r.ask()
	return r.wait(t, 10*time.Second)
}

// wait returns its exit code once it has ended.
func (r *running) wait(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case code := <-r.code:
		r.code <- code
		return code
	case <-time.After(limit):
		t.Errorf("it still runs after %v; standard output:\n%sstandard error:\n%s", limit, &r.out, &r.err)
		return -1
	}
}

var readyLine = regexp.MustCompile(`(?m)^ready nats=(\S+) http=(\S+)$`)

// ready waits for the line that says so and returns the addresses in it.
func (r *running) ready(t *testing.T) (nats, http string) {
	t.Helper()
	var m []string
	natstest.Eventually(t, 20*time.Second, "a line that says ready on standard output", func() bool {
		m = readyLine.FindStringSubmatch(r.out.String())
		return m != nil || len(r.code) > 0
	})
	if m == nil {
		t.Fatalf("it ended with %d before it was ready; standard error:\n%s", <-r.code, &r.err)
	}
	return m[1], m[2]
}

// serving starts the functions on a NATS.
func serving(t *testing.T, url string) {
	t.Helper()
	background(t, "serve", "--nats", url, "--http", "127.0.0.1:0").ready(t)
}

// program is the program in a process of its own.
type program struct {
	cmd *exec.Cmd
	out output // both streams
	end chan error
}

// inProcess starts the program in a process of its own, which is killed when the test ends.
func inProcess(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(os.Args[0], args...), end: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), "MUSTER_TEST_MAIN=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.WaitDelay = time.Second // for what it leaves behind
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.end <- p.cmd.Wait() }()
	t.Cleanup(func() { p.cmd.Process.Kill() }) //nolint:errcheck // it has ended
	return p
}

// says waits until it has written a text.
func (p *program) says(t *testing.T, text string) {
	t.Helper()
	natstest.Eventually(t, 20*time.Second, fmt.Sprintf("%q in what %v writes", text, p.cmd.Args[1:]), func() bool {
		return strings.Contains(p.out.String(), text)
	})
}

func (p *program) terminate() { p.cmd.Process.Signal(syscall.SIGTERM) } //nolint:errcheck // it has ended
