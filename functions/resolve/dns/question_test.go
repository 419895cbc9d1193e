package dns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"
)

// fakeDNS stands for servers without a network, so that time is the test's own. serve returns nil to stay silent.
type fakeDNS struct {
	serve func(server, network string, query *mdns.Msg) *mdns.Msg

	mu   sync.Mutex
	seen []sighting
}

type sighting struct {
	key             key
	server, network string
	at              time.Time
}

func (f *fakeDNS) exchange(ctx context.Context, network, server string, packet []byte, take func([]byte) bool) (time.Time, error) {
	query := new(mdns.Msg)
	if err := query.Unpack(packet); err != nil {
		return time.Time{}, err
	}
	q := query.Question[0]
	sent := time.Now()
	f.mu.Lock()
	f.seen = append(f.seen, sighting{key{q.Name, q.Qtype}, server, network, sent})
	f.mu.Unlock()
	m := f.serve(server, network, query)
	if m == nil {
		<-ctx.Done()
		return sent, ctx.Err()
	}
	time.Sleep(time.Millisecond) // the way there and back
	p, err := m.Pack()
	if err != nil {
		return sent, err
	}
	take(p)
	return sent, nil
}

// asked says what was asked for a type, as "server network" with whole milliseconds since start.
func (f *fakeDNS) asked(start time.Time, qtype uint16) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, s := range f.seen {
		if s.key.qtype == qtype {
			all = append(all, fmt.Sprintf("%s %s %d", s.server, s.network, s.at.Sub(start).Milliseconds()))
		}
	}
	return strings.Join(all, ", ")
}

func newFake(serve func(server, network string, query *mdns.Msg) *mdns.Msg) (*Client, *fakeDNS) {
	f := &fakeDNS{serve: serve}
	c := New(Config{})
	c.exchange = f.exchange
	return c, f
}

// zone answers like a server that has these records and no others.
func zone(query *mdns.Msg, records ...string) *mdns.Msg {
	m := new(mdns.Msg)
	m.SetReply(query)
	for _, r := range records {
		rr, err := mdns.NewRR(r)
		if err != nil {
			panic(err)
		}
		if rr.Header().Name == query.Question[0].Name && rr.Header().Rrtype == query.Question[0].Qtype {
			m.Answer = append(m.Answer, rr)
		}
	}
	return m
}

func fail(query *mdns.Msg, code int) *mdns.Msg {
	m := new(mdns.Msg)
	return m.SetRcode(query, code)
}

func one(query *mdns.Msg) *mdns.Msg {
	return zone(query, "a.x. 3 IN SRV 0 0 80 t.x.", "b.x. 3 IN SRV 0 0 80 t.x.", "t.x. 3 IN A 192.0.2.1")
}

func TestPause(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for _, tc := range []struct {
		ago, want time.Duration
	}{
		{0, spacing}, {100 * time.Millisecond, time.Second}, {spacing, 0}, {time.Hour, 0},
		{-time.Hour, spacing}, // the clock was set back
	} {
		if got := pause(now.Add(-tc.ago), now); got != tc.want {
			t.Errorf("pause, sent %v ago: got %v, want %v", tc.ago, got, tc.want)
		}
	}
	if got := pause(time.Time{}, now); got != 0 {
		t.Errorf("pause of what was never sent: got %v, want 0", got)
	}
}

// The file is read for each Ask, so that a new one needs no restart.
func TestSystemServers(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	for text, want := range map[string]string{
		"search x\nnameserver 192.0.2.1\nnameserver ::1\noptions timeout:1\n":                      "192.0.2.1:53 [::1]:53",
		"nameserver ns.x\nnameserver fe80::1%eth0\n":                                               "[fe80::1%eth0]:53",
		"nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n": "192.0.2.1:53 192.0.2.2:53 192.0.2.3:53",
		"": "",
	} {
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(systemServers(conf), " "); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestAnotherServerWaitsItsTurnAndIsPreferredThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f := newFake(func(server, _ string, query *mdns.Msg) *mdns.Msg {
			if server == "one" {
				return fail(query, mdns.RcodeServerFailure)
			}
			return one(query)
		})
		start := time.Now()
		servers := []string{"one", "two"}
		if r := c.Ask(t.Context(), "a.x", servers); r.Outcome != Answer {
			t.Fatalf("first: %+v", r)
		}
		time.Sleep(5 * time.Second)
		if r := c.Ask(t.Context(), "a.x", servers); r.Outcome != Answer {
			t.Fatalf("second: %+v", r)
		}
		if got, want := f.asked(start, mdns.TypeSRV), "one udp 0, two udp 1100, two udp 6102"; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
		if got := f.asked(start, mdns.TypeA); strings.Contains(got, "one") {
			t.Errorf("addresses were asked of the server that had just failed: %s", got)
		}
	})
}

func TestTCPWaitsItsTurnAndIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f := newFake(func(_, network string, query *mdns.Msg) *mdns.Msg {
			m := one(query)
			if m.Truncated = network == "udp" && query.Question[0].Qtype == mdns.TypeSRV; m.Truncated {
				m.Answer = nil
			}
			return m
		})
		start := time.Now()
		for range 2 {
			if r := c.Ask(t.Context(), "a.x", []string{"one"}); r.Outcome != Answer {
				t.Fatalf("%+v", r)
			}
			time.Sleep(3 * time.Second)
		}
		if got, want := f.asked(start, mdns.TypeSRV), "one udp 0, one tcp 1100, one tcp 4102"; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
	})
}

func TestTCPThatFailsIsNotStuckTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		long := true
		c, f := newFake(func(_, network string, query *mdns.Msg) *mdns.Msg {
			m := one(query)
			if long && network == "tcp" {
				return fail(query, mdns.RcodeRefused)
			}
			m.Truncated = long
			return m
		})
		start := time.Now()
		if r := c.Ask(t.Context(), "a.x", []string{"one"}); r.Outcome != Failure || r.Reason != "REFUSED from one" {
			t.Fatalf("%+v", r)
		}
		long = false
		if r := c.Ask(t.Context(), "a.x", []string{"one"}); r.Outcome != Answer {
			t.Fatalf("%+v", r)
		}
		if got, want := f.asked(start, mdns.TypeSRV), "one udp 0, one tcp 1100, one udp 2200"; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
	})
}

func TestSilenceOfTheOnlyServerIsAskedAgainOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := true
		c, f := newFake(func(_, _ string, query *mdns.Msg) *mdns.Msg {
			if lost {
				lost = false
				return nil
			}
			return one(query)
		})
		start := time.Now()
		if r := c.Ask(t.Context(), "a.x", []string{"one"}); r.Outcome != Answer {
			t.Fatalf("%+v", r)
		}
		if got, want := f.asked(start, mdns.TypeSRV), "one udp 0, one udp 1100"; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
		if took := time.Since(start); took > 1500*time.Millisecond {
			t.Errorf("it took %v: the last answer is stale before the next comes", took)
		}
	})
}

func TestServicesShareTheAnswersOfTheirTarget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f := newFake(func(_, _ string, query *mdns.Msg) *mdns.Msg { return one(query) })
		start := time.Now()
		var wait sync.WaitGroup
		for i := range 20 {
			wait.Go(func() {
				if r := c.Ask(t.Context(), []string{"a.x", "b.x"}[i%2], []string{"one"}); r.Outcome != Answer {
					t.Errorf("%+v", r)
				}
			})
		}
		wait.Wait()
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if got, want := f.asked(start, mdns.TypeSRV), "one udp 0, one udp 0"; got != want {
			t.Errorf("SRV asked %s, want %s", got, want)
		}
		if got, want := f.asked(start, mdns.TypeA), "one udp 1"; got != want {
			t.Errorf("A asked %s, want %s", got, want)
		}
	})
}

func TestAbsenceIsAskedForAgainEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f := newFake(func(_, _ string, query *mdns.Msg) *mdns.Msg { return fail(query, mdns.RcodeNameError) })
		start := time.Now()
		first := c.Ask(t.Context(), "a.x", []string{"one"})
		second := c.Ask(t.Context(), "a.x", []string{"one"})
		if first.Outcome != Absent || second.Outcome != Absent {
			t.Fatalf("%+v, %+v", first, second)
		}
		if !second.At.After(first.At) {
			t.Error("one absence counts twice")
		}
		if got, want := f.asked(start, mdns.TypeSRV), "one udp 0, one udp 1100"; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
	})
}

