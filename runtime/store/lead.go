package store

import "time"

// Followed is a [Log] whose every revision is read by others, who lose what is overwritten before they read it.
type Followed interface {
	// Taken tells up to which revision everything was read. In another era it counts anew. It must cost next to nothing.
	Taken() (revision, era uint64)
	// LookTaken has Taken brought up to date, at once if a write waits for it, and does not wait itself. What it returns is
	// closed when that is done, or failed.
	LookTaken(urgent bool) <-chan struct{}
}

// How far a key may be ahead of those who read its revisions: a bucket keeps 256 of a key, and must keep those unread.
const (
	maxLead   = 128
	leadStep  = 32 // after so many revisions of a key, somebody looks how far the readers are
	leadPause = 2 * time.Millisecond
)

// lead is how many revisions of one key may not have been read yet. It errs on the high side: what others wrote in between
// is counted by the distance in the bucket. The mark lets it shrink while the key is written all the time: once everything
// up to the mark was read, only what came behind it counts.
type lead struct {
	era   uint64
	last  uint64 // the key's revision
	mark  uint64 // a revision of the key, 0 for none
	held  int    // revisions up to the mark
	since int    // revisions behind the mark
}

// leadOf is the lead of a key whose last revision was just read and whose history is not known.
func leadOf(last, taken, era uint64) lead {
	l := lead{era: era, last: last}
	if last > taken {
		l.mark, l.held = last, int(min(last-taken, maxLead*2))
	}
	return l
}

// at is the lead in the light of what was read.
func (l lead) at(taken, era uint64) lead {
	switch {
	case era != l.era:
		return leadOf(l.last, taken, era)
	case taken >= l.last:
		return lead{era: era, last: l.last}
	case taken >= l.mark:
		l.mark, l.held = 0, 0
	}
	return l
}

// next is the lead behind another revision, and whether it is time to look how far the readers are.
func (l lead) next(revision uint64) (_ lead, look bool) {
	l.last = revision
	l.since++
	if l.since%leadStep != 0 {
		return l, false
	}
	if l.held == 0 {
		l.mark, l.held, l.since = revision, l.since, 0
	}
	return l, true
}

func (l lead) full() bool { return l.held+l.since >= maxLead }

// leadOn is the present lead of a document's key; nothing if nobody follows the bucket.
func (s *Store[D]) leadOn(g *guess[D]) lead {
	if s.followed == nil {
		return lead{}
	}
	taken, era := s.followed.Taken()
	if g.lead.last != g.follows {
		return leadOf(g.follows, taken, era)
	}
	return g.lead.at(taken, era)
}

// ahead is the lead of a key behind a write over base.
func (s *Store[D]) ahead(base *guess[D], revision uint64) lead {
	if s.followed == nil {
		return lead{}
	}
	l, look := s.leadOn(base).next(revision)
	if look {
		s.followed.LookTaken(false)
	}
	return l
}

// awaitReaders waits until a key may be written over base, or nobody of the group waits any longer.
func (s *Store[D]) awaitReaders(base *guess[D], group []*waiter[D]) {
	for s.leadOn(base).full() {
		left := false
		for _, w := range group {
			left = left || w.stage.Load() != finished
		}
		if !left {
			return
		}
		<-s.followed.LookTaken(true)
		if s.leadOn(base).full() {
			time.Sleep(leadPause)
		}
	}
}
