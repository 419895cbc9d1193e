package runtime

import "time"

// sight is what a mirror knows of its own sight. A consumer may run on a server that lags behind the stream's leader, and
// gives signs of life of what that server has; so what was heard is held against what the leader tells it has.
type sight struct {
	synced  bool      // everything was heard that the bucket held when the watch began
	why     error     // it is not synced
	sign    time.Time // last sign of life
	created time.Time // of the stream
	link    uint64    // the connection that it watches on
	anew    time.Time // when the stream was first seen in place of another one

	round  uint64    // of watching
	whole  bool      // everything was heard that the bucket held when the round began
	upTo   uint64    // everything up to this revision was heard in this round
	owed   tip       // what the leader had, and is to be heard
	caught time.Time // when the leader last had nothing that was not heard since

	known  past // before this round
	newest past // up to now
}

// tip is the end of a stream as its leader told it.
type tip struct {
	created time.Time // of the stream
	last    uint64    // revision
	asked   time.Time // for it
}

// past is up to which revision everything was heard of a stream, and the latest time of any of them by its server's clock.
type past struct {
	upTo uint64
	time time.Time
}

// has tells whether a revision was among what was heard. A stream that lost its end and went on counts the same numbers at
// later times.
func (p past) has(revision uint64, stored time.Time) bool {
	return revision <= p.upTo && !stored.After(p.time)
}

// begin begins a round, before which the leader told where the stream ends.
func (s *sight) begin(leader tip, link uint64, now time.Time) (round uint64) {
	switch {
	case !s.created.IsZero() && !s.created.Equal(leader.created):
		s.anew, s.synced, s.newest = now, false, past{}
	case leader.last < s.newest.upTo: // it was restored, or its leader is a moment behind a follower
		s.newest = past{}
	}
	s.created, s.link, s.owed = leader.created, link, leader
	s.whole, s.upTo, s.known = false, 0, s.newest
	s.round++
	return s.round
}

// hear takes a sign of life: everything up to a revision was heard, and perhaps everything that there is where the consumer
// runs. It tells whether the round has become whole by it. looked is what the leader told last.
func (s *sight) hear(upTo uint64, all bool, looked tip, now time.Time) (became bool) {
	s.upTo = max(s.upTo, upTo)
	s.newest.upTo = max(s.newest.upTo, upTo)
	caught := s.upTo >= s.owed.last
	if !s.whole && all && caught {
		s.whole, s.synced, s.why, became = true, true, nil, true
	}
	if s.whole {
		s.sign = now
	}
	if caught {
		s.caught = s.owed.asked
		if looked.created.Equal(s.created) && looked.asked.After(s.owed.asked) {
			s.owed = looked
		}
	}
	return became
}

// behind tells that what the leader had a while ago has still not been heard.
func (s *sight) behind(now time.Time) bool {
	return s.upTo < s.owed.last && now.Sub(s.owed.asked) > mirrorBehind
}
