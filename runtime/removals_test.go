package runtime

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

func TestRemovals(t *testing.T) {
	r := newRemovals(300, 300)
	explain := func(messages, last uint64, ok bool, unsure int) {
		t.Helper()
		got, keys := r.explain(messages, last)
		if got != ok || len(keys) != unsure {
			t.Fatalf("explain(%d, %d): %t, %v, want %t and %d keys", messages, last, got, keys, ok, unsure)
		}
	}
	explain(300, 300, true, 0)
	r.hear("k", 301, false)
	explain(301, 301, true, 0)
	r.hear("k", 302, false)
	explain(301, 302, false, 1) // one was lost: k may be full
	if r.isFull("k", 301, 301) {
		t.Fatal("an overtaken answer counts")
	}
	r.hear("k", 303, false)
	if !r.isFull("k", 301, 303) {
		t.Fatal("an answer does not count")
	}
	explain(301, 303, true, 0) // begun there
	r.hear("k", 304, false)
	explain(301, 304, true, 0)
	explain(301, 303, true, 0) // overtaken
	r.hear("k", 305, false)
	r.hear("other", 306, false)
	explain(302, 306, true, 0)  // two came, one was pushed out
	explain(301, 306, false, 0) // a purge: of k perhaps, so it is not known any more
	r.hear("k", 307, false)
	explain(302, 307, true, 0)
	r.hear("k", 308, false)
	explain(302, 308, false, 1)
	r.isFull("k", 302, 308)
	r.hear("k", 309, true) // k's purge removes its others
	r.hear("k", 310, false)
	explain(304, 310, true, 0)
}

// Whatever happens to a stream: what went without a message never counts as explained.
func TestRemovals_NothingIsOverlooked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const depth = 3
		held := map[string]uint64{}
		last, hidden := uint64(0), map[string]bool{} // keys purged without a message, and not heard since
		messages := func() (n uint64) {
			for _, c := range held {
				n += c
			}
			return n
		}
		r := newRemovals(0, 0)
		key := rapid.SampledFrom([]string{"a", "b", "c"})
		for range 60 {
			switch k := key.Draw(t, "key"); rapid.IntRange(0, 9).Draw(t, "do") {
			default:
				last++
				held[k] = min(held[k]+1, depth)
				r.hear(k, last, false)
				delete(hidden, k)
			case 0:
				if held[k] > 0 {
					hidden[k] = true
				}
				delete(held, k)
			case 1, 2:
				before := fmt.Sprint(maps.Clone(held))
				ok, unsure := r.explain(messages(), last)
				if ok && len(hidden) > 0 {
					t.Fatalf("explained, with %s at %d", before, last)
				}
				clear(hidden)
				for _, k := range unsure {
					if held[k] == depth && r.isFull(k, messages(), last) {
						clear(hidden)
					}
				}
			}
		}
	})
}
