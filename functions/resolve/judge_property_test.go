package resolve

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/runtime"
	"muster/wire"
)

// drawSeen draws anything that a replica may see of a service, orderly or not.
func drawSeen(t *rapid.T) seen {
	s := seen{service: "mgs"}
	some := func(label string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID[string]).Draw(t, label)
	}
	if rapid.Bool().Draw(t, "has a record") {
		sources := []*wire.Source{nil, dnsSource, otherSource, staticSource, {Static: map[string]string{}}, leasesSource}
		s.record = recorded(rapid.SampledFrom(sources).Draw(t, "source"), nil)
		if rapid.Bool().Draw(t, "has an answer") {
			s.record.Value.Answer = &found{Backends: named(some("recorded")...), ObservedAt: at(rapid.Float64Range(-100, 100).Draw(t, "recorded at"))}
		}
		if rapid.IntRange(0, 9).Draw(t, "record") == 0 {
			s.record.Value, s.record.Err = nil, errors.New("not JSON")
		}
	}
	if rapid.Bool().Draw(t, "has a copy") {
		status := rapid.SampledFrom([]string{"fresh", "stale", "unresolved"}).Draw(t, "status")
		ttl := time.Duration(rapid.IntRange(0, 60).Draw(t, "ttl")) * time.Second
		s.copied = copyOf(rapid.SampledFrom([]*wire.Source{dnsSource, otherSource, leasesSource}).Draw(t, "copy of"), status,
			rapid.Int64Range(0, 100_000).Draw(t, "age"), ttl, "", some("copied")...)
		s.copied.Gone = rapid.Bool().Draw(t, "gone")
		if rapid.IntRange(0, 9).Draw(t, "copy") == 0 {
			s.copied.Value, s.copied.Err = nil, errors.New("not JSON")
		}
	}
	for _, name := range some("leases") {
		l := leased(name, rapid.Float64Range(-20, 20).Draw(t, "stored"), rapid.Float64Range(1, 20).Draw(t, "ttl of lease"))
		switch rapid.IntRange(0, 5).Draw(t, "lease") {
		case 0:
			l = ended(l)
		case 1:
			l = unreadable(name)
		}
		s.leases = append(s.leases, l)
	}
	return s
}

func TestJudgeNeverSaysNothingIsThereUnlessItIsSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := drawSeen(t), at(rapid.Float64Range(0, 30).Draw(t, "now"))
		d := doubt{}
		if rapid.Bool().Draw(t, "blind") {
			d = doubt{why: errors.New("blind"), since: at(rapid.Float64Range(-10, 0).Draw(t, "since")), never: rapid.Bool().Draw(t, "never seen")}
		}
		a, err := judge(s, d, now)
		if err != nil {
			code := wire.AsError(err).Code
			if code == wire.ServiceNotFound && s.kind() != "" {
				t.Fatalf("not found, and it is of %s", s.kind())
			}
			if !slices.Contains([]wire.Code{wire.ServiceNotFound, wire.NotResolvedYet, wire.CorruptRecord}, code) {
				t.Fatalf("an error that judge may not give: %v", err)
			}
			return
		}
		if a.age < 0 || a.observed.After(now) && a.source != wire.SourceDNS {
			t.Fatalf("age %v, observed %v after now", a.age, a.observed.Sub(now))
		}
		if a.status != wire.StatusFresh {
			if a.status != wire.StatusStale || a.reason == "" && s.copied == nil {
				t.Fatalf("%s for the reason %q", a.status, a.reason)
			}
			return
		}
		if d.why != nil {
			t.Fatal("fresh although nobody can tell")
		}
		if a.source == wire.SourceDNS && (s.copied == nil || s.copied.Gone || s.copied.Err != nil || s.copied.Value.Status != wire.StatusFresh ||
			a.age > s.copied.Value.ttl+2*time.Second) {
			t.Fatalf("fresh at an age of %v, of a copy that is not", a.age)
		}
		if len(a.backends) > 0 {
			return
		}
		switch a.source {
		case wire.SourceStatic:
			if len(s.record.Value.Source.Static) > 0 {
				t.Fatal("a static list was lost")
			}
		case wire.SourceLeases:
			for _, l := range s.leases {
				if holds := l.Err != nil || !l.Value.Ended && now.Before(l.Stored.Add(l.Value.ttl)); holds {
					t.Fatalf("nothing is there, and yet there is %+v", l)
				}
			}
		case wire.SourceDNS:
			if len(s.copied.Value.Backends) > 0 {
				t.Fatal("the copy's backends were lost")
			}
		}
	})
}

// FuzzDecode: what was put into a bucket by hand is read, or refused with an error.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"address":"[fd00::1]:80","lease":"t","ttl":"10s","expires_at":"2030-01-01T00:00:00Z","more":{"a":1}}`,
		`{"source":{"static":{"a":"[fd00::1]:80"}},"answer":{"backends":[{"name":"a","address":"[fd00::1]:80","priority":0,"weight":0}],"complete":true,"observed_at":"2030-01-01T00:00:00Z"},"x":9007199254740993}`,
		`{"source":{"dns":{"name":"_a._tcp.b","servers":["[::1]:53"]}}}`, `{"source":{"leases":{}}}`, `{}`, `{"source":{}}`, `{"source":null}`,
		`{"service":"mgs","status":"fresh","complete":true,"backends":[],"source":"dns","observed_at":"2030-01-01T00:00:00Z","age_ms":1,"reason":"","ttl":"5s","of":"x"}`,
		`{"status":"fresh","ttl":"-5s","age_ms":-9223372036854775808}`, `null`, `[]`, `7`, ``, `{"answer":{"backends":null}}`, `{"source":{"static":{"":""},"leases":{}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		now := start
		s := seen{service: "mgs"}
		if l, err := decodeLease(value); err == nil {
			if l.ttl < minTTL || l.ttl > maxTTL || l.Address == "" {
				t.Errorf("a lease of %v for %q", l.ttl, l.Address)
			}
			again, err := decodeLease(encode(l))
			if err != nil || again.ttl != l.ttl || again.Lease != l.Lease || again.Address != l.Address {
				t.Errorf("%s came back as %+v, %v", value, again, err)
			}
			s.leases = append(s.leases, runtime.Item[*lease]{Key: "mgs.a", Value: l, Stored: now})
		}
		if r, err := decodeRecord(value); err == nil {
			again, err := decodeRecord(encode(r))
			if err != nil || again.of != r.of || again.Source.Kind() != r.Source.Kind() {
				t.Errorf("%s came back as %+v, %v", value, again, err)
			}
			s.record = &runtime.Item[*record]{Key: "mgs", Value: r}
		}
		if c, err := decodeCopied(value); err == nil {
			if s.record != nil {
				c.Of = s.record.Value.of
			}
			s.copied = &runtime.Item[*copied]{Key: "mgs", Value: c, Stored: now}
		}
		if a, err := judge(s, doubt{}, now); err == nil {
			var out wire.Answer
			if raw := a.AppendJSON(nil); json.Unmarshal(raw, &out) != nil || out.AgeMS < 0 {
				t.Errorf("an answer that cannot be read: %s", raw)
			}
		}
	})
}
