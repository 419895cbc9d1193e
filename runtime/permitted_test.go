package runtime

import "testing"

func TestSubjectLists_Cover(t *testing.T) {
	for _, c := range []struct {
		allow, deny []string
		need        string
		want        bool
	}{
		{nil, nil, "a.b", true},
		{[]string{"a.b"}, nil, "a.b", true},
		{[]string{"a.b"}, nil, "a.b.c", false},
		{[]string{"a.b.c"}, nil, "a.b", false},
		{[]string{"a.*"}, nil, "a.b", true},
		{[]string{"a.*"}, nil, "a.*", true},
		{[]string{"a.b"}, nil, "a.*", false},
		{[]string{"a.*"}, nil, "a.>", false},
		{[]string{"a.>"}, nil, "a.*", true},
		{[]string{"a.>"}, nil, "a.b.>", true},
		{[]string{"a.>"}, nil, "a", false},
		{[]string{"*.b"}, nil, "a.b", true},
		{[]string{">"}, nil, "a.b.>", true},
		{[]string{"x", "a.b"}, nil, "a.b", true},
		{[]string{"a.b"}, nil, "a.b q", true},
		{[]string{"a.b q"}, nil, "a.b q", true},
		{[]string{"a.b other"}, nil, "a.b q", false},
		{[]string{"a.b q"}, nil, "a.b", false},
		{nil, []string{"a.b"}, "a.b", false},
		{nil, []string{"a.b"}, "a.*", false},
		{nil, []string{"a.*.c"}, "a.b.>", false},
		{nil, []string{"a.b.c"}, "a.*", true},
		{[]string{">"}, []string{"a.>"}, "b", true},
		{[]string{">"}, []string{"a.>"}, "a.b", false},
		{[]string{">"}, []string{"a.b other"}, "a.b q", true},
	} {
		if got := (subjectLists{c.allow, c.deny}).covers(c.need); got != c.want {
			t.Errorf("allow %q, deny %q, need %q: %t", c.allow, c.deny, c.need, got)
		}
	}
}
