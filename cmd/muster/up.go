package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"muster/edge/hive"
	"muster/runtime"
)

// up is the command `muster up`.
type up struct {
	Listen string `default:"127.0.0.1:4222" help:"Where the NATS server listens; port 0 takes a free one."`
	Store  string `default:".muster" help:"Where the NATS server keeps its streams."`
	HTTP   string `name:"http" default:"127.0.0.1:9464" help:"Where to serve /livez, /readyz and /metrics; port 0 takes a free one."`
	Hives  int    `default:"2" help:"Demo hives h1, h2, …"`
}

func (c up) Run(ctx context.Context, std streams) error {
	if c.Hives < 0 || c.Hives > 1000 {
		return &exit{exitUsage, errors.New("--hives must be 0 to 1000")}
	}
	log := newLogger(std.err)
	srv, err := embedded(c.Listen, c.Store, log)
	if err != nil {
		return err
	}
	defer func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	}()
	url := srv.ClientURL()
	p, err := start(ctx, runtime.URL(url), 1, nil, c.HTTP, log)
	if err != nil {
		return err
	}
	if err := p.waitReady(ctx); err != nil {
		return errors.Join(err, p.stop())
	}
	demo, err := demoHives(ctx, url, c.Hives, log)
	if err != nil {
		return errors.Join(err, p.stop())
	}
	fmt.Fprintf(std.out, upText, url, url, url)
	fmt.Fprintf(std.out, "ready nats=%s http=http://%s\n", url, p.http.Addr)
	<-ctx.Done()
	log.Info("stopping", "within", stopWithin)
	demo()
	return p.stop()
}

const upText = `Muster is up. In another terminal, try:

  go run ./cmd/muster call --nats %[1]s declare.create.h1.atlas '{"state":"up"}'
  go run ./cmd/muster call --nats %[2]s declare.status.h1
  nats --server %[3]s req muster.declare.view.h1 ''

`

// embedded starts a NATS server with JetStream in this process. What it acknowledges is on disk.
func embedded(listen, store string, log *slog.Logger) (*server.Server, error) {
	host, portText, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, &exit{exitUsage, fmt.Errorf("--listen must be host:port: %w", err)}
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, &exit{exitUsage, fmt.Errorf("--listen must be host:port: %w", err)}
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "muster-up", Host: host, Port: port, JetStream: true, StoreDir: store, SyncAlways: true,
		NoSigs: true, NoLog: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make NATS server: %w", err)
	}
	srv.SetLogger(serverLog{log}, false, false)
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		srv.Shutdown()
		return nil, fmt.Errorf("the NATS server does not start on %s; the log above says why", listen)
	}
	return srv, nil
}

// demoHives runs hives in this process and returns what stops them.
func demoHives(ctx context.Context, url string, n int, log *slog.Logger) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	stop = func() { cancel(); wg.Wait() }
	for i := range n {
		name := "h" + strconv.Itoa(i+1)
		bus, err := runtime.Connect(runtime.Options{Name: "muster hive " + name, Dial: runtime.URL(url), Log: log})
		if err != nil {
			stop()
			return nil, err
		}
		wg.Go(func() {
			hive.Run(ctx, hive.Config{Name: name, Bus: bus, Log: log.With("hive", name)})
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if err := bus.Close(end); err != nil {
				log.Warn("close connection", "hive", name, "cause", err)
			}
		})
	}
	return stop, nil
}

// serverLog passes on what an operator should see of the embedded server's log.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(string, ...any) {}
func (l serverLog) Debugf(string, ...any)  {}
func (l serverLog) Tracef(string, ...any)  {}
func (l serverLog) Warnf(f string, v ...any) {
	l.log.Warn("nats server", "message", fmt.Sprintf(f, v...))
}
func (l serverLog) Errorf(f string, v ...any) {
	l.log.Error("nats server", "message", fmt.Sprintf(f, v...))
}
func (l serverLog) Fatalf(f string, v ...any) {
	l.log.Error("nats server", "message", fmt.Sprintf(f, v...))
}
