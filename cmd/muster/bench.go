package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"

	"muster/wire"
)

// bench is the command `muster bench`. It measures what NATS itself does and what the functions do in one run, from one
// process, on whatever NATS it is pointed at: the ratios are the result, the rates belong to the machine.
type bench struct {
	connection
	Callers int           `default:"64" placeholder:"N" help:"How many requests are under way at once (default ${default})."`
	Time    time.Duration `default:"3s" placeholder:"DURATION" help:"How long each line is measured (default ${default})."`
	Agents  int           `default:"5000" placeholder:"N" help:"How many agents the large hive has (default ${default})."`
	Sleds   int           `default:"32" placeholder:"N" help:"How many sleds the large rack has that joins, 3 to 32 (default ${default})."`
	Racks   int           `default:"20" placeholder:"N" help:"How many racks of 8 sleds join at once (default ${default})."`
	Only    string        `placeholder:"TEXT" help:"Measure only the lines whose name contains this, and compare nothing."`
	Echo    bool          `hidden:"" help:"Serve the echo that the others are compared with; bench starts itself with this."`
}

// Help is printed by muster bench --help.
func (bench) Help() string {
	return `It needs the functions running on that NATS, and loads both as hard as it can. The sleds that join are run by the bench itself, each on a connection of its own; a join is measured from its start until it awaits completion, and "revisions" is the most that a rack's record had. What it stores, hives, racks, sleds and a service named bench-…, the buckets ` + benchBucket + ` and ` + benchFollowed + ` and the stream ` + benchStream + `, it removes at the end.`
}

// benchClients is how many connections the callers share.
const benchClients = 4

// What follows is the bench's own; it removes what it made.
const (
	echoSubject        = "bench.echo"
	sizedSubject       = "bench.sized" // answered with as many bytes as a lookup of three backends is
	benchBucket        = "muster_bench"
	benchFollowed      = "muster_bench_followed"
	benchStream        = "MUSTER_BENCH_EVENTS"
	benchEventSubjects = "bench.event.>"
)

func (c bench) Run(ctx context.Context, std streams) error {
	if c.Callers < 1 || c.Callers > 10000 || c.Time < 100*time.Millisecond || c.Agents < 1 || c.Sleds < 3 || c.Sleds > 32 || c.Racks < 1 || c.Racks > 1000 {
		return &exit{exitUsage, errors.New("--callers must be 1 to 10000, --time at least 100ms, --agents at least 1, --sleds 3 to 32, --racks 1 to 1000")}
	}
	if c.Echo {
		return c.serveEcho(ctx, std)
	}
	b := &benchRun{bench: c, name: "bench-" + nuid.Next()[16:], std: std, samples: map[string]*sample{}}
	for range benchClients {
		nc, err := c.dial(nats.Name("muster bench"))
		if err != nil {
			return dialFailed(err)
		}
		defer nc.Close()
		b.conns = append(b.conns, nc)
	}
	stopEcho, err := c.startEcho(ctx)
	if err != nil {
		return err
	}
	defer stopEcho()
	err = b.run(ctx)
	if ctx.Err() != nil {
		return &exit{exitInterrupted, errors.New("interrupted before the end; nothing is compared")}
	}
	return err
}

// sizedAnswer is about what an answer of the service that is looked up has, in bytes.
const sizedAnswer = 490

// serveEcho answers echoSubject and sizedSubject until its standard input ends.
func (c bench) serveEcho(ctx context.Context, std streams) error {
	nc, err := c.dial(nats.Name("muster bench echo"))
	if err != nil {
		return err
	}
	defer nc.Close()
	svc, err := micro.AddService(nc, micro.Config{Name: "bench-echo", Version: "1.0.0"})
	if err != nil {
		return err
	}
	echo := micro.HandlerFunc(func(r micro.Request) { r.Respond(r.Data()) }) //nolint:errcheck // the caller times out
	if err := svc.AddEndpoint("echo", echo, micro.WithEndpointSubject(echoSubject)); err != nil {
		return err
	}
	answer := []byte(strings.Repeat("x", sizedAnswer))
	sized := micro.HandlerFunc(func(r micro.Request) { r.Respond(answer) }) //nolint:errcheck // likewise
	if err := svc.AddEndpoint("sized", sized, micro.WithEndpointSubject(sizedSubject)); err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(std.out, "ready")
	_, err = io.Copy(io.Discard, std.in)
	return err
}

