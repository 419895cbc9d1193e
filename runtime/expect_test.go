package runtime_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/runtime/store"
	"muster/wire"
)

// answer is what became of an update or a view.
type answer struct {
	store.Result[tally]
	err error
}

// update changes a key and fails the test if that fails.
func update(t testing.TB, s *store.Store[tally], key string, from store.Origin, change store.Change[tally]) store.Result[tally] {
	t.Helper()
	r, err := s.Update(within(t), key, from, change)
	if err != nil {
		t.Fatalf("update %s: %v", key, err)
	}
	return r
}

// begin starts an update. It is in line, behind all begun before it, when begin returns.
func begin(ctx context.Context, s *store.Store[tally], key string, from store.Origin, change store.Change[tally]) <-chan answer {
	done := make(chan answer, 1)
	s.UpdateThen(ctx, key, from, change, func(r store.Result[tally], err error) { done <- answer{r, err} })
	return done
}

// outcome waits for what was begun.
func outcome(t testing.TB, done <-chan answer) answer {
	t.Helper()
	select {
	case a := <-done:
		return a
	case <-time.After(limit):
		t.Fatalf("no outcome within %v", limit)
		return answer{}
	}
}

func view(t testing.TB, s *store.Store[tally], key string) store.Result[tally] {
	t.Helper()
	r, err := s.View(within(t), key)
	if err != nil {
		t.Fatalf("view %s: %v", key, err)
	}
	return r
}

// wantChanged checks that a result is of a change, and returns its revision.
func wantChanged(t testing.TB, r store.Result[tally], want tally) uint64 {
	t.Helper()
	if !r.Changed || r.Revision == 0 {
		t.Errorf("got changed %t at revision %d, want a change", r.Changed, r.Revision)
	}
	wantDoc(t, r, want)
	return r.Revision
}

func wantDoc(t testing.TB, r store.Result[tally], want tally) {
	t.Helper()
	if diff := cmp.Diff(want, r.Doc); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

// wantSame checks that a retry was given the first outcome.
func wantSame(t testing.TB, what string, first, got store.Result[tally]) {
	t.Helper()
	if got.Revision != first.Revision || got.Changed != first.Changed || got.Partial {
		t.Errorf("%s: got revision %d, changed %t, partial %t; the first outcome was revision %d, changed %t",
			what, got.Revision, got.Changed, got.Partial, first.Revision, first.Changed)
	}
	if diff := cmp.Diff(first.Doc, got.Doc); diff != "" {
		t.Errorf("%s: document (-first +retry):\n%s", what, diff)
	}
}

// wantError checks an error's code and details, given as name and value in turn.
func wantError(t testing.TB, err error, code wire.Code, details ...any) {
	t.Helper()
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Code != code {
		t.Errorf("got error %v, want %s", err, code)
		return
	}
	for i := 0; i < len(details); i += 2 {
		if got := e.Details[details[i].(string)]; got != details[i+1] {
			t.Errorf("%s has details %v, want %v = %v", code, e.Details, details[i], details[i+1])
		}
	}
}

// wantWrites checks how many revisions a key gained since it had before of them.
func wantWrites(t testing.TB, log store.Log, key string, before, want int) {
	t.Helper()
	if got := len(history(t, log, key)) - before; got != want {
		t.Errorf("%s gained %d revisions, want %d", key, got, want)
	}
}

// wantChain checks that every revision names the one before it, and counts the changes they carry.
func wantChain(t testing.TB, revs []store.Revision) (changes int) {
	t.Helper()
	for i, r := range revs {
		if i > 0 {
			if want, got := strconv.FormatUint(revs[i-1].Revision, 10), header(r, wire.HeaderCEPrevious); got != want {
				t.Errorf("revision %d says it follows %q, and stands behind %s", r.Revision, got, want)
			}
		}
		n := 1
		if v := header(r, wire.HeaderCEChanges); v != "" {
			var err error
			if n, err = strconv.Atoi(v); err != nil || n < 2 {
				t.Errorf("revision %d says it carries %q changes", r.Revision, v)
			}
		}
		changes += n
	}
	return changes
}
