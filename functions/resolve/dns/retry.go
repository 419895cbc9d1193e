package dns

import "time"

// How long to wait after failures: doubled from the first to the longest. At the longest, an outage of DNS costs a tenth
// of the queries that are allowed, and its end is seen within 10 s.
const (
	firstRetry   = time.Second
	longestRetry = 10 * time.Second
)

// spread is the most that is added to a TTL, so that services defined together are not asked for together for ever. It
// is small, for the answer is late when the TTL is over.
const spread = 250 * time.Millisecond

// Next is how long to wait after a result before the next Ask. failures counts the results in a row, this one included,
// that were Partial or a Failure; rand is a random number from 0 up to 1.
//
// An answer is asked for again when its TTL is over, an absence within 5 s. After failures the wait grows from 1 s to 10 s;
// a Partial result never waits longer than its TTL. It may be 0: the Client keeps the pace of the questions.
func Next(r Result, failures int, rand float64) time.Duration {
	left := max(0, r.TTL-r.Took)
	switch r.Outcome {
	case Answer:
		return left + part(min(spread, r.TTL/10), rand)
	case Empty, Absent:
		return left - part(left/10, rand)
	case Partial:
		return min(left, backoff(failures, rand)) + part(min(spread, r.TTL/10), rand)
	case Failure:
	}
	return backoff(failures, rand)
}

// backoff is between three quarters of the doubled wait and all of it.
func backoff(failures int, rand float64) time.Duration {
	wait := firstRetry
	for i := 1; i < failures && wait < longestRetry; i++ {
		wait *= 2
	}
	wait = min(wait, longestRetry)
	return wait - part(wait/4, rand)
}

func part(d time.Duration, rand float64) time.Duration { return time.Duration(float64(d) * rand) }
