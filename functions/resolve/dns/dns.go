// Package dns asks the DNS which backends a service has now: the SRV records of a name, then the AAAA and A records of
// their targets.
//
// It promises three things. A question goes out at most once a second for each name and record type, whatever happens:
// another server, TCP after a truncated answer and a second service with the same target all wait for their turn. "Cannot
// tell" is never "nothing there": what is not a whole, matching, believable answer is a [Failure]. And equal records give
// an equal result, in whatever order a server lists them.
//
// [Client.Ask] asks once and says when the answer ends, [Merge] brings in the last addresses of targets that could not be
// resolved this time, and [Next] says when to ask again. Who asks is the caller's matter: the promise of one question a
// second holds within one Client, so at any time one Client of a deployment may ask for a name and for what it points to.
//
// What it leaves open: answers are believed as they come, without DNSSEC, so the servers and the way to them are trusted.
// Names are absolute, the search list of resolv.conf is not used.
package dns

import (
	"context"
	"slices"
	"sync"
	"time"

	mdns "github.com/miekg/dns"
)

// Outcome says what an answer is worth.
type Outcome int

// The outcomes. Only the first three say anything about backends.
const (
	Answer  Outcome = iota + 1 // every target has an address
	Partial                    // some target has none, see Result.Gaps
	Empty                      // the zone says that there is no such service: the SRV target is "."
	Absent                     // NXDOMAIN or no SRV record; believe it when it comes twice in a row
	Failure                    // nobody knows: SERVFAIL, REFUSED, silence, garbage, a cut answer, no server
)

func (o Outcome) String() string {
	switch o {
	case Answer:
		return "answer"
	case Partial:
		return "partial"
	case Empty:
		return "empty"
	case Absent:
		return "absent"
	case Failure:
		return "failure"
	}
	return "unknown"
}

// Target is one backend that DNS names: one address of one SRV target.
type Target struct {
	// Name is unique among the targets of an answer and fits the pattern of names.
	Name string
	// Host is the SRV target this is an address of, with its port: "mgs0.rack.internal:12225". It is what [Merge] knows
	// a target by, so keep it with the target.
	Host string
	// Address is "host:port", IPv6 in brackets.
	Address          string
	Priority, Weight uint16
}

// Gap is what an answer does not tell: addresses of a target that could not be had. [Merge] closes it with the last ones.
type Gap struct {
	Host             string // as in Target
	Priority, Weight uint16
	// Type is the address record type that failed while the other gave addresses, "AAAA" or "A". It is "" when there is
	// no address at all, because of a failure or because the target has none.
	Type string
}

// Result is what one Ask found out.
type Result struct {
	Outcome Outcome
	Targets []Target // sorted by priority, then name
	Gaps    []Gap    // sorted by host
	// At is when the SRV answer came: the age of the result counts from here. For a Failure it is when that was known.
	At time.Time
	// TTL is for how long the answer holds, counted from At, 1 s to 60 s: the smallest TTL of the records it is made of.
	// For Empty and Absent it is at most 5 s. A Failure has none.
	TTL time.Duration
	// Took is how long ago At was when Ask returned: addresses may take a while. Next counts it in.
	Took time.Duration
	// Reason says what went wrong, for an operator: at most 300 bytes of printable text. An Answer without gaps has none.
	Reason string
}

// Bounds of what TTLs count for.
const (
	minTTL      = time.Second
	maxTTL      = time.Minute
	maxEmptyTTL = 5 * time.Second
)

// DefaultTimeout of one query. A backend list is called stale 2 s after its TTL: with this timeout one lost packet or one
// dead server is made good before.
const DefaultTimeout = time.Second

// Config of a Client; the zero value is ready to use.
type Config struct {
	// Timeout is how long one server may take for one query. 0 is DefaultTimeout.
	Timeout time.Duration
	// May is asked right before a query leaves; if it says no, the query stays and its Ask is a Failure. nil always says
	// yes. A process that was stopped for a while must not go on where it was.
	May func() bool
	// ResolvConf is the file that names the system's servers. "" is /etc/resolv.conf.
	ResolvConf string
}

