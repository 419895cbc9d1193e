package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Log is what the store asks of a bucket: the revisions of its keys, in order, and writes that name the revision they
// follow. The product runs on JetStream (package runtime), tests of functions on [Memory].
//
// Failures are [*Conflict], [ErrUnsure], [ErrGone] or a [*wire.Error] that is passed on to callers.
type Log interface {
	// Bucket is the bucket's name.
	Bucket() string
	// Epoch changes whenever what was read before may no longer hold: the bucket was made anew, or the link was down.
	Epoch() uint64
	// MaxValue is the size in bytes of the largest value that can be stored.
	MaxValue() int
	// Last reads the last revision of key from the leader; Revision 0 when there is none.
	Last(ctx context.Context, key string) (Revision, error)
	// Confirm tells, for all keys at once, what has not changed: it calls then with a function that tells whether rev, read
	// in the present Epoch, is still the last revision of key as of a moment behind the call; or with nil when it cannot
	// tell now. then must not wait.
	Confirm(then func(unchanged func(key string, rev uint64) bool))
	// After reads the first revision of key behind rev that is still stored; Revision 0 when there is none.
	After(ctx context.Context, key string, rev uint64) (Revision, error)
	// At reads one revision by its number; [ErrGone] when it is no longer stored.
	At(ctx context.Context, rev uint64) (Revision, error)
	// Write stores all entries or none, with successive revisions, and returns the last one. An entry whose key is not
	// at its Follows fails the whole with [*Conflict].
	Write(ctx context.Context, entries []Entry) (uint64, error)
	// Send is Write of one entry that does not wait: then is called once with the outcome, on a goroutine that it must
	// not hold up.
	Send(entry Entry, then func(uint64, error))
	// Keys lists the keys that are one name, in order, markers included.
	Keys(ctx context.Context) ([]string, error)
}

// Revision is one stored revision of a key.
type Revision struct {
	Key      string
	Revision uint64 // 0: there is none
	Value    []byte
	Header   map[string][]string
	Time     time.Time // when it arrived, by the server's clock
	Marker   bool      // a deletion, purge or expiry: the key is not there, but the next write must follow it
	Purge    bool      // a marker that removed the revisions before it
}

// Absent tells whether the key holds nothing.
func (r Revision) Absent() bool { return r.Revision == 0 || r.Marker }

// header returns the first value of a header, "" for none.
func (r Revision) header(name string) string {
	if v := r.Header[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Entry is one value to write.
type Entry struct {
	Key     string
	Value   []byte
	Header  map[string][]string
	Follows uint64        // the key's last revision, 0 for none
	TTL     time.Duration // 0: for ever
}

// Conflict says that a key was not at the revision that a write should follow. Nothing was written.
type Conflict struct{ Found uint64 } // Found is the revision of one of the keys, 0 when the server did not say

func (c *Conflict) Error() string {
	return fmt.Sprintf("another write came first, at revision %d", c.Found)
}

var (
	// ErrUnsure says that no answer came: the write may be stored, now or later.
	ErrUnsure = errors.New("no answer to a write")
	// ErrGone says that a revision is no longer stored.
	ErrGone = errors.New("revision no longer stored")
)
