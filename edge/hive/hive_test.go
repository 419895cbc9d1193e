package hive

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

// limit is how long anything may take that should happen soon.
const limit = 20 * time.Second

// host is a hive that runs, and what its commands have done.
type host struct {
	t     *testing.T
	dir   string
	stop  func() // stops the hive and waits for it
	ended chan struct{}
}

// run starts hive h1. Its command writes a line to the file "done" for each change, and fails while there is a file named
// "broken".
func run(t *testing.T, url string) *host {
	t.Helper()
	h := &host{t: t, dir: t.TempDir(), ended: make(chan struct{})}
	command := fmt.Sprintf(`cd %q && if [ -e broken ]; then echo no disk >&2; exit 3; fi; echo "$MUSTER_HIVE $MUSTER_AGENT $MUSTER_STATE" >> done`, h.dir)
	log := slog.New(slog.DiscardHandler)
	bus, err := runtime.Connect(runtime.Options{Name: t.Name(), Dial: runtime.URL(url), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		Run(ctx, Config{Name: "h1", OnChange: command, Bus: bus, Log: log})
		close(h.ended)
	}()
	h.stop = func() {
		cancel()
		select {
		case <-h.ended:
		case <-time.After(limit):
			t.Fatal("the hive does not stop")
		}
	}
	t.Cleanup(func() {
		h.stop()
		end, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := bus.Close(end); err != nil {
			t.Error(err)
		}
	})
	return h
}

// done lists what the commands have done, in the order of the agents' names.
func (h *host) done() string {
	b, err := os.ReadFile(filepath.Join(h.dir, "done"))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	slices.Sort(lines)
	return strings.ReplaceAll(strings.Join(lines, ", "), "h1 ", "")
}

// did waits until the commands have done exactly this since they were asked last.
func (h *host) did(want string) {
	h.t.Helper()
	natstest.Eventually(h.t, limit, "commands do "+want, func() bool { return h.done() == want })
	if err := os.Remove(filepath.Join(h.dir, "done")); err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
}

func (h *host) breakDown(broken bool) {
	h.t.Helper()
	file := filepath.Join(h.dir, "broken")
	err := os.Remove(file)
	if broken {
		err = os.WriteFile(file, nil, 0o600)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// buckets are what operators and declare see.
type buckets struct {
	t                *testing.T
	wanted, reported jetstream.KeyValue
}

// open makes the buckets as the functions do, on a server that runs.
func open(t *testing.T, url string) buckets {
	t.Helper()
	bus, err := runtime.Connect(runtime.Options{Name: "maker", Dial: runtime.URL(url), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	bus.Bucket(runtime.Wanted)
	bus.Bucket(runtime.Reported)
	t.Cleanup(func() {
		end, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := bus.Close(end); err != nil {
			t.Error(err)
		}
	})
	js, err := jetstream.New(natstest.Connect(t, url))
	if err != nil {
		t.Fatal(err)
	}
	b := buckets{t: t}
	natstest.Eventually(t, limit, "buckets are made", func() bool {
		var err1, err2 error
		b.wanted, err1 = js.KeyValue(context.Background(), wire.BucketWanted)
		b.reported, err2 = js.KeyValue(context.Background(), wire.BucketReported)
		return err1 == nil && err2 == nil
	})
	return b
}

// declare stores a declaration and returns its revision.
func (b buckets) declare(hive string, record []byte) (revision uint64) {
	b.t.Helper()
	natstest.Eventually(b.t, limit, "the declaration is stored", func() (ok bool) {
		var err error
		revision, err = b.wanted.Put(context.Background(), hive, record)
		return err == nil
	})
	return revision
}

// report reads the last report, as "a:up b:unknown(exit status 1)", and at which revision it lies.
func (b buckets) report() (seen uint64, agents string, revision uint64) {
	e, err := b.reported.Get(context.Background(), "h1")
	if err != nil {
		return 0, "", 0
	}
	var r wire.Report
	if err := json.Unmarshal(e.Value(), &r); err != nil {
		b.t.Fatalf("report %s: %v", e.Value(), err)
	}
	if since := time.Since(r.ReportedAt); since < -time.Minute || since > time.Minute || r.ReportedAt.Location() != time.UTC {
		b.t.Errorf("reported at %v", r.ReportedAt)
	}
	var out []string
	for name, a := range r.Agents {
		s := name + ":" + string(a.State)
		if a.Error != "" {
			s += "(" + a.Error + ")"
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return r.WantedRevision, strings.Join(out, " "), e.Revision()
}

// reports waits for a report.
func (b buckets) reports(seen uint64, agents string) {
	b.t.Helper()
	natstest.Eventually(b.t, limit, fmt.Sprintf("revision %d, %s is reported", seen, agents), func() bool {
		s, a, _ := b.report()
		return s == seen && a == agents
	})
}

func TestHive_FollowsItsDeclaration(t *testing.T) {
	t.Parallel()
	node := natstest.Reserve(t)
	h := run(t, node.URL()) // before there is a server
	node.Up()
	b := open(t, node.URL())
	b.reports(0, "") // nothing is declared: it is there, and does nothing

	one := b.declare("h1", []byte(`{"agents":{"a":{"state":"up","cpu":2},"b":{"state":"paused"}},"note":1}`))
	h.did("a up, b paused")
	b.reports(one, "a:up b:paused")

	two := b.declare("h1", declared("a:up b:up"))
	b.reports(two, "a:up b:up")
	h.did("b up") // the one that changed, and no other

	b.declare("h2", declared("a:destroyed b:destroyed")) // another hive
	b.declare("h1", []byte(`{"agents":{"a":{"state":"destr`))
	if err := b.wanted.Delete(context.Background(), "h1"); err != nil {
		t.Fatal(err)
	}
	if err := b.wanted.Purge(context.Background(), "h1"); err != nil {
		t.Fatal(err)
	}
	three := b.declare("h1", declared("a:up b:up c:up"))
	b.reports(three, "a:up b:up c:up")
	h.did("c up") // nothing came of all that lay between

	node.Restart()
	four := b.declare("h1", declared("a:paused b:up c:up"))
	b.reports(four, "a:paused b:up c:up")
	h.did("a paused")

	if err := b.wanted.Delete(context.Background(), "h1"); err != nil {
		t.Fatal(err)
	}
	h.stop()
	b.reports(four, "a:paused b:up c:up") // the last word stays
	h.did("")

	again := run(t, node.URL()) // nothing is declared any more
	five := b.declare("h1", declared("b:up"))
	b.reports(five, "b:up")
	again.did("b up") // a new process does once more what is declared
}

func TestHive_FailingCommandIsReportedAndTriedAgain(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	b := open(t, node.URL())
	h := run(t, node.URL())
	h.breakDown(true)
	one := b.declare("h1", declared("a:up"))
	b.reports(one, "a:unknown(exit status 3: no disk)")
	h.breakDown(false)
	b.reports(one, "a:up")
	h.did("a up")
}

func TestHive_RepeatsItsReport(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	b := open(t, node.URL())
	h := run(t, node.URL())
	one := b.declare("h1", declared("a:up"))
	b.reports(one, "a:up")
	_, _, first := b.report()
	began := time.Now()
	natstest.Eventually(t, wire.ReportEvery+limit, "the report comes again", func() bool {
		_, _, now := b.report()
		return now > first
	})
	if took := time.Since(began); took < wire.ReportEvery-5*time.Second {
		t.Errorf("it came again after %v, and nothing had changed", took)
	}
	b.reports(one, "a:up")
	h.did("a up")
}

func TestHive_WithoutACommandReportsWhatIsDeclared(t *testing.T) {
	p := newPlan()
	must(t, p, 1, "a:up b:destroyed")
	for _, a := range p.start(start) {
		p.done(a, Config{Name: "h1"}.carryOut(context.Background(), a), start)
	}
	if got := reports(p); got != "a:up b:destroyed" {
		t.Errorf("reports %s", got)
	}
}
