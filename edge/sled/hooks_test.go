package sled

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
	"muster/wire"
)

// hooked is a fleet of three with a quorum, whose first sled gets commands that see OUT, a directory of their own.
func hooked(t *testing.T, onStart, onNetwork string) (f *fleet, out string) {
	f, out = newFleet(t, 3), t.TempDir()
	f.config = func(s *Sled) {
		if s.Baseboard == board(1) {
			s.OnStart, s.OnNetwork = inDir(out, onStart), inDir(out, onNetwork)
		}
	}
	f.up(boards(3)...)
	f.form(1, nil, board(1), boards(3)...)
	return f, out
}

func inDir(dir, command string) string {
	if command == "" {
		return ""
	}
	return "cd " + dir + " && " + command
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

func touch(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The field report of a sled that acks prepare and commit and fails its start three times.
func TestHooks_StartFailsAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	f, out := hooked(t, `echo "$MUSTER_SLED_ID $MUSTER_SUBNET $MUSTER_RACK_ID" >> runs; test -e ok || { echo "no power" >&2; exit 3; }`, "")
	for range 3 {
		err := f.ask(board(1), wire.SledStart, startRequest(), nil)
		if code(err) != wire.Internal || wire.AsError(err).Message != "the on-start command failed: exit status 3: no power" {
			t.Fatalf("%v", err)
		}
		if id := f.identity(board(1)); id.Started || number(id.CommittedEpoch) != 1 {
			t.Errorf("%+v", id)
		}
	}
	other := startRequest()
	other.Body.ID = "another"
	if err := f.ask(board(1), wire.SledStart, other, nil); code(err) != wire.AlreadyStarted {
		t.Errorf("another start meanwhile: %v", err)
	}
	touch(t, out, "ok")
	f.must(board(1), wire.SledStart, startRequest(), nil)
	f.must(board(1), wire.SledStart, startRequest(), nil)
	if !f.identity(board(1)).Started {
		t.Error("it is not started")
	}
	b := startRequest().Body
	if got, want := read(t, out, "runs"), strings.Repeat(b.ID+" "+b.Subnet.Net+" "+b.RackID+"\n", 4); got != want {
		t.Errorf("runs\n%swant\n%s", got, want)
	}
}

// On each later start of the process the on-start command is run once more, until it succeeds; on-network is not.
func TestHooks_AgainAtALaterStart(t *testing.T) {
	t.Parallel()
	f, out := hooked(t, `echo >> starts; test ! -e broken`, `echo >> networks`)
	f.must(board(1), wire.SledStart, startRequest(), nil)
	f.must(board(1), wire.SledNetwork, networkRequest(1), nil)
	f.down(board(1))
	touch(t, out, "broken")
	f.up(board(1))
	natstest.Eventually(t, patience, "it was tried again twice", func() bool { return len(read(t, out, "starts")) >= 3 })
	if id := f.identity(board(1)); !id.Started || id.NetworkGeneration != 1 {
		t.Errorf("%+v", id)
	}
	if err := os.Remove(filepath.Join(out, "broken")); err != nil {
		t.Fatal(err)
	}
	n := len(read(t, out, "starts"))
	natstest.Eventually(t, patience, "it was tried once more", func() bool { return len(read(t, out, "starts")) == n+1 })
	f.must(board(1), wire.SledStart, startRequest(), nil)
	f.must(board(1), wire.SledNetwork, networkRequest(1), nil)
	f.down(board(1)) // waits for what runs
	if got := len(read(t, out, "starts")); got != n+1 {
		t.Errorf("run %d times, want %d", got, n+1)
	}
	if got := read(t, out, "networks"); got != "\n" {
		t.Errorf("on-network was run %d times", len(got))
	}
}

func TestHooks_Network(t *testing.T) {
	t.Parallel()
	f, out := hooked(t, "", `cat > config-$MUSTER_GENERATION; echo "$MUSTER_GENERATION $MUSTER_SLED_ID $MUSTER_SUBNET $MUSTER_RACK_ID" >> runs; test ! -e broken || { cat config-$MUSTER_GENERATION >&2; exit 1; }`)
	f.must(board(1), wire.SledStart, startRequest(), nil)
	f.must(board(1), wire.SledNetwork, networkRequest(3), nil)
	f.must(board(1), wire.SledNetwork, networkRequest(3), nil)
	if got, want := read(t, out, "config-3"), string(encodeNetwork(networkRequest(3).Config)); !sameJSON(t, got, want) || !strings.Contains(got, "md5_auth_key") {
		t.Errorf("on standard input: %s, want %s", got, want)
	}
	// The next one fails and prints all it got.
	touch(t, out, "broken")
	err := f.ask(board(1), wire.SledNetwork, networkRequest(5), nil)
	if code(err) != wire.Internal || !strings.Contains(err.Error(), "on-network command failed: exit status 1: {") {
		t.Fatalf("%v", err)
	}
	for what, text := range map[string]string{"the error": err.Error(), "the log": f.log.String()} {
		if strings.Contains(text, "s3cret") {
			t.Errorf("%s shows the key", what)
		}
	}
	if id := f.identity(board(1)); id.NetworkGeneration != 3 {
		t.Errorf("not written, and yet %+v", id)
	}
	if err := f.ask(board(1), wire.SledNetwork, networkRequest(4), nil); code(err) != wire.StaleGeneration {
		t.Errorf("%v", err)
	}
	if err := os.Remove(filepath.Join(out, "broken")); err != nil {
		t.Fatal(err)
	}
	f.must(board(1), wire.SledNetwork, networkRequest(5), nil)
	if id := f.identity(board(1)); id.NetworkGeneration != 5 {
		t.Errorf("%+v", id)
	}
	b := startRequest().Body
	line := " " + b.ID + " " + b.Subnet.Net + " " + b.RackID + "\n"
	if got, want := read(t, out, "runs"), "3"+line+"5"+line+"5"+line; got != want {
		t.Errorf("runs\n%swant\n%s", got, want)
	}
}

// A command that takes longer than its request goes on; repeats wait for the same run.
func TestHooks_LongerThanItsRequest(t *testing.T) {
	t.Parallel()
	f, out := hooked(t, `echo >> runs; while ! test -e go; do sleep 0.02; done`, "")
	ask := func(timeout string) error {
		m := nats.NewMsg(wire.SledSubject(board(1), wire.SledStart))
		m.Data = encodeRequest(t, startRequest())
		m.Header.Set(wire.HeaderTimeout, timeout)
		reply, err := f.bus.Conn().RequestMsg(m, patience)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(reply.Data), "DeadlineExceeded") {
			return os.ErrDeadlineExceeded
		}
		if string(reply.Data) != "{}" {
			return fmt.Errorf("%s", reply.Data)
		}
		return nil
	}
	for range 2 {
		if err := ask("1s"); err != os.ErrDeadlineExceeded { //nolint:errorlint // ours, as it is
			t.Fatalf("%v", err)
		}
	}
	waits := make(chan error, 1)
	go func() { waits <- f.ask(board(1), wire.SledStart, startRequest(), nil) }()
	touch(t, out, "go")
	if err := <-waits; err != nil {
		t.Error(err)
	}
	if got := read(t, out, "runs"); got != "\n" {
		t.Errorf("run %d times", len(got))
	}
}

