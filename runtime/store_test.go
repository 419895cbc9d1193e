package runtime_test

import (
	"strconv"
	"testing"

	"muster/runtime/store"
	"muster/wire"
)

// One suite holds every log to the same promises.
func TestStoreInMemory(t *testing.T)  { conform(t, inMemory) }
func TestStoreOnServer(t *testing.T)  { conform(t, onServer) }
func TestStoreOnCluster(t *testing.T) { conform(t, onCluster) }

// A conformance case works on one key of a bucket that other cases use at the same time.
type conformance map[string]func(t *testing.T, p *place, key string)

func conform(t *testing.T, newPlace func(*testing.T) *place) {
	t.Parallel()
	p := newPlace(t)
	for _, cases := range []conformance{plainCases, markerCases, groupCases, judgementCases, memoCases, lostCases, limitCases, viewCases} {
		for name, run := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(t, p, name)
			})
		}
	}
}

var plainCases = conformance{
	"FirstChangeMakesTheRecord":    firstChange,
	"NextChangeFollowsTheFirst":    nextChange,
	"RevisionIsAnEvent":            revisionIsAnEvent,
	"ViewSeesWhatAnyReplicaStored": viewSees,
	"KeysAreRecordsOnly":           keysAreRecords,
	"UnreadableIsNeverOverwritten": unreadable,
}

func firstChange(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	if r := view(t, s, key); r.Revision != 0 || len(r.Doc) != 0 {
		t.Errorf("before anything was stored: revision %d, document %v", r.Revision, r.Doc)
	}
	r := update(t, s, key, store.Origin{}, func(d tally, rev uint64) (bool, error) {
		if rev != 0 {
			t.Errorf("the change was told revision %d", rev)
		}
		d["a"] = 1
		return true, nil
	})
	wantChanged(t, r, tally{"a": 1})
	revs := history(t, p.replicas[1], key)
	if len(revs) != 1 || revs[0].Revision != r.Revision || string(revs[0].Value) != `{"a":1}` {
		t.Errorf("stored: %v, want one revision %d", revs, r.Revision)
	}
}

func nextChange(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	first := update(t, s, key, store.Origin{}, add("a"))
	second := update(t, s, key, store.Origin{}, func(d tally, rev uint64) (bool, error) {
		if rev != first.Revision {
			t.Errorf("the change was told revision %d, want %d", rev, first.Revision)
		}
		d["b"]++
		return true, nil
	})
	if wantChanged(t, second, tally{"a": 1, "b": 1}) <= first.Revision {
		t.Errorf("revision went from %d to %d", first.Revision, second.Revision)
	}
	wantDoc(t, first, tally{"a": 1}) // what was given away did not change
}

func revisionIsAnEvent(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	first := update(t, s, key, store.Origin{}, add("a"))
	update(t, s, key, store.Origin{RequestID: "r1", Cause: "cause 1", Trace: "00-aa-bb-01"}, add("a"))
	revs := history(t, p.replicas[0], key)
	if len(revs) != 2 {
		t.Fatalf("%d revisions, want 2", len(revs))
	}
	for name, want := range map[string]string{
		wire.HeaderCESpecVersion:     "1.0",
		wire.HeaderCESource:          "/muster/" + testBucket.Name,
		wire.HeaderCEType:            testBucket.EventType,
		wire.HeaderCESubject:         key,
		wire.HeaderCEDataContentType: "application/json",
		wire.HeaderCEPrevious:        strconv.FormatUint(first.Revision, 10),
		wire.HeaderCERequestID:       "r1",
		wire.HeaderCECausationID:     "cause%201",
		wire.HeaderCETraceparent:     "00-aa-bb-01",
		wire.HeaderCEChanges:         "",
	} {
		if got := header(revs[1], name); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	if previous := header(revs[0], wire.HeaderCEPrevious); previous != "0" {
		t.Errorf("the first revision follows %q, want 0", previous)
	}
	a, b := header(revs[0], wire.HeaderCEID), header(revs[1], wire.HeaderCEID)
	if a == "" || a == b {
		t.Errorf("event ids %q and %q", a, b)
	}
	if _, err := wire.DecodeHeader(header(revs[1], wire.HeaderCETime)); err != nil || header(revs[1], wire.HeaderCETime) == "" {
		t.Errorf("time %q: %v", header(revs[1], wire.HeaderCETime), err)
	}
}

func viewSees(t *testing.T, p *place, key string) {
	a, b := newStore(p.replicas[0]), newStore(p.replicas[1])
	for i := range 5 {
		wrote := update(t, a, key, store.Origin{}, add("a"))
		if got := view(t, b, key); got.Revision != wrote.Revision || got.Doc["a"] != i+1 {
			t.Errorf("after revision %d was acknowledged by one replica, the other shows %d, %v", wrote.Revision, got.Revision, got.Doc)
		}
		a, b = b, a
	}
}

func keysAreRecords(t *testing.T, p *place, key string) {
	s := newStore(p.replicas[0])
	update(t, s, key, request(key, "one", "body"), add("a"))
	keys, err := s.Keys(within(t))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for i, k := range keys {
		found = found || k == key
		if !wire.ValidName(k) {
			t.Errorf("%q is listed and is no record's key", k)
		}
		if i > 0 && keys[i-1] >= k {
			t.Errorf("%q is listed before %q", keys[i-1], k)
		}
	}
	if !found {
		t.Errorf("%s is missing in %q", key, keys)
	}
}

func unreadable(t *testing.T, p *place, key string) {
	guessing, fresh := newStore(p.replicas[0]), newStore(p.replicas[1])
	update(t, guessing, key, store.Origin{}, add("a"))
	p.put(t, key, `{"a":`)
	revs := history(t, p.replicas[0], key)
	broken := revs[len(revs)-1].Revision
	for name, s := range map[string]*store.Store[tally]{"with a guess": guessing, "without": fresh} {
		t.Run(name, func(t *testing.T) {
			details := []any{"bucket", testBucket.Name, "key", key, "revision", broken}
			_, err := s.Update(within(t), key, store.Origin{}, add("a"))
			wantError(t, err, wire.CorruptRecord, details...)
			_, err = s.View(within(t), key)
			wantError(t, err, wire.CorruptRecord, details...)
		})
	}
	wantWrites(t, p.replicas[0], key, len(revs), 0)
	p.put(t, key, `{"a":7}`)
	wantChanged(t, update(t, guessing, key, store.Origin{}, add("a")), tally{"a": 8})
}
