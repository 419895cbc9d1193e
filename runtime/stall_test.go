package runtime

import (
	"testing"
	"time"
)

func TestStall(t *testing.T) {
	var s stall
	now, asked := time.Unix(0, 0), []time.Duration(nil)
	for d := time.Duration(0); d < 10*time.Minute; d += time.Second {
		if s.due(false, now.Add(d)) {
			asked = append(asked, d)
		}
	}
	if len(asked) < 5 || len(asked) > 14 {
		t.Errorf("asked for another leader after %v", asked)
	}
	for i, d := range asked {
		least, most := stallPatience, 2*stallPatience
		if i > 0 {
			d -= asked[i-1]
			least = min(stallPatience<<i, stallMost)
			most = 2 * least
		}
		if d < least || d > most+time.Second {
			t.Errorf("asked after %v, the last time %v before; want %v to %v", asked[i], d, least, most)
		}
	}
	now = now.Add(time.Hour)
	if s.due(true, now) || s.due(false, now) || s.due(false, now.Add(stallPatience-1)) || !s.due(false, now.Add(2*stallPatience)) {
		t.Error("what runs again and stands still again is not looked at anew")
	}
}
