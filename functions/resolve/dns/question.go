package dns

import (
	"context"
	"slices"
	"strings"
	"time"

	mdns "github.com/miekg/dns"
)

// spacing is between two queries of one question, from the end of sending one to the beginning of the next. It is more than
// the second that is allowed, so that a server that is slow to read does not see two within one.
const spacing = 1100 * time.Millisecond

// pause is how long a question that was last sent at sent has to wait at now.
func pause(sent, now time.Time) time.Duration {
	if sent.IsZero() {
		return 0
	}
	return min(spacing, max(0, spacing-now.Sub(sent)))
}

// rememberTCP is for how long a server whose answer did not fit over UDP is asked over TCP at once: asking over UDP first
// would cost a second query and the wait before it each time.
const rememberTCP = 10 * time.Minute

// shareSRV is for how long an SRV answer serves others that ask: less than the spacing, so that it never delays a query that
// may be sent.
const shareSRV = time.Second

// restSilent is for how long the addresses of a target are not asked for after silence. Each time costs the whole service
// the time of the timeout; with two such rounds in a row, the next answer would come too late for a TTL of 1 s.
const restSilent = 4 * time.Second

// key names a question. The name is in canonical form: absolute, lower case.
type key struct {
	name  string
	qtype uint16
}

// question is what is known of one name and record type, whatever servers are asked.
type question struct {
	turn chan struct{} // held by whoever asks it
	// Under the turn:
	sent  time.Time            // when it was last sent to any server
	heard map[string]heard     // list of servers → what they said last
	tcp   map[string]time.Time // server → until when it is asked over TCP
	users int                  // how many hold it; under Client.mu
}

// heard is the last outcome of a question.
type heard struct {
	reply reply
	until time.Time // until then it is told again without asking
}

// use returns the question and keeps it from being swept until drop.
func (c *Client) use(k key, now time.Time) *question {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(now)
	q := c.questions[k]
	if q == nil {
		q = &question{turn: make(chan struct{}, 1), heard: map[string]heard{}, tcp: map[string]time.Time{}}
		c.questions[k] = q
	}
	q.users++
	return q
}

func (c *Client) drop(q *question) {
	c.mu.Lock()
	q.users--
	c.mu.Unlock()
}

// sweep forgets, once a minute, the questions that were not asked for longer than any answer holds. It also forgets which
// servers were preferred, so that the first one is tried again after an outage.
func (c *Client) sweep(now time.Time) {
	if now.Sub(c.swept) < time.Minute {
		return
	}
	c.swept = now
	clear(c.preferred)
	for k, q := range c.questions {
		if q.users == 0 && now.Sub(q.sent) > 2*maxTTL {
			delete(c.questions, k)
		}
	}
}

// resolve answers a question: from what was heard while that holds, else by asking. Callers who wait for one question
// take the outcome of the one who asks, good or bad: it is newer than their wish.
func (c *Client) resolve(ctx context.Context, k key, servers []string) reply {
	came := time.Now()
	q := c.use(k, came)
	defer c.drop(q)
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return gaveUp()
	}
	list := strings.Join(servers, " ")
	if h, ok := q.heard[list]; ok && (h.reply.at.After(came) || time.Now().Before(h.until)) {
		return h.reply
	}
	r := c.ask(ctx, q, k, servers, list)
	if !r.cut {
		q.heard[list] = heard{r, r.shared(k.qtype)}
	}
	return r
}

// shared is until when a reply may be told again without asking. That of an SRV question holds for a moment only and only
// when it has records: absence counts when it was heard twice, and the caller asks when a TTL is over.
func (r reply) shared(qtype uint16) time.Time {
	switch {
	case r.kind == found && qtype == mdns.TypeSRV:
		return r.at.Add(shareSRV)
	case r.kind == found:
		// Not to the very end: whoever takes it would have to ask again at once.
		return r.at.Add(max(minTTL, clamp(r.ttl, maxTTL)-minTTL))
	case r.kind == absent && qtype != mdns.TypeSRV:
		return r.at.Add(clamp(r.ttl, maxEmptyTTL))
	case r.silent && qtype != mdns.TypeSRV:
		return r.at.Add(restSilent)
	}
	return time.Time{}
}

// ask asks the servers one after the other until one answers. A single one that stays silent is asked twice: one lost
// packet is not an outage.
func (c *Client) ask(ctx context.Context, q *question, k key, servers []string, list string) reply {
	var (
		why    []string
		silent = false
	)
	tried := c.order(servers, list)
	for i := 0; i < len(tried); i++ {
		r := c.askServer(ctx, q, k, tried[i])
		if r.kind != broken {
			c.prefer(tried[i], list)
			return r
		}
		if r.cut {
			if len(why) == 0 {
				return r
			}
			break // what a server did before tells more
		}
		silent = silent || r.silent
		if !slices.Contains(why, r.reason) {
			why = append(why, r.reason)
		}
		if r.silent && i == 0 && len(servers) == 1 {
			tried = []string{tried[0], tried[0]}
		}
	}
	r := brokenf("%s", strings.Join(why, "; "))
	r.at, r.silent = time.Now(), silent
	return r
}

// askServer asks one server, over TCP if the answer does not fit otherwise.
func (c *Client) askServer(ctx context.Context, q *question, k key, server string) reply {
	if !time.Now().Before(q.tcp[server]) {
		r := c.send(ctx, q, k, "udp", server)
		if r.kind != truncated {
			return r
		}
		q.tcp[server] = time.Now().Add(rememberTCP)
	}
	r := c.send(ctx, q, k, "tcp", server)
	if r.kind == truncated {
		r = brokenf("truncated answer over TCP from %s", server)
	}
	if r.kind == broken {
		delete(q.tcp, server) // the answer may fit again, so begin with UDP next time
	}
	return r
}

// send sends one query when the question may be asked again, and reads what comes.
func (c *Client) send(ctx context.Context, q *question, k key, network, server string) reply {
	if !sleep(ctx, pause(q.sent, time.Now())) {
		return gaveUp()
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return gaveUp()
	}
	query := newQuery(k)
	packet, err := query.Pack()
	if err != nil {
		return brokenf("the question cannot be written")
	}
	var got reply
	unread := 0
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if c.may != nil && !c.may() {
		return gaveUp()
	}
	sent, err := c.exchange(limited, network, server, packet, func(p []byte) bool {
		got = read(query, p)
		if got.kind == foreign {
			unread++
		}
		return got.kind != foreign
	})
	if !sent.IsZero() {
		q.sent = sent
	}
	if err != nil || got.kind == 0 || got.kind == foreign {
		if ctx.Err() != nil {
			return gaveUp()
		}
		return unanswered(err, network, server, c.timeout, unread)
	}
	got.at = time.Now()
	if got.kind == broken {
		got.reason += " from " + server
	}
	return got
}

// sleep waits and tells whether ctx is still on.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
