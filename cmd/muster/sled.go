package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"muster/edge/sled"
	"muster/runtime"
	"muster/wire"
)

// sleds are the commands `muster sled` and `muster sled unlock`.
type sleds struct {
	Run    sledRun    `cmd:"" default:"withargs" hidden:"" help:"Run on a sled: keep its key share, take its start and its network (what muster sled alone does)."`
	Unlock sledUnlock `cmd:"" help:"Prove that the sleds can recover the rack's secret: ask a threshold of them for their shares. Prints its fingerprint, never the secret."`
}

// whichSled says which sled it is and where it keeps what it knows.
type whichSled struct {
	Part   string `required:"" placeholder:"P" help:"Part number of this sled's baseboard."`
	Serial string `required:"" placeholder:"S" help:"Serial number of this sled's baseboard."`
	Store  string `required:"" placeholder:"DIR" help:"Where the sled keeps its key, its shares and its network config. They are secrets; the folder is made for its owner alone."`
}

func (c whichSled) baseboard() (wire.Baseboard, error) {
	b := wire.Baseboard{PartNumber: c.Part, SerialNumber: c.Serial}
	switch {
	case !wire.ValidName(c.Part):
		return b, &exit{exitUsage, errors.New("--part must match " + wire.NamePattern)}
	case !wire.ValidName(c.Serial):
		return b, &exit{exitUsage, errors.New("--serial must match " + wire.NamePattern)}
	}
	return b, nil
}

type sledRun struct {
	connection
	whichSled
	OnStart   string `placeholder:"CMD" help:"Shell command that starts the sled's agent. It gets MUSTER_SLED_ID, MUSTER_SUBNET and MUSTER_RACK_ID in its environment. It is run when the sled is told to start, and again whenever this program starts; while it fails the start fails, and is tried again."`
	OnNetwork string `placeholder:"CMD" help:"Shell command that takes a network config: JSON on standard input, the generation in MUSTER_GENERATION, and what --on-start gets. It is run once for each generation; while it fails the config counts as not written, and it is tried again."`
	HTTP      string `name:"http" placeholder:"ADDR" help:"Where to serve /livez, /readyz and /metrics (default: nowhere)."`
}

// Help is printed by muster sled --help.
func (sledRun) Help() string {
	return `One process for each sled of a rack. It may start before NATS does, and be stopped and killed at any time: it goes on with what it keeps in --store. SIGTERM stops it.`
}

func (c sledRun) Run(ctx context.Context, std streams) (err error) {
	board, err := c.baseboard()
	if err != nil {
		return err
	}
	log := newLogger(std.err)
	bus, err := runtime.Connect(runtime.Options{Name: "muster sled " + board.String(), Dial: c.dial, Log: log})
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		err = errors.Join(err, bus.Close(end))
	}()
	reg := prometheus.NewRegistry()
	s, err := sled.New(sled.Config{
		Baseboard: board, Dir: c.Store, OnStart: c.OnStart, OnNetwork: c.OnNetwork,
		Bus: bus, Log: log, Metrics: reg, Output: std.err,
	})
	if err != nil {
		return err
	}
	if c.HTTP != "" {
		reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		fns := []runtime.Function{s.Function()}
		h, err := runtime.ListenHTTP(c.HTTP, reg, func(ctx context.Context) []runtime.Check { return bus.Checks(ctx, fns) })
		if err != nil {
			return errors.Join(err, s.Close())
		}
		defer h.Close() //nolint:errcheck // the process ends
		fmt.Fprintf(std.out, "http=http://%s\n", h.Addr)
	}
	return s.Run(ctx)
}

type sledUnlock struct {
	connection
	whichSled
	Timeout time.Duration `default:"10s" help:"How long to wait for enough sleds (default ${default})."`
}

func (c sledUnlock) Run(ctx context.Context, std streams) (err error) {
	board, err := c.baseboard()
	if err != nil {
		return err
	}
	if c.Timeout <= 0 {
		return &exit{exitUsage, errors.New("--timeout must be above 0")}
	}
	bus, err := runtime.Connect(runtime.Options{Name: "muster sled unlock " + board.String(), Dial: c.dial, Log: newLogger(std.err)})
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		err = errors.Join(err, bus.Close(end))
	}()
	asked, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	u, err := sled.Unlock(asked, c.Store, board, bus)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &exit{exitUsage, fmt.Errorf("no sled was ever run with this --store: %w", err)}
	case errors.Is(err, sled.ErrNotCommitted):
		return &exit{exitConflict, err}
	case err != nil && asked.Err() != nil:
		return &exit{exitUnavailable, err}
	case err != nil:
		return err
	}
	fmt.Fprintf(std.out, "unlocked rack=%s epoch=%d shares=%d of %d fingerprint=%s\n",
		u.RackID, u.Epoch, len(u.From), u.Members, u.Fingerprint)
	for _, b := range u.From {
		fmt.Fprintf(std.out, "share of %v\n", b)
	}
	for _, p := range u.Prior {
		fmt.Fprintf(std.out, "opens epoch=%d fingerprint=%s\n", p.Epoch, p.Fingerprint)
	}
	return nil
}
