package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"muster/wire"
)

// triggerCallers is how many more triggers than requests are under way: nobody waits for them.
const triggerCallers = 8

// benchEvents hears the events of the bench's hives, each for the caller whose hive it is.
type benchEvents struct {
	b    *benchRun
	js   jetstream.JetStream
	mu   sync.Mutex
	by   map[string]chan struct{}
	sent map[int]int // triggers, by caller
}

func (b *benchRun) newEvents(js jetstream.JetStream) *benchEvents {
	return &benchEvents{b: b, js: js, by: map[string]chan struct{}{}, sent: map[int]int{}}
}

// consume takes events off the stream as any service would, while a line runs.
func (e *benchEvents) consume(ctx context.Context) (end func(), err error) {
	c, err := e.js.OrderedConsumer(ctx, wire.StreamEvents, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{wire.EventSubject(wire.EventKind(wire.EventHiveDeclared), "*")},
		DeliverPolicy:  jetstream.DeliverNewPolicy,
	})
	if err != nil {
		return nil, &exit{exitUnavailable, fmt.Errorf("listen to %s (is muster serving here?): %w", wire.StreamEvents, err)}
	}
	run, err := c.Consume(func(m jetstream.Msg) { e.heard(m.Subject()) })
	if err != nil {
		return nil, err
	}
	return run.Stop, nil
}

// listen hears events as nats sub does, while a line runs.
func (e *benchEvents) listen(context.Context) (end func(), err error) {
	sub, err := e.b.conns[0].Subscribe(wire.EventSubject(wire.EventKind(wire.EventHiveDeclared), "*"), func(m *nats.Msg) { e.heard(m.Subject) })
	if err != nil {
		return nil, err
	}
	return func() { sub.Unsubscribe() }, e.b.conns[0].Flush() //nolint:errcheck // it goes with its connection
}

// heard tells the caller whose hive an event is of.
func (e *benchEvents) heard(subject string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if heard := e.by[subject[strings.LastIndexByte(subject, '.')+1:]]; heard != nil {
		select {
		case heard <- struct{}{}:
		default:
		}
	}
}

// expect is where the next event of a hive is told.
func (e *benchEvents) expect(hive string) chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	heard := e.by[hive]
	if heard == nil {
		heard = make(chan struct{}, 1)
		e.by[hive] = heard
	}
	select {
	case <-heard:
	default:
	}
	return heard
}

// next counts what a caller has sent, over all rounds: a trigger that changes nothing has no event.
func (e *benchEvents) next(caller int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent[caller]++
	return e.sent[caller]
}

func await(heard chan struct{}) error {
	select {
	case <-heard:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("no event came")
	}
}

func benchState(n int) string {
	return `{"state":"` + []string{"up", "paused"}[n%2] + `","reply":"brief"}`
}

// trigger has the caller's hive changed by a trigger, and waits for the event.
func (e *benchEvents) trigger(i, _ int) (*nats.Msg, error) {
	n := e.next(i)
	hive := e.b.name + "-t" + strconv.Itoa(i)
	heard := e.expect(hive)
	msg := &nats.Msg{Subject: wire.TriggerSubject(wire.Declare, "set", hive, "one"), Data: []byte(benchState(n)), Header: nats.Header{
		wire.HeaderCESpecVersion: {"1.0"}, wire.HeaderCEID: {nuid.Next()}, wire.HeaderCESource: {"/muster/bench"}, wire.HeaderCEType: {"muster.bench"},
	}}
	reply, err := e.b.conns[i%benchClients].RequestMsg(msg, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return reply, await(heard)
}

// set has the caller's hive changed by a request, and waits for the event: a little longer than from stored to delivered.
func (e *benchEvents) set(i, n int) (*nats.Msg, error) {
	hive := e.b.name + "-" + strconv.Itoa(i)
	heard := e.expect(hive)
	reply, err := e.b.request(i, wire.Subject(wire.Declare, "set", hive, "one"), []byte(benchState(n)))
	if err != nil {
		return nil, err
	}
	if strings.Contains(string(reply.Data), `"changed":false`) {
		return reply, nil
	}
	return reply, await(heard)
}