func TestATargetThatDoesNotResolveDoesNotHoldTheOthersUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newFake(func(_, _ string, query *mdns.Msg) *mdns.Msg {
			if query.Question[0].Name == "dead.x." {
				return nil
			}
			return zone(query, "a.x. 1 IN SRV 0 0 80 t.x.", "a.x. 1 IN SRV 0 0 80 dead.x.", "t.x. 3 IN A 192.0.2.1")
		})
		// The list is called stale 2 s after its TTL of 1 s: before that, the next answer is there. For a minute.
		fresh, slow := time.Time{}, 0
		for start := time.Now(); time.Since(start) < time.Minute; {
			r := c.Ask(t.Context(), "a.x", []string{"one"})
			if r.Outcome != Partial || len(r.Targets) != 1 || r.TTL != time.Second || r.Reason != "dead.x: no answer from one in 1s" {
				t.Fatalf("%+v", r)
			}
			if late := time.Since(fresh); !fresh.IsZero() && late > 0 {
				t.Errorf("the answer came %v too late", late)
			}
			if r.Took > time.Second {
				slow++
			}
			fresh = r.At.Add(r.TTL + 2*time.Second)
			time.Sleep(Next(r, 100, 0.999))
		}
		if slow < 5 {
			t.Errorf("the dead target was asked for %d times in a minute", slow)
		}
	})
}

func TestTheEndOfACallerIsNoAnswerForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := true
		c, _ := newFake(func(_, _ string, query *mdns.Msg) *mdns.Msg {
			if first {
				first = false
				return nil
			}
			return one(query)
		})
		impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var wait sync.WaitGroup
		wait.Go(func() {
			if r := c.Ask(impatient, "a.x", []string{"one"}); r.Outcome != Failure || r.Reason == "" {
				t.Errorf("impatient: %+v", r)
			}
		})
		time.Sleep(50 * time.Millisecond)
		if r := c.Ask(t.Context(), "a.x", []string{"one"}); r.Outcome != Answer {
			t.Errorf("patient: %+v", r)
		}
		wait.Wait()
		done, stop := context.WithCancel(t.Context())
		stop()
		if r := c.Ask(done, "b.x", []string{"one"}); r.Outcome != Failure || r.Reason == "" {
			t.Errorf("after the end: %+v", r)
		}
	})
}

// Whatever callers and servers do, no question goes out twice within a second.
func TestNoQuestionGoesOutTwiceWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		dice := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return random.IntN(n)
		}
		c, f := newFake(func(_, network string, query *mdns.Msg) *mdns.Msg {
			switch dice(8) {
			case 0:
				return nil
			case 1:
				return fail(query, mdns.RcodeServerFailure)
			case 2:
				return fail(query, mdns.RcodeNameError)
			case 3:
				time.Sleep(time.Duration(dice(900)) * time.Millisecond)
			case 4:
				m := one(query)
				m.Truncated = network == "udp"
				return m
			}
			return zone(query, "a.x. 0 IN SRV 0 0 80 t.x.", "b.x. 0 IN SRV 0 0 80 t.x.", "t.x. 0 IN A 192.0.2.1")
		})
		outcomes := map[Outcome]int{}
		var wait sync.WaitGroup
		for range 12 {
			wait.Go(func() {
				for range 60 {
					servers := []string{"one", "two", "three"}[dice(3):]
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+dice(4000))*time.Millisecond)
					r := c.Ask(ctx, []string{"a.x", "b.x", "B.X."}[dice(3)], servers)
					cancel()
					mu.Lock()
					outcomes[r.Outcome]++
					mu.Unlock()
					time.Sleep(time.Duration(dice(500)) * time.Millisecond)
				}
			})
		}
		wait.Wait()
		last := map[key]time.Time{}
		for _, s := range f.seen {
			if before, ok := last[s.key]; ok && s.at.Sub(before) < time.Second {
				t.Errorf("%v went out %v after it went out before", s.key, s.at.Sub(before))
			}
			last[s.key] = s.at
		}
		if len(f.seen) < 50 || outcomes[Answer] == 0 || outcomes[Partial] == 0 || outcomes[Absent] == 0 || outcomes[Failure] == 0 {
			t.Errorf("the test saw too little: %d queries, %v", len(f.seen), outcomes)
		}
		time.Sleep(5 * time.Minute)
		c.drop(c.use(key{"other.", mdns.TypeSRV}, time.Now()))
		if len(c.questions) != 1 {
			t.Errorf("%d questions are kept for ever", len(c.questions))
		}
	})
}
