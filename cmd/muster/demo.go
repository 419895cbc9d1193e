package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"muster/edge/hive"
	"muster/edge/sled"
	"muster/runtime"
	"muster/wire"
)

// demo is the fleet that `muster up` brings along, each of it on a connection of its own.
type demo struct {
	url     string
	log     *slog.Logger
	running sync.WaitGroup
	cancels []context.CancelFunc
}

// run runs one of the fleet until the demo stops.
func (d *demo) run(ctx context.Context, name string, f func(context.Context, *runtime.Bus, *slog.Logger) error) error {
	log := d.log.With("demo", name)
	bus, err := runtime.Connect(runtime.Options{Name: "muster " + name, Dial: runtime.URL(d.url), Log: log})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	d.cancels = append(d.cancels, cancel)
	d.running.Go(func() {
		if err := f(ctx, bus, log); err != nil {
			log.Error("demo ended", "cause", err)
		}
		end, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer done()
		if err := bus.Close(end); err != nil {
			log.Warn("close connection", "cause", err)
		}
	})
	return nil
}

// stop ends all and waits for it.
func (d *demo) stop() {
	for _, cancel := range d.cancels {
		cancel()
	}
	d.running.Wait()
}

func (d *demo) hives(ctx context.Context, n int) error {
	for i := range n {
		name := "h" + strconv.Itoa(i+1)
		err := d.run(ctx, "hive "+name, func(ctx context.Context, bus *runtime.Bus, log *slog.Logger) error {
			hive.Run(ctx, hive.Config{Name: name, Bus: bus, Log: log})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) sleds(ctx context.Context, n int, dir string) error {
	for i := range n {
		board := wire.Baseboard{PartNumber: "913-0000019", SerialNumber: fmt.Sprintf("2FAKE%03d", i+1)}
		err := d.run(ctx, "sled "+board.String(), func(ctx context.Context, bus *runtime.Bus, log *slog.Logger) error {
			return sled.Run(ctx, sled.Config{Baseboard: board, Dir: filepath.Join(dir, board.SerialNumber), Bus: bus, Log: log})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
