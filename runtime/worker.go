package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/store"
	"muster/wire"
)

// Worker is work that a function does on the records of a bucket: each revision is a work item, and the last one of a key
// is worked on, step by step, by one replica at a time in the ordinary case. Two may meet; a step must bear that.
//
// A step that changes the record ends the item: the new revision is the next one. A replica that dies leaves its items
// to the others, which get them after [workerAckWait].
type Worker struct {
	Bucket  BucketSpec
	Durable string     // name of the consumer that hands out the items
	Wake    BucketSpec // a change in this bucket makes waiting items be looked at at once
	Step    func(ctx context.Context, key string, a Attempt) Progress
}

// Attempt tells how often and for how long a revision was worked on before, on this replica.
type Attempt struct {
	N   int           // looks since it came, or since waiting items were woken
	Age time.Duration // since it came
}

// Progress is what a step came to.
type Progress struct {
	Changed bool          // the record was changed, its new revision goes on
	Wait    time.Duration // look again after this; 0 and not Changed: finished until the record changes
}

// How items are handed out.
const (
	workerAckWait  = 10 * time.Second
	workerSignOf   = 3 * time.Second // life, while an item waits
	workerPending  = 20_000          // items in hand at once, over all replicas: waiting ones are cheap
	workerRecreate = time.Second
)

// crewOf runs one worker on this replica.
type crewOf struct {
	Worker
	bus *Bus
	mu  sync.Mutex
	now map[string]*item
	all sync.WaitGroup
}

// item is a key in hand.
type item struct {
	key  string
	msg  jetstream.Msg // of its newest revision
	came time.Time     // that revision
	wake chan struct{}
}

// Work runs a worker until ctx ends, and then gives back what it has in hand.
func (b *Bus) Work(ctx context.Context, w Worker) {
	c := &crewOf{Worker: w, bus: b, now: map[string]*item{}}
	defer c.all.Wait()
	c.all.Go(func() { c.watchWake(ctx) })
	for ctx.Err() == nil {
		if err := c.consume(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("work queue interrupted", "durable", w.Durable, "cause", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(workerRecreate):
		}
	}
}

// consume takes items until ctx ends or the consumer is no more.
func (c *crewOf) consume(ctx context.Context) error {
	if err := c.bus.Bucket(c.Bucket).usable(); err != nil {
		return nil // its state was logged
	}
	stream := wire.BucketStream(c.Bucket.Name)
	asked, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	want := jetstream.ConsumerConfig{
		Durable:       c.Durable,
		Description:   "hands out records that are not finished; made and owned by muster",
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
		FilterSubject: wire.RecordSubjects(c.Bucket.Name, c.Bucket.names()),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       workerAckWait,
		MaxAckPending: workerPending,
		MaxDeliver:    -1,
	}
	consumer, err := c.bus.js.CreateConsumer(asked, stream, want)
	if errors.Is(err, jetstream.ErrConsumerExists) { // with other settings: whoever made it owns them
		c.bus.log.Warn("the work queue has other settings than ours; left as it is", "durable", c.Durable)
		consumer, err = c.bus.js.Consumer(asked, stream, c.Durable)
	}
	if err != nil {
		return fmt.Errorf("make consumer: %w", err)
	}
	broken := make(chan error, 1)
	run, err := consumer.Consume(func(m jetstream.Msg) { c.take(ctx, m) },
		jetstream.PullHeartbeat(2*time.Second), jetstream.PullExpiry(5*time.Second),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			select {
			case broken <- err:
			default:
			}
		}))
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	defer run.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-run.Closed():
		return errors.New("consumer closed")
	case err := <-broken:
		return err
	}
}

// take puts a revision in hand, in place of an older one of its key.
func (c *crewOf) take(ctx context.Context, m jetstream.Msg) {
	key := wire.SubjectKey(c.Bucket.Name, m.Subject())
	if gone, _ := marker(m.Headers()); gone {
		c.settle(m.Ack(), key)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if it := c.now[key]; it != nil {
		c.settle(it.msg.Ack(), key)
		it.msg, it.came = m, time.Now()
		it.signal()
		return
	}
	it := &item{key: key, msg: m, came: time.Now(), wake: make(chan struct{}, 1)}
	c.now[key] = it
	c.all.Go(func() { c.run(ctx, it) })
}

// current is the message of an item's newest revision, and when it came.
func (c *crewOf) current(it *item) (jetstream.Msg, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return it.msg, it.came
}

func (it *item) signal() {
	select {
	case it.wake <- struct{}{}:
	default:
	}
}

// run works on a key until it is finished, or its next revision is.
func (c *crewOf) run(ctx context.Context, it *item) {
	for attempt := 0; ; attempt++ {
		msg, came := c.current(it)
		p := c.Step(ctx, it.key, Attempt{attempt, time.Since(came)})
		if ctx.Err() != nil {
			msg, _ = c.current(it)
			c.settle(msg.Nak(), it.key)
			return
		}
		if p.Changed || p.Wait == 0 {
			c.mu.Lock()
			if it.msg == msg { // nothing newer came meanwhile
				delete(c.now, it.key)
				c.mu.Unlock()
				c.settle(msg.Ack(), it.key)
				return
			}
			c.mu.Unlock()
			attempt = -1
			continue
		}
		if !c.pause(ctx, it, p.Wait) {
			attempt = -1
		}
	}
}

// pause waits, showing that the item is alive; false when it was woken.
func (c *crewOf) pause(ctx context.Context, it *item, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	alive := time.NewTicker(workerSignOf)
	defer alive.Stop()
	show := func() {
		msg, _ := c.current(it)
		c.settle(msg.InProgress(), it.key)
	}
	for {
		select {
		case <-ctx.Done():
			return true
		case <-timer.C:
			show()
			return true
		case <-it.wake:
			return false
		case <-alive.C:
			show()
		}
	}
}

// watchWake wakes waiting items when something appears or changes in the bucket they wait for. What is only said again
// wakes nobody.
func (c *crewOf) watchWake(ctx context.Context) {
	if c.Wake.Name == "" {
		return
	}
	type said struct {
		value string
		at    time.Time
	}
	last := map[string]said{}
	c.bus.FollowAll(ctx, c.Wake.Name, func(r store.Revision) {
		before := last[r.Key]
		if r.Absent() {
			delete(last, r.Key)
			return
		}
		last[r.Key] = said{string(r.Value), time.Now()}
		if before.value == string(r.Value) && time.Since(before.at) < wakeAgain {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, it := range c.now {
			it.signal()
		}
	})
}

// wakeAgain is how long something must have been silent for its return to be news.
const wakeAgain = 25 * time.Second

// settle looks at the end of an ack: a lost one means that the item comes again.
func (c *crewOf) settle(err error, key string) {
	if err != nil {
		c.bus.log.Debug("ack not sent", "durable", c.Durable, "key", key, "cause", err)
	}
}
