// Package hook runs an operator's command where something changed: an agent of a hive, a sled's start, its network.
//
// A command must bear being run again for what it has done already: whoever runs it does so until it succeeds, and a crash
// between its end and the note of it runs it once more. What it prints goes line by line to where its caller says. One
// that leaves a process behind should redirect that one's output: a pipe it keeps open is closed after a while.
package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Command is one run of an operator's command.
type Command struct {
	Line  string    // for sh -c
	Env   []string  // NAME=value, beside this process's own
	Stdin []byte    // what it reads; nil for nothing
	Hide  []string  // secrets it is given: they are shown nowhere, should it print them
	Out   io.Writer // takes what it prints, on either stream
}

// grace is how long a command may take to end after SIGTERM, and how long what it left behind may hold its output.
const grace = 5 * time.Second

// Run runs the command until it ends, or ctx does: then it and what it started get SIGTERM. The error's text says how it
// failed and the last line it printed on standard error.
func Run(ctx context.Context, c Command) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", c.Line)
	cmd.Env = append(os.Environ(), c.Env...)
	if c.Stdin != nil {
		cmd.Stdin = bytes.NewReader(c.Stdin)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	hide, out := newHider(c.Hide), &shared{to: c.Out}
	stdout, stderr := &lines{to: out, hide: hide}, &lines{to: out, hide: hide}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	stdout.end()
	stderr.end()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) { // the latter: it succeeded, and left something running
		return nil
	}
	if stderr.last != "" {
		return fmt.Errorf("%w: %s", err, stderr.last)
	}
	return err
}
