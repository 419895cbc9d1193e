package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"muster/runtime"
)

// up is the command `muster up`.
type up struct {
	Listen string `default:"127.0.0.1:4222" placeholder:"ADDR" help:"Where the NATS server listens, host:port (default ${default}); port 0 takes a free one."`
	Store  string `default:".muster" placeholder:"DIR" help:"Where the NATS server keeps its streams (default ${default}). They are there again at the next start; remove the folder to begin anew."`
	HTTP   string `name:"http" placeholder:"ADDR" help:"Where to serve /livez, /readyz and /metrics (default 127.0.0.1:9464, or a free port when that is taken); port 0 takes a free one."`
	Sleds  int    `default:"5" placeholder:"N" help:"How many demo sleds to run: 913-0000019:2FAKE001 and so on (default ${default})."`
	Hives  int    `default:"2" placeholder:"N" help:"How many demo hives to run: h1, h2 and so on (default ${default})."`
}

// Help is printed by muster up --help.
func (up) Help() string {
	return `For trying it out and for development: one process, no users, nothing to install. It prints what to try, then a line "ready nats=… http=…" once requests are answered, and runs until it is interrupted.`
}

func (c up) Run(ctx context.Context, std streams) error {
	if c.Hives < 0 || c.Hives > 1000 {
		return &exit{exitUsage, errors.New("--hives must be 0 to 1000")}
	}
	if c.Sleds < 0 || c.Sleds > 999 {
		return &exit{exitUsage, errors.New("--sleds must be 0 to 999")}
	}
	host, port, err := parseListen(c.Listen)
	if err != nil {
		return err
	}
	unlock, err := lockStore(c.Store)
	if err != nil {
		return err
	}
	defer unlock()
	log := newLogger(std.err)
	srv, err := embedded(host, port, c.Store, log)
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
	demo := &demo{url: url, log: log}
	if err := errors.Join(demo.hives(ctx, c.Hives), demo.sleds(ctx, c.Sleds, filepath.Join(c.Store, "sleds"))); err != nil {
		demo.stop()
		return errors.Join(err, p.stop())
	}
	fmt.Fprintf(std.out, upText, url)
	fmt.Fprintf(std.out, "ready nats=%s http=http://%s\n", url, p.http.Addr)
	<-ctx.Done()
	log.Info("stopping", "within", stopWithin)
	demo.stop()
	return p.stop()
}

const upText = `Muster is up. In another terminal, try:

  go run ./cmd/muster call --nats %[1]s declare.create.h1.atlas '{"state":"up"}'
  go run ./cmd/muster call --nats %[1]s declare.status.h1
  go run ./cmd/muster call --nats %[1]s resolve.register.web.w1 '{"address":"[fd00::1]:80","ttl":"30s"}'
  go run ./cmd/muster call --nats %[1]s resolve.lookup.web
  go run ./cmd/muster call --nats %[1]s join.start.r2 -f docs/rack.json
  go run ./cmd/muster watch rack r2 --nats %[1]s
  nats --server %[1]s req muster.declare.view.h1 ''
  nats --server %[1]s sub 'muster.event.>'
  nats --server %[1]s pub muster.trigger.declare.set.h1.atlas '{"specversion":"1.0","id":"1","source":"/me","type":"try","data":{"state":"paused"}}'
  go run ./cmd/muster dead list --nats %[1]s

`

// lockStore keeps the store to one process. The server itself would open it a second time, even when it then finds its
// port taken, and two servers overwrite each other's files. The lock ends with the process, however it ends.
func lockStore(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of --store: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the folder of --store: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.New("another muster up uses it; stop that one, or choose another folder")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return func() { f.Close() }, nil //nolint:errcheck // nothing was written
}

// parseListen reads --listen. A port of 0 becomes what the server takes for "any free one".
func parseListen(listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, &exit{exitUsage, fmt.Errorf("--listen must be host:port, as in 127.0.0.1:4222: %w", err)}
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, &exit{exitUsage, fmt.Errorf("--listen must be host:port with a port from 0 to 65535, not %q", text)}
	}
	if n == 0 {
		return host, server.RANDOM_PORT, nil
	}
	return host, int(n), nil
}

// embedded starts a NATS server with JetStream in this process. What it acknowledges is on disk.
func embedded(host string, port int, store string, log *slog.Logger) (*server.Server, error) {
	srv, err := server.NewServer(&server.Options{
		ServerName: "muster-up", Host: host, Port: port, JetStream: true, StoreDir: store, SyncAlways: true,
		NoSigs: true, NoLog: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make NATS server: %w", err)
	}
	said := serverLog{log: log, fatal: make(chan string, 1)}
	srv.SetLogger(said, false, false)
	srv.Start()
	select {
	case why := <-said.fatal: // where the program nats-server would have ended
		err = fmt.Errorf("start NATS server: %s (see --listen and --store)", why)
	default:
		if srv.ReadyForConnections(10 * time.Second) {
			return srv, nil
		}
		err = errors.New("start NATS server: it does not listen after 10s")
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil, err
}

// serverLog passes on what an operator should see of the embedded server's log.
type serverLog struct {
	log   *slog.Logger
	fatal chan string // takes the first fatal message
}

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
	why := fmt.Sprintf(f, v...)
	l.log.Error("nats server", "message", why)
	select {
	case l.fatal <- why:
	default:
	}
}