// Client asks DNS servers. One serves all services of a process, since it keeps the pace of its questions and shares
// answers between services. Any number of goroutines may use it. It has nothing to close.
type Client struct {
	timeout    time.Duration
	resolvConf string
	exchange   transport
	may        func() bool
	slots      chan struct{} // bounds how many sockets are open at once

	mu        sync.Mutex
	questions map[key]*question
	swept     time.Time
	preferred map[string]string // list of servers → the one that answered last
}

// maxSockets leaves room under the usual limit of 1,024 open files.
const maxSockets = 256

// New makes a client.
func New(cfg Config) *Client {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.ResolvConf == "" {
		cfg.ResolvConf = "/etc/resolv.conf"
	}
	return &Client{
		timeout: cfg.Timeout, resolvConf: cfg.ResolvConf, exchange: overNetwork, may: cfg.May, slots: make(chan struct{}, maxSockets),
		questions: map[key]*question{}, preferred: map[string]string{},
	}
}

// Ask asks once which backends name has. It asks the servers ("[::1]:5353", see [CheckServer]) in their order, beginning
// with the one that answered last, until one answers; without any, those of resolv.conf, which is read each time.
//
// It may take several seconds, for it waits until each question may be asked again; an end of ctx is a Failure. Two
// callers who ask the same at once share one answer, as do those who come within a second of it.
func (c *Client) Ask(ctx context.Context, name string, servers []string) Result {
	if err := CheckName(name); err != nil {
		return failure("the name to ask for is no DNS name")
	}
	if len(servers) == 0 {
		if servers = systemServers(c.resolvConf); len(servers) == 0 {
			return failure("no DNS server is named in " + c.resolvConf)
		}
	}
	r := c.askService(ctx, mdns.CanonicalName(name), servers)
	r.Took = time.Since(r.At)
	return r
}

func (c *Client) askService(ctx context.Context, name string, servers []string) Result {
	srv := c.resolve(ctx, key{name, mdns.TypeSRV}, servers)
	switch srv.kind {
	case absent:
		return Result{Outcome: Absent, At: srv.at, TTL: clamp(srv.ttl, maxEmptyTTL), Reason: bounded(srv.reason)}
	case found:
	case broken, truncated, foreign:
		return failure(srv.reason)
	}
	hosts := srv.hosts()
	if len(hosts) == 0 {
		return Result{Outcome: Empty, At: srv.at, TTL: clamp(srv.ttl, maxEmptyTTL), Reason: "the zone says that there is no such service"}
	}
	return assemble(srv, c.addresses(ctx, srv, hosts, servers))
}

func failure(reason string) Result {
	return Result{Outcome: Failure, At: time.Now(), Reason: bounded(reason)}
}

// addresses asks for the addresses of all hosts at once.
//
// Addresses that came with the SRV answer are taken instead, family by family: they are from the server that is believed
// anyway, and a server adds a set of records whole or not at all.
func (c *Client) addresses(ctx context.Context, srv reply, hosts []string, servers []string) map[key]reply {
	// A target that does not resolve must not hold the others up for so long that they become stale: long enough for
	// one server that is silent and another that answers.
	ctx, cancel := context.WithTimeout(ctx, spacing+c.timeout/2)
	defer cancel()
	var (
		mu    sync.Mutex
		wait  sync.WaitGroup
		known = map[key]reply{}
	)
	for _, host := range hosts {
		for _, qtype := range addressTypes {
			k := key{host, qtype}
			if glue, ok := srv.glue[k]; ok {
				glue.at = srv.at
				mu.Lock()
				known[k] = glue
				mu.Unlock()
				continue
			}
			wait.Go(func() {
				r := c.resolve(ctx, k, servers)
				mu.Lock()
				known[k] = r
				mu.Unlock()
			})
		}
	}
	wait.Wait()
	return known
}

// order are the servers to try, the one that answered last first.
func (c *Client) order(servers []string, list string) []string {
	c.mu.Lock()
	first := slices.Index(servers, c.preferred[list])
	c.mu.Unlock()
	if first <= 0 {
		return servers
	}
	return slices.Concat(servers[first:], servers[:first])
}

func (c *Client) prefer(server, list string) {
	c.mu.Lock()
	c.preferred[list] = server
	c.mu.Unlock()
}
