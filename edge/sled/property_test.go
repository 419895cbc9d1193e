package sled

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"muster/functions/join/quorum"
	"muster/wire"
)

// One sled between two racks' coordinators, whatever they ask in whatever order: it belongs to one rack until it is reset,
// its epochs and generations only rise, an epoch has one configuration, a commit stays, an equal repeat changes nothing,
// and what it keeps comes back from disk as it was.
func TestRules_Property(t *testing.T) {
	c := newCast(t, 4)
	me := board(2)
	racks := []string{rack, "another-rack"}
	// Deals are made once: what is drawn is which of them is sent.
	var deals []quorum.Deal
	for _, r := range racks {
		for epoch := uint64(1); epoch <= 4; epoch++ {
			for range 2 {
				var prior quorum.Secrets
				if epoch > 2 {
					prior = quorum.Secrets{1: deals[0].Secret}
				}
				d, err := quorum.Split(newCounter(), quorum.Plan{RackID: r, Epoch: epoch, Coordinator: board(1), Members: boards(3), Prior: prior})
				if err != nil {
					t.Fatal(err)
				}
				deals = append(deals, d)
			}
		}
	}
	asks := make([]quorum.Prepare, len(deals))
	for i, d := range deals {
		asks[i] = c.prepare(d, me)
	}
	rapid.Check(t, func(t *rapid.T) {
		now := c.fresh(me)
		configs := map[uint64]quorum.Configuration{}
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			epoch := rapid.Uint64Range(1, 4).Draw(t, "epoch")
			r := rapid.SampledFrom(append(racks, rack, rack)).Draw(t, "rack")
			var rule func(*state) (*state, error)
			reset := false
			switch rapid.IntRange(0, 8).Draw(t, "op") {
			case 0:
				o := quorum.Reconfigure{RackID: r, Epoch: epoch, Threshold: 2, Members: rapid.Permutation(boards(3)).Draw(t, "members")}
				if last := rapid.Uint64Range(0, epoch-1).Draw(t, "last"); last > 0 {
					o.LastCommittedEpoch = &last
				}
				rule = func(s *state) (*state, error) { return s.reconfigure(o) }
			case 1:
				rule = func(s *state) (*state, error) { return s.deal(newCounter(), nil) }
			case 2, 3, 4:
				ask := rapid.SampledFrom(asks).Draw(t, "prepare")
				ask.Keys = ask.Keys[:rapid.IntRange(0, 3).Draw(t, "keys")]
				rule = func(s *state) (*state, error) { return s.prepare(ask) }
			case 5, 6:
				rule = func(s *state) (*state, error) { return s.commit(quorum.Commit{RackID: r, Epoch: epoch}) }
			case 7:
				done := rapid.Bool().Draw(t, "done")
				rule = func(s *state) (*state, error) { return s.configure(networkRequest(epoch), done) }
			case 8:
				start := startRequest()
				start.Body.RackID = r
				rule = func(s *state) (*state, error) { return s.start(start, true) }
				if rapid.IntRange(0, 5).Draw(t, "reset") == 0 {
					reset = true
					rule = func(s *state) (*state, error) {
						return s.forget(wire.SledForget{RackID: r}, func() (quorum.ExchangeKey, error) { return c.keys[me], nil })
					}
				}
			}
			before := show(t, now)
			next, err := rule(now)
			if show(t, now) != before {
				t.Fatal("a rule changed the state it was given")
			}
			if err != nil {
				if next != nil || code(err) == wire.Internal {
					t.Fatalf("%v", err)
				}
				continue
			}
			if again, err := rule(next); err != nil || again != next {
				t.Fatalf("an equal repeat: %v", err)
			}
			if back, err := decodeState([]byte(show(t, next))); err != nil || show(t, back) != show(t, next) {
				t.Fatalf("what is kept does not come back: %v", err)
			}
			if reset {
				if next != now {
					configs = map[uint64]quorum.Configuration{}
				}
				now = next
				continue
			}
			if now.rack != "" && next.rack != now.rack {
				t.Fatalf("from rack %q to %q", now.rack, next.rack)
			}
			if next.highest() < now.highest() || next.committed() < now.committed() || next.written < now.written ||
				now.network != nil && next.network.generation < now.network.generation {
				t.Fatalf("something fell: %+v to %+v", now.identity(), next.identity())
			}
			for e, p := range now.epochs {
				if p.committed && (next.epochs[e] == nil || !next.epochs[e].committed) {
					t.Fatalf("the commit of epoch %d is gone", e)
				}
			}
			var seen []quorum.Configuration
			for _, p := range next.epochs {
				seen = append(seen, p.config)
			}
			if next.coordination != nil && next.coordination.config != nil {
				seen = append(seen, *next.coordination.config)
			}
			for _, config := range seen {
				if had, ok := configs[config.Epoch]; ok && !had.Equal(config) {
					t.Fatalf("two configurations for epoch %d", config.Epoch)
				}
				configs[config.Epoch] = config
			}
			now = next
		}
	})
}

func show(t interface{ Fatal(...any) }, s *state) string {
	b, err := encodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// counter is a source of bytes that never repeats itself.
type counter struct{ n uint64 }

var counters uint64

func newCounter() *counter { counters += 1 << 32; return &counter{counters} }

func (c *counter) Read(b []byte) (int, error) {
	for i := range b {
		c.n++
		b[i] = byte(c.n * 0x9E3779B97F4A7C15 >> 56)
	}
	return len(b), nil
}

// The record keeps epochs in order, so that equal states have equal records.
func TestRecord_IsTheSameForTheSameState(t *testing.T) {
	now := full(t)
	first := show(t, now)
	for range 20 {
		if got := show(t, now.clone()); got != first {
			t.Fatal("two records of one state")
		}
	}
	var epochs []uint64
	back, err := decodeState([]byte(first))
	if err != nil {
		t.Fatal(err)
	}
	for e := range back.epochs {
		epochs = append(epochs, e)
	}
	slices.Sort(epochs)
	if fmt.Sprint(epochs) != "[1]" {
		t.Errorf("epochs %v", epochs)
	}
}
