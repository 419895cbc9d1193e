package store

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Several replicas write one key and others, knowing more or less how far the readers are. Whatever they do, no replica
// that may write puts the key further ahead of the readers than maxLead.
func TestLead_NeverHidesAnUnreadRevision(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type replica struct {
			lead  lead
			known uint64 // what it last saw of taken
		}
		replicas := make([]replica, rapid.IntRange(1, 4).Draw(t, "replicas"))
		var seq, taken, last uint64
		var revisions []uint64
		for range rapid.IntRange(50, 600).Draw(t, "steps") {
			r := &replicas[rapid.IntRange(0, len(replicas)-1).Draw(t, "who")]
			switch rapid.SampledFrom([]string{"write", "write", "write", "other", "take", "look"}).Draw(t, "what") {
			case "write":
				for range rapid.IntRange(1, 40).Draw(t, "times") {
					l := r.lead
					if l.last != last {
						l = leadOf(last, r.known, 1)
					}
					if l = l.at(r.known, 1); l.full() {
						break
					}
					seq++
					last = seq
					revisions = append(revisions, seq)
					r.lead, _ = l.next(seq)
				}
			case "other":
				seq += uint64(rapid.IntRange(1, 50).Draw(t, "others"))
			case "take":
				taken = min(seq, taken+uint64(rapid.IntRange(0, 100).Draw(t, "taken")))
			case "look":
				r.known = taken
			}
			ahead := 0
			for i := len(revisions) - 1; i >= 0 && revisions[i] > taken; i-- {
				ahead++
			}
			if ahead > maxLead {
				t.Fatalf("%d revisions of the key are unread", ahead)
			}
		}
	})
}

// A key that is written all the time is not held up by readers that keep up.
func TestLead_ShrinksWhileTheKeyIsWritten(t *testing.T) {
	t.Parallel()
	var l lead
	known, seq := uint64(0), uint64(0)
	for range 10_000 {
		l = l.at(known, 0)
		if l.full() {
			t.Fatalf("held up at revision %d: %+v", seq, l)
		}
		seq++
		var look bool
		if l, look = l.next(seq); look {
			known = seq - 20 // the readers are 20 behind
			if seq < 20 {
				known = 0
			}
		}
	}
}

func TestLead_AnotherEraCountsAnew(t *testing.T) {
	t.Parallel()
	l := lead{era: 1, last: 500}
	if got := l.at(0, 2); !got.full() {
		t.Errorf("nothing of the new stream is read, and the key may be written: %+v", got)
	}
	if got := l.at(math.MaxUint64, 2); got.full() {
		t.Errorf("nobody reads, and the key is held up: %+v", got)
	}
}
