package sled

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"muster/functions/join/quorum"
	"muster/wire"
)

const rack = "9bb7e0c4-0000-4000-8000-000000000001"

func board(i int) wire.Baseboard {
	return wire.Baseboard{PartNumber: "913-0000019", SerialNumber: fmt.Sprintf("2FAKE%03d", i)}
}

func boards(n int) []wire.Baseboard {
	list := make([]wire.Baseboard, n)
	for i := range list {
		list[i] = board(i + 1)
	}
	return list
}

func newKey(t testing.TB) quorum.ExchangeKey {
	t.Helper()
	key, err := quorum.NewExchangeKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// cast is the members of one rack as states, and what a coordinator deals them.
type cast struct {
	t    testing.TB
	keys map[wire.Baseboard]quorum.ExchangeKey
}

func newCast(t testing.TB, n int) *cast {
	c := &cast{t: t, keys: map[wire.Baseboard]quorum.ExchangeKey{}}
	for _, b := range boards(n) {
		c.keys[b] = newKey(t)
	}
	return c
}

func (c *cast) fresh(b wire.Baseboard) *state { return newState(b, c.keys[b]) }

// deal deals an epoch to the first n sleds, with the first as coordinator.
func (c *cast) deal(epoch uint64, n int, prior quorum.Secrets) quorum.Deal {
	c.t.Helper()
	d, err := quorum.Split(rand.Reader, quorum.Plan{RackID: rack, Epoch: epoch, Coordinator: board(1), Members: boards(n), Prior: prior})
	if err != nil {
		c.t.Fatal(err)
	}
	return d
}

// prepare is what the coordinator sends a member.
func (c *cast) prepare(d quorum.Deal, to wire.Baseboard) quorum.Prepare {
	c.t.Helper()
	sender := c.keys[d.Config.Coordinator]
	sealed, err := sender.Seal(rand.Reader, d.Shares[to], c.keys[to].Public())
	if err != nil {
		c.t.Fatal(err)
	}
	p := quorum.Prepare{Config: d.Config, Share: sealed, SenderKey: sender.Public()}
	for _, b := range d.Config.Baseboards() {
		p.Keys = append(p.Keys, quorum.MemberKey{Member: b, Key: c.keys[b].Public()})
	}
	return p
}

func commitments(t *testing.T, d quorum.Deal) string {
	t.Helper()
	text, err := d.Commitments.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func order(epoch uint64, last *uint64, members ...wire.Baseboard) quorum.Reconfigure {
	return quorum.Reconfigure{
		RackID: rack, Epoch: epoch, LastCommittedEpoch: last, Threshold: quorum.Threshold(len(members)), Members: members,
	}
}

func ptr[T any](v T) *T { return &v }

// must is a rule's outcome that has to be a success.
func must(t testing.TB) func(*state, error) *state {
	return func(s *state, err error) *state {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// code is an error's code, "" for no error.
func code(err error) wire.Code {
	if err == nil {
		return ""
	}
	return wire.AsError(err).Code
}

// journal is a log and what it holds.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// logger logs everything, also what is off by default.
func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// secrets lists, in every form they might take, what a state must show nobody.
func secrets(s *state) []string {
	var raw [][]byte
	seed, _ := s.key.Reveal()
	list := []string{string(seed)}
	for _, p := range s.epochs {
		raw = append(raw, p.share.Reveal())
	}
	if s.coordination != nil {
		for _, share := range s.coordination.shares {
			raw = append(raw, share.Reveal())
		}
	}
	for _, b := range raw {
		list = append(list, base64.StdEncoding.EncodeToString(b), base64.StdEncoding.EncodeToString(b[32:]),
			fmt.Sprintf("%x", b), fmt.Sprintf("%x", b[32:]), fmt.Sprint(b), string(b))
	}
	if s.network != nil {
		list = append(list, secretsOf(s.network.config)...)
	}
	return list
}

// hides fails the test if a text holds a secret of one of the states.
func hides(t testing.TB, text string, states ...*state) {
	t.Helper()
	for _, s := range states {
		for _, secret := range secrets(s) {
			if strings.Contains(text, secret) {
				t.Errorf("a secret of %v is shown", s.board)
			}
		}
	}
}

var _ io.Writer = (*journal)(nil)

// newSled is a sled without a bus.
func newSled(t testing.TB, dir string, b wire.Baseboard, log *journal) *Sled {
	t.Helper()
	s, err := New(Config{Baseboard: b, Dir: dir, Log: log.logger(), Output: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
