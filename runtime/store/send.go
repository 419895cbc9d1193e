package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	"muster/wire"
)

// pursue finds out what became of entries, the last of which is the record, whose write failed with err. It returns the
// record's revision; [*Conflict] when another write came first and nothing of ours is or will be stored; or an error that
// says whether the outcome is known. The same entries are sent again under the same write id for as long as they may
// still be the next revision: whichever copy arrives first is the one that counts.
func (s *Store[D]) pursue(key, writeID string, entries []Entry, began time.Time, err error) (revision uint64, _ error) {
	follows := entries[len(entries)-1].Follows
	unsure := false
	for end := began.Add(patience); ; revision, err = s.batches.write(entries) {
		_, lost := errors.AsType[*Conflict](err)
		switch {
		case err == nil:
			return revision, nil
		case lost && !unsure:
			return 0, err
		case lost: // perhaps to the first copy of ourselves
		case errors.Is(err, ErrUnsure):
			unsure = true
		case isFinal(err):
			return 0, withOutcome(err, unsure)
		case !time.Now().Before(end):
			return 0, withOutcome(away(err), unsure)
		default: // nobody took it; likely a new leader is being chosen
			time.Sleep(retryEvery)
			continue
		}
		revision, landed, err := s.find(key, follows, writeID, end)
		switch {
		case err != nil:
			return 0, withOutcome(err, true)
		case landed == ours:
			return revision, nil
		case landed == others:
			return 0, &Conflict{Found: revision}
		case landed == unclear || !time.Now().Before(end):
			return 0, wire.Errorf(wire.DeadlineExceeded, "no answer to a write, and no trace that tells whether it was stored").
				With("outcome", wire.Unknown)
		}
	}
}

// withOutcome says of a failure after an unanswered write that the outcome is unknown.
func withOutcome(err error, unsure bool) error {
	if !unsure {
		return err
	}
	e := *wire.AsError(err)
	e.Details = map[string]any{}
	for k, v := range wire.AsError(err).Details {
		e.Details[k] = v
	}
	return e.With("outcome", wire.Unknown)
}

// What the revision behind the one that a write follows tells about the write.
type trace int

const (
	nobodys trace = iota // there is none: the write may still arrive
	ours                 // it is the write
	others               // it is another: the write can never be stored
	unclear              // revisions were removed: cannot tell
)

// find looks for what was written behind a revision, until end at the latest.
func (s *Store[D]) find(key string, follows uint64, writeID string, end time.Time) (uint64, trace, error) {
	var rev Revision
	err := insistUntil(context.Background(), end, func(ctx context.Context) (err error) {
		rev, err = s.log.After(ctx, key, follows)
		return err
	})
	switch {
	case err != nil:
		return 0, unclear, err
	case rev.Revision == 0:
		return 0, nobodys, nil
	case rev.header(wire.HeaderCEID) == writeID:
		return rev.Revision, ours, nil
	case rev.Purge, rev.header(wire.HeaderCEPrevious) != "" && rev.header(wire.HeaderCEPrevious) != strconv.FormatUint(follows, 10):
		return rev.Revision, unclear, nil // what stood between is gone
	default:
		return rev.Revision, others, nil
	}
}
