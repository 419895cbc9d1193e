package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"muster/functions/join"
)

func statusOf(t *testing.T, text string) (s join.Status) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func missing(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"part_number":"p","serial_number":"s%d"}`, i))
	}
	return `"missing":[` + strings.Join(all, ",") + `]`
}

// What a rack goes through, as a pipe gets it: one line a state, and a line for each new note.
func TestWatchRack_InAPipe(t *testing.T) {
	out := &strings.Builder{}
	p := newPainter(out)
	for _, text := range []string{
		`{"state":"uninitialized","rack":"r2"}`,
		`{"state":"starting","rack":"r2",` + missing(3) + `}`,
		`{"state":"trust_quorum_committing","rack":"r2","members":` + strings.TrimPrefix(missing(4), `"missing":`) + `,` + missing(1) + `,"problems":[{"baseboard":{"part_number":"p","serial_number":"s0"},"problem":"NotPrepared: no"}]}`,
		`{"state":"trust_quorum_committing","rack":"r2","members":` + strings.TrimPrefix(missing(4), `"missing":`) + `,` + missing(1) + `}`,
		`{"state":"configuring_network","rack":"r2",` + missing(5) + `}`,
		`{"state":"awaiting_completion","rack":"r2"}`,
		`{"state":"awaiting_completion","rack":"r2"}`,
		`{"state":"failed","rack":"r2","message":"too few"}`,
	} {
		p.paint(progressOf(statusOf(t, text)))
	}
	want := `r2 uninitialized
r2 starting prepares=0/3 commits=0/3 starts=0/3 network=0/3
  waits for p:s0 p:s1 p:s2
r2 trust_quorum_committing prepares=4/4 commits=3/4 starts=0/4 network=0/4
  waits for p:s0
  p:s0: NotPrepared: no
r2 configuring_network prepares=5/5 commits=5/5 starts=5/5 network=0/5
  waits for p:s0 p:s1 p:s2 and 2 more
r2 awaiting_completion
  to complete it: muster call join.complete.r2
r2 failed: too few
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

// On a terminal no line is wider than it, and what was painted is painted over.
func TestWatchRack_OnATerminal(t *testing.T) {
	out := &strings.Builder{}
	p := &painter{out: out, width: func() int { return 40 }}
	p.paint(progressOf(statusOf(t, `{"state":"starting","rack":"r2",`+missing(32)+`}`)))
	first := out.String()
	out.Reset()
	p.paint(progress{title: "done", notes: []string{"a\x1b[31mb"}})
	for _, line := range strings.Split(strings.TrimPrefix(first, "\x1b[J"), "\n") {
		if n := len([]rune(line)); n > 39 {
			t.Errorf("%d characters: %q", n, line)
		}
	}
	if n := strings.Count(first, "\n"); n != 6 || !strings.HasPrefix(out.String(), "\x1b[6A\r\x1b[J") {
		t.Errorf("%d lines, painted over by %q", n, out)
	}
	if !strings.HasSuffix(out.String(), "done\na[31mb\n") {
		t.Errorf("got %q", out)
	}
}
