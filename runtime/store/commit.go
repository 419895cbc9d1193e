package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	"muster/wire"
)

// commit tries once to commit a group of one key. It returns those that lost a race and are to be tried again; all
// others have their outcome.
func (s *Store[D]) commit(key string, group []*waiter[D]) []*waiter[D] {
	if s.codec.Alone && len(group) > 1 {
		return s.oneByOne(key, group)
	}
	began := time.Now()
	base, fresh, err := s.base(key)
	if err != nil {
		return s.unreadable(group, err)
	}
	reading := time.Since(began) // takes of the same patience as writing
	s.awaitReaders(base, group)
	group = launched(group)
	doc, changed := s.apply(base, group)
	if !changed && !fresh { // nothing will be written over the guess: the leader must confirm it
		if base, err = s.read(key); err != nil {
			return s.unreadable(group, err)
		}
		doc, changed = s.apply(base, group)
	}
	if !changed {
		return s.settle(base, group)
	}
	return s.write(key, base, doc, group, time.Now().Add(-reading))
}

// launched marks a group as being on its way and leaves out those whose callers have given up. The group itself stays
// as it is.
func launched[D any](group []*waiter[D]) []*waiter[D] {
	live := make([]*waiter[D], 0, len(group))
	for _, w := range group {
		if w.stage.Load() == sent || w.launch() {
			live = append(live, w)
		}
	}
	return live
}

// base is the document to change: the guess, or the leader's when there is none.
func (s *Store[D]) base(key string) (base *guess[D], fresh bool, err error) {
	if g := s.guesses.get(key, s.log.Epoch()); g != nil {
		return g, false, nil
	}
	g, err := s.read(key)
	return g, true, err
}

