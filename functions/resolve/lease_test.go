package resolve

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"muster/wire"
)

func TestLease(t *testing.T) {
	given := func() *lease {
		return &lease{Address: "[fd00::1]:80", Lease: "t1", TTL: "10s", ttl: 10 * time.Second, ExpiresAt: at(10).UTC(), Rest: jsontext.Value(`{"more":9007199254740993}`)}
	}
	over := func() *lease { l := given(); l.Ended = true; return l }
	for name, c := range map[string]struct {
		before *lease
		do     func(*lease) bool
		ok     bool
		token  string
		ends   float64
	}{
		"register the first":            {&lease{}, func(l *lease) bool { return l.register("", "t2", "[fd00::2]:80", time.Minute, at(5)) }, true, "t2", 65},
		"register over a live one":      {given(), func(l *lease) bool { return l.register("", "t2", "[fd00::2]:80", time.Minute, at(5)) }, true, "t2", 65},
		"register over an ended one":    {over(), func(l *lease) bool { return l.register("", "t2", "[fd00::2]:80", time.Minute, at(5)) }, true, "t2", 65},
		"register, going on":            {given(), func(l *lease) bool { return l.register("t1", "t2", "[fd00::2]:80", time.Minute, at(5)) }, true, "t1", 65},
		"register with another's":       {given(), func(l *lease) bool { return l.register("t0", "t2", "[fd00::2]:80", time.Minute, at(5)) }, false, "t1", 10},
		"register with one never given": {&lease{}, func(l *lease) bool { return l.register("t0", "t2", "[fd00::2]:80", time.Minute, at(5)) }, false, "", 0},
		"register with an ended one":    {over(), func(l *lease) bool { return l.register("t1", "t2", "[fd00::2]:80", time.Minute, at(5)) }, false, "t1", 10},
		"renew":                         {given(), func(l *lease) bool { return l.renew("t1", at(5)) }, true, "t1", 15},
		"renew with another's":          {given(), func(l *lease) bool { return l.renew("t0", at(5)) }, false, "t1", 10},
		"renew nothing":                 {&lease{}, func(l *lease) bool { return l.renew("", at(5)) }, false, "", 0},
		"renew an ended one":            {over(), func(l *lease) bool { return l.renew("t1", at(5)) }, false, "t1", 10},
		"end":                           {given(), func(l *lease) bool { return l.end("t1") }, true, "t1", 10},
		"end with another's":            {given(), func(l *lease) bool { return l.end("t0") }, false, "t1", 10},
		"end nothing":                   {&lease{}, func(l *lease) bool { return l.end("") }, false, "", 0},
		"end twice":                     {over(), func(l *lease) bool { return l.end("t1") }, false, "t1", 10},
	} {
		t.Run(name, func(t *testing.T) {
			l := leases.Clone(c.before)
			was := string(encode(l))
			if ok := c.do(l); ok != c.ok {
				t.Fatalf("got %t", ok)
			}
			if !c.ok {
				if now := string(encode(l)); now != was {
					t.Errorf("refused, and changed to %s", now)
				}
				return
			}
			if l.Lease != c.token || !l.ExpiresAt.Equal(at(c.ends)) {
				t.Errorf("lease %s until %v, want %s until %v", l.Lease, l.ExpiresAt.Sub(start), c.token, c.ends)
			}
			if c.before.Rest != nil && string(l.Rest) != string(c.before.Rest) {
				t.Errorf("members that we do not know became %s", l.Rest)
			}
			want := l.ttl
			if l.Ended {
				want = endedTTL
			}
			if leases.TTL(l) != want || want < time.Second {
				t.Errorf("stored for %v", leases.TTL(l))
			}
		})
	}
}

func TestLeaseKeepsWhatItDoesNotKnow(t *testing.T) {
	l, err := decodeLease([]byte(`{"address":"[fd00::1]:80","lease":"t","ttl":"10s","expires_at":"2030-01-01T00:00:00Z","n":9007199254740993,"o":{"b":1,"a":[2]}}`))
	if err != nil {
		t.Fatal(err)
	}
	l.renew("t", start)
	if out := string(encode(l)); !strings.Contains(out, `"n":9007199254740993`) || !strings.Contains(out, `"o":{"b":1,"a":[2]}`) {
		t.Errorf("written again as %s", out)
	}
}

func TestLeaseThatCannotBeRead(t *testing.T) {
	for _, value := range []string{
		``, `null`, `7`, `[]`, `{}`, `{"lease":"t","ttl":"10s"}`, `{"address":"[fd00::1]:80","lease":"t"}`,
		`{"address":"[fd00::1]:80","lease":"t","ttl":"999ms"}`, `{"address":"[fd00::1]:80","lease":"t","ttl":"61m"}`, `{"address":"[fd00::1]:80","lease":"t","ttl":10}`,
		`{"address":"fd00::1:80","lease":"t","ttl":"10s"}`, `{"address":7,"lease":"t","ttl":"10s"}`,
	} {
		if l, err := decodeLease([]byte(value)); err == nil {
			t.Errorf("%s was read as %+v", value, l)
		}
	}
}

func TestTTL(t *testing.T) {
	for s, want := range map[wire.LeaseTTL]time.Duration{"": 30 * time.Second, "1s": time.Second, "1000ms": time.Second, "1h": time.Hour, "60m": time.Hour, "1.5s": 1500 * time.Millisecond} {
		if got, err := ttlOf(s); err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []wire.LeaseTTL{"0", "0s", "-1s", "500ms", "999999999ns", "1h0m0.000000001s", "10", "ten", "1e12", "1e12s", "10000h", " 10s", "10s ", "300000000h"} {
		_, err := ttlOf(s)
		if e := wire.AsError(err); err == nil || e.Code != wire.InvalidRequest || e.Details["field"] != "ttl" || !strings.Contains(e.Message, "1s to 1h") {
			t.Errorf("%q: %v", s, err)
		}
	}
}
