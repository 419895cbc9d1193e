package hive

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// hook runs the operator's command for one changed agent and returns what went wrong, "" for nothing. The command gets
// MUSTER_HIVE, MUSTER_AGENT and MUSTER_STATE; it must bear being run again for a state the agent is in already. What it
// prints goes to the hive's standard error.
func hook(ctx context.Context, command, hive string, a action) string {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Env = append(os.Environ(), "MUSTER_HIVE="+hive, "MUSTER_AGENT="+a.agent, "MUSTER_STATE="+string(a.state))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var last tail
	cmd.Stdout, cmd.Stderr = os.Stderr, &last
	if err := cmd.Run(); err != nil {
		if line := last.line(); line != "" {
			return fmt.Sprintf("%v: %s", err, line)
		}
		return err.Error()
	}
	return ""
}

// tailSize is how much of a failing command's last line is reported, in bytes.
const tailSize = 200

// tail passes on what is written and keeps the end of it.
type tail struct{ end []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.end = append(t.end, b...)
	if len(t.end) > 4*tailSize {
		t.end = bytes.Clone(t.end[len(t.end)-2*tailSize:])
	}
	return os.Stderr.Write(b)
}

func (t *tail) line() string {
	s := strings.TrimSpace(string(t.end))
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return strings.ToValidUTF8(s[:min(len(s), tailSize)], "")
}
