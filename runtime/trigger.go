package runtime

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"muster/wire"
)

// How triggers are handed out and tried. A worker that dies leaves its triggers to the others after triggerAckWait.
const (
	maxDeliveries   = 20
	triggerAckWait  = 10 * time.Second
	triggerSignOf   = 3 * time.Second // life, while a trigger is worked on
	triggersAtOnce  = 512             // of one function on one replica; requests have their own limit
	triggerPullers  = 2               // share them: one has work while the other asks for more
	triggersPending = 20_000          // handed out and not settled, over all replicas: those that wait to be retried count
)

// retryAfter is how long a trigger waits after each failed delivery; the last one stands for all later ones.
//
// retryPad is for how the gap between two attempts is seen: the later one may fail quicker.
var retryAfter = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second}

const retryPad = 50 * time.Millisecond

// triggers works on the triggers of one function on this replica. A trigger takes the path of a request; this is its one
// table from outcome to what the queue is told:
//
//	success                           ack, once the change is stored
//	retryable, and deliveries left    nak with a delay
//	anything else                     published to MUSTER_DEAD, then term
//	no outcome, the worker is gone    comes again after triggerAckWait
//	delivered too often without one   as "anything else", by the worker that gets it next
//
// So nothing has to collect what the queue gave up on: it never gives up, its count of deliveries does.
type triggers struct {
	s       *Service
	ops     map[string]*Op
	durable string
	queue   *queue
	metrics *triggerMetrics

	mu   sync.Mutex
	hand map[*delivery]struct{} // what is worked on
	quit chan struct{}
}

// delivery is one delivery of a trigger.
type delivery struct {
	t     *triggers
	p     *puller
	msg   *nats.Msg
	count int    // of deliveries, this one included
	seq   uint64 // in MUSTER_TRIGGERS
	since time.Time
}

func newTriggers(s *Service, m *triggerMetrics) *triggers {
	t := &triggers{
		s: s, ops: map[string]*Op{}, durable: wire.DurableTriggers(s.fn.Name), metrics: m,
		hand: map[*delivery]struct{}{}, quit: make(chan struct{}),
	}
	for i := range s.fn.Ops {
		if op := &s.fn.Ops[i]; op.Changes {
			t.ops[op.Name] = op
		}
	}
	t.queue = newQueue(s.bus, t.durable, wire.TriggersOf(s.fn.Name))
	return t
}

// run works on triggers until ctx ends, and returns once no more are taken. What is in hand is finished behind it.
func (t *triggers) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { t.queue.tend(ctx) })
	for range triggerPullers {
		p := &puller{t: t, inbox: t.s.bus.nc.NewInbox(), free: triggersAtOnce / triggerPullers, wake: make(chan struct{}, 1)}
		all.Go(func() { p.run(ctx) })
	}
	all.Wait()
}

// showLife keeps what takes long from being handed to others, until stop.
func (t *triggers) showLife() {
	tick := time.NewTicker(triggerSignOf)
	defer tick.Stop()
	for {
		select {
		case <-t.quit:
			return
		case now := <-tick.C:
			t.mu.Lock()
			var long []*delivery
			for d := range t.hand {
				if now.Sub(d.since) > triggerSignOf/2 {
					long = append(long, d)
				}
			}
			t.mu.Unlock()
			for _, d := range long {
				d.settle(d.msg.InProgress())
			}
		}
	}
}

// take begins work on a message.
func (t *triggers) take(p *puller, msg *nats.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		t.s.log.Warn("a trigger that is no message of a stream", "cause", err)
		p.release()
		return
	}
	d := &delivery{t: t, p: p, msg: msg, count: int(meta.NumDelivered), seq: meta.Sequence.Stream, since: time.Now()} //nolint:gosec // a count
	t.mu.Lock()
	t.hand[d] = struct{}{}
	t.mu.Unlock()
	t.s.handlers.Add(1)
	if d.count > maxDeliveries {
		d.bury(wire.Errorf(wire.Internal, "tried %d times, and no worker came to an end with it", maxDeliveries))
		return
	}
	request, name := wire.TriggerRequest(t.s.fn.Name, msg.Subject)
	op := t.ops[name]
	if op == nil {
		d.bury(wire.Invalid("subject", "no op of %s that a trigger may ask for has that name", t.s.fn.Name))
		return
	}
	in, err := triggered(request, msg)
	if err != nil {
		d.bury(wire.AsError(err))
		return
	}
	x := &exchange{s: t.s, op: op, m: t.s.metrics[op.Name], in: *in, trigger: d}
	if op.hot && len(in.data) <= hotBody {
		x.serve()
		return
	}
	go x.serve()
}

// triggered makes a request of a trigger. Its source and id stand in place of a request id.
func triggered(subject string, msg *nats.Msg) (*inbound, error) {
	e, err := DecodeEvent(msg.Header, msg.Data)
	if err != nil {
		return nil, err
	}
	body, err := eventBody(e)
	if err != nil {
		return nil, err
	}
	in := &inbound{subject: subject, data: body, arrived: time.Now(), header: map[string][]string{}, cause: e.ID(), trigger: true}
	in.requestID = wire.TriggerID(e.Source(), e.ID())
	for _, name := range []string{wire.HeaderTimeout, wire.HeaderAPIVersion, wire.HeaderTraceparent} {
		if v, ok := msg.Header[name]; ok {
			in.header[name] = v
		}
	}
	if trace, ok := e.Extensions()[wire.HeaderTraceparent].(string); ok {
		in.header[wire.HeaderTraceparent] = []string{trace}
	}
	return in, nil
}

