package resolve

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"muster/runtime"
	"muster/wire"
)

// freshFor is how much longer than the record's TTL an answer of DNS counts as fresh: the next one may be under way.
const freshFor = 1500 * time.Millisecond

// seen is all that this replica knows of a service.
type seen struct {
	service string
	record  *runtime.Item[*record] // nil: there is none
	copied  *runtime.Item[*copied] // its expiring copy, perhaps gone; nil: never seen
	leases  []runtime.Item[*lease] // of its backends, in the order of their names
}

// doubt is why what is known may not be so any more, and since when.
type doubt struct {
	why   error // nil: there is none
	since time.Time
	never bool // nothing was ever seen
}

// kind is the kind of the service's source. What registers without having been defined is of leases.
func (s seen) kind() string {
	if s.record != nil && s.record.Err == nil {
		if k := s.record.Value.Source.Kind(); k != "" {
			return k
		}
	}
	if len(s.leases) > 0 {
		return wire.SourceLeases
	}
	return ""
}

// judge makes the answer from what is known at a time. An error is a [*wire.Error]: ServiceNotFound, NotResolvedYet, or
// CorruptRecord.
//
//	source   fresh while                                   backends when it is stale
//	static   the record is seen                            those of the record
//	leases   the leases are seen                           those that were live when they were last seen; NotResolvedYet
//	                                                       if they never were
//	dns      its last good answer is not older than its    those of the last good answer
//	         TTL, and it did not fail since
func judge(s seen, d doubt, now time.Time) (answer, error) {
	if s.record != nil && s.record.Err != nil {
		return answer{}, wire.Errorf(wire.CorruptRecord, "the record of service %s cannot be read", s.service).Because(s.record.Err).
			With("bucket", wire.BucketServices).With("key", s.service).With("revision", s.record.Revision)
	}
	a := answer{service: s.service, source: s.kind(), complete: true, status: wire.StatusFresh, observed: now}
	if s.record != nil {
		a.revision = s.record.Revision
	}
	if d.why != nil {
		a.stale(d.why.Error())
		a.observed = d.since
	}
	switch a.source {
	case wire.SourceStatic:
		a.backends = static(s.record.Value.Source.Static)
	case wire.SourceLeases:
		if d.never {
			return answer{}, notYet(s.service, d.why.Error())
		}
		at := now
		if d.why != nil { // nobody's heartbeat is seen, so nobody's absence is
			at = d.since
		}
		a.live(s.leases, at, now)
		if err := s.unreadable(); err != nil && len(a.backends) == 0 {
			return answer{}, err // it may be a backend
		}
	case wire.SourceDNS:
		if err := a.resolved(s, d, now); err != nil {
			return answer{}, err
		}
	default:
		return answer{}, wire.Errorf(wire.ServiceNotFound, "service %s is not defined and nobody has registered for it", s.service)
	}
	a.age = max(now.Sub(a.observed), 0)
	return a, nil
}

// unreadable is the error of the first lease that cannot be read.
func (s seen) unreadable() error {
	for _, l := range s.leases {
		if l.Err != nil {
			return wire.Errorf(wire.CorruptRecord, "the lease %s cannot be read", l.Key).Because(l.Err).
				With("bucket", wire.BucketBackends).With("key", l.Key).With("revision", l.Revision)
		}
	}
	return nil
}

func (a *answer) stale(reason string) {
	a.status = wire.StatusStale
	a.because(reason)
}

func (a *answer) because(reason string) {
	if a.reason != "" {
		a.reason += "; "
	}
	a.reason += reason
}

// live takes the leases that hold at a time.
func (a *answer) live(leases []runtime.Item[*lease], at, now time.Time) {
	for _, l := range leases {
		name := l.Key[strings.IndexByte(l.Key, '.')+1:]
		switch {
		case l.Gone:
		case l.Err != nil:
			a.complete = false
			a.because("the lease of backend " + name + " cannot be read")
		case l.Value.live() && at.Before(l.Stored.Add(l.Value.ttl)):
			expires := expiresAt(l, now)
			a.backends = append(a.backends, backend{Backend: wire.Backend{Name: name, Address: l.Value.Address, ExpiresAt: &expires}})
		}
	}
}

// expiresAt is when a lease ends: what its holder was told, so that all replicas say the same, unless the clocks of who took
// it and ours differ; then what it is by ours.
func expiresAt(l runtime.Item[*lease], now time.Time) time.Time {
	own := now.Add(l.Stored.Add(l.Value.ttl).Sub(now)).UTC()
	if own.Sub(l.Value.ExpiresAt).Abs() < clocksAgree {
		return l.Value.ExpiresAt
	}
	return own
}

const clocksAgree = time.Second

