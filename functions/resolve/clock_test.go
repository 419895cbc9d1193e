package resolve

import (
	"testing"
	"time"
	"unsafe"

	"muster/runtime"
)

// stepped is what the clock says at t after it was set by whole seconds: it shows another time, and as much has gone by.
func stepped(t time.Time, seconds int64) time.Time {
	const wallSeconds = 30                                           // bits below those of the seconds that the clock shows
	*(*uint64)(unsafe.Pointer(&t)) += uint64(seconds) << wallSeconds //nolint:gosec // nothing else makes such a time
	return t
}

// What clocks show has no part in how long a lease holds: neither when the replica's own is set, before the lease is stored
// or behind, nor what the replica that stored it thought the time was.
func TestLeaseHoldsWhateverClocksShow(t *testing.T) {
	const hour = 3600
	if there := stepped(start, hour); there.Unix() != start.Unix()+hour || !start.Equal(there.Round(0).Add(-time.Hour)) || there.Sub(start) != 0 {
		t.Fatalf("a clock cannot be set like that any more: %v from %v", there, start)
	}
	for _, set := range []int64{0, hour, -hour, 10 * 365 * 24 * hour} {
		for _, written := range []int64{0, hour, -hour} {
			l := leased("a", 0, 10)
			l.Value.ExpiresAt = at(10).Add(time.Duration(written) * time.Second).UTC()
			seen := seen{service: "mgs", record: recorded(leasesSource, nil), leases: []runtime.Item[*lease]{l}}
			for after, want := range map[float64]int{0.1: 1, 9.9: 1, 10: 0, 4000: 0} {
				now := stepped(at(after), set)
				a, err := judge(seen, doubt{}, now)
				if err != nil || len(a.backends) != want {
					t.Errorf("clock set by %d s, %v s after it was stored: %v, %v, want %d backends", set, after, a.backends, err, want)
				}
				if over := expired(seen.leases, "mgs.a", 3, now); over != (want == 0) {
					t.Errorf("clock set by %d s, %v s after it was stored: expired is %t", set, after, over)
				}
				if want == 1 && a.backends[0].ExpiresAt.Sub(now.Round(0)).Round(time.Millisecond) != at(10).Sub(at(after)).Round(time.Millisecond) {
					t.Errorf("clock set by %d s to %v: it is said to expire at %v", set, now, a.backends[0].ExpiresAt)
				}
			}
		}
	}
}
