package hive

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"muster/runtime/natstest"
	"muster/wire"
)

func TestHook_TellsTheCommandWhatToDo(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	t.Setenv("FROM_OUTSIDE", "kept")
	t.Setenv("OUT", out)
	t.Setenv("MUSTER_STATE", "of somebody else")
	problem := hook(context.Background(), `echo "$MUSTER_HIVE $MUSTER_AGENT $MUSTER_STATE $FROM_OUTSIDE" > "$OUT"`, "h1", action{"atlas", wire.Paused})
	got, err := os.ReadFile(out)
	if problem != "" || err != nil || string(got) != "h1 atlas paused kept\n" {
		t.Errorf("problem %q, the command saw %q, %v", problem, got, err)
	}
}

func TestHook_SaysWhatWentWrong(t *testing.T) {
	for name, c := range map[string]struct{ command, want string }{
		"nothing":                         {"true", ""},
		"nothing, though it complains":    {"echo careful >&2", ""},
		"no word":                         {"exit 3", "exit status 3"},
		"the last line":                   {"echo one >&2; echo two >&2; exit 1", "exit status 1: two"},
		"the last line that is not empty": {"printf 'one\\ntwo\\n\\n  \\n' >&2; exit 1", "exit status 1: two"},
		"what has no line end":            {"printf 'one\\ntwo' >&2; exit 1", "exit status 1: two"},
		"standard output is not it":       {"echo out; exit 1", "exit status 1"},
		"killed":                          {"kill -9 $$", "signal: killed"},
		"no such command":                 {"exec /nowhere/at/all 2>/dev/null", "exit status 127"},
		"a long line is cut":              {"printf '%0300d' 7 >&2; exit 1", "exit status 1: " + strings.Repeat("0", 200)},
		"a long story before it":          {"i=0; while [ $i -lt 300 ]; do echo a line of some length >&2; i=$((i+1)); done; echo end >&2; exit 1", "exit status 1: end"},
		"bytes that are no text":          {"printf 'a\\377b' >&2; exit 1", "exit status 1: ab"},
	} {
		if got := hook(context.Background(), c.command, "h1", action{"a", wire.Up}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A cut in the middle of a character must not make a report that is no JSON.
func TestHook_CutsBetweenCharacters(t *testing.T) {
	for shift := range 3 {
		command := "printf '" + strings.Repeat("x", shift) + strings.Repeat("€", 100) + "' >&2; exit 1"
		got := hook(context.Background(), command, "h1", action{"a", wire.Up})
		if !utf8.ValidString(got) || len(got) > len("exit status 1: ")+200 || !strings.HasSuffix(got, "€") {
			t.Errorf("shift %d: %q", shift, got)
		}
	}
}

func TestHook_NameThatNoEnvironmentHoldsIsAProblemAndNoPanic(t *testing.T) {
	if got := hook(context.Background(), "true", "h1", action{"a\x00b", wire.Up}); got == "" {
		t.Error("no problem")
	}
}

// When the hive stops, so does its command, with everything it started.
func TestHook_StopsWithTheHive(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	t.Setenv("PIDS", file)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan string, 1)
	go func() {
		ended <- hook(ctx, `sleep 600 & echo $$ $! > "$PIDS.tmp"; mv "$PIDS.tmp" "$PIDS"; wait`, "h1", action{"a", wire.Up})
	}()
	var pids []string
	natstest.Eventually(t, 20*time.Second, "the command runs", func() bool {
		b, err := os.ReadFile(file)
		pids = strings.Fields(string(b))
		return err == nil && len(pids) == 2
	})
	cancel()
	select {
	case problem := <-ended:
		if problem == "" {
			t.Error("a command that was stopped counts as done")
		}
	case <-time.After(4 * time.Second): // before its patience of 5 s ends
		t.Fatal("the command goes on")
	}
	for _, pid := range pids {
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, 20*time.Second, "process "+pid+" is gone", func() bool { return gone(n) })
	}
}

// gone tells whether a process has ended; one that nobody has buried yet has.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z")
}
