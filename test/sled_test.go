package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/functions/join"
	"muster/runtime/natstest"
	"muster/wire"
)

// sledProcess is a `muster sled` and how it was started.
type sledProcess struct {
	*program
	args []string
	dir  string
}

func startSled(t *testing.T, url, serial, dir string, args ...string) *sledProcess {
	t.Helper()
	own := []string{"--nats", url, "--part", "913-0000019", "--serial", serial, "--store", dir}
	return &sledProcess{launch(t, append(append([]string{"sled"}, own...), args...)...), own, dir}
}

// unlock runs `muster sled unlock` for the sled, and returns its exit code and what it printed.
func (s *sledProcess) unlock(t *testing.T, args ...string) (int, string) {
	t.Helper()
	p := launch(t, append(append([]string{"sled", "unlock"}, s.args...), args...)...)
	code := p.waitExit(startLimit)
	return code, p.out.String()
}

func waitIdentity(t *testing.T, nc *nats.Conn, serial, what string, is func(wire.Identity) bool) {
	t.Helper()
	natstest.Eventually(t, startLimit, serial+" "+what, func() bool {
		a, err := try(nc, 5*time.Second, "muster.sled.913-0000019."+serial+".identity", "")
		if err != nil || a.failure != nil {
			return false
		}
		var id wire.Identity
		a.into(t, &id)
		return is(id)
	})
}

var unlockedLine = regexp.MustCompile(`(?m)^unlocked rack=\S+ epoch=(\d+) shares=2 of 3 fingerprint=([0-9a-f]{16})$`)

// Sleds are processes of their own, killed and started again while their rack joins: each goes on with what it kept. In the
// end any threshold of them recovers the secret.
func TestSledsAreKilledWhileTheirRackJoins(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	nc := natstest.Connect(t, s.URL())
	serveProcess(t, s.URL())
	out := t.TempDir()
	hooks := []string{
		"--on-start", "echo $MUSTER_SLED_ID $MUSTER_SUBNET >> " + filepath.Join(out, "starts"),
		"--on-network", "cat > " + filepath.Join(out, "network") + "; echo $MUSTER_GENERATION >> " + filepath.Join(out, "generations"),
	}
	one := startSled(t, s.URL(), "2FAKE001", t.TempDir(), hooks...)
	two := startSled(t, s.URL(), "2FAKE002", t.TempDir())
	ask(t, nc, "muster.join.start.r1", joinBody("172.20.15.22", serials(3)...)).into(t, &wire.JoinStarted{})
	// The third is not there yet. The coordinator is killed when it has prepared, and the other one, too.
	waitIdentity(t, nc, "2FAKE001", "has prepared", func(id wire.Identity) bool { return id.PreparedEpoch != nil })
	waitIdentity(t, nc, "2FAKE002", "has prepared", func(id wire.Identity) bool { return id.PreparedEpoch != nil })
	if code, _ := one.unlock(t); code != 4 {
		t.Errorf("unlock before the commit: exit %d, want 4", code)
	}
	one.signal(syscall.SIGKILL)
	two.signal(syscall.SIGKILL)
	one.waitExit(startLimit)
	two.waitExit(startLimit)
	one = startSled(t, s.URL(), "2FAKE001", one.dir, hooks...)
	two = startSled(t, s.URL(), "2FAKE002", two.dir)
	three := startSled(t, s.URL(), "2FAKE003", t.TempDir())
	waitState(t, nc, "r1", join.AwaitingCompletion)

	code, text := three.unlock(t)
	first := unlockedLine.FindStringSubmatch(text)
	if code != 0 || first == nil {
		t.Fatalf("unlock: exit %d, %s", code, text)
	}
	two.signal(syscall.SIGKILL)
	if code, text := one.unlock(t); code != 0 || !strings.Contains(text, first[2]) {
		t.Errorf("unlock by another: exit %d, %s, want fingerprint %s", code, text, first[2])
	}
	one.signal(syscall.SIGTERM)
	if code := one.waitExit(startLimit); code != 0 {
		t.Errorf("SIGTERM: exit %d", code)
	}
	if code, _ := three.unlock(t, "--timeout", "300ms"); code != 5 {
		t.Errorf("unlock by one alone: exit %d, want 5", code)
	}

	// The commands: once for the start and the generation, and on-start once more when the process starts again.
	if got := lines(t, filepath.Join(out, "starts")); len(got) != 1 || !strings.HasSuffix(got[0], " fd00:1122:3344:201::/64") {
		t.Errorf("on-start: %q", got)
	}
	if got := lines(t, filepath.Join(out, "generations")); len(got) != 1 || got[0] != "1" {
		t.Errorf("on-network: %q", got)
	}
	if got := strings.Join(lines(t, filepath.Join(out, "network")), ""); !strings.Contains(got, `"md5_auth_key":"hush-hush"`) {
		t.Errorf("on-network read %s", got)
	}
	one = startSled(t, s.URL(), "2FAKE001", one.dir, hooks...)
	waitIdentity(t, nc, "2FAKE001", "is started", func(id wire.Identity) bool { return id.Started && id.CommittedEpoch != nil })
	natstest.Eventually(t, startLimit, "on-start was run again", func() bool { return len(lines(t, filepath.Join(out, "starts"))) == 2 })
	for _, p := range []*program{one.program, two.program, three.program} {
		if strings.Contains(p.err.String(), "hush") {
			t.Error("a sled's log holds a secret")
		}
	}
}

// A sled does not start without what it knew, nor twice, nor as another.
func TestSledRefusesToStart(t *testing.T) {
	s := natstest.Start(t)
	nc := natstest.Connect(t, s.URL())
	sled := startSled(t, s.URL(), "2FAKE001", filepath.Join(t.TempDir(), "store"))
	waitIdentity(t, nc, "2FAKE001", "answers", func(wire.Identity) bool { return true })
	refuses := func(what string, p *sledProcess) {
		t.Helper()
		if code := p.waitExit(startLimit); code != 6 || p.err.String() == "" {
			t.Errorf("%s: exit %d, %s", what, code, p.err)
		}
	}
	refuses("a second process", startSled(t, s.URL(), "2FAKE001", sled.dir))
	sled.signal(syscall.SIGTERM)
	if code := sled.waitExit(startLimit); code != 0 {
		t.Errorf("SIGTERM: exit %d", code)
	}
	refuses("another sled", startSled(t, s.URL(), "2FAKE002", sled.dir))
	path := filepath.Join(sled.dir, "sled.json")
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, kept[:len(kept)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	refuses("half a state", startSled(t, s.URL(), "2FAKE001", sled.dir))
	for name, x := range map[string]struct {
		args []string
		code int
	}{
		"no store":         {[]string{"sled", "--part", "p", "--serial", "s"}, 2},
		"no name":          {[]string{"sled", "--part", "a b", "--serial", "s", "--store", "x"}, 2},
		"never run":        {[]string{"sled", "unlock", "--part", "p", "--serial", "s", "--store", t.TempDir()}, 2},
		"unlock, no name":  {[]string{"sled", "unlock", "--part", "p", "--serial", "", "--store", "x"}, 2},
		"unlock, no time":  {[]string{"sled", "unlock", "--part", "p", "--serial", "s", "--store", "x", "--timeout", "0s"}, 2},
		"unlock of a half": {[]string{"sled", "unlock", "--part", "913-0000019", "--serial", "2FAKE001", "--store", sled.dir}, 6},
	} {
		if code := launch(t, append(x.args, "--nats", s.URL())...).waitExit(startLimit); code != x.code {
			t.Errorf("%s: exit %d, want %d", name, code, x.code)
		}
	}
}