// succeeded acknowledges a trigger whose change is stored.
func (d *delivery) succeeded() {
	d.settle(d.msg.Ack())
	d.t.metrics.applied.Add(1)
	d.end()
}

// failed hands a trigger back, or buries it.
func (d *delivery) failed(e *wire.Error) {
	if !e.Code.Retryable() || d.count >= maxDeliveries {
		d.bury(e)
		return
	}
	d.t.metrics.retried.Add(1)
	d.again()
}

// again hands it back, to come again after a while.
func (d *delivery) again() {
	d.settle(d.msg.NakWithDelay(retryAfter[min(max(d.count, 1), len(retryAfter))-1] + retryPad))
	d.end()
}

// bury publishes a trigger to MUSTER_DEAD and takes it off the queue once it is there. A copy of one that was buried before,
// by a worker that died in between, is dropped by the server.
func (d *delivery) bury(e *wire.Error) {
	msg := deadLetter(d.msg, e, min(d.count, maxDeliveries), d.seq, d.t.s.bus.nc.MaxPayload())
	msg.Header[nats.MsgIdHdr] = []string{d.t.queue.era() + "-" + strconv.FormatUint(d.seq, 10)}
	d.t.s.bus.requests.send(msg, func(reply *nats.Msg, err error) {
		if err == nil {
			err = published(reply)
		}
		if err != nil {
			d.t.s.log.Warn("dead letter not stored; the trigger comes again", "subject", d.msg.Subject, "sequence", d.seq, "cause", err)
			d.again()
			return
		}
		d.settle(d.msg.Term())
		d.t.metrics.dead.Add(1)
		level := slog.LevelWarn
		if e.Code.Status() == 500 {
			level = slog.LevelError
		}
		d.t.s.log.Log(context.Background(), level, "trigger is dead", "op", d.op(), "code", e.Code, "sequence", d.seq,
			"deliveries", d.count, "message", e.Message, "cause", e.Unwrap())
		d.end()
	})
}

// op is the name of the op it asks for, for the log: "" when there is none of that name.
func (d *delivery) op() string {
	_, name := wire.TriggerRequest(d.t.s.fn.Name, d.msg.Subject)
	if d.t.ops[name] == nil {
		return ""
	}
	return name
}

// settle looks at the end of what was told to the queue: if it was lost, the trigger comes again.
func (d *delivery) settle(err error) {
	if err != nil {
		d.t.s.log.Debug("ack not sent", "durable", d.t.durable, "sequence", d.seq, "cause", err)
	}
}

func (d *delivery) end() {
	d.t.mu.Lock()
	delete(d.t.hand, d)
	d.t.mu.Unlock()
	d.p.release()
	d.t.s.handlers.Done()
}

// puller asks the queue for as many triggers as it has hands free, and never holds one that waits.
type puller struct {
	t     *triggers
	inbox string
	wake  chan struct{}

	mu    sync.Mutex
	free  int
	asked int       // of them, asked for and not here yet
	sign  time.Time // of life of the last pull
}

const (
	pullExpires   = 5 * time.Second
	pullHeartbeat = 2 * time.Second
	pullSilence   = 5 * time.Second
)

func (p *puller) run(ctx context.Context) {
	nc := p.t.s.bus.nc
	sub, err := nc.Subscribe(p.inbox, p.receive)
	if err != nil {
		p.t.s.log.Error("triggers not taken", "cause", err)
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		p.pull()
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-tick.C:
		}
	}
	if err := sub.Drain(); err != nil {
		return // the connection is gone
	}
	for end := time.Now().Add(2 * time.Second); sub.IsValid() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// pull asks for triggers if none are on their way.
func (p *puller) pull() {
	if !p.t.queue.usable() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked > 0 && time.Since(p.sign) > pullSilence {
		p.asked = 0
		p.t.queue.look()
	}
	if p.asked > 0 || p.free <= 0 {
		return
	}
	body := `{"batch":` + strconv.Itoa(p.free) + `,"expires":` + strconv.FormatInt(int64(pullExpires), 10) +
		`,"idle_heartbeat":` + strconv.FormatInt(int64(pullHeartbeat), 10) + `}`
	subject := wire.APIConsumerNext(wire.StreamTriggers, p.t.durable)
	if err := p.t.s.bus.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: p.inbox, Data: []byte(body)}); err != nil {
		return
	}
	p.asked, p.sign = p.free, time.Now()
}

// receive takes a trigger, or what the server says of the pull.
func (p *puller) receive(msg *nats.Msg) {
	status := msg.Header.Get("Status")
	if status == "" || !strings.HasPrefix(msg.Subject, p.inbox) {
		p.mu.Lock()
		p.free--
		p.asked = max(p.asked-1, 0)
		p.sign = time.Now()
		done := p.asked == 0
		p.mu.Unlock()
		if done {
			p.signal()
		}
		p.t.take(p, msg)
		return
	}
	p.mu.Lock()
	p.sign = time.Now()
	if status != "100" { // the pull has ended: in time, or the consumer is gone, or its leader has changed
		p.asked = 0
	}
	p.mu.Unlock()
	if status == "100" {
		return
	}
	if status == "408" || status == "404" {
		p.signal()
		return
	}
	p.t.queue.look()
}

func (p *puller) release() {
	p.mu.Lock()
	p.free++
	idle := p.asked == 0
	p.mu.Unlock()
	if idle {
		p.signal()
	}
}

func (p *puller) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// published reads the answer to a publish into a stream.
func published(reply *nats.Msg) error {
	var ack pubAck
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return err
	}
	if ack.Error != nil {
		return ack.Error
	}
	return nil
}