func TestHooks_Run(t *testing.T) {
	h := newHooks()
	began, end := make(chan struct{}), make(chan error)
	do := func(context.Context) error { close(began); return <-end }
	never := func(context.Context) error { t.Error("run a second time"); return nil }
	first := make(chan error, 1)
	go func() { first <- h.run(t.Context(), "a", do) }()
	<-began
	// Its repeat does not wait longer than it may, and says what became of it.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := h.run(ctx, "a", never)
	if code(err) != wire.DeadlineExceeded || wire.AsError(err).Details["outcome"] != wire.Recorded {
		t.Errorf("%v", err)
	}
	broken := errors.New("broken")
	end <- broken
	if err := <-first; !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if err := h.run(t.Context(), "a", func(context.Context) error { return nil }); err != nil {
		t.Errorf("after a failure: %v", err)
	}
	h.stop()
	h.stop()
	if err := h.run(t.Context(), "a", never); code(err) != wire.Unavailable {
		t.Errorf("after the end: %v", err)
	}
}

// While one command runs, what it is for may be done, be replaced by something newer, or be reset. What waited for its
// turn looks again.
func TestHooks_LookAgainBeforeTheyRun(t *testing.T) {
	log := &journal{}
	s := newSled(t, t.TempDir(), board(2), log)
	s.OnNetwork = "echo ran $MUSTER_GENERATION"
	take := func(generation uint64) {
		t.Helper()
		err := s.change(func(now *state) (*state, error) { return now.configure(networkRequest(generation), false) })
		if err != nil {
			t.Fatal(err)
		}
	}
	take(4)
	take(5)
	if err := s.writeNetwork(t.Context(), networkRequest(4)); code(err) != wire.StaleGeneration {
		t.Errorf("%v", err)
	}
	for range 2 {
		if err := s.writeNetwork(t.Context(), networkRequest(5)); err != nil {
			t.Error(err)
		}
	}
	if got := log.String(); strings.Contains(got, "ran 4") || strings.Count(got, "ran 5") != 1 {
		t.Error(got)
	}
	s.OnStart = "echo the agent runs"
	if err := s.startAgent(t.Context(), startRequest(), false); err != nil || strings.Contains(log.String(), "started\n") {
		t.Errorf("started after a reset: %v", err)
	}
}

// A sled that stops does not wait for a command for ever, and does not count it as a success.
func TestHooks_EndWithTheSled(t *testing.T) {
	t.Parallel()
	f, out := hooked(t, `echo >> runs; sleep 600`, "")
	m := nats.NewMsg(wire.SledSubject(board(1), wire.SledStart))
	m.Data, m.Reply = encodeRequest(t, startRequest()), "nobody.listens"
	m.Header.Set(wire.HeaderTimeout, "500ms")
	if err := f.bus.Conn().PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, patience, "it runs", func() bool { return read(t, out, "runs") != "" })
	began := time.Now()
	f.down(board(1))
	if took := time.Since(began); took > stopWithin {
		t.Errorf("it took %v", took)
	}
	s, err := loadState(f.dirs[board(1)])
	if err != nil || s.identity().Started {
		t.Errorf("%+v, %v", s.identity(), err)
	}
}
