// Package store holds the product's one compare-and-set loop.
//
// A [Store] keeps documents of one kind in a bucket, one a key. [Store.Update] takes a pure change and returns once the
// change is stored, or was found to change nothing. What always holds:
//
//   - A document is written only over the revision it was computed from. Nobody's change is lost.
//   - Changes of one key that wait in this process are applied to one document in order and written once (group commit),
//     so that writers of a hot key share its conflicts instead of fighting each other.
//   - The last document of a hot key is kept as a guess. A guess is only the base of a write, which the server checks; an
//     answer that writes nothing is given after the leader confirmed the guess.
//   - A write without an answer is looked for by its write id before anything is said about it. What stays unknown is
//     said to be unknown.
//   - The outcome of a request with an id is written with its change, or not at all, and found by a retry on any replica.
//   - A value that cannot be decoded is an error, never "absent", and never overwritten.
//
// What makes progress: a lost race means that another writer won; a replica reads again and comes back with everything
// that waits. The gaps: an operator who purges a key between a write without answer and the look for it makes that
// outcome unknown, unless the request had an id. And a bucket of record that is deleted and made anew within the half
// second between two looks at it may have a guess of the old one written over a key that is at the same revision again;
// stop the functions before you make one anew.
package store

import (
	"context"
	"sync"
	"time"

	"muster/wire"
)

// Codec is how documents of one kind are made, read, copied and written. D is usually a pointer; a document given to a
// [Change] may be changed in place, one given to anybody else is shared and must not be.
type Codec[D any] struct {
	New    func() D // the document of a key that holds nothing
	Decode func([]byte) (D, error)
	Encode func(D) []byte
	Clone  func(D) D             // a copy that can be changed while the original is read
	TTL    func(D) time.Duration // after which the document is gone unless it is written again; nil: never

	// Alone has each change be a revision of its own, for documents that hold what only the caller of that change may know.
	// Otherwise callers whose changes are written together are all told the document that came out in the end.
	Alone bool
}

// Change changes a document in place and tells whether it did. rev is the revision that the document was stored at, 0
// for a key that holds nothing. It must be pure, since it is called again whenever another writer came first, and it
// must leave the document as it was when it returns false or an error. The error goes to the caller as it is.
type Change[D any] func(doc D, rev uint64) (changed bool, err error)

// Result is the outcome of an update or a view.
type Result[D any] struct {
	Revision uint64    // of the document; 0 for none
	Changed  bool      // false: the document was found as wanted, nothing was written
	Doc      D         // the document at Revision; shared, not to be changed
	Time     time.Time // of a view: when the document was stored, by the server's clock
	Partial  bool      // a retry found its outcome, but the document of that revision is no longer stored: Doc is empty
}

// Config is what differs between stores.
type Config struct {
	EventType string        // CloudEvents type of a revision
	MemoTTL   time.Duration // how long outcomes are remembered
	Now       func() time.Time
	NewID     func() string // makes write ids, unique in the world
	Rand      func() float64
	Log       func(msg string, args ...any) // state changes and surprises
}

// Store keeps documents of kind D in one bucket. It is safe for any number of goroutines.
type Store[D any] struct {
	log      Log
	codec    Codec[D]
	cfg      Config
	guesses  *guesses[D]
	batches  *batcher
	crew     *crew
	followed Followed // nil: nobody reads every revision

	mu      sync.Mutex
	cells   map[string]*cell[D]
	readers map[string]*reader[D]
	unsure  []*viewer[D] // wait for their guesses to be confirmed
	rounds  []*round     // of confirming, under way
}

// New makes a store on a bucket's log.
func New[D any](log Log, codec Codec[D], cfg Config) *Store[D] {
	followed, _ := log.(Followed)
	crew := newCrew()
	return &Store[D]{
		log: log, codec: codec, cfg: cfg.withDefaults(),
		guesses:  newGuesses[D](guessBytes),
		batches:  &batcher{log: log, crew: crew},
		crew:     crew,
		followed: followed,
		cells:    map[string]*cell[D]{},
		readers:  map[string]*reader[D]{},
	}
}

// MaxValue is the size in bytes of the largest document that can be stored and sent.
func (s *Store[D]) MaxValue() int { return s.log.MaxValue() }

// Keys lists the keys of all documents in order. It may name some that were removed by hand.
func (s *Store[D]) Keys(ctx context.Context) ([]string, error) { return s.log.Keys(ctx) }

// Update applies change to the document under key. It returns before ctx ends; then with [wire.DeadlineExceeded] and
// what is known of the outcome, or [wire.Contended] when others kept winning.
func (s *Store[D]) Update(ctx context.Context, key string, from Origin, change Change[D]) (Result[D], error) {
	return wait(func(then func(Result[D], error)) { s.UpdateThen(ctx, key, from, change, then) })
}

// UpdateThen is Update for those who have many under way: it returns at once and calls then with the outcome, on a
// goroutine that serves others too.
func (s *Store[D]) UpdateThen(ctx context.Context, key string, from Origin, change Change[D], then func(Result[D], error)) {
	w := &waiter[D]{from: from, change: change, then: then}
	if ctx.Err() != nil {
		w.stop = func() bool { return true }
		w.giveUp()
		return
	}
	w.stop = atDeadline(ctx, w.giveUp)
	s.enqueue(key, w)
}

// wait calls f and waits for what it hands to its callback.
func wait[D any](f func(then func(Result[D], error))) (Result[D], error) {
	type outcome struct {
		r   Result[D]
		err error
	}
	done := make(chan outcome, 1)
	f(func(r Result[D], err error) { done <- outcome{r, err} })
	o := <-done
	return o.r, o.err
}

// atDeadline calls f once ctx ends, unless it is stopped before.
func atDeadline(ctx context.Context, f func()) (stop func() bool) {
	if own, ok := ctx.(interface{ AfterFunc(func()) func() bool }); ok { // without the goroutine of context.AfterFunc
		return own.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// document decodes a revision, or takes the guess if it is of that very write. epoch is the log's before rev was read.
func (s *Store[D]) document(rev Revision, epoch uint64) (*guess[D], error) {
	if rev.Absent() {
		return &guess[D]{follows: rev.Revision, doc: s.codec.New(), epoch: epoch}, nil
	}
	writeID := rev.header(wire.HeaderCEID)
	if g := s.guesses.get(rev.Key, epoch); g != nil && g.revision == rev.Revision && g.writeID == writeID && writeID != "" {
		return g, nil
	}
	doc, err := s.codec.Decode(rev.Value)
	if err != nil {
		return nil, Corrupt(s.log.Bucket(), rev, err)
	}
	g := &guess[D]{
		follows: rev.Revision, revision: rev.Revision, doc: doc, size: len(rev.Value),
		time: rev.Time, writeID: writeID, epoch: epoch,
	}
	s.guesses.put(rev.Key, g)
	return g, nil
}

// Corrupt is the error for a stored revision that cannot be read.
func Corrupt(bucket string, rev Revision, cause error) *wire.Error {
	return wire.Errorf(wire.CorruptRecord, "the record of %s in %s cannot be read; look at it with: nats kv get %s %s",
		rev.Key, bucket, bucket, rev.Key).Because(cause).
		With("bucket", bucket).With("key", rev.Key).With("revision", rev.Revision)
}

// Read reads the last revision of a key from the leader, for what is not kept in a [Store]. It insists for as long as the
// contract allows, and then says why it failed.
func Read(ctx context.Context, log Log, key string) (rev Revision, err error) {
	err = insist(ctx, func(ctx context.Context) (err error) {
		rev, err = log.Last(ctx, key)
		return err
	})
	return rev, err
}
