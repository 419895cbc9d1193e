package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"muster/wire"
)

// memo is what is stored about a request with an id: enough to give its first outcome again. It is written in one
// atomic batch with the record, in front of it.
type memo struct {
	Digest   string         `json:"digest"`
	Changed  bool           `json:"changed"`
	Revision uint64         `json:"revision,omitzero"` // of the record
	Ahead    uint64         `json:"ahead,omitzero"`    // or: the record's revision is the memo's own plus this
	Record   jsontext.Value `json:"record,omitzero"`   // the record; left out where it is large, then read by its revision
}

// memoInline bounds the copies of a record that one group's memos carry, in bytes.
const memoInline = 64 << 10

func errReused() *wire.Error {
	return wire.Errorf(wire.RequestIDReused, "this Muster-Request-Id was used on this subject with another body; take a new id")
}

// memos makes the entries that remember the outcomes of a group's requests with ids, to be followed by the record.
func (s *Store[D]) memos(group []*waiter[D], record []byte) []Entry {
	n := 0
	for _, w := range group {
		if w.memorable() {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	entries := make([]Entry, 0, n+1)
	for _, w := range group {
		if !w.memorable() {
			continue
		}
		m := memo{Digest: w.from.Digest, Changed: w.changed, Ahead: uint64(n - len(entries))}
		if n*len(record) <= memoInline {
			m.Record = record
		}
		entries = append(entries, s.memoEntry(w.from.MemoKey, m))
	}
	return entries
}

func (w *waiter[D]) memorable() bool {
	return w.from.MemoKey != "" && w.sameAs == nil && w.refusal == nil
}

func (s *Store[D]) memoEntry(key string, m memo) Entry {
	return Entry{Key: key, Value: m.encode(), TTL: s.cfg.MemoTTL}
}

// encode is JSON by hand: an encoder would read the whole record again.
func (m memo) encode() []byte {
	b := make([]byte, 0, len(m.Record)+len(m.Digest)+96)
	b = append(b, `{"digest":"`...)
	b = append(b, m.Digest...) // hexadecimal
	b = append(b, `","changed":`...)
	b = strconv.AppendBool(b, m.Changed)
	if m.Revision != 0 {
		b = strconv.AppendUint(append(b, `,"revision":`...), m.Revision, 10)
	}
	if m.Ahead != 0 {
		b = strconv.AppendUint(append(b, `,"ahead":`...), m.Ahead, 10)
	}
	if len(m.Record) > 0 {
		b = append(append(b, `,"record":`...), m.Record...)
	}
	return append(b, '}')
}

// remember stores the outcome of a request that changes nothing. It returns that outcome, or the one that was
// remembered before.
func (s *Store[D]) remember(w *waiter[D], same Result[D], record []byte) (Result[D], error) {
	m := memo{Digest: w.from.Digest, Revision: same.Revision}
	if same.Revision != 0 && len(record) <= memoInline {
		m.Record = record
	}
	entry := s.memoEntry(w.from.MemoKey, m)
	err := insist(context.Background(), func(context.Context) error {
		_, err := s.batches.write([]Entry{entry})
		return err
	})
	if _, lost := errors.AsType[*Conflict](err); !lost {
		return same, err
	}
	r, err := s.recall(w.from) // the first attempt's, or the unanswered first copy of this very memo
	if err != nil || r == nil {
		return same, err
	}
	return *r, nil
}

// finishRefused ends a change that was refused. A retry whose first attempt succeeded is not judged again.
func (s *Store[D]) finishRefused(w *waiter[D]) {
	if w.from.MemoKey != "" {
		if r, err := s.recall(w.from); r != nil {
			w.finish(*r, nil)
			return
		} else if err != nil {
			w.finish(Result[D]{}, err)
			return
		}
	}
	w.finish(Result[D]{}, w.refusal)
}

// recall finds the outcome of an earlier attempt; nil when there is none.
func (s *Store[D]) recall(from Origin) (*Result[D], error) {
	var rev Revision
	err := insist(context.Background(), func(ctx context.Context) (err error) {
		rev, err = s.log.Last(ctx, from.MemoKey)
		return err
	})
	if err != nil || rev.Absent() {
		return nil, err
	}
	var m memo
	if err := json.Unmarshal(rev.Value, &m); err != nil {
		return nil, wire.Errorf(wire.CorruptRecord, "the remembered outcome of this request cannot be read").Because(err).
			With("bucket", s.log.Bucket()).With("key", from.MemoKey).With("revision", rev.Revision)
	}
	if m.Digest != from.Digest {
		return nil, errReused()
	}
	r := &Result[D]{Revision: m.Revision, Changed: m.Changed, Time: rev.Time}
	if m.Ahead > 0 {
		r.Revision = rev.Revision + m.Ahead
	}
	return s.recallDocument(r, m.Record)
}

func (s *Store[D]) recallDocument(r *Result[D], record []byte) (*Result[D], error) {
	r.Doc = s.codec.New()
	if r.Revision == 0 {
		return r, nil
	}
	if record == nil {
		err := insist(context.Background(), func(ctx context.Context) error {
			rev, err := s.log.At(ctx, r.Revision)
			record = rev.Value
			return err
		})
		if errors.Is(err, ErrGone) {
			r.Partial = true
			return r, nil
		}
		if err != nil {
			return nil, err
		}
	}
	doc, err := s.codec.Decode(record)
	if err != nil {
		return nil, fmt.Errorf("decode remembered record: %w", err)
	}
	r.Doc = doc
	return r, nil
}
