package dns

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	mdns "github.com/miekg/dns"
	"pgregory.net/rapid"

	"muster/wire"
)

var namePattern = regexp.MustCompile(wire.NamePattern)

func validName(s string) bool { return namePattern.MatchString(s) }

// found1 is an answer with addresses.
func found1(at time.Time, addrs ...string) reply {
	r := reply{kind: found, ttl: 9 * time.Second, at: at}
	for _, a := range addrs {
		r.addrs = append(r.addrs, netip.MustParseAddr(a))
	}
	return r
}

func srvRecord(host string, port, priority uint16) *mdns.SRV {
	return &mdns.SRV{Hdr: mdns.RR_Header{Name: "a.x.", Rrtype: mdns.TypeSRV, Class: mdns.ClassINET, Ttl: 5}, Target: host, Port: port, Priority: priority}
}

func TestNames(t *testing.T) {
	t.Parallel()
	long := "l23456789012345678901234567890123456789012345678901234567890123"
	for _, tc := range []struct{ targets, want []string }{
		{[]string{"mgs0.x:80 192.0.2.1:80", "mgs1.x:80 192.0.2.2:80"}, []string{"mgs0", "mgs1"}},
		{[]string{"mgs0.x:80 192.0.2.1:80", "mgs0.x:80 [fd00::1]:80"}, []string{"mgs0-v4", "mgs0-v6"}},
		{[]string{"mgs0.x:80 192.0.2.1:80", "mgs0.x:81 192.0.2.1:81"}, []string{"mgs0-80", "mgs0-81"}},
		{[]string{"mgs0.x:80 192.0.2.1:80", "mgs0.x:80 [fd00::1]:80", "mgs0.x:81 192.0.2.1:81", "mgs0.x:81 [fd00::1]:81"},
			[]string{"mgs0-80-v4", "mgs0-80-v6", "mgs0-81-v4", "mgs0-81-v6"}},
		{[]string{"_mgs0.x:80 192.0.2.1:80", "__.x:80 192.0.2.1:80", `a\.b.x:80 192.0.2.1:80`}, []string{"backend", "mgs0", "a-"}},
		{[]string{long + ".x:80 192.0.2.1:80", long + ".x:65535 192.0.2.1:65535"}, []string{long[:61] + "-80", long[:58] + "-65535"}},
		{[]string{"mgs0.x:80 192.0.2.1:80", "mgs0.y:80 192.0.2.2:80"}, []string{"mgs0-2ceed3e2", "mgs0-416fef14"}},
	} {
		var targets []Target
		for _, s := range tc.targets {
			var tg Target
			if _, err := fmt.Sscan(s, &tg.Host, &tg.Address); err != nil {
				t.Fatal(err)
			}
			targets = append(targets, tg)
		}
		var got []string
		for _, tg := range arrange(targets) {
			got = append(got, tg.Name)
		}
		slices.Sort(tc.want)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tc.targets, diff)
		}
	}
}

// Equal records give an equal result in any order, and every backend has a name of its own.
func TestOrderMeansNothing(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	host := rapid.SampledFrom([]string{"m.x.", "m.y.", "M.X.", "m-v4.x.", "m-80.x.", "m-80-v4.z.", "_m.x.", "-.x.", "n.x.", "."})
	rapid.Check(t, func(t *rapid.T) {
		srv := reply{kind: found, ttl: 5 * time.Second, at: now}
		for range rapid.IntRange(1, 8).Draw(t, "records") {
			srv.srv = append(srv.srv, srvRecord(host.Draw(t, "host"), rapid.Uint16Range(80, 81).Draw(t, "port"), rapid.Uint16Range(0, 1).Draw(t, "priority")))
		}
		known := map[key]reply{}
		for _, h := range srv.hosts() {
			for qtype, addrs := range map[uint16][]string{mdns.TypeA: {"192.0.2.1", "192.0.2.2"}, mdns.TypeAAAA: {"fd00::1", "fd00::2"}} {
				switch rapid.IntRange(0, 3).Draw(t, "answer") {
				case 0:
					known[key{h, qtype}] = reply{kind: absent, reason: "NXDOMAIN"}
				case 1:
					known[key{h, qtype}] = brokenf("SERVFAIL")
				case 2:
					known[key{h, qtype}] = found1(now, addrs[0])
				case 3:
					known[key{h, qtype}] = found1(now, addrs...)
				}
			}
		}
		first := assemble(srv, known)
		seed := rapid.Uint64().Draw(t, "order")
		random := rand.New(rand.NewPCG(seed, seed))
		random.Shuffle(len(srv.srv), func(i, j int) { srv.srv[i], srv.srv[j] = srv.srv[j], srv.srv[i] })
		for _, r := range known {
			slices.Reverse(r.addrs)
		}
		if diff := cmp.Diff(first, assemble(srv, known)); diff != "" {
			t.Fatalf("another order (-first +second):\n%s", diff)
		}
		names := map[string]bool{}
		for _, tg := range first.Targets {
			if !validName(tg.Name) || names[tg.Name] {
				t.Fatalf("name %q in %+v", tg.Name, first.Targets)
			}
			names[tg.Name] = true
		}
		if merged, complete := Merge(nil, first); !cmp.Equal(merged, first.Targets) || complete != (first.Outcome == Answer) {
			t.Fatalf("with nothing before: %+v, complete %v", merged, complete)
		}
		merged, _ := Merge(first.Targets, first)
		if !cmp.Equal(merged, first.Targets) {
			t.Fatalf("with the same before: %+v", merged)
		}
		// What answered before keeps its place and its name while it cannot be asked.
		for k := range known {
			known[k] = brokenf("SERVFAIL")
		}
		kept, complete := Merge(first.Targets, assemble(srv, known))
		if !cmp.Equal(kept, first.Targets) {
			t.Fatalf("while nothing resolves: %+v, want %+v", kept, first.Targets)
		}
		if complete && len(srv.hosts()) > 0 {
			t.Fatal("complete while nothing resolves")
		}
	})
}