// startEcho runs the echo in a process of its own, as the functions have theirs.
func (c bench) startEcho(ctx context.Context) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c.connection = c.withEnv()
	cmd := exec.CommandContext(ctx, self, "bench", "--echo")
	cmd.Env = append(os.Environ(), "NATS_URL="+c.NATS, "NATS_CREDS="+c.Creds, "NATS_CONTEXT="+c.Context)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start echo: %w", err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		return nil, fmt.Errorf("start echo: %w", err)
	}
	return func() { in.Close(); cmd.Wait() }, nil //nolint:errcheck // it ends with its input
}

// benchRounds is how often the lines take turns: a machine's speed drifts, and what is compared must drift together.
const benchRounds = 8

// benchRun is one run: what was measured so far, and where.
type benchRun struct {
	bench
	name    string // of everything it makes
	std     streams
	conns   []*nats.Conn
	samples map[string]*sample
}

func (b *benchRun) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, b.removeService(), b.cleanUp(context.WithoutCancel(ctx))) }()
	lines, err := b.lines(ctx)
	if err != nil {
		return err
	}
	lines = slices.DeleteFunc(lines, func(l benchLine) bool { return !strings.Contains(l.name, b.Only) })
	joins := slices.DeleteFunc(b.joins(), func(l benchJoin) bool { return !strings.Contains(l.name, b.Only) })
	if len(lines)+len(joins) == 0 {
		return &exit{exitUsage, fmt.Errorf("no line has %q in its name", b.Only)}
	}
	fmt.Fprintf(b.std.out, "%s, %d cores, %s; NATS server %s; %d callers on %d connections, %v a line in %d rounds\n",
		runtime.GOARCH, runtime.NumCPU(), runtime.Version(), b.conns[0].ConnectedServerVersion(), b.Callers, benchClients, b.Time, benchRounds)
	for range benchRounds {
		for _, l := range lines {
			if err := b.measure(ctx, l, b.Time/benchRounds); err != nil {
				return err
			}
		}
	}
	if err := b.report(lines); err != nil {
		return err
	}
	return b.measureJoins(ctx, joins)
}

// lines are what is measured, in order.
func (b *benchRun) lines(ctx context.Context) ([]benchLine, error) {
	js, err := jetstream.New(b.conns[0])
	if err != nil {
		return nil, err
	}
	raw, err := b.rawUpdates(ctx, js, benchBucket)
	if err != nil {
		return nil, err
	}
	followed, err := b.rawUpdates(ctx, js, benchFollowed)
	if err != nil {
		return nil, err
	}
	if err := b.follow(ctx, js); err != nil {
		return nil, err
	}
	hive := func(i int) string { return b.name + "-" + strconv.Itoa(i) }
	agent := func(i int) string { return "agent" + strconv.Itoa(i) }
	set := func(hive, agent func(i int) string) func(i, n int) (*nats.Msg, error) {
		states := [][]byte{[]byte(`{"state":"up","reply":"brief"}`), []byte(`{"state":"paused","reply":"brief"}`)}
		return func(i, n int) (*nats.Msg, error) {
			return b.request(i, wire.Subject(wire.Declare, "set", hive(i), agent(i)), states[n%2])
		}
	}
	view := func(hive func(i int) string) func(i, n int) (*nats.Msg, error) {
		return func(i, _ int) (*nats.Msg, error) {
			return b.request(i, wire.Subject(wire.Declare, "view", hive(i)), nil)
		}
	}
	hot := func(int) string { return b.name + "-hot" }
	large := func(int) string { return b.name + "-large" }
	echo := func(i, _ int) (*nats.Msg, error) {
		return b.request(i, echoSubject, []byte(`{"state":"up","reply":"brief"}`))
	}
	sized := func(i, _ int) (*nats.Msg, error) { return b.request(i, sizedSubject, nil) }
	one := func(int) string { return "one" }
	once := func(do func(i, n int) (*nats.Msg, error)) func() error {
		return func() error {
			for i := range b.Callers {
				if _, err := do(i, 0); err != nil {
					return err
				}
			}
			return nil
		}
	}
	rate := func(line string) float64 { return b.samples[line].rate() }
	p50 := func(line string) float64 { return float64(b.samples[line].quantile(0.5)) }
	series := func(line string) func() string {
		return func() string {
			of := func(update string) float64 { return rate(line) * (1/rate("echo") + 1/rate(update)) }
			return fmt.Sprintf("%.2f of echo and update in series, %.2f followed", of("KV update, own keys"), of("KV update, followed"))
		}
	}
	toEcho := func(line string) func() string {
		return func() string { return fmt.Sprintf("%.2f of echo", rate(line)/rate("echo")) }
	}
	events := b.newEvents(js)
	viaTrigger := func() string {
		return fmt.Sprintf("%.2f of declare.set", rate("trigger, own hives")/rate("declare.set, own hives"))
	}
	latency := func() string {
		of := func(update string) float64 {
			return p50("declare.set, one caller") / (p50("echo, one caller") + p50(update))
		}
		return fmt.Sprintf("p50 %.2f of echo plus update, %.2f followed", of("KV update, one caller"), of("KV update followed, one caller"))
	}
	return []benchLine{
		{name: "echo", callers: b.Callers, do: echo},
		{name: "KV update, own keys", callers: b.Callers, do: raw},
		{name: "KV update, followed", callers: b.Callers, do: followed},
		{name: "declare.set, own hives", callers: b.Callers, do: set(hive, one), compare: series("declare.set, own hives")},
		{name: "declare.set, one hive", callers: b.Callers, do: set(hot, agent), compare: toEcho("declare.set, one hive")},
		{name: "declare.view, one hive", callers: b.Callers, do: view(func(int) string { return hive(0) }), compare: toEcho("declare.view, one hive"), prepare: once(set(hive, one))},
		{name: "declare.view, own hives", callers: b.Callers, do: view(hive), compare: toEcho("declare.view, own hives"), prepare: once(set(hive, one))},
		{name: "answer of 490 bytes", callers: b.Callers, do: sized},
		b.lookups(func(line string) func() string {
			return func() string {
				return fmt.Sprintf("%s, %.2f of an answer of its size", toEcho(line)(), rate(line)/rate("answer of 490 bytes"))
			}
		}),
		{name: "echo, one caller", callers: 1, do: echo},
		{name: "KV update, one caller", callers: 1, do: raw},
		{name: "KV update followed, one caller", callers: 1, do: followed},
		{name: "declare.set, one caller", callers: 1, do: set(hive, one), compare: latency},
		{name: "trigger, own hives", callers: triggerCallers * b.Callers, begin: events.listen, do: events.trigger, compare: viaTrigger},
		{name: "event at 5,000/s", callers: b.Callers, pace: time.Duration(b.Callers) * time.Second / 5000, begin: events.consume, do: events.set},
		{name: "declare.set, large hive", callers: 1, do: set(large, agent), prepare: func() error { return b.fill(large(0), b.Agents) }},
	}, nil
}

