package resolve

import (
	"errors"
	"testing"
	"time"

	"muster/runtime"
)

// A lookup is answered from what was judged a moment ago only while that is what it would be judged now.
func TestJudged_IsWhatJudgeSays(t *testing.T) {
	s := seen{service: "mgs", record: recorded(leasesSource, nil), leases: []runtime.Item[*lease]{leased("a", 0, 2)}}
	f := &function{}
	first, err := f.judged(s, doubt{}, at(1))
	if err != nil || len(first.backends) != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := f.judged(s, doubt{}, at(1).Add(999*time.Microsecond)); err != nil || again != first {
		t.Errorf("within a millisecond it was judged again, %v", err)
	}
	other := s
	other.leases = []runtime.Item[*lease]{leased("a", 0, 2), leased("b", 0, 2)}
	for name, c := range map[string]struct {
		s        seen
		d        doubt
		now      time.Time
		backends int
	}{
		"a millisecond on":                       {s, doubt{}, at(1).Add(time.Millisecond), 1},
		"a clock set back by as much as goes by": {s, doubt{}, stepped(at(11), -10), 0},
		"another lease":                          {other, doubt{}, at(1), 2},
		"a doubt":                                {s, doubt{why: errors.New("cut off"), since: at(0)}, at(1), 1},
	} {
		f := &function{}
		if _, err := f.judged(s, doubt{}, at(1)); err != nil {
			t.Fatal(err)
		}
		want, wantErr := judge(c.s, c.d, c.now)
		got, err := f.judged(c.s, c.d, c.now)
		if err != nil || wantErr != nil || len(got.backends) != c.backends || string(got.json) != string(want.AppendJSON(nil)) {
			t.Errorf("%s: %s, %v; judge says %s, %v", name, got.json, err, want.AppendJSON(nil), wantErr)
		}
	}
}
