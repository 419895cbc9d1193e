package sled

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"muster/functions/join/quorum"
	"muster/runtime/natstest"
	"muster/wire"
)

func open(t testing.TB, dir string) (*store, *state) {
	t.Helper()
	st, s, err := openStore(dir, board(2), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.close() })
	return st, s
}

// full is a state with something of everything.
func full(t testing.TB) *state {
	now := must(t)(must(t)(member(t).start(startRequest(), false)).configure(networkRequest(3), true))
	now = must(t)(now.configure(networkRequest(4), false))
	now = must(t)(now.reconfigure(order(2, ptr(uint64(1)), boards(3)...)))
	return must(t)(now.deal(newZeros(), quorum.Secrets{1: newSecret(t)}))
}

func newSecret(t testing.TB) quorum.RackSecret {
	d := newCast(t, 3).deal(1, 3, nil)
	return d.Secret
}

func TestStore_IsForItsOwnerAndStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	st, s := open(t, dir)
	if s.board != board(2) || s.key.Public() == "" || s.rack != "" {
		t.Errorf("fresh: %+v", s.identity())
	}
	now := full(t)
	if err := st.save(now); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"": 0o700 | fs.ModeDir, stateFile: 0o600, lockFile: 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%q: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	if err := st.close(); err != nil {
		t.Fatal(err)
	}
	_, again := open(t, dir)
	same(t, again, now)
}

// same fails the test unless two states are stored alike.
func same(t testing.TB, got, want *state) {
	t.Helper()
	a, err := encodeState(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := encodeState(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("read %s\nwant %s", a, b)
	}
}

func TestStore_TakesADirectoryThatIsThere(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestStore_IsOneProcess(t *testing.T) {
	dir := t.TempDir()
	st, _ := open(t, dir)
	if _, _, err := openStore(dir, board(2), rand.Reader); err == nil {
		t.Fatal("a second process may use it")
	}
	if err := st.close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}

func TestStore_IsOneSled(t *testing.T) {
	dir := t.TempDir()
	st, _ := open(t, dir)
	st.close()
	if _, _, err := openStore(dir, board(3), rand.Reader); err == nil {
		t.Error("another sled may use it")
	}
}

// A crash in the middle of writing leaves a torn file beside the good one.
func TestStore_ATornFileMeansNothing(t *testing.T) {
	dir := t.TempDir()
	st, _ := open(t, dir)
	now := full(t)
	if err := st.save(now); err != nil {
		t.Fatal(err)
	}
	st.close()
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, len(data) / 2, len(data) - 1} {
		torn := filepath.Join(dir, stateFile+newSuffix)
		if err := os.WriteFile(torn, data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		st, again := open(t, dir)
		same(t, again, now)
		if _, err := os.Stat(torn); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is left there: %v", err)
		}
		st.close()
	}
}

// What cannot be read is never taken for less than it was, and stays as it is.
func TestStore_UnreadableIsAnError(t *testing.T) {
	now := full(t)
	good, err := encodeState(now)
	if err != nil {
		t.Fatal(err)
	}
	text := string(good)
	share := text[strings.Index(text, `"share":"`)+9:][:88]
	replace := func(old, with string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("no %q in the state", old)
		}
		return strings.Replace(text, old, with, 1)
	}
	for name, bad := range map[string]string{
		"empty":                    "",
		"a space":                  " ",
		"null":                     "null",
		"an empty object":          "{}",
		"zeros":                    strings.Repeat("\x00", len(text)),
		"half":                     text[:len(text)/2],
		"all but the end":          text[:len(text)-1],
		"something behind":         text + "{}",
		"a newer version":          replace(`"version":1`, `"version":2`),
		"an unknown member":        replace(`"version":1`, `"version":1,"more":true`),
		"a member twice":           replace(`"version":1`, `"version":1,"version":1`),
		"another type":             replace(`"committed":true`, `"committed":"yes"`),
		"no key":                   replace(`"exchange_seed":"SX`, `"exchange_seed":"S`),
		"a broken share":           replace(share, strings.Repeat("A", 87)+"="),
		"another share":            replace(share, shareOf(t, now, board(1))),
		"another rack":             replace(`"rack_id":"`+rack+`","epochs"`, `"rack_id":"other","epochs"`),
		"no rack":                  replace(`"rack_id":"`+rack+`","epochs"`, `"epochs"`),
		"no sled":                  replace(`"serial_number":"2FAKE002"},"exchange_seed"`, `"serial_number":""},"exchange_seed"`),
		"an illegal threshold":     replace(`"threshold":2`, `"threshold":1`),
		"a member's share is lost": replace(`"shares":[{"member":{"part_number":"913-0000019","serial_number":"2FAKE001"},`, `"shares":[{"member":{"part_number":"913-0000019","serial_number":"2FAKE002"},`),
		"no network config":        text[:strings.Index(text, `"config":{"rack_subnet"`)] + `"written":false}}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, stateFile)
			if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := openStore(dir, board(2), rand.Reader)
			if err == nil {
				t.Fatal("it was read")
			}
			hides(t, err.Error(), now)
			if left, _ := os.ReadFile(path); string(left) != bad {
				t.Error("it was changed")
			}
			// The directory can be used once it is mended.
			if err := os.WriteFile(path, good, 0o600); err != nil {
				t.Fatal(err)
			}
			open(t, dir)
		})
	}
}

func shareOf(t *testing.T, s *state, b wire.Baseboard) string {
	data, err := encodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(data), `"serial_number":"`+b.SerialNumber+`"},"share":"`)
	if !ok {
		t.Fatal("no such share")
	}
	return after[:88]
}

func TestStore_ADirectoryInItsPlaceIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, stateFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openStore(dir, board(2), rand.Reader); err == nil {
		t.Error("it was taken for a fresh start")
	}
}

// A change that is not on disk has not happened.
func TestChange_FailsWithTheDisk(t *testing.T) {
	s := newSled(t, t.TempDir(), board(2), &journal{})
	torn := filepath.Join(s.Dir, stateFile+newSuffix)
	if err := os.Mkdir(torn, 0o700); err != nil {
		t.Fatal(err)
	}
	c := newCast(t, 3)
	c.keys[board(2)] = s.state.Load().key
	ask := c.prepare(c.deal(1, 3, nil), board(2))
	if err := s.takePrepare(ask); code(err) != wire.Internal {
		t.Fatalf("%v", err)
	}
	if s.state.Load().rack != "" {
		t.Error("it is shown")
	}
	if err := os.Remove(torn); err != nil {
		t.Fatal(err)
	}
	if err := s.takePrepare(ask); err != nil {
		t.Error(err)
	}
}

// writerDir makes the test binary a process that writes states to it until it is killed; see TestStore_SurvivesKill.
const writerDir = "MUSTER_TEST_WRITER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerDir); dir != "" {
		fmt.Fprintln(os.Stderr, writeForEver(dir))
		os.Exit(1)
	}
	os.Exit(natstest.Main(m))
}

func writeForEver(dir string) error {
	st, now, err := openStore(dir, board(2), rand.Reader)
	if err != nil {
		return err
	}
	for g := now.written + 1; ; g++ {
		if now, err = now.configure(networkRequest(g), true); err != nil {
			return err
		}
		if err := st.save(now); err != nil {
			return err
		}
		fmt.Println(g)
	}
}

func TestStore_SurvivesKill(t *testing.T) {
	dir := t.TempDir()
	said := uint64(0)
	for round := range 6 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if said, err = strconv.ParseUint(lines.Text(), 10, 64); err != nil {
				t.Fatal(err)
			}
			if n == 10+7*round {
				cmd.Process.Kill() //nolint:errcheck // it is gone then
			}
		}
		cmd.Wait() //nolint:errcheck // it was killed
		st, now := open(t, dir)
		if now.written < said {
			t.Fatalf("generation %d was said to be stored, %d is", said, now.written)
		}
		st.close()
	}
}
