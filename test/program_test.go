package test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
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

// startLimit is how long the program may take to say that it is ready, on two busy cores under the race detector.
const startLimit = 30 * time.Second

// program is one process of the built binary. It is gone when the test ends.
type program struct {
	t        testing.TB
	cmd      *exec.Cmd
	out, err *output
	exited   chan struct{}
}

// output keeps what a process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// launch starts the program with arguments and does not wait for anything.
func launch(t testing.TB, args ...string) *program {
	t.Helper()
	p := prepare(t, args...)
	p.start()
	return p
}

// prepare makes a program that is not started yet.
func prepare(t testing.TB, args ...string) *program {
	p := &program{t: t, cmd: exec.Command(binary, args...), out: &output{}, err: &output{}, exited: make(chan struct{})}
	p.cmd.Env = append(bare(os.Environ()), "GORACE=atexit_sleep_ms=0") // else one that was built to watch for races ends a second late
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	return p
}

func (p *program) start() {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("start muster %s: %v", strings.Join(p.cmd.Args[1:], " "), err)
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState says how it ended
		close(p.exited)
	}()
	p.t.Cleanup(p.end)
}

// bare takes away what would point the program at another NATS than the test's.
func bare(env []string) []string {
	var kept []string
	for _, v := range env {
		if !strings.HasPrefix(v, "NATS_") {
			kept = append(kept, v)
		}
	}
	return kept
}

// serveProcess starts a replica as a process of its own and returns once it is ready.
func serveProcess(t testing.TB, url string, args ...string) *program {
	t.Helper()
	p := launch(t, append([]string{"serve", "--nats", url, "--http", "127.0.0.1:0"}, args...)...)
	p.waitReady()
	return p
}

// end kills what still runs, and looks through what the process said for what no process may say.
func (p *program) end() {
	p.signal(syscall.SIGKILL)
	<-p.exited
	text := p.err.String()
	for _, bad := range []string{"DATA RACE", "panic:", "goroutine stack exceeds", "fatal error:"} {
		if strings.Contains(text, bad) {
			p.t.Errorf("process %d said %q", p.cmd.Process.Pid, bad)
		}
	}
	if p.t.Failed() {
		p.t.Logf("process %d, muster %s, ended with %s and said:\n%s%s",
			p.cmd.Process.Pid, strings.Join(p.cmd.Args[1:], " "), p.cmd.ProcessState, p.out, tail(text, 8<<10))
	}
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "…" + s[len(s)-n:]
}

// signal sends a signal; one that is gone already does not mind.
func (p *program) signal(s syscall.Signal) {
	select {
	case <-p.exited:
	default:
		_ = p.cmd.Process.Signal(s)
	}
}

// stop stops the process and returns once all of its threads stand still. The signal alone only asks for that: on a busy
// machine they run on for a while.
func (p *program) stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || !status.Stopped():
			p.t.Errorf("process %d does not stop: status %v, %v", p.cmd.Process.Pid, status, err)
			return
		default:
			return
		}
	}
}

// waitExit returns the process's exit code, -1 for one that a signal ended.
func (p *program) waitExit(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		p.t.Fatalf("muster %s still runs after %v", strings.Join(p.cmd.Args[1:], " "), limit)
		return 0
	}
}

func (p *program) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

var readyLine = regexp.MustCompile(`(?m)^ready nats=(nats://\S+) http=(http://\S+)$`)

// waitReady waits for the ready line on standard output and returns the addresses in it.
func (p *program) waitReady() (nats, http string) {
	p.t.Helper()
	natstest.Eventually(p.t, startLimit, "the program says that it is ready, or ends", func() bool {
		return readyLine.MatchString(p.out.String()) || !p.running()
	})
	m := readyLine.FindStringSubmatch(p.out.String())
	if m == nil {
		p.t.Fatalf("muster %s ended before it was ready", strings.Join(p.cmd.Args[1:], " "))
	}
	return m[1], m[2]
}

var httpLine = regexp.MustCompile(`msg=http address=(\S+)`)

// httpURL is where the process serves HTTP, ready or not, by its log.
func (p *program) httpURL() string {
	p.t.Helper()
	var m []string
	natstest.Eventually(p.t, startLimit, "the log names the HTTP address", func() bool {
		m = httpLine.FindStringSubmatch(p.err.String())
		return m != nil
	})
	return "http://" + m[1]
}

// get fetches a path of the process's HTTP server.
func (p *program) get(path string) (status int, body string) {
	p.t.Helper()
	return fetch(p.t, p.httpURL()+path)
}

func fetch(t testing.TB, url string) (status int, body string) {
	t.Helper()
	c := http.Client{Timeout: 10 * time.Second}
	r, err := c.Get(url)
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	return r.StatusCode, string(b)
}

// lines are those of a file, none when it is not there.
func lines(t testing.TB, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' })
}