// read reads the document from the leader.
func (s *Store[D]) read(key string) (*guess[D], error) {
	var rev Revision
	var epoch uint64
	err := insist(context.Background(), func(ctx context.Context) (err error) {
		epoch = s.log.Epoch()
		rev, err = s.log.Last(ctx, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.document(rev, epoch)
}

// insist asks the log until it answers, for as long as the contract lets a request wait for it.
func insist(ctx context.Context, ask func(context.Context) error) error {
	return insistUntil(ctx, time.Now().Add(patience), ask)
}

func insistUntil(ctx context.Context, end time.Time, ask func(context.Context) error) error {
	for ; ; time.Sleep(retryEvery) {
		attempt, cancel := context.WithTimeout(ctx, max(min(attemptTimeout, time.Until(end)), retryEvery))
		err := ask(attempt)
		cancel()
		if err == nil {
			return nil
		}
		if _, lost := errors.AsType[*Conflict](err); lost || isFinal(err) || errors.Is(err, ErrGone) {
			return err
		}
		if !time.Now().Before(end) || ctx.Err() != nil {
			return away(err)
		}
	}
}

func isFinal(err error) bool {
	_, final := errors.AsType[*wire.Error](err)
	return final
}

func away(cause error) *wire.Error {
	return wire.Errorf(wire.Unavailable, "JetStream does not answer").With("reason", wire.JetStreamUnavailable).Because(cause)
}

// apply applies the group's changes in order to a copy of the base.
func (s *Store[D]) apply(base *guess[D], group []*waiter[D]) (doc D, changed bool) {
	doc = s.codec.Clone(base.doc)
	var byMemo map[string]*waiter[D]
	for _, w := range group {
		w.changed, w.refusal, w.sameAs = false, nil, nil
		if k := w.from.MemoKey; k != "" {
			if first := byMemo[k]; first != nil {
				if first.from.Digest == w.from.Digest {
					w.sameAs = first
				} else {
					w.refusal = errReused()
				}
				continue
			}
			if byMemo == nil {
				byMemo = map[string]*waiter[D]{}
			}
			byMemo[k] = w
		}
		w.changed, w.refusal = w.change(doc, base.revision)
		changed = changed || w.changed && w.refusal == nil
	}
	return doc, changed
}

// unreadable ends a group whose document cannot be read. A retry still finds its first outcome.
func (s *Store[D]) unreadable(group []*waiter[D], err error) []*waiter[D] {
	if wire.AsError(err).Code != wire.CorruptRecord {
		return s.refuse(group, err)
	}
	for _, w := range group {
		w.refusal = err
		s.finishRefused(w)
	}
	return nil
}

// refuse ends a group none of which was written.
func (s *Store[D]) refuse(group []*waiter[D], err error) []*waiter[D] {
	for _, w := range group {
		w.finish(Result[D]{}, err)
	}
	return nil
}

// settle ends a group that changes nothing about what the leader holds.
func (s *Store[D]) settle(base *guess[D], group []*waiter[D]) []*waiter[D] {
	same := Result[D]{Revision: base.revision, Doc: base.doc, Time: base.time}
	for _, w := range group {
		switch {
		case w.sameAs != nil:
		case w.refusal != nil:
			s.finishRefused(w)
		case w.from.MemoKey != "":
			r, err := s.remember(w, same, s.codec.Encode(base.doc))
			w.finish(r, err)
		default:
			w.finish(same, nil)
		}
	}
	finishSame(group)
	return nil
}

// write writes the changed document over its base, with the memos of the requests that have an id. Patience counts from began.
func (s *Store[D]) write(key string, base *guess[D], doc D, group []*waiter[D], began time.Time) []*waiter[D] {
	value := s.codec.Encode(doc)
	if limit := s.log.MaxValue(); len(value) > limit {
		return s.oversize(key, group, len(value), limit)
	}
	writeID := s.cfg.NewID()
	entries := append(s.memos(group, value), s.record(key, writeID, value, doc, base, group))
	revision, err := s.batches.write(entries)
	return s.landed(key, writeID, entries, base, doc, group, began, revision, err)
}

// record is the entry of a changed document.
func (s *Store[D]) record(key, writeID string, value []byte, doc D, base *guess[D], group []*waiter[D]) Entry {
	e := Entry{Key: key, Value: value, Header: s.header(key, writeID, base.follows, group), Follows: base.follows}
	if s.codec.TTL != nil {
		e.TTL = s.codec.TTL(doc)
	}
	return e
}

// landed ends a group whose write has come back, as soon as it is known what became of it.
func (s *Store[D]) landed(key, writeID string, entries []Entry, base *guess[D], doc D, group []*waiter[D], began time.Time, revision uint64, err error) []*waiter[D] {
	if err != nil {
		revision, err = s.pursue(key, writeID, entries, began, err)
	}
	if _, lost := errors.AsType[*Conflict](err); lost {
		return s.lose(key, base.follows, group)
	}
	if err != nil {
		s.guesses.drop(key)
		return s.refuse(group, err)
	}
	s.guesses.put(key, &guess[D]{
		follows: revision, revision: revision, doc: doc, size: len(entries[len(entries)-1].Value),
		time: s.cfg.Now(), writeID: writeID, epoch: base.epoch, lead: s.ahead(base, revision),
	})
	for _, w := range group {
		switch {
		case w.sameAs != nil:
		case w.refusal != nil: // the base it was judged on was the leader's, as the write has shown
			s.finishRefused(w)
		default:
			w.finish(Result[D]{Revision: revision, Changed: w.changed, Doc: doc}, nil)
		}
	}
	finishSame(group)
	return nil
}

// quick commits a group without waiting if it can: the base is at hand, something changes, and no outcome has to be looked
// up. It calls done, then or later, with what commit would return; if it cannot, it returns false and has done nothing.
func (s *Store[D]) quick(key string, group []*waiter[D], done func(lost []*waiter[D])) bool {
	base := s.guesses.get(key, s.log.Epoch())
	if base == nil || base.size > quickSize || s.leadOn(base).full() || s.codec.Alone && len(group) > 1 {
		return false
	}
	group = launched(group)
	doc, changed := s.apply(base, group)
	if !changed {
		return false
	}
	for _, w := range group {
		if w.refusal != nil && w.from.MemoKey != "" {
			return false
		}
	}
	value := s.codec.Encode(doc)
	if len(value) > s.log.MaxValue() {
		return false
	}
	writeID, began := s.cfg.NewID(), time.Now()
	entries := append(s.memos(group, value), s.record(key, writeID, value, doc, base, group))
	then := func(revision uint64, err error) {
		if err == nil {
			done(s.landed(key, writeID, entries, base, doc, group, began, revision, nil))
			return
		}
		s.crew.do(func() { done(s.landed(key, writeID, entries, base, doc, group, began, 0, err)) })
	}
	if len(entries) > 1 {
		s.batches.submit(entries, then)
	} else {
		s.log.Send(entries[0], then)
	}
	return true
}

// quickSize is the largest document that is changed and encoded on a goroutine that serves others too, in bytes.
const quickSize = 16 << 10

// oversize ends a group whose document would not fit: one by one, so that only those that make it too large fail.
func (s *Store[D]) oversize(key string, group []*waiter[D], size, limit int) []*waiter[D] {
	if len(group) == 1 {
		group[0].refusal = TooLarge("the record of "+key, size, limit)
		s.finishRefused(group[0])
		return nil
	}
	return s.oneByOne(key, group)
}

// oneByOne commits each of a group by itself.
func (s *Store[D]) oneByOne(key string, group []*waiter[D]) (lost []*waiter[D]) {
	for i := range group {
		lost = append(lost, s.commit(key, group[i:i+1])...)
	}
	return lost
}

// TooLarge is the error for something of size bytes where limit bytes fit.
func TooLarge(what string, size, limit int) *wire.Error {
	return wire.Errorf(wire.TooLarge, "%s would be %d bytes, the limit is %d", what, size, limit).
		With("size", size).With("limit", limit)
}

// lose handles a lost race: retries find their first attempt's outcome, the others try again.
func (s *Store[D]) lose(key string, follows uint64, group []*waiter[D]) (again []*waiter[D]) {
	s.guesses.drop(key)
	s.mu.Lock()
	c := s.cells[key]
	s.mu.Unlock()
	if c.stuck(follows) {
		return s.refuse(group, away(errors.New("every write meets another that is not completed")))
	}
	for _, w := range group {
		if w.from.MemoKey != "" && w.sameAs == nil {
			if r, err := s.recall(w.from); err != nil {
				w.finish(Result[D]{}, err)
			} else if r != nil {
				w.finish(*r, nil)
			}
		}
		switch first := w.sameAs; {
		case w.settled:
		case first != nil && first.settled:
			w.finish(first.result, first.err)
		case w.release():
			again = append(again, w)
		}
	}
	return again
}

// header makes the headers of a revision: a CloudEvent in binary mode, whose id is the write's.
func (s *Store[D]) header(key, writeID string, previous uint64, group []*waiter[D]) map[string][]string {
	if s.cfg.EventType == "" { // no event, but a write that is known again
		return map[string][]string{
			wire.HeaderCEID: {writeID}, wire.HeaderCEPrevious: {strconv.FormatUint(previous, 10)},
		}
	}
	h := newHeaders()
	h.set(wire.HeaderCESpecVersion, "1.0")
	h.set(wire.HeaderCEID, writeID)
	h.set(wire.HeaderCESource, wire.EventSource(s.log.Bucket()))
	h.set(wire.HeaderCEType, s.cfg.EventType)
	h.set(wire.HeaderCESubject, key)
	h.set(wire.HeaderCETime, s.cfg.Now().UTC().Format(time.RFC3339Nano))
	h.set(wire.HeaderCEDataContentType, wire.ContentTypeJSON)
	h.set(wire.HeaderCEPrevious, strconv.FormatUint(previous, 10))
	changes := 0
	for _, w := range group {
		if w.sameAs != nil || w.refusal != nil || !w.changed {
			continue
		}
		if changes++; changes > 1 {
			continue
		}
		h.set(wire.HeaderCERequestID, wire.EncodeHeader(w.from.RequestID))
		h.set(wire.HeaderCECausationID, wire.EncodeHeader(w.from.Cause))
		h.set(wire.HeaderCETraceparent, wire.EncodeHeader(w.from.Trace))
	}
	if changes > 1 {
		h.set(wire.HeaderCEChanges, strconv.Itoa(changes))
	}
	return h.byName
}

// headers are made for every write, so they are made with few allocations.
type headers struct {
	byName map[string][]string
	values []string
}

// maxHeaders is how many a revision has, those that the log adds included.
const maxHeaders = 14

func newHeaders() headers {
	return headers{make(map[string][]string, maxHeaders), make([]string, 0, maxHeaders)}
}

// set sets a header that has a value.
func (h *headers) set(name, value string) {
	if value != "" {
		h.values = append(h.values, value)
		n := len(h.values)
		h.byName[name] = h.values[n-1 : n : n]
	}
}
