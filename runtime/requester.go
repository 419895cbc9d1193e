package runtime

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// errNoAnswer says that a request was sent and nothing came back in time.
var errNoAnswer = errors.New("no answer in time")

// requester sends requests whose answers are taken by callbacks, all on one goroutine: a thousand under way need no
// goroutine, channel or timer each. A callback must not wait.
type requester struct {
	nc      *nats.Conn
	timeout time.Duration

	mu      sync.Mutex
	prefix  string
	next    uint64
	pending map[uint64]pendingRequest
	running bool // a goroutine looks after timeouts
}

type pendingRequest struct {
	sent time.Time
	then func(*nats.Msg, error)
}

func newRequester(nc *nats.Conn, timeout time.Duration) (*requester, error) {
	r := &requester{nc: nc, timeout: timeout, prefix: nc.NewInbox() + ".", pending: map[uint64]pendingRequest{}}
	sub, err := nc.Subscribe(r.prefix+"*", r.receive)
	if err != nil {
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	if err := sub.SetPendingLimits(-1, pendingBytes); err != nil {
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	return r, nil
}

// send sends msg and calls then once: with the answer, [nats.ErrNoResponders], [errNoAnswer], or what kept the request
// from being sent.
func (r *requester) send(msg *nats.Msg, then func(*nats.Msg, error)) {
	r.mu.Lock()
	r.next++
	id := r.next
	r.pending[id] = pendingRequest{time.Now(), then}
	start := !r.running
	r.running = true
	r.mu.Unlock()
	if start {
		go r.expire()
	}
	msg.Reply = r.prefix + strconv.FormatUint(id, 36)
	if err := r.nc.PublishMsg(msg); err != nil {
		if p, ok := r.take(id); ok {
			p.then(nil, err)
		}
	}
}

func (r *requester) take(id uint64) (pendingRequest, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.pending[id]
	delete(r.pending, id)
	return p, ok
}

func (r *requester) receive(msg *nats.Msg) {
	id, err := strconv.ParseUint(msg.Subject[len(r.prefix):], 36, 64)
	if err != nil {
		return
	}
	p, ok := r.take(id)
	if !ok {
		return // too late
	}
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
		p.then(nil, nats.ErrNoResponders)
		return
	}
	p.then(msg, nil)
}

// expire fails what was not answered in time, for as long as anything is under way.
func (r *requester) expire() {
	for {
		time.Sleep(r.timeout / 10)
		limit := time.Now().Add(-r.timeout)
		var late []func(*nats.Msg, error)
		r.mu.Lock()
		for id, p := range r.pending {
			if p.sent.Before(limit) {
				late = append(late, p.then)
				delete(r.pending, id)
			}
		}
		r.running = len(r.pending) > 0
		running := r.running
		r.mu.Unlock()
		for _, then := range late {
			then(nil, errNoAnswer)
		}
		if !running {
			return
		}
	}
}
