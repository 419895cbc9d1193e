package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"muster/functions/declare"
	"muster/functions/join"
	"muster/functions/resolve"
	"muster/runtime"
	"muster/wire"
)

// stopWithin is how long a process may take to finish what it has after SIGTERM.
const stopWithin = 25 * time.Second

// gcPercent lets the heap of a process that holds next to nothing grow to three times that between collections: a tenth
// of its time for a few megabytes.
const gcPercent = 200

// shareCores has this process use half of the cores, since the NATS server that it talks with is usually beside it, unless
// the environment says how many. What a replica does is passing messages on: with two cores of two a tenth to a fifth fewer,
// most of it lost on waking each other.
func shareCores() {
	if os.Getenv("GOMAXPROCS") == "" {
		goruntime.GOMAXPROCS(max(goruntime.GOMAXPROCS(0)/2, 1))
	}
}

// httpDefault is where health and metrics are served when nothing is said.
const httpDefault = "127.0.0.1:9464"

func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, nil))
}

// process is a process that serves functions.
type process struct {
	bus      *runtime.Bus
	fns      []runtime.Function
	services []*runtime.Service
	http     *runtime.HTTP
	log      *slog.Logger
}

// functions makes the functions named, all when none is.
func functions(bus *runtime.Bus, names []string, log *slog.Logger) []runtime.Function {
	all := map[string]func() runtime.Function{
		wire.Join: func() runtime.Function {
			return join.New(join.Deps{
				Racks: bus.Bucket(runtime.Racks), Networks: bus.Bucket(runtime.Networks), Sleds: bus.Bucket(runtime.Sleds),
				Ask: func(ctx context.Context, to wire.Baseboard, op string, body, reply any) error {
					return bus.Ask(ctx, wire.SledSubject(to, op), body, reply)
				},
				NewID: uuid.NewString, Now: time.Now, Log: log.With("function", wire.Join),
			})
		},
		wire.Declare: func() runtime.Function {
			return declare.New(declare.Deps{
				Wanted: bus.Bucket(runtime.Wanted), Reported: bus.Bucket(runtime.Reported), Now: bus.Bucket(runtime.Reported).Now,
			})
		},
	}
	all[wire.Resolve] = func() runtime.Function {
		return resolve.New(resolve.Deps{Bus: bus, NewID: uuid.NewString, Log: log.With("function", wire.Resolve)})
	}
	if len(names) == 0 {
		names = []string{wire.Declare, wire.Join, wire.Resolve}
	}
	var fns []runtime.Function
	for _, name := range names {
		fns = append(fns, all[name]())
	}
	return fns
}

// start connects and serves. An empty httpAddr means the default, or another port when that is taken.
func start(ctx context.Context, dial func(...nats.Option) (*nats.Conn, error), replicas int, names []string, httpAddr string, log *slog.Logger) (*process, error) {
	debug.SetGCPercent(gcPercent)
	bus, err := runtime.Connect(runtime.Options{Name: "muster serve", Dial: dial, Replicas: replicas, Log: log})
	if err != nil {
		return nil, err
	}
	p := &process{bus: bus, log: log}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.fns = functions(bus, names, log)
	if p.http, err = listenHTTP(httpAddr, reg, p.checks, log); err != nil {
		return nil, errors.Join(err, bus.Close(ctx))
	}
	for _, fn := range p.fns {
		s, err := bus.Serve(ctx, fn, reg)
		if err != nil {
			return nil, errors.Join(err, p.stop())
		}
		p.services = append(p.services, s)
	}
	return p, nil
}

func (p *process) checks(ctx context.Context) []runtime.Check { return p.bus.Checks(ctx, p.fns) }

func listenHTTP(addr string, reg *prometheus.Registry, checks func(context.Context) []runtime.Check, log *slog.Logger) (*runtime.HTTP, error) {
	if addr != "" {
		return runtime.ListenHTTP(addr, reg, checks)
	}
	h, err := runtime.ListenHTTP(httpDefault, reg, checks)
	if errors.Is(err, syscall.EADDRINUSE) {
		log.Warn("the default HTTP port is taken; using another", "default", httpDefault)
		return runtime.ListenHTTP("127.0.0.1:0", reg, checks)
	}
	return h, err
}

// waitReady returns once every check is fine, or ctx ends.
func (p *process) waitReady(ctx context.Context) error {
	for {
		ok := true
		for _, c := range p.checks(ctx) {
			ok = ok && c.OK
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stop finishes what was taken, in reverse order, and closes the connection.
func (p *process) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin-time.Second)
	defer cancel()
	errs := []error{p.bus.Stop(ctx, p.services...), p.bus.Close(ctx)}
	if p.http != nil {
		errs = append(errs, p.http.Close())
	}
	return errors.Join(errs...)
}

// serve is the command `muster serve`.
type serve struct {
	connection
	Functions []string `arg:"" optional:"" enum:"declare,join,resolve" help:"Functions to run: declare, join, resolve. All when none is named."`
	HTTP      string   `name:"http" placeholder:"ADDR" help:"Where to serve /livez, /readyz and /metrics (default 127.0.0.1:9464, or a free port when that is taken); port 0 takes a free one."`
	Replicas  int      `default:"1" placeholder:"N" help:"On how many servers of a cluster a bucket that is made here is kept, 1 to 5 (default ${default}). One that is there with fewer stays as it is, and /readyz says so."`
}

// Help is printed by muster serve --help.
func (serve) Help() string {
	return `Start it on as many machines as you like: the processes share the requests, and each may be stopped at any time. It may start before NATS does. It prints a line "ready nats=… http=…" once it can answer. SIGTERM stops it within 25 seconds, with no request lost; a second signal ends it at once.`
}

func (c serve) Run(ctx context.Context, std streams) error {
	if c.Replicas < 1 || c.Replicas > 5 {
		return &exit{exitUsage, errors.New("--replicas must be 1 to 5")}
	}
	log := newLogger(std.err)
	p, err := start(ctx, c.dial, c.Replicas, c.Functions, c.HTTP, log)
	switch {
	case err != nil && ctx.Err() != nil: // told to stop before it had begun
		log.Info("stopped at the start", "cause", err)
		return nil
	case err != nil:
		return err
	}
	log.Info("http", "address", p.http.Addr)
	if p.waitReady(ctx) == nil {
		fmt.Fprintf(std.out, "ready nats=%s http=http://%s\n", p.bus.Conn().ConnectedUrlRedacted(), p.http.Addr)
	}
	<-ctx.Done()
	log.Info("stopping", "within", stopWithin)
	return p.stop()
}
