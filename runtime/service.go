package runtime

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/micro"
	"github.com/prometheus/client_golang/prometheus"

	"muster/wire"
)

// What one function takes in at once on one replica. Past it the answer is Busy, long before NATS would drop messages.
const (
	maxInFlight      = 4096
	maxInFlightBytes = 64 << 20
	pendingMessages  = 64 << 10 // of each subscription; they are taken off it at once
	pendingBytes     = 256 << 20
)

// Service is a function that serves requests.
type Service struct {
	fn      Function
	path    string // of its subjects
	bus     *Bus
	log     *slog.Logger
	micro   micro.Service
	metrics map[string]*opMetrics
	queue   *triggers // nil when it takes none

	handlers  sync.WaitGroup
	workers   sync.WaitGroup
	inFlight  atomic.Int64
	bytes     atomic.Int64
	jobs      chan *exchange // to idle workers
	idle      atomic.Int64
	deadlines *deadlines
	subs      int // subscriptions that the micro service holds
}

// microSubscriptions is how many a micro service holds beside those of its endpoints: PING, INFO and STATS, of all services,
// of those of its name, and its own.
const microSubscriptions = 9

// maxIdle is how many workers are kept for the next requests: a new goroutine must grow its stack first.
const maxIdle = 128

// Serve makes the function a micro service on the bus. It returns once the subscriptions are at the server, or at once
// when there is none yet; then they follow when there is.
func (b *Bus) Serve(ctx context.Context, fn Function, reg prometheus.Registerer) (*Service, error) {
	for _, use := range fn.Buckets {
		select {
		case <-b.Bucket(use.Bucket).first:
		case <-ctx.Done():
			return nil, fmt.Errorf("look at bucket %s: %w", use.Bucket.Name, ctx.Err())
		}
	}
	for _, spec := range fn.streams() {
		b.Stream(spec)
	}
	fn.Ops = append(fn.Ops[:len(fn.Ops):len(fn.Ops)], schemaOp(fn))
	s := &Service{fn: fn, path: fn.path(), bus: b, log: b.log.With("function", fn.Name), metrics: newMetrics(reg, fn), jobs: make(chan *exchange), deadlines: newDeadlines()}
	for _, task := range fn.Tasks {
		s.workers.Go(func() { task(b.feeding) })
	}
	b.settle(ctx, fn)
	svc, err := micro.AddService(b.nc, micro.Config{
		Name: wire.Service(fn.Name), Version: fn.Version, Description: fn.Description,
		QueueGroup: wire.QueueGroup(fn.Name),
		Metadata:   map[string]string{"function": fn.Name},
		StatsHandler: func(e *micro.Endpoint) any {
			if m := s.metrics[e.Name]; m != nil {
				return m.stats()
			}
			return nil
		},
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) {
			s.log.Error("service subscription", "subject", err.Subject, "cause", err.Description)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("add service %s: %w", fn.Name, err)
	}
	s.micro = svc
	for i := range slices.Backward(fn.Ops) { // when the first op answers, all others do
		if err := s.listen(&fn.Ops[i]); err != nil {
			return nil, err
		}
	}
	s.subs = microSubscriptions + len(fn.Ops)
	if b.nc.IsConnected() {
		flush, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := b.nc.FlushWithContext(flush); err != nil && b.nc.IsConnected() {
			return nil, fmt.Errorf("flush subscriptions of %s: %w", fn.Name, err)
		}
	}
	if fn.triggerable() {
		s.queue = newTriggers(s, newTriggerMetrics(reg, fn.Name))
		go s.queue.showLife()
		s.workers.Go(func() { s.queue.run(b.feeding) })
		b.queues(fn.Name, s.queue.queue)
	}
	for _, w := range fn.Workers {
		s.workers.Go(func() { b.Work(b.feeding, w) })
	}
	s.log.Info("serving", "version", fn.Version, "id", svc.Info().ID)
	return s, nil
}

// settle waits, not for long, until a function says that it is ready by itself: one that has just begun would be asked like
// the others, and know less.
func (b *Bus) settle(ctx context.Context, fn Function) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for fn.Ready != nil && b.nc.IsConnected() && slices.ContainsFunc(fn.Ready(), func(c Check) bool { return !c.OK }) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

const settleLimit = time.Second

func (s *Service) listen(op *Op) error {
	m := s.metrics[op.Name]
	err := s.micro.AddEndpoint(op.Name, micro.HandlerFunc(func(r micro.Request) { s.receive(op, m, r) }),
		micro.WithEndpointSubject(wire.RequestSubjects(s.path, op.Name, len(op.IDs))),
		micro.WithEndpointPendingLimits(pendingMessages, pendingBytes),
		micro.WithEndpointMetadata(map[string]string{
			"request_schema": wire.SchemaID(s.fn.Name, op.Name, "request"),
			"reply_schema":   wire.SchemaID(s.fn.Name, op.Name, "reply"),
			"triggerable":    strconv.FormatBool(op.Changes),
		}))
	if err != nil {
		return fmt.Errorf("add endpoint %s: %w", op.Name, err)
	}
	return nil
}

// receive runs on the subscription's goroutine and must not wait. micro reads its request after it returns, so nothing
// that runs longer may touch r: the reply goes out through the connection.
func (s *Service) receive(op *Op, m *opMetrics, r micro.Request) {
	reply := r.Reply()
	if !wire.IsInbox(reply) { // nobody waits: published without, delivered by a stream, or meant to be stored in one
		m.noReply.Add(1)
		return
	}
	m.requests.Add(1)
	x := &exchange{s: s, op: op, m: m, in: inbound{
		subject: r.Subject(), reply: reply, data: r.Data(), header: r.Headers(), arrived: time.Now(),
	}}
	size := int64(len(x.in.data))
	if s.inFlight.Add(1) > maxInFlight || s.bytes.Add(size) > maxInFlightBytes {
		x.fail(wire.Errorf(wire.Busy, "this replica serves as many requests as it can; ask again"))
		s.leave(size)
		return
	}
	m.inflight.Add(1)
	s.handlers.Add(1)
	if op.hot && size <= hotBody {
		x.serve()
		return
	}
	select {
	case s.jobs <- x:
	default:
		go s.work(x)
	}
}

// hotBody is the largest body that is decoded on the goroutine that takes requests off the connection, in bytes.
const hotBody = 4 << 10

// work serves requests, one after the other.
func (s *Service) work(x *exchange) {
	for ok := true; ok; {
		x.serve()
		if s.idle.Add(1) > maxIdle {
			s.idle.Add(-1)
			return
		}
		x, ok = <-s.jobs
		s.idle.Add(-1)
	}
}

func (s *Service) leave(size int64) {
	s.inFlight.Add(-1)
	s.bytes.Add(-size)
}

// Stop stops the services of this bus and returns once every request taken is answered and on its way, or when ctx ends.
// micro's own Stop returns before its subscriptions are drained, so this waits until the connection holds none of them.
func (b *Bus) Stop(ctx context.Context, services ...*Service) error {
	b.endFeeds() // and workers, which give back what they have in hand
	for _, s := range services {
		s.workers.Wait()
	}
	left := b.nc.NumSubscriptions()
	for _, s := range services {
		left -= s.subs
		if err := s.micro.Stop(); err != nil {
			return fmt.Errorf("stop service %s: %w", s.fn.Name, err)
		}
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for b.nc.IsConnected() && b.nc.NumSubscriptions() > max(left, 0) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("drain subscriptions: %w", ctx.Err())
		}
	}
	// A subscription counts as drained when its last message is taken off, a moment before the handler has counted it.
	select {
	case <-time.After(25 * time.Millisecond):
	case <-ctx.Done():
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, s := range services {
			s.handlers.Wait()
			close(s.jobs)
			s.deadlines.stop()
			if s.queue != nil {
				close(s.queue.quit)
			}
			s.log.Info("stopped")
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for requests under way: %w", ctx.Err())
	}
}
