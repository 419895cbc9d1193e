package runtime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/wire"
)

// queue is the durable consumer that hands out a function's triggers to all replicas. Its settings are those that it was
// made with: a replica that would have others says so and changes nothing. One that was deleted is made again; what was
// settled is gone from the stream by then, so nothing is repeated, and what was not is handed out.
type queue struct {
	bus     *Bus
	durable string
	filter  string
	state   atomic.Pointer[queueState]
	again   chan struct{}
}

type queueState struct {
	problem string // why it hands nothing out; "" when it does
	differs []string
	seen    bool // it was there at some time
}

const (
	queueCalm    = 3 * time.Second
	queueTrouble = 500 * time.Millisecond
)

const notSeenYet = "not seen yet"

func newQueue(b *Bus, durable, filter string) *queue {
	q := &queue{bus: b, durable: durable, filter: filter, again: make(chan struct{}, 1)}
	q.state.Store(&queueState{problem: notSeenYet})
	return q
}

// config is what it is made with.
func (q *queue) config() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       q.durable,
		Description:   "hands out triggers; made and owned by muster",
		DeliverPolicy: jetstream.DeliverAllPolicy,
		FilterSubject: q.filter,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       triggerAckWait,
		MaxAckPending: triggersPending,
		MaxDeliver:    -1, // we count ourselves, see triggers
	}
}

func (q *queue) look() {
	select {
	case q.again <- struct{}{}:
	default:
	}
}

func (q *queue) usable() bool { return q.state.Load().problem == "" && q.bus.nc.IsConnected() }

// era tells one stream of triggers from another of the same name.
func (q *queue) era() string {
	return strconv.FormatInt(q.bus.Stream(Triggers).state.Load().created.UnixNano(), 36)
}

// tend keeps the consumer there, until ctx ends.
func (q *queue) tend(ctx context.Context) {
	for ctx.Err() == nil {
		old := q.state.Load()
		now := q.inspect(ctx, old)
		q.state.Store(now)
		q.report(old, now)
		wait := queueCalm
		if now.problem != "" {
			wait = queueTrouble
		}
		select {
		case <-ctx.Done():
		case <-q.again:
			if wait == queueCalm {
				time.Sleep(queueTrouble / 10)
			}
		case <-time.After(wait):
		}
	}
}

func (q *queue) report(old, now *queueState) {
	if now.problem != old.problem {
		if now.problem == "" {
			q.bus.log.Info("triggers are taken", "durable", q.durable)
		} else {
			say := q.bus.log.Warn
			if old.problem == notSeenYet { // the process has just begun, and perhaps the server too
				say = q.bus.log.Debug
			}
			say("triggers are not taken", "durable", q.durable, "cause", now.problem)
		}
	}
	if a, b := strings.Join(old.differs, "; "), strings.Join(now.differs, "; "); b != "" && a != b {
		q.bus.log.Warn("the durable has other settings than ours; left as it is", "durable", q.durable, "differences", b)
	}
}

func (q *queue) inspect(ctx context.Context, old *queueState) *queueState {
	ctx, cancel := context.WithTimeout(ctx, 4*lookTimeout)
	defer cancel()
	now := &queueState{seen: old.seen, differs: old.differs}
	if err := q.bus.Stream(Triggers).state.Load().err; err != nil {
		now.problem = err.Message
		return now
	}
	c, err := q.bus.js.Consumer(ctx, wire.StreamTriggers, q.durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if old.seen {
			q.bus.log.Warn("the durable is gone; making it again", "durable", q.durable)
		}
		c, err = q.bus.js.CreateConsumer(ctx, wire.StreamTriggers, q.config())
		if errors.Is(err, jetstream.ErrConsumerExists) { // made by another replica at the same time
			c, err = q.bus.js.Consumer(ctx, wire.StreamTriggers, q.durable)
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		now.problem = "somebody made it a push consumer; delete it"
		return now
	default:
		now.problem = q.explain(ctx, err)
		if old.problem == "" && errors.Is(err, context.DeadlineExceeded) { // busy, perhaps
			now.problem = ""
		}
		return now
	}
	now.seen, now.differs = true, consumerDifferences(q.config(), c.CachedInfo().Config)
	return now
}

// explain says why the consumer cannot be made, with the name of another one that stands in the way.
func (q *queue) explain(ctx context.Context, cause error) string {
	if api := apiError(cause); api == nil || api.Code != 400 {
		return cause.Error()
	}
	s, err := q.bus.js.Stream(ctx, wire.StreamTriggers)
	if err != nil {
		return cause.Error()
	}
	all := s.ListConsumers(ctx)
	for c := range all.Info() {
		filters := append(c.Config.FilterSubjects, c.Config.FilterSubject)
		for _, f := range filters {
			if c.Name != q.durable && (f == "" && len(filters) == 1 || f != "" && overlap(f, q.filter)) {
				return fmt.Sprintf("consumer %s of %s takes the same triggers; delete it", c.Name, wire.StreamTriggers)
			}
		}
	}
	return cause.Error()
}

// consumerDifferences tells where a durable is not as the product would have made it.
func consumerDifferences(want, have jetstream.ConsumerConfig) []string {
	var d []string
	say := func(name string, want, have any) {
		if want != have {
			d = append(d, fmt.Sprintf("%s is %v, not %v", name, have, want))
		}
	}
	say("filter", want.FilterSubject, strings.Join(append(have.FilterSubjects, have.FilterSubject), " "))
	say("deliver_policy", want.DeliverPolicy, have.DeliverPolicy)
	say("ack_policy", want.AckPolicy, have.AckPolicy)
	say("ack_wait", want.AckWait, have.AckWait)
	say("max_deliver", want.MaxDeliver, have.MaxDeliver)
	say("max_ack_pending", want.MaxAckPending, have.MaxAckPending)
	say("backoff", len(want.BackOff), len(have.BackOff))
	say("headers_only", want.HeadersOnly, have.HeadersOnly)
	return d
}

func (q *queue) check(function string) Check {
	state := q.state.Load()
	c := Check{Name: "triggers " + function, OK: state.problem == "" && len(state.differs) == 0, Detail: state.problem}
	if c.Detail == "" && len(state.differs) > 0 {
		c.Detail = "the durable " + q.durable + " has other settings, left as they are: " + strings.Join(state.differs, "; ")
	}
	return c
}
