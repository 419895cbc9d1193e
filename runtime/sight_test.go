package runtime

import (
	"testing"
	"time"

	"muster/runtime/store"
)

func second(n float64) time.Time {
	return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n * float64(time.Second)))
}

// What is heard counts once it is as much as the leader had; a consumer on a server that lags behind does not make it so.
func TestSight(t *testing.T) {
	var s sight
	leader := tip{created: second(-100), last: 10, asked: second(0)}
	s.begin(leader, 1, second(0))
	if s.hear(7, true, leader, second(0.3)); s.whole || s.synced || !s.sign.IsZero() {
		t.Error("whole without what the leader has")
	}
	if s.behind(second(1.9)) || !s.behind(second(2.1)) {
		t.Error("behind after another time than 2 s")
	}
	if !s.hear(10, true, leader, second(2.2)) || !s.synced || !s.sign.Equal(second(2.2)) || !s.caught.Equal(second(0)) || s.behind(second(9)) {
		t.Errorf("not whole with all that the leader has: %+v", s)
	}

	more := tip{created: leader.created, last: 12, asked: second(3)}
	if s.hear(10, true, more, second(3.1)); s.behind(second(4.9)) || !s.behind(second(5.1)) {
		t.Errorf("what the leader has since is not owed: %+v", s)
	}
	if s.hear(12, true, more, second(5.2)); s.behind(second(99)) || !s.caught.Equal(second(3)) {
		t.Errorf("owed although it was heard: %+v", s)
	}
	if s.hear(12, true, tip{created: second(-50), last: 99, asked: second(6)}, second(6)); s.owed.last != 12 {
		t.Error("owes what another stream has")
	}

	s.newest.time = second(5)
	s.begin(tip{created: leader.created, last: 12, asked: second(7)}, 1, second(7))
	if s.whole || !s.synced || !s.known.has(11, second(4)) || s.known.has(13, second(4)) || s.known.has(11, second(5.5)) {
		t.Errorf("a new round of the same stream: %+v", s)
	}
	s.begin(tip{created: leader.created, last: 9, asked: second(8)}, 1, second(8))
	if !s.synced || s.known.has(1, second(-9)) {
		t.Error("what a restored stream has counts as outdated")
	}
	s.begin(tip{created: second(9), last: 1, asked: second(9)}, 1, second(9))
	if s.synced || !s.anew.Equal(second(9)) || s.known.has(1, second(1)) {
		t.Errorf("a stream made anew: %+v", s)
	}
}

func TestRevisionsInOrder(t *testing.T) {
	var o inOrder
	for i, c := range []struct {
		revision     uint64
		stored, seen float64
		want         bool
	}{
		{8, 1, 1, true},
		{8, 1, 2, true},
		{10, 3, 3, true},
		{8, 1, 4, false}, // of a server that lags behind
		{9, 2, 4, false},
		{0, 0, 4, true}, // nothing, as it says
		{8, 1, 5, false},
		{10, 3, 5, true},
		{11, 2.5, 6, true}, // of a leader whose clock is late
		{8, 1, 7, false},
		{8, 1, 46, false},
		{8, 1, 48, true}, // restored
		{9, 49, 49, true},
		{3, 50, 50, true}, // made anew
		{9, 49, 51, true},
	} {
		if got := o.admit(store.Revision{Revision: c.revision, Time: second(c.stored)}, second(c.seen)); got != c.want {
			t.Errorf("%d: revision %d of %v: %t", i, c.revision, c.stored, got)
		}
	}
}
