package store_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"muster/runtime/store"
	"muster/wire"
)

// tally is the document: how often each change took effect.
type tally map[string]int

var codec = store.Codec[tally]{
	New: func() tally { return tally{} },
	Decode: func(b []byte) (tally, error) {
		d := tally{}
		err := json.Unmarshal(b, &d)
		return d, err
	},
	Encode: func(d tally) []byte {
		b, err := json.Marshal(d, json.Deterministic(true))
		if err != nil {
			panic(err) // a map of numbers
		}
		return b
	},
	Clone: maps.Clone[tally],
}

// network stands between two stores and the bucket they share. Every call waits in it until the test says what becomes
// of it; the bucket itself is touched by the test's own goroutine only.
type network struct {
	bucket *store.Memory
	calls  chan *call
	late   []*call // requests that were given up on, and may arrive yet

	revisions map[uint64]revision // all that were ever stored, markers included
	last      map[string]uint64   // of each key
}

type revision struct {
	store.Revision
	follows uint64
	hand    bool // by an operator
	doc     tally
}

// call is one request of a store.
type call struct {
	entries []store.Entry // of a write
	read    func() (store.Revision, error)
	answer  chan answer
}

type answer struct {
	number uint64
	rev    store.Revision
	err    error
}

func newNetwork() *network {
	return &network{
		bucket: store.NewMemory("bucket"), calls: make(chan *call),
		revisions: map[uint64]revision{}, last: map[string]uint64{},
	}
}

// port is the bucket as a store sees it, through the network.
type port struct {
	*store.Memory
	n *network
}

func (p port) ask(c *call) answer {
	c.answer = make(chan answer, 1)
	p.n.calls <- c
	return <-c.answer
}

func (p port) Last(ctx context.Context, key string) (store.Revision, error) {
	a := p.ask(&call{read: func() (store.Revision, error) { return p.Memory.Last(ctx, key) }})
	return a.rev, a.err
}

func (p port) After(ctx context.Context, key string, rev uint64) (store.Revision, error) {
	a := p.ask(&call{read: func() (store.Revision, error) { return p.Memory.After(ctx, key, rev) }})
	return a.rev, a.err
}

func (p port) At(ctx context.Context, rev uint64) (store.Revision, error) {
	a := p.ask(&call{read: func() (store.Revision, error) { return p.Memory.At(ctx, rev) }})
	return a.rev, a.err
}

func (p port) Write(_ context.Context, entries []store.Entry) (uint64, error) {
	a := p.ask(&call{entries: entries})
	return a.number, a.err
}

func (p port) Send(e store.Entry, then func(uint64, error)) {
	go func() { then(p.Write(context.Background(), []store.Entry{e})) }()
}

// What can become of a call.
const (
	arrives      = iota
	answerLost   // it arrives, and its answer does not
	requestLost  // neither; it may still arrive later
	anotherWrite // the server says that another write is in flight, whatever is true
	away         // there is no connection: it was not sent
	fates
)

var errAway = wire.Errorf(wire.Unavailable, "not connected").With("reason", wire.NotConnected)

// let a call have its fate.
func (n *network) let(t rapid.TB, c *call, fate int) {
	switch {
	case fate == away:
		c.answer <- answer{err: errAway}
	case c.read != nil && (fate == answerLost || fate == requestLost):
		c.answer <- answer{err: errors.New("no answer")}
	case c.read != nil:
		rev, err := c.read()
		c.answer <- answer{rev: rev, err: err}
	case fate == anotherWrite:
		c.answer <- answer{err: &store.Conflict{}}
	case fate == requestLost:
		n.late = append(n.late, c)
		c.answer <- answer{err: store.ErrUnsure}
	default:
		number, err := n.write(t, c.entries)
		if fate == answerLost {
			err = store.ErrUnsure
		}
		c.answer <- answer{number: number, err: err}
	}
}

// write has the bucket take a write, and notes what was stored.
func (n *network) write(t rapid.TB, entries []store.Entry) (uint64, error) {
	last, err := n.bucket.Write(context.Background(), entries)
	if err != nil {
		return 0, err
	}
	for i, e := range entries {
		n.note(t, revision{
			Revision: store.Revision{Key: e.Key, Revision: last - uint64(len(entries)-1-i), Value: e.Value, Header: e.Header},
			follows:  e.Follows,
		})
	}
	return last, nil
}

func (n *network) note(t rapid.TB, r revision) {
	t.Helper()
	n.revisions[r.Revision.Revision] = r
	if !wire.ValidName(r.Key) { // a memo
		return
	}
	r.doc = tally{}
	if !r.Marker {
		var err error
		if r.doc, err = codec.Decode(r.Value); err != nil {
			t.Fatalf("stored under %s: %q", r.Key, r.Value)
		}
	}
	if !r.hand && r.follows != n.last[r.Key] {
		t.Fatalf("revision %d of %s follows %d, the last was %d", r.Revision.Revision, r.Key, r.follows, n.last[r.Key])
	}
	n.revisions[r.Revision.Revision] = r
	n.last[r.Key] = r.Revision.Revision
}

// hand does what an operator does with nats kv.
func (n *network) hand(t rapid.TB, key, what string) {
	switch what {
	case "put":
		n.bucket.Put(key, []byte(`{"operator":1}`))
	default:
		n.bucket.Delete(key, what == "purge")
	}
	r, err := n.bucket.Last(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	n.note(t, revision{Revision: r, hand: true})
}

// effects counts how often each change took effect: what each write of a store added to the revision it follows.
func (n *network) effects() map[string]int {
	effects := map[string]int{}
	for _, r := range n.revisions {
		if r.hand {
			continue
		}
		for name, count := range r.doc {
			effects[name] += count - n.revisions[r.follows].doc[name]
		}
	}
	return effects
}

// checkChain checks what each stored revision must be, whoever wrote it.
func (n *network) checkChain(t rapid.TB) {
	t.Helper()
	numbers := slices.Sorted(maps.Keys(n.revisions))
	for _, number := range numbers {
		r := n.revisions[number]
		if r.hand || !wire.ValidName(r.Key) {
			continue
		}
		if previous := r.Header[wire.HeaderCEPrevious]; len(previous) != 1 || previous[0] != strconv.FormatUint(r.follows, 10) {
			t.Errorf("revision %d says it follows %q, and follows %d", number, previous, r.follows)
		}
		for name, count := range n.revisions[r.follows].doc {
			if r.doc[name] < count {
				t.Errorf("revision %d has lost %s, which revision %d had", number, name, r.follows)
			}
		}
	}
}

// settle gives the calls under way a moment to come to the network: what a test chooses from.
func (n *network) settle(waiting []*call) []*call {
	for {
		select {
		case c := <-n.calls:
			waiting = append(waiting, c)
		case <-time.After(300 * time.Microsecond):
			return waiting
		}
	}
}
