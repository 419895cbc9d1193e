package runtime

import (
	"testing"
	"time"
)

func TestAhead_OfTheServersClock(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	ended := began.Add(20 * time.Millisecond)
	for name, c := range map[string]struct {
		server time.Time
		want   time.Duration
	}{
		"not said":       {time.Time{}, 0},
		"the same":       {began.Add(15 * time.Millisecond), 0},
		"as it was sent": {began, 0},
		"before ours":    {began.Add(time.Minute), time.Minute - 10*time.Millisecond},
		"behind ours":    {began.Add(-time.Minute), -time.Minute - 10*time.Millisecond},
	} {
		if got := ahead(began, ended, c.server); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A revision that was just stored is not old, whatever this process's clock says.
func TestBucketNow_IsTheServers(t *testing.T) {
	t.Parallel()
	k := &Bucket{}
	k.state.Store(&bucketState{ahead: time.Hour})
	if d := time.Until(k.Now()); d < 59*time.Minute || d > time.Hour {
		t.Errorf("the server's clock is an hour before ours, Now is %v before", d)
	}
}
