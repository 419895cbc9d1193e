package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"muster/wire"
)

// What callers of the whole product allow. A request says that it wants its answer within wholeTimeout; on a busy machine it
// may take longer to get here.
const (
	wholeTimeout = 2 * time.Second
	wholeWait    = 7 * time.Second
	wholeLimit   = 90 * time.Second // for what must work again in the end
)

// tally counts what is asked, and keeps what was not answered. A nil tally counts nothing.
type tally struct {
	mu      sync.Mutex
	asked   int
	refused map[wire.Code]int
	missing []unanswered
	wrong   []error // answers that are none
}

// unanswered is a request that nobody answered.
type unanswered struct {
	subject      string
	began, ended time.Time
	err          error
}

func (u unanswered) String() string {
	return fmt.Sprintf("%s at %s, for %v: %v", u.subject, u.began.Format("15:04:05.000"), u.ended.Sub(u.began).Round(time.Millisecond), u.err)
}

func newTally() *tally { return &tally{refused: map[wire.Code]int{}} }

// limit is how long one that is asked again and again may fail.
func (t *tally) limit() time.Duration {
	if t == nil {
		return startLimit
	}
	return wholeLimit
}

// try asks once. Without a tally it waits as long as limit, else as long as an answer may take.
func (t *tally) try(nc *nats.Conn, limit time.Duration, subject, body string, headers ...string) (answer, error) {
	if t == nil {
		return try(nc, limit, subject, body, headers...)
	}
	began := time.Now()
	a, err := try(nc, wholeWait, subject, body, append(slices.Clone(headers), wire.HeaderTimeout, wholeTimeout.String())...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked++
	switch {
	case err == nil && a.failure != nil:
		t.refused[a.failure.Code]++
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrReconnectBufExceeded):
		t.missing = append(t.missing, unanswered{subject, began, time.Now(), err})
	case err != nil:
		t.wrong = append(t.wrong, fmt.Errorf("%s: %w", subject, err))
	}
	return a, err
}

// insist asks until there is an answer that repeating does not change.
func (t *tally) insist(nc *nats.Conn, subject, body string, headers ...string) (a answer, err error) {
	for end := time.Now().Add(t.limit()); ; <-time.After(30 * time.Millisecond) {
		a, err = t.try(nc, wholeWait, subject, body, headers...)
		switch {
		case err == nil && (a.failure == nil || !a.failure.Retryable):
			return a, nil
		case err == nil && time.Now().After(end):
			return a, fmt.Errorf("%s fails for %v: %s", subject, t.limit(), a.raw)
		case time.Now().After(end):
			return a, fmt.Errorf("%s fails for %v: %w", subject, t.limit(), err)
		}
	}
}

// window is a time in which requests may go unanswered.
type window struct{ began, ended time.Time }

// lost are the requests that nobody answered although nothing was broken at the time.
func (t *tally) lost(windows []window) (all []unanswered) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, u := range t.missing {
		if !slices.ContainsFunc(windows, func(w window) bool { return u.began.Before(w.ended) && u.ended.After(w.began) }) {
			all = append(all, u)
		}
	}
	return all
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := fmt.Sprintf("%d requests, %d unanswered", t.asked, len(t.missing))
	for _, code := range slices.Sorted(maps.Keys(t.refused)) {
		s += fmt.Sprintf(", %d %s", t.refused[code], code)
	}
	return s
}
