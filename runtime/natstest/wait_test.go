package natstest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		Eventually(t, time.Minute, "at once", func() bool { return true })
		if took := time.Since(began); took != 0 {
			t.Errorf("a condition that holds took %v", took)
		}
		Eventually(t, time.Minute, "after a second", func() bool { return time.Since(began) >= time.Second })
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("noticed after %v", took)
		}

		looks := 0
		got := failureOf(t, func(t testing.TB) {
			began := time.Now()
			Eventually(t, time.Second, "it rains", func() bool {
				looks++
				return time.Since(began) > time.Second
			})
		})
		if !strings.Contains(got, "not within 1s: it rains") || looks < 10 {
			t.Errorf("failure %q after %d looks", got, looks)
		}
	})
}
