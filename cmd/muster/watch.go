package main

import (
	"context"
	"errors"
	"fmt"
	"time"

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

type watchHive struct {
	connection
	causes
	Name string `arg:"" help:"Name of the hive."`
}

func (c watchHive) Run(ctx context.Context, std streams) error {
	if !wire.ValidName(c.Name) {
		return &exit{exitUsage, errors.New("the hive's name must match " + wire.NamePattern)}
	}
	std, stop, err := c.beside(ctx, c.connection, std, wire.BucketWanted, c.Name)
	if err != nil {
		return err
	}
	defer stop()
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
