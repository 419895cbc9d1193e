package natstest

import (
	"testing"
	"time"
)

// Eventually returns as soon as cond holds and fails the test if it still does
// not after limit. what completes the sentence "not within 5s: ...". cond runs in
// the caller's goroutine, at once and then every few milliseconds; the limit
// costs nothing when cond holds, so be generous with it.
func Eventually(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	const shortest, longest = 2 * time.Millisecond, 50 * time.Millisecond
	end := time.Now().Add(limit)
	for pause := shortest; ; pause = min(2*pause, longest) {
		if cond() {
			return
		}
		left := time.Until(end)
		if left <= 0 {
			t.Fatalf("not within %v: %s", limit, what)
			return
		}
		<-time.After(min(pause, left))
	}
}
