package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"muster/edge/hive"
	"muster/runtime"
	"muster/wire"
)

// hives is the command `muster hive`.
type hives struct {
	connection
	Name     string `required:"" placeholder:"HIVE" help:"Name of this hive, as in its declaration."`
	OnChange string `placeholder:"CMD" help:"Shell command that brings one agent to its declared state. It gets MUSTER_HIVE, MUSTER_AGENT and MUSTER_STATE in its environment. It is run for each agent when the hive starts, then for each that changes; while it fails it is tried again, with growing pauses up to 30s. Without it the declared states are only reported as reached."`
	HTTP     string `name:"http" placeholder:"ADDR" help:"Where to serve /livez, /readyz and /metrics (default: nowhere)."`
}

func (c hives) Run(ctx context.Context, std streams) error {
	if !wire.ValidName(c.Name) {
		return &exit{exitUsage, errors.New("--name must match " + wire.NamePattern)}
	}
	log := newLogger(std.err).With("hive", c.Name)
	bus, err := runtime.Connect(runtime.Options{Name: "muster hive " + c.Name, Dial: c.dial, Log: log})
	if err != nil {
		return err
	}
	if c.HTTP != "" {
		reg := prometheus.NewRegistry()
		reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		fns := []runtime.Function{hive.Function(c.Name)}
		h, err := runtime.ListenHTTP(c.HTTP, reg, func(ctx context.Context) []runtime.Check { return bus.Checks(ctx, fns) })
		if err != nil {
			return errors.Join(err, bus.Close(ctx))
		}
		defer h.Close() //nolint:errcheck // the process ends
		fmt.Fprintf(std.out, "http=http://%s\n", h.Addr)
	}
	hive.Run(ctx, hive.Config{Name: c.Name, OnChange: c.OnChange, Bus: bus, Log: log})
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return bus.Close(end)
}
