package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"muster/functions/join"
	"muster/runtime"
	"muster/wire"
)

// watch are the commands `muster watch rack`, `muster watch hive` and `muster watch service`.
type watch struct {
	Rack    watchRack    `cmd:"" help:"Show how far a rack has come, until it has joined or failed. Exit code: 0 joined, 4 failed, 5 nobody answers."`
	Hive    watchHive    `cmd:"" help:"Show what a hive should run beside what it says it runs, as it changes, until interrupted."`
	Service watchService `cmd:"" help:"Show the backends of a service, or why they are not known, as they change, until interrupted."`
}

// watchEvery is how often is looked when nothing is heard: a watch may fall silent, and a report ages.
const watchEvery = 2 * time.Second

// follow calls look at once, at every change of a key, and every watchEvery, until it is done or ctx ends.
func (c connection) follow(ctx context.Context, std streams, bucket, key string, look func(context.Context, *runtime.Bus) (done bool, err error)) error {
	bus, err := runtime.Connect(runtime.Options{Name: "muster watch", Dial: c.dial, Log: newLogger(quiet{})})
	if err != nil {
		return dialFailed(err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		bus.Close(end) //nolint:errcheck // nothing was published
	}()
	following, stop := context.WithCancel(ctx)
	changed, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		bus.Follow(following, bucket, key, func(runtime.Sight) {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	defer func() { stop(); <-ended }()
	for {
		asked, cancel := context.WithTimeout(ctx, 5*time.Second)
		done, err := look(asked, bus)
		cancel()
		if done || ctx.Err() != nil {
			return err
		}
		if err != nil {
			fmt.Fprintln(std.err, "muster:", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(watchEvery):
		}
	}
}

// quiet takes the log of a command whose own words tell enough.
type quiet struct{}

func (quiet) Write(b []byte) (int, error) { return len(b), nil }

type watchRack struct {
	connection
	Name string `arg:"" help:"Name of the rack."`
}

func (c watchRack) Run(ctx context.Context, std streams) error {
	if !wire.ValidName(c.Name) {
		return &exit{exitUsage, errors.New("the rack's name must match " + wire.NamePattern)}
	}
	show := painter(std)
	silent := 0
	return c.follow(ctx, std, wire.BucketRacks, c.Name, func(ctx context.Context, bus *runtime.Bus) (bool, error) {
		var s join.Status
		if err := bus.Ask(ctx, wire.Subject(wire.Join, "status", c.Name), nil, &s); err != nil {
			if silent++; silent >= 5 {
				return true, &exit{exitUnavailable, fmt.Errorf("ask for the rack's status: %w", err)}
			}
			return false, err
		}
		silent = 0
		show(progress(s))
		if s.State == join.Failed {
			return true, &exit{exitConflict, errors.New(s.Message)}
		}
		return s.State == join.Completed || s.State == join.Initialized, nil
	})
}

// bar is one line of progress.
type bar struct {
	name      string
	done, all int
}

// progress makes a title and bars of a rack's status.
func progress(s join.Status) (title string, bars []bar) {
	all := max(len(s.Members), len(s.Sleds))
	if s.Config != nil {
		all = max(all, len(s.Config.Members))
	}
	stage := map[join.State]int{
		join.Preparing: 1, join.Committing: 2, join.StartingAgents: 3, join.ConfiguringNetwork: 4,
		join.AwaitingCompletion: 5, join.Completed: 5, join.Initialized: 5,
	}[s.State]
	bars = []bar{{"prepares", 0, all}, {"commits", 0, all}, {"starts", 0, all}, {"network", 0, all}}
	for i := range bars {
		switch {
		case stage > i+1:
			bars[i].done = all
		case stage == i+1:
			bars[i].done = all - len(s.Missing)
		}
	}
	title = fmt.Sprintf("%s %s", s.Rack, s.State)
	if s.Message != "" {
		title += ": " + s.Message
	}
	var waits []string
	for _, b := range s.Missing {
		waits = append(waits, b.String())
	}
	if len(waits) > 0 {
		title += ", waits for " + strings.Join(waits, " ")
	}
	return title, bars
}

// painter shows progress: bars that are painted over on a terminal, a line for each change elsewhere.
func painter(std streams) func(title string, bars []bar) {
	f, isFile := std.out.(*os.File)
	last := ""
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return func(title string, bars []bar) {
			line := title
			for _, b := range bars {
				line += fmt.Sprintf(" %s=%d/%d", b.name, b.done, b.all)
			}
			if line != last {
				last = line
				fmt.Fprintln(std.out, line)
			}
		}
	}
	drawn := 0
	return func(title string, bars []bar) {
		if drawn > 0 {
			fmt.Fprintf(std.out, "\x1b[%dA", drawn)
		}
		fmt.Fprintf(std.out, "\x1b[2K%s\n", title)
		for _, b := range bars {
			const width = 30
			filled := 0
			if b.all > 0 {
				filled = width * b.done / b.all
			}
			fmt.Fprintf(std.out, "\x1b[2K%-9s [%s%s] %d/%d\n", b.name, strings.Repeat("#", filled), strings.Repeat(".", width-filled), b.done, b.all)
		}
		drawn = len(bars) + 1
	}
}

type watchHive struct {
	connection
	Name string `arg:"" help:"Name of the hive."`
}

func (c watchHive) Run(ctx context.Context, std streams) error {
	if !wire.ValidName(c.Name) {
		return &exit{exitUsage, errors.New("the hive's name must match " + wire.NamePattern)}
	}
	last := map[string]string{}
	return c.follow(ctx, std, wire.BucketReported, c.Name, func(ctx context.Context, bus *runtime.Bus) (bool, error) {
		var s wire.HiveStatus
		if err := bus.Ask(ctx, wire.Subject(wire.Declare, "status", c.Name), nil, &s); err != nil {
			return false, err
		}
		say := func(what, line string) {
			if last[what] != line {
				last[what] = line
				fmt.Fprintln(std.out, line)
			}
		}
		say("", fmt.Sprintf("%s revision %d stale=%t in_sync=%t", s.Hive, s.Revision, s.Stale, s.InSync))
		for name, a := range s.Agents {
			line := fmt.Sprintf("%s %s wanted=%s reported=%s", s.Hive, name, a.Wanted, a.Reported)
			if a.Error != "" {
				line += " error=" + a.Error
			}
			say(name, line)
		}
		return false, nil
	})
}
