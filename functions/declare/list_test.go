package declare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

func (r *rig) page(t *testing.T, p wire.Page) wire.Hives {
	t.Helper()
	reply, err := r.list(context.Background(), &runtime.Request[wire.Page]{Body: p})
	if err != nil {
		t.Fatalf("list %+v: %v", p, err)
	}
	return reply.(wire.Hives)
}

func names(h wire.Hives) string {
	var out []string
	for _, l := range h.Hives {
		out = append(out, l.Hive)
	}
	return strings.Join(out, " ")
}

func TestList_Pages(t *testing.T) {
	r := newRig()
	for _, hive := range []string{"c", "a", "e", "B", "d"} {
		r.mustSet(t, hive, "x", wire.Up)
	}
	for name, c := range map[string]struct {
		page        wire.Page
		hives, next string
	}{
		"all, in the order of bytes":   {wire.Page{}, "B a c d e", ""},
		"the first two":                {wire.Page{Limit: 2}, "B a", "a"},
		"the next two":                 {wire.Page{After: "a", Limit: 2}, "c d", "d"},
		"the last one":                 {wire.Page{After: "d", Limit: 2}, "e", ""},
		"exactly as many as there are": {wire.Page{Limit: 5}, "B a c d e", ""},
		"one less":                     {wire.Page{Limit: 4}, "B a c d", "d"},
		"behind the last":              {wire.Page{After: "e"}, "", ""},
		"behind all":                   {wire.Page{After: "zz"}, "", ""},
		"behind one that is not there": {wire.Page{After: "b", Limit: 1}, "c", "c"},
		"limit 0 is the default":       {wire.Page{Limit: 0}, "B a c d e", ""},
		"limit 1":                      {wire.Page{Limit: 1}, "B", "B"},
		"limit 1000":                   {wire.Page{Limit: 1000}, "B a c d e", ""},
	} {
		if got := r.page(t, c.page); names(got) != c.hives || got.Next != c.next {
			t.Errorf("%s: %q, next %q; want %q, next %q", name, names(got), got.Next, c.hives, c.next)
		}
	}
}

func TestList_RefusesWrongPages(t *testing.T) {
	r := newRig()
	for name, c := range map[string]struct {
		page  wire.Page
		field string
	}{
		"limit below 1":      {wire.Page{Limit: -1}, "limit"},
		"limit far below":    {wire.Page{Limit: -1 << 62}, "limit"},
		"limit above 1000":   {wire.Page{Limit: 1001}, "limit"},
		"after is no name":   {wire.Page{After: "a b"}, "after"},
		"after is a pattern": {wire.Page{After: ">"}, "after"},
		"after is a memo":    {wire.Page{After: "_req"}, "after"},
		"after is too long":  {wire.Page{After: strings.Repeat("a", 65)}, "after"},
	} {
		_, err := r.list(context.Background(), &runtime.Request[wire.Page]{Body: c.page})
		e, ok := errors.AsType[*wire.Error](err)
		if !ok || e.Code != wire.InvalidRequest || e.Details["field"] != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestList_OfNothing(t *testing.T) {
	got := newRig().page(t, wire.Page{})
	if got.Hives == nil || len(got.Hives) != 0 || got.Next != "" {
		t.Errorf("%+v, want an empty array", got)
	}
}

func TestList_Lines(t *testing.T) {
	r := newRig()
	r.mustSet(t, "a", "x", wire.Up)
	r.mustSet(t, "a", "y", wire.Destroyed)
	r.wantedLog.Put("bad", []byte(`[]`))
	r.wantedLog.Put("c", []byte(`{"agents":{"x":{"state":"banana"}}}`))
	r.wantedLog.Put("d", []byte(`{}`))
	r.mustSet(t, "gone", "x", wire.Up)
	r.wantedLog.Delete("gone", false)
	r.mustSet(t, "purged", "x", wire.Up)
	r.wantedLog.Delete("purged", true)
	for _, key := range []string{"_foreign", "a=b", "a/b", strings.Repeat("x", 65)} {
		r.wantedLog.Put(key, []byte(`{"agents":{}}`)) // legal keys, but no hives
	}
	want := wire.Hives{Hives: []wire.HiveLine{
		{Hive: "a", Revision: 2, Agents: 2},
		{Hive: "bad", Revision: 3, Error: wire.CorruptRecord},
		{Hive: "c", Revision: 4, Agents: 1},
		{Hive: "d", Revision: 5},
	}}
	if d := cmp.Diff(want, r.page(t, wire.Page{})); d != "" {
		t.Errorf("want -, got +\n%s", d)
	}
}

// A page may be short, even empty, when its hives are gone; following next still shows every hive once.
func TestList_FollowingNextShowsEveryHiveOnce(t *testing.T) {
	r := newRig()
	var want []string
	for i := range 60 {
		hive := fmt.Sprintf("h%02d", i)
		r.mustSet(t, hive, "x", wire.Up)
		switch {
		case i%3 == 1, i >= 40 && i < 50:
			r.wantedLog.Delete(hive, i%2 == 0)
		default:
			want = append(want, hive)
		}
		r.wantedLog.Put(hive+"=x", []byte(`{}`)) // sorts right behind it
	}
	for limit := 1; limit <= 7; limit++ {
		var got []string
		for p, pages := (wire.Page{Limit: limit}), 0; ; pages++ {
			h := r.page(t, p)
			for _, l := range h.Hives {
				got = append(got, l.Hive)
			}
			if len(h.Hives) > limit || pages > 60 {
				t.Fatalf("limit %d: page of %d, %d pages", limit, len(h.Hives), pages)
			}
			if h.Next == "" {
				break
			}
			p.After = h.Next
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}
}

// tight is a bucket whose messages are small.
type tight struct {
	*store.Memory
	max int
}

func (t tight) MaxValue() int { return t.max }

// Field report B041: a page is cut to what fits a message.
func TestField_B041_PageFitsAMessage(t *testing.T) {
	r := newRig()
	const limit = 16 << 10
	r.wanted = store.New[*document](tight{r.wantedLog, limit}, codec, store.Config{})
	for i := range 300 {
		r.wantedLog.Put(fmt.Sprintf("%03d%s", i, strings.Repeat("h", 61)), []byte(`[]`)) // the longest lines there are
	}
	seen := 0
	for p := (wire.Page{}); ; {
		h := r.page(t, p)
		for i := range h.Hives {
			h.Hives[i].Revision, h.Hives[i].Agents = 1<<63, 1<<30
		}
		if b := encoded(t, h); len(b) > limit {
			t.Fatalf("a page of %d lines takes %d bytes", len(h.Hives), len(b))
		}
		seen += len(h.Hives)
		if p.After = h.Next; h.Next == "" {
			break
		}
	}
	if seen != 300 {
		t.Errorf("%d of 300 hives listed", seen)
	}
}
