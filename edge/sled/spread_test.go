package sled

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/functions/join/quorum"
	"muster/runtime"
	"muster/wire"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// spreading is a spread of epoch 1 to n sleds, coordinated by the first, whose members have simple keys.
func spreading(n int) *spread {
	c := &quorum.Configuration{RackID: rack, Epoch: 1, Coordinator: board(1), Threshold: quorum.Threshold(n)}
	for _, b := range boards(n) {
		c.Members = append(c.Members, quorum.Member{Baseboard: b})
	}
	return newSpread(c, "key of "+board(1).SerialNumber)
}

func identityOf(b wire.Baseboard) wire.Identity {
	return wire.Identity{Baseboard: b, ExchangeKey: "key of " + b.SerialNumber}
}

// shows is steps as text: "2?" asks the second sled who it is, "2:134" prepares it with the keys of 1, 3 and 4.
func shows(steps []step) string {
	var words []string
	for _, s := range steps {
		word := fmt.Sprint(number3(s.to))
		if s.version == 0 {
			word += "?"
		} else {
			word += ":"
			for _, k := range s.keys {
				word += fmt.Sprint(number3(k.Member))
			}
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func number3(b wire.Baseboard) int { return int(b.SerialNumber[7] - '0') }

func ackList(p *spread) string {
	var out []string
	for _, b := range p.acks() {
		out = append(out, fmt.Sprint(number3(b)))
	}
	return strings.Join(out, "")
}

func expect(t *testing.T, p *spread, after time.Duration, want string) []step {
	t.Helper()
	steps := p.steps(start.Add(after))
	if got := shows(steps); got != want {
		t.Fatalf("after %v: %q, want %q", after, got, want)
	}
	return steps
}

func TestSpread_AllAnswer(t *testing.T) {
	p := spreading(3)
	expect(t, p, 0, "2? 3?")
	p.met(board(2), identityOf(board(2)))
	expect(t, p, 1, "") // the last key is on its way
	p.met(board(3), identityOf(board(3)))
	expect(t, p, 2, "1:123 2:123 3:123")
	for _, b := range boards(3) {
		if p.done() {
			t.Fatal("done too early")
		}
		p.acked(b, p.version)
	}
	if !p.done() || ackList(p) != "123" || !p.next().IsZero() {
		t.Errorf("done %v, acks %s, next %v", p.done(), ackList(p), p.next())
	}
	expect(t, p, time.Hour, "")
}

// An operator who mistyped a sled sees that it is the one that is missing.
func TestSpread_OneIsSilent(t *testing.T) {
	p := spreading(4)
	asked := expect(t, p, 0, "2? 3? 4?")
	p.met(board(2), identityOf(board(2)))
	p.met(board(3), identityOf(board(3)))
	if !p.failed(asked[2], runtime.ErrSilent, start) {
		t.Error("a silent member is no news")
	}
	partial := expect(t, p, 0, "1:123 2:123 3:123")
	for _, s := range partial {
		p.acked(s.to, s.version)
	}
	if ackList(p) != "123" || p.done() {
		t.Fatalf("acks %s, done %v", ackList(p), p.done())
	}
	// It is asked again with growing pauses.
	var pauses []time.Duration
	now := start
	for range 7 {
		next := p.next()
		pauses = append(pauses, next.Sub(now))
		now = next
		if p.failed(expect(t, p, now.Sub(start), "4?")[0], runtime.ErrSilent, now) {
			t.Error("the same silence is news again")
		}
	}
	ms := time.Millisecond
	if want := []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 5000 * ms, 5000 * ms}; !slices.Equal(pauses, want) {
		t.Errorf("pauses %v, want %v", pauses, want)
	}
	// It comes: the others get its key, and only then it gets its share.
	expect(t, p, time.Minute, "4?")
	p.met(board(4), identityOf(board(4)))
	all := expect(t, p, time.Minute, "1:1234 2:1234 3:1234")
	if ackList(p) != "" {
		t.Errorf("acks %s, though nobody has all keys", ackList(p))
	}
	for _, s := range all {
		expect(t, p, time.Minute, "")
		p.acked(s.to, s.version)
	}
	p.acked(expect(t, p, time.Minute, "4:1234")[0].to, p.version)
	if !p.done() || ackList(p) != "1234" {
		t.Errorf("done %v, acks %s", p.done(), ackList(p))
	}
}

func TestSpread_LateAnswersCount(t *testing.T) {
	p := spreading(3)
	p.steps(start)
	p.met(board(2), identityOf(board(2)))
	p.met(board(3), identityOf(board(3)))
	first := expect(t, p, 0, "1:123 2:123 3:123")
	expect(t, p, 1999*time.Millisecond, "")
	again := expect(t, p, 2*time.Second, "1:123 2:123 3:123") // nobody has answered
	for _, s := range first {
		p.acked(s.to, s.version)
	}
	if !p.done() {
		t.Error("late acks do not count")
	}
	if p.failed(again[1], runtime.ErrSilent, start) || !p.done() {
		t.Error("what failed before it was answered counts")
	}
}

func TestSpread_WipedAndBack(t *testing.T) {
	p := spreading(3)
	p.steps(start)
	p.met(board(2), identityOf(board(2)))
	p.met(board(3), identityOf(board(3)))
	steps := expect(t, p, 0, "1:123 2:123 3:123")
	p.acked(board(1), p.version)
	p.acked(board(2), p.version)
	// The third was wiped before its share came: that does not open. It is asked who it is, and has another key.
	p.failed(steps[2], wire.Errorf(wire.ShareMismatch, "does not open"), start)
	expect(t, p, 0, "")
	expect(t, p, 250*time.Millisecond, "3?")
	p.met(board(3), wire.Identity{Baseboard: board(3), ExchangeKey: "another"})
	steps = expect(t, p, time.Second, "1:123 2:123")
	if steps[0].keys[2].Key != "another" {
		t.Error("the others get the old key")
	}
	p.acked(board(1), p.version)
	p.acked(board(2), p.version)
	expect(t, p, time.Second, "3:123")
	p.acked(board(3), p.version)
	if !p.done() {
		t.Error("not done")
	}
	// Later it is wiped once more, and the control plane asks to look.
	p.doubt()
	expect(t, p, time.Minute, "1? 2? 3?")
	for _, b := range boards(2) {
		p.met(b, wire.Identity{Baseboard: b, ExchangeKey: p.keys[b], RackID: ptr(rack), PreparedEpoch: ptr(uint64(1))})
	}
	expect(t, p, time.Minute, "")
	p.met(board(3), wire.Identity{Baseboard: board(3), ExchangeKey: "a third"})
	expect(t, p, time.Minute, "1:123 2:123 3:123") // it was there before: nobody waits for its share
}

func TestSpread_RefusedGrowsItsPauses(t *testing.T) {
	p := spreading(3)
	p.steps(start)
	p.met(board(2), identityOf(board(2)))
	p.met(board(3), identityOf(board(3)))
	steps := p.steps(start)
	now, news := start, 0
	for range 4 { // the second belongs to another rack: it says who it is, and refuses
		if p.failed(steps[1], wire.Errorf(wire.WrongRack, "not ours"), now) {
			news++
		}
		now = p.peers[board(2)].retryAt
		p.steps(now)
		p.met(board(2), identityOf(board(2)))
		steps = p.steps(now)
		steps = append(steps[:0:0], step{}, steps[slices.IndexFunc(steps, func(s step) bool { return s.to == board(2) })])
	}
	if news != 1 || now.Sub(start) != 3750*time.Millisecond {
		t.Errorf("news %d, four pauses of %v", news, now.Sub(start))
	}
}

func TestSpread_EndsWhenSuperseded(t *testing.T) {
	p := spreading(3)
	p.steps(start)
	p.met(board(2), identityOf(board(2)))
	p.met(board(3), identityOf(board(3)))
	steps := p.steps(start)
	p.failed(steps[2], fmt.Errorf("ask: %w", stale(7)), start)
	if !p.over || !p.next().IsZero() {
		t.Error("it goes on")
	}
	expect(t, p, time.Hour, "")
}

// sim is a member as the spread meets it.
type sim struct {
	key   string
	held  bool
	keys  map[wire.Baseboard]string
	dead  bool
	wipes int
}

func (m *sim) carryOut(s step) (wire.Identity, error) {
	switch {
	case m.dead:
		return wire.Identity{}, runtime.ErrSilent
	case s.version == 0:
		id := wire.Identity{Baseboard: s.to, ExchangeKey: m.key}
		if m.held {
			id.RackID, id.PreparedEpoch = ptr(rack), ptr(uint64(1))
		}
		return id, nil
	}
	for _, k := range s.keys {
		if k.Member == s.to && k.Key != m.key {
			return wire.Identity{}, errors.New("does not open")
		}
		m.keys[k.Member] = k.Key
	}
	m.held = true
	return wire.Identity{}, nil
}

// Whatever is lost, late, refused or wiped: once all have acked at some time, all hold all keys, unless one was wiped; and
// once all answer, all ack.
func TestSpread_Property(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 6).Draw(t, "members")
		p := spreading(n)
		sims := map[wire.Baseboard]*sim{}
		for i, b := range boards(n) {
			sims[b] = &sim{key: "key of " + b.SerialNumber, keys: map[wire.Baseboard]string{}, dead: i > 0 && rapid.Bool().Draw(t, "dead")}
		}
		type late struct {
			step
			id  wire.Identity
			err error
		}
		var flying []late // answered, and not heard yet
		shown := map[wire.Baseboard]bool{}
		now, wiped := start, false
		take := func(l late) {
			switch {
			case l.err != nil:
				p.failed(l.step, l.err, now)
			case l.version == 0:
				p.met(l.to, l.id)
			default:
				p.acked(l.to, l.version)
			}
			for _, b := range p.acks() {
				shown[b] = true
			}
			if len(shown) == n && !wiped {
				for _, b := range boards(n) {
					if m := sims[b]; !m.held || len(m.keys) != n {
						t.Fatalf("all have acked, and %v holds %v of %d keys", b, len(m.keys), n)
					}
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			for _, s := range p.steps(now) {
				if rapid.IntRange(0, 9).Draw(t, "lost") > 0 {
					id, err := sims[s.to].carryOut(s)
					flying = append(flying, late{s, id, err})
				}
			}
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				m := sims[rapid.SampledFrom(boards(n)[1:]).Draw(t, "who")]
				m.dead = !m.dead
			case 1:
				if rapid.Bool().Draw(t, "wipe") {
					m := sims[rapid.SampledFrom(boards(n)[1:]).Draw(t, "who")]
					m.wipes++
					wiped = true
					*m = sim{key: fmt.Sprintf("%s+%d", m.key, m.wipes), keys: map[wire.Baseboard]string{}, wipes: m.wipes}
				}
			case 2:
				p.doubt()
			case 3, 4:
				now = now.Add(time.Duration(rapid.IntRange(1, 6000).Draw(t, "ms")) * time.Millisecond)
			default:
				if len(flying) > 0 {
					i := rapid.IntRange(0, len(flying)-1).Draw(t, "which")
					l := flying[i]
					flying = slices.Delete(flying, i, i+1)
					take(l)
				}
			}
		}
		// From here on everybody answers.
		for _, m := range sims {
			m.dead = false
		}
		for _, l := range flying {
			take(l)
		}
		p.doubt()
		for i := 0; ; i++ {
			steps := p.steps(now)
			next := p.next()
			if len(steps) == 0 && next.IsZero() {
				break
			}
			if i > 50 {
				t.Fatalf("it does not end: acks %v", p.acks())
			}
			for _, s := range steps {
				id, err := sims[s.to].carryOut(s)
				take(late{s, id, err})
			}
			if next.After(now) {
				now = next
			}
		}
		if !p.done() {
			t.Fatalf("not done: acks %v", p.acks())
		}
		for _, b := range boards(n) {
			if m := sims[b]; !m.held || !maps.Equal(m.keys, p.keys) {
				t.Fatalf("done, and %v holds keys %v, not %v", b, m.keys, p.keys)
			}
		}
	})
}
