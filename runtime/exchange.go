package runtime

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"muster/wire"
)

// exchange is one request, or trigger, and its one answer.
type exchange struct {
	s        *Service
	trigger  *delivery // nil for a request
	op       *Op
	m        *opMetrics
	in       inbound
	deadline deadline
	answered atomic.Bool
	returned atomic.Bool
}

// serve answers a request, before its deadline whatever the handler does.
func (x *exchange) serve() {
	defer func() {
		if p := recover(); p != nil {
			x.m.panics.Add(1)
			x.done(nil, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	in := &x.in
	if err := in.parse(x.s.path, x.op); err != nil {
		x.done(nil, err)
		return
	}
	margin := min(max(in.timeout/10, min(in.timeout/2, 2*sweepEvery)), 200*time.Millisecond)
	end := in.arrived.Add(in.timeout)
	x.deadline.soft, x.deadline.hard, x.deadline.owner = end.Add(-margin), end.Add(-margin/4), x
	quick := x.op.hot && len(in.data) <= hotBody // most of these have come back when handle returns
	if !quick {
		x.s.deadlines.add(&x.deadline)
	}
	x.op.handle(&x.deadline, in, x.done)
	if quick && !x.returned.Load() {
		x.s.deadlines.add(&x.deadline)
		if x.returned.Load() {
			x.s.deadlines.remove(&x.deadline)
		}
	}
}

// done takes the handler's outcome. A handler that comes back twice, or panics after it did, is heard once.
func (x *exchange) done(reply any, err error) {
	if !x.returned.CompareAndSwap(false, true) {
		return
	}
	if err != nil {
		x.fail(err)
	} else {
		x.succeed(reply)
	}
	x.s.deadlines.remove(&x.deadline)
	if x.trigger != nil {
		return
	}
	x.m.inflight.Add(-1)
	x.s.leave(int64(len(x.in.data)))
	x.s.handlers.Done()
}

// late answers for a handler that has not come back.
func (x *exchange) late() {
	if !x.answered.Load() {
		x.fail(wire.Errorf(wire.DeadlineExceeded, "not done in time; what is recorded stays").With("outcome", wire.Unknown))
	}
}

func (x *exchange) succeed(reply any) {
	if x.trigger != nil {
		if x.answered.CompareAndSwap(false, true) {
			x.trigger.succeeded()
		}
		return
	}
	buffer := replies.Get().(*[]byte)
	defer replies.Put(buffer)
	data, err := encode((*buffer)[:0], reply)
	if err != nil {
		x.fail(fmt.Errorf("encode reply: %w", err))
		return
	}
	if cap(data) <= maxReplyBuffer {
		*buffer = data
	}
	if limit := x.s.bus.maxValue(); len(data) > limit {
		x.fail(wire.Errorf(wire.TooLarge, "the reply would be %d bytes, the limit is %d", len(data), limit).
			With("size", len(data)).With("limit", limit))
		return
	}
	x.send(data, nil)
}

// replies are buffers for replies. The connection copies what it is given before it returns.
var replies = sync.Pool{New: func() any { return new([]byte) }}

// maxReplyBuffer is the largest buffer that is kept, in bytes.
const maxReplyBuffer = 16 << 10

func (x *exchange) fail(err error) {
	if x.answered.Load() {
		return
	}
	e := wire.AsError(err)
	if x.trigger != nil {
		if x.answered.CompareAndSwap(false, true) {
			x.trigger.failed(e)
		}
		return
	}
	id := x.in.requestID
	if id == "" {
		id = nuid.Next()
	}
	data, encodeErr := json.Marshal(e.Body(id), json.Deterministic(true))
	if encodeErr != nil {
		x.s.log.Error("encode error", "code", e.Code, "request_id", id, "cause", encodeErr)
		e = wire.AsError(encodeErr)
		data = []byte(`{"error_code":"Internal","message":"internal error","request_id":"` + id + `","status":500,"retryable":false,"details":{}}`)
	}
	sent := x.send(data, nats.Header{
		wire.HeaderError:     {oneLine(e.Message)},
		wire.HeaderErrorCode: {strconv.Itoa(e.Code.Status())},
	})
	if !sent {
		return
	}
	x.m.failed(e.Code)
	level := slog.LevelDebug // a refusal is the caller's matter, and what is away was logged when it went
	if e.Code.Status() == 500 {
		level = slog.LevelError
	}
	x.s.log.Log(context.Background(), level, "request failed", "subject", x.in.subject, "code", e.Code, "request_id", id, "cause", e.Unwrap())
}

// oneLine makes a message fit for a header.
func oneLine(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c < ' ' || c == 0x7F {
			b[i] = ' '
		}
	}
	return string(b)
}

// send sends the one answer; false if there was one already.
func (x *exchange) send(data []byte, header nats.Header) bool {
	if !x.answered.CompareAndSwap(false, true) {
		return false
	}
	var err error
	if header == nil {
		err = x.s.bus.nc.Publish(x.in.reply, data)
	} else {
		err = x.s.bus.nc.PublishMsg(&nats.Msg{Subject: x.in.reply, Data: data, Header: header})
	}
	if err != nil {
		x.s.log.Warn("reply not sent", "subject", x.in.subject, "cause", err)
	}
	took := time.Since(x.in.arrived)
	x.m.nanos.Add(int64(took))
	x.m.seconds.Observe(took.Seconds())
	return true
}