func TestMerge(t *testing.T) {
	t.Parallel()
	v4 := Target{Name: "m-v4", Host: "m.x:80", Address: "192.0.2.1:80"}
	v6 := Target{Name: "m-v6", Host: "m.x:80", Address: "[fd00::1]:80"}
	other := Target{Name: "n", Host: "n.x:80", Address: "192.0.2.9:80"}
	last := []Target{v4, v6, other}
	named := func(name string, tg Target) Target { tg.Name = name; return tg }
	for name, tc := range map[string]struct {
		r        Result
		want     []Target
		complete bool
	}{
		"a target is gone":                {Result{Outcome: Answer, Targets: []Target{other}}, []Target{other}, true},
		"an address is gone":              {Result{Outcome: Answer, Targets: []Target{v4, other}}, []Target{named("m", v4), other}, true},
		"nothing of a target came":        {Result{Outcome: Partial, Targets: []Target{other}, Gaps: []Gap{{Host: "m.x:80"}}}, last, false},
		"one family of it did not come":   {Result{Outcome: Answer, Targets: []Target{v4, other}, Gaps: []Gap{{Host: "m.x:80", Type: "AAAA"}}}, last, false},
		"a family it never had":           {Result{Outcome: Answer, Targets: []Target{v4, v6, other}, Gaps: []Gap{{Host: "n.x:80", Type: "AAAA"}}}, last, true},
		"a target never seen":             {Result{Outcome: Partial, Targets: last, Gaps: []Gap{{Host: "o.x:80"}}}, last, false},
		"its other port is not its own":   {Result{Outcome: Partial, Targets: []Target{other}, Gaps: []Gap{{Host: "m.x:81"}}}, []Target{other}, false},
		"the zone is empty":               {Result{Outcome: Empty}, nil, true},
		"absence is the caller's matter":  {Result{Outcome: Absent}, last, false},
		"a failure changes nothing":       {Result{Outcome: Failure}, last, false},
		"what is kept gets the new order": {Result{Outcome: Partial, Targets: []Target{other}, Gaps: []Gap{{Host: "m.x:80", Priority: 5}}}, nil, false},
	} {
		got, complete := Merge(last, tc.r)
		if name == "what is kept gets the new order" {
			if len(got) != 3 || got[0].Name != "n" || got[2].Priority != 5 {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || complete != tc.complete {
			t.Errorf("%s: complete %v, targets (-want +got):\n%s", name, complete, diff)
		}
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(int64(minTTL), int64(maxTTL)).Draw(t, "ttl"))
		failures, random := rapid.IntRange(1, 1000).Draw(t, "failures"), rapid.Float64Range(0, 0.999).Draw(t, "rand")
		between := func(r Result, least, most time.Duration) {
			if got := Next(r, failures, random); got < least || got > most {
				t.Fatalf("Next(%v %v, %d, %v) = %v, want %v to %v", r.Outcome, r.TTL, failures, random, got, least, most)
			}
		}
		between(Result{Outcome: Answer, TTL: ttl}, ttl, ttl+spread)
		between(Result{Outcome: Answer, TTL: ttl, Took: ttl / 2}, ttl/2, ttl/2+spread)
		between(Result{Outcome: Answer, TTL: ttl, Took: 2 * ttl}, 0, spread)
		between(Result{Outcome: Partial, TTL: ttl}, 750*time.Millisecond, ttl+spread)
		between(Result{Outcome: Absent, TTL: min(ttl, maxEmptyTTL)}, 900*time.Millisecond, 5*time.Second)
		between(Result{Outcome: Failure}, 750*time.Millisecond, 10*time.Second)
	})
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second} {
		if got := Next(Result{Outcome: Failure}, failures, 0); got != want {
			t.Errorf("after %d failures: %v, want %v", failures, got, want)
		}
	}
}
