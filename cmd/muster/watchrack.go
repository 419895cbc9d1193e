package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"muster/functions/join"
	"muster/runtime"
	"muster/wire"
)

type watchRack struct {
	connection
	causes
	Name string `arg:"" help:"Name of the rack."`
}

// watchPatience is how many questions in a row may stay without an answer.
const watchPatience = 5

func (c watchRack) Run(ctx context.Context, std streams) error {
	if !wire.ValidName(c.Name) {
		return &exit{exitUsage, errors.New("the rack's name must match " + wire.NamePattern)}
	}
	std, stop, err := c.beside(ctx, c.connection, std, wire.BucketRacks, c.Name) // lines, not bars, if there are causes
	if err != nil {
		return err
	}
	defer stop()
	show := newPainter(std.out)
	silent := 0
	var last progress
	return c.follow(ctx, std, wire.BucketRacks, c.Name, func(ctx context.Context, bus *runtime.Bus) (bool, error) {
		var s join.Status
		if err := bus.Ask(ctx, wire.Subject(wire.Join, "status", c.Name), nil, &s); err != nil {
			if silent++; silent >= watchPatience {
				return true, &exit{exitUnavailable, fmt.Errorf("ask for the rack's status: %w", err)}
			}
			last.notes = []string{"no answer, it is asked again: " + err.Error()}
			show.paint(last)
			return false, nil
		}
		silent = 0
		last = progressOf(s)
		show.paint(last)
		if s.State == join.Failed {
			return true, &exit{exitConflict, errors.New(s.Message)}
		}
		return s.State == join.Completed || s.State == join.Initialized, nil
	})
}

// progress is how far a rack has come, as it is shown.
type progress struct {
	title string
	bars  []bar
	notes []string // who is awaited, and what stands against whom
}

// bar is one line of progress.
type bar struct {
	name      string
	done, all int
}

// notesShown is how many sleds are named of each kind; the rest is counted.
const notesShown = 3

func progressOf(s join.Status) progress {
	all := max(len(s.Members), len(s.Sleds), len(s.Missing))
	if s.Config != nil {
		all = max(all, len(s.Config.Members))
	}
	stage := map[join.State]int{
		join.Preparing: 1, join.Committing: 2, join.StartingAgents: 3, join.ConfiguringNetwork: 4,
		join.AwaitingCompletion: 5, join.Completed: 5, join.Initialized: 5,
	}[s.State]
	p := progress{bars: []bar{{"prepares", 0, all}, {"commits", 0, all}, {"starts", 0, all}, {"network", 0, all}}}
	for i := range p.bars {
		switch {
		case stage > i+1:
			p.bars[i].done = all
		case stage == i+1:
			p.bars[i].done = all - len(s.Missing)
		}
	}
	p.title = strings.TrimSpace(s.Rack + " " + string(s.State))
	if s.Message != "" {
		p.title += ": " + s.Message
	}
	if s.State == join.AwaitingCompletion {
		p.notes = append(p.notes, "to complete it: muster call join.complete."+s.Rack)
	}
	if n := len(s.Missing); n > 0 {
		var names []string
		for _, b := range s.Missing[:min(n, notesShown)] {
			names = append(names, b.String())
		}
		p.notes = append(p.notes, "waits for "+strings.Join(names, " ")+more(n))
	}
	for i, problem := range s.Problems {
		if i == notesShown {
			p.notes = append(p.notes, strings.TrimSpace(more(len(s.Problems))))
			break
		}
		p.notes = append(p.notes, problem.Baseboard.String()+": "+problem.Problem)
	}
	return p
}

func more(n int) string {
	if n <= notesShown {
		return ""
	}
	return fmt.Sprintf(" and %d more", n-notesShown)
}

// painter shows progress: painted over on a terminal, a line for each change elsewhere.
type painter struct {
	out   io.Writer
	width func() int // of the terminal; nil for none
	drawn int        // lines, that are painted over
	said  map[string]bool
}

func newPainter(out io.Writer) *painter {
	p := &painter{out: out}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.width = func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil || width < 20 {
				return 80
			}
			return width
		}
	}
	return p
}

func (p *painter) paint(is progress) {
	if p.width == nil {
		p.say(is)
		return
	}
	lines := []string{is.title}
	for _, b := range is.bars {
		if b.all > 0 {
			const width = 30
			filled := width * b.done / b.all
			lines = append(lines, fmt.Sprintf("%-9s [%s%s] %d/%d", b.name, strings.Repeat("#", filled), strings.Repeat(".", width-filled), b.done, b.all))
		}
	}
	lines = append(lines, is.notes...)
	text := strings.Builder{}
	if p.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA\r", p.drawn)
	}
	text.WriteString("\x1b[J")
	width := p.width() - 1 // a line that wraps would be two to paint over
	for _, line := range lines {
		text.WriteString(cut(line, width) + "\n")
	}
	fmt.Fprint(p.out, text.String())
	p.drawn = len(lines)
}

// cut shortens a line to so many characters, and takes out what is none.
func cut(line string, width int) string {
	chars := []rune{}
	for _, c := range line {
		if c >= ' ' && c != 0x7f {
			chars = append(chars, c)
		}
	}
	if len(chars) <= width {
		return string(chars)
	}
	return string(chars[:width-1]) + "…"
}

// say prints what is new: the state with its figures, and each note that was not there before.
func (p *painter) say(is progress) {
	line := is.title
	for _, b := range is.bars {
		if b.all > 0 {
			line += fmt.Sprintf(" %s=%d/%d", b.name, b.done, b.all)
		}
	}
	said := map[string]bool{}
	for i, text := range append([]string{line}, is.notes...) {
		if i > 0 {
			text = "  " + text
		}
		if !p.said[text] && text != "" {
			fmt.Fprintln(p.out, text)
		}
		said[text] = true
	}
	p.said = said
}