// expired tells whether a lease, stored at a revision, is over although its key may still be there.
func expired(leases []runtime.Item[*lease], key string, revision uint64, now time.Time) bool {
	for _, l := range leases {
		if l.Key == key && l.Revision == revision && l.Err == nil {
			return !now.Before(l.Stored.Add(l.Value.ttl))
		}
	}
	return false
}

// resolved takes the last answer of DNS.
func (a *answer) resolved(s seen, d doubt, now time.Time) error {
	c := s.copied
	if c == nil || c.Err != nil || c.Value.Of != s.record.Value.of {
		return a.remembered(s, d, now)
	}
	v := c.Value
	if v.Status == wire.StatusUnresolved {
		if c.Gone {
			return a.remembered(s, d, now)
		}
		return notYet(s.service, v.Reason)
	}
	a.observed = c.Stored.Add(-time.Duration(v.AgeMS) * time.Millisecond)
	a.backends, a.complete = v.Backends, v.Complete
	if v.Reason != "" {
		a.because(v.Reason)
	}
	switch {
	case c.Gone:
		a.stale(errNobody.Error())
	case v.Status != wire.StatusFresh:
		a.status = wire.StatusStale
	case now.Sub(a.observed) > v.ttl+freshFor:
		a.stale("no newer answer came")
	}
	return nil
}

// remembered takes the answer that is stored with the service, while nobody resolves it.
func (a *answer) remembered(s seen, d doubt, now time.Time) error {
	r := s.record.Value
	why := errNobody
	if d.why != nil {
		why = d.why
	}
	if r.Answer == nil && d.why == nil && s.copied == nil && now.Sub(s.record.Stored) < firstAnswer {
		return notYet(s.service, "the first answer is awaited")
	}
	if r.Answer == nil {
		return notYet(s.service, why.Error())
	}
	a.backends, a.complete = r.Answer.Backends, r.Answer.Complete
	a.observed = r.Answer.ObservedAt
	if d.why == nil {
		a.stale(errNobody.Error())
	}
	return nil
}

var errNobody = errors.New("nobody is resolving")

// firstAnswer is how long a service that was just defined may wait for whoever resolves to hear of it.
const firstAnswer = 3 * time.Second

func notYet(service, why string) error {
	return wire.Errorf(wire.NotResolvedYet, "service %s was not resolved yet: %s", service, why)
}

// within refuses an answer that is older than its reader can use.
func (a answer) within(maxAge time.Duration) error {
	if a.age <= maxAge {
		return nil
	}
	return wire.Errorf(wire.TooStale, "the last answer for service %s is %v old", a.service, a.age.Round(time.Millisecond)).
		With("age_ms", a.age.Milliseconds()).With("max_age", maxAge.String()).With("reason", a.reason)
}

// answer is the reply of lookup; on the wire a [wire.Answer].
type answer struct {
	service, source, status, reason string
	complete                        bool
	backends                        []backend
	revision                        uint64
	observed                        time.Time
	age                             time.Duration
}

// AppendJSON implements [runtime.Appender].
func (a answer) AppendJSON(b []byte) []byte {
	b = slices.Grow(b, 256+160*len(a.backends))
	b = append(b, `{"service":"`...)
	b = append(b, a.service...) // a name, as all that stands here between quotes
	b = append(b, `","status":"`...)
	b = append(b, a.status...)
	b = append(b, `","complete":`...)
	b = strconv.AppendBool(b, a.complete)
	b = append(b, `,"backends":[`...)
	for i := range a.backends {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendBackend(b, &a.backends[i])
	}
	b = append(b, `],"source":"`...)
	b = append(b, a.source...)
	b = append(b, `","revision":`...)
	b = strconv.AppendUint(b, a.revision, 10)
	b = append(b, `,"observed_at":"`...)
	b = a.observed.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","age_ms":`...)
	b = strconv.AppendInt(b, a.age.Milliseconds(), 10)
	b = append(b, `,"reason":`...)
	b = quoted(b, a.reason)
	return append(b, '}')
}

func appendBackend(b []byte, k *backend) []byte {
	b = append(b, `{"name":`...)
	b = quoted(b, k.Name)
	b = append(b, `,"address":`...)
	b = quoted(b, k.Address)
	b = append(b, `,"priority":`...)
	b = strconv.AppendUint(b, uint64(k.Priority), 10)
	b = append(b, `,"weight":`...)
	b = strconv.AppendUint(b, uint64(k.Weight), 10)
	if k.ExpiresAt != nil {
		b = append(b, `,"expires_at":"`...)
		b = k.ExpiresAt.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	return append(b, '}')
}

// quoted appends a JSON string; what was stored by hand may not be valid UTF-8.
func quoted(b []byte, s string) []byte {
	out, err := jsontext.AppendQuote(b, s)
	if err != nil {
		out, err = jsontext.AppendQuote(b, strings.ToValidUTF8(s, "\uFFFD"))
		if err != nil {
			panic(fmt.Sprintf("quote: %v", err))
		}
	}
	return out
}
