package hook

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// run runs a command and returns what it printed and how it failed, "" for not at all.
func run(t *testing.T, c Command) (printed, problem string) {
	t.Helper()
	var out bytes.Buffer
	c.Out = &out
	if err := Run(t.Context(), c); err != nil {
		problem = err.Error()
	}
	return out.String(), problem
}

func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		command          Command
		printed, problem string
	}{
		"succeeds":                  {Command{Line: "echo hello"}, "hello\n", ""},
		"environment":               {Command{Line: `echo "$MUSTER_X"`, Env: []string{"MUSTER_X=7"}}, "7\n", ""},
		"standard input":            {Command{Line: "cat", Stdin: []byte("text")}, "text\n", ""},
		"nothing to read":           {Command{Line: "cat"}, "", ""},
		"input it does not read":    {Command{Line: "true", Stdin: bytes.Repeat([]byte("x"), 1<<20)}, "", ""},
		"fails silently":            {Command{Line: "exit 3"}, "", "exit status 3"},
		"says why":                  {Command{Line: "echo first >&2; echo the reason >&2; echo >&2; exit 1"}, "first\nthe reason\n\n", "exit status 1: the reason"},
		"output is no reason":       {Command{Line: "echo out; exit 1"}, "out\n", "exit status 1"},
		"a line without an end":     {Command{Line: "printf why >&2; exit 1"}, "why\n", "exit status 1: why"},
		"a long reason":             {Command{Line: "printf '%0300d' 0 >&2; exit 1"}, strings.Repeat("0", 300) + "\n", "exit status 1: " + strings.Repeat("0", 200)},
		"secrets":                   {Command{Line: `cat >&2; exit 1`, Stdin: []byte(`{"k":"s3cret","l":"a\"b"}`), Hide: []string{"s3cret", `a"b`, ""}}, `{"k":"[hidden]","l":"[hidden]"}` + "\n", `exit status 1: {"k":"[hidden]","l":"[hidden]"}`},
		"a secret within another":   {Command{Line: "echo key-and-more key", Hide: []string{"key", "key-and-more"}}, "[hidden] [hidden]\n", ""},
		"a secret in pieces":        {Command{Line: "printf sec; sleep 0.01; echo ret", Hide: []string{"secret"}}, "[hidden]\n", ""},
		"a line that is too long":   {Command{Line: "head -c 1100000 /dev/zero | tr '\\0' x; echo; echo after"}, "[line too long]\nafter\n", ""},
		"a command that is unknown": {Command{Line: "exec ./no-such-program 2>/dev/null"}, "", "exit status 127"},
	} {
		t.Run(name, func(t *testing.T) {
			printed, problem := run(t, c.command)
			if printed != c.printed || problem != c.problem {
				t.Errorf("printed %.300q, problem %q; want %.300q, %q", printed, problem, c.printed, c.problem)
			}
		})
	}
}

func TestRun_EndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	line := "trap 'echo ended > " + filepath.Join(dir, "ended") + "; exit 1' TERM; : > " + filepath.Join(dir, "runs") + "; while :; do sleep 0.01; done"
	go func() { done <- Run(ctx, Command{Line: line, Out: &bytes.Buffer{}}) }()
	for limit := time.Now().Add(10 * time.Second); ; <-time.After(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "runs")); err == nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the command does not run")
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("a command that was ended counts as a success")
	}
	if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
		t.Error("the command did not get SIGTERM")
	}
}