// fill declares many agents on one hive.
func (b *benchRun) fill(hive string, agents int) error {
	for from := 0; from < agents; from += 1000 {
		body := []byte(`{"reply":"brief","agents":{`)
		for i := from; i < min(from+1000, agents); i++ {
			if i > from {
				body = append(body, ',')
			}
			body = fmt.Appendf(body, `"agent%d":{"state":"up"}`, i)
		}
		if _, err := b.request(0, wire.Subject(wire.Declare, "apply", hive), append(body, "}}"...)); err != nil {
			return fmt.Errorf("fill hive %s: %w", hive, err)
		}
	}
	return nil
}

// cleanUp removes what the bench stored.
func (b *benchRun) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	js, err := jetstream.New(b.conns[0])
	if err != nil {
		return err
	}
	for _, own := range []string{benchStream, wire.BucketStream(benchFollowed), wire.BucketStream(benchBucket)} {
		if err := js.DeleteStream(ctx, own); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete stream %s: %w", own, err)
		}
	}
	s, err := js.Stream(ctx, wire.BucketStream(wire.BucketWanted))
	if err != nil {
		return fmt.Errorf("remove the bench's hives: %w", err)
	}
	events, err := js.Stream(ctx, wire.StreamEvents)
	if err != nil {
		return fmt.Errorf("remove the bench's events: %w", err)
	}
	hives := []string{b.name + "-hot", b.name + "-large"}
	for i := range b.Callers {
		hives = append(hives, b.name+"-"+strconv.Itoa(i))
	}
	for i := range triggerCallers * b.Callers {
		hives = append(hives, b.name+"-t"+strconv.Itoa(i))
	}
	for _, hive := range hives {
		if err := errors.Join(
			s.Purge(ctx, jetstream.WithPurgeSubject(wire.KeySubject(wire.BucketWanted, hive))),
			s.Purge(ctx, jetstream.WithPurgeSubject(wire.KeySubject(wire.BucketWanted, wire.MemoKey("set", []string{hive}, ">")))),
		); err != nil {
			return fmt.Errorf("remove the bench's hives: %w", err)
		}
	}
	time.Sleep(eventsLag)
	for _, hive := range hives {
		if err := events.Purge(ctx, jetstream.WithPurgeSubject(wire.EventSubject(wire.EventKind(wire.EventHiveDeclared), hive))); err != nil {
			return fmt.Errorf("remove the bench's events: %w", err)
		}
	}
	return b.removeRacks(ctx, js)
}

// eventsLag is how long the last events may take to arrive.
const eventsLag = 200 * time.Millisecond
