package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
	"muster/wire"
)

// fault is something that breaks, and is whole again when run returns.
type fault struct {
	name   string
	lossy  bool // requests may go unanswered meanwhile: who had them is dead or cut off
	inject func(*whole)
}

var faults = []fault{
	{"replica killed", true, func(w *whole) { w.killReplica(0) }},
	{"replicas stopped and started in turn", false, (*whole).roll},
	{"leaders step down", false, (*whole).stepDown},
	{"server killed", true, func(w *whole) { w.killServer(0) }},
	{"replica stands still and is flooded", true, func(w *whole) { w.freezeReplica(1) }},
	{"server killed", true, func(w *whole) { w.killServer(1) }},
	{"a client reads too slowly", false, (*whole).slowConsumer},
	{"records and requests too large", false, (*whole).tooLarge},
	{"leader's server stands still", true, (*whole).freezeLeader},
	{"no room in the bucket", false, (*whole).noRoom},
	{"server killed", true, func(w *whole) { w.killServer(2) }},
}

// inject runs one fault, and returns when writes and lookups succeed again and all servers and replicas are whole.
func (w *whole) inject(f fault) {
	w.t.Helper()
	w.probe.writes.reset()
	w.probe.looks.reset()
	began := time.Now()
	f.inject(w)
	w.works(10)
	if f.lossy {
		w.windows = append(w.windows, window{began, time.Now()})
	}
	_, writes := w.probe.writes.seen()
	_, looks := w.probe.looks.seen()
	w.injected[f.name]++
	w.gaps[f.name], w.blind[f.name] = max(w.gaps[f.name], writes), max(w.blind[f.name], looks)
	w.t.Logf("%s: %v, longest without a write %v, without a lookup %v", f.name, time.Since(began).Round(time.Millisecond),
		writes.Round(time.Millisecond), looks.Round(time.Millisecond))
}

// works waits for n more writes and lookups.
func (w *whole) works(n int) {
	w.t.Helper()
	writes, _ := w.probe.writes.seen()
	looks, _ := w.probe.looks.seen()
	natstest.Eventually(w.t, wholeLimit, "writes and lookups work", func() bool {
		nowWrites, _ := w.probe.writes.seen()
		nowLooks, _ := w.probe.looks.seen()
		return w.failed() || nowWrites >= writes+n && nowLooks >= looks+n
	})
}

func (w *whole) killReplica(i int) {
	w.replicas[i].signal(syscall.SIGKILL)
	w.replicas[i].waitExit(startLimit)
	w.works(10)
	w.replicas[i] = w.replica()
}

func (w *whole) roll() {
	for i, p := range w.replicas {
		p.signal(syscall.SIGTERM)
		if code := p.waitExit(startLimit); code != 0 {
			w.t.Errorf("exit code %d after SIGTERM", code)
		}
		w.replicas[i] = w.replica()
	}
}

func (w *whole) killServer(i int) {
	s := w.servers[i]
	s.kill()
	w.works(10)
	s.up(w.t)
	s.waitWhole(len(w.servers))
}

// freezeReplica stops a replica for longer than it may hold the resolver's chair, and has more sent to it than its server
// keeps for it, so that it finds itself cut off.
func (w *whole) freezeReplica(i int) {
	p := w.replicas[i]
	p.stop()
	defer p.signal(syscall.SIGCONT)
	cut := func() (n int) {
		for _, s := range w.servers {
			n += max(s.slowConsumers(), 0)
		}
		return n
	}
	before, began := cut(), time.Now()
	body := fmt.Appendf(nil, `{"no":"%s"}`, strings.Repeat("x", 200<<10))
	natstest.Eventually(w.t, wholeLimit, "the replica is cut off", func() bool {
		for range 20 {
			_ = w.nc(3).PublishRequest("muster.declare.set.flood.a", w.nc(3).NewInbox(), body)
		}
		_ = w.nc(3).FlushTimeout(time.Second)
		return cut() > before
	})
	natstest.Eventually(w.t, wholeLimit, "another has had time to take the chair", func() bool { return time.Since(began) > 5*time.Second })
}

// freezeLeader stops the server that leads the declarations, so that the others must go on without hearing that it is gone,
// and it must find out that they have.
func (w *whole) freezeLeader() {
	name := leaderOf(w.t, w.nc(0), "KV_muster_wanted")
	for _, s := range w.servers {
		if s.name == name {
			s.stop()
			w.works(10)
			s.signal(syscall.SIGCONT)
			s.waitWhole(len(w.servers))
		}
	}
}

func (w *whole) stepDown() {
	for _, stream := range []string{"KV_muster_wanted", "KV_muster_racks", "KV_muster_backends", "KV_muster_resolved", "MUSTER_EVENTS", "MUSTER_TRIGGERS"} {
		old := leaderOf(w.t, w.nc(0), stream)
		natstest.Eventually(w.t, wholeLimit, stream+" has another leader", func() bool {
			_, _ = w.nc(0).Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, time.Second)
			return leaderOf(w.t, w.nc(0), stream) != old
		})
	}
}

// slowConsumer subscribes to a lot and reads nothing of it.
func (w *whole) slowConsumer() {
	s := w.servers[0]
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "nats://"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("CONNECT {\"verbose\":false}\r\nSUB slow.> 1\r\nSUB $KV.> 2\r\nPING\r\n")); err != nil {
		w.t.Fatal(err)
	}
	before, body := s.slowConsumers(), bytes.Repeat([]byte("x"), 200<<10)
	natstest.Eventually(w.t, wholeLimit, "the slow one is cut off", func() bool {
		for range 10 {
			_ = w.nc(0).Publish("slow.x", body)
		}
		_ = w.nc(0).FlushTimeout(time.Second)
		return before >= 0 && s.slowConsumers() > before
	})
}

// tooLarge asks for a record that no message can hold, and sends a request that none can.
func (w *whole) tooLarge() {
	nc := w.nc(1)
	agents := func(n int) string {
		var all []string
		for i := range 1000 {
			all = append(all, fmt.Sprintf(`"%s-%d-%d":{"state":"up"}`, strings.Repeat("x", 40), n, i))
		}
		return `{"reply":"brief","agents":{` + strings.Join(all, ",") + `}}`
	}
	grown := uint64(0)
	for n := range 20 {
		a, err := w.tally.insist(nc, "muster.declare.apply.large", agents(n))
		switch {
		case err != nil:
			w.t.Error(err)
			return
		case a.failure == nil:
			grown = a.decl.Revision
			continue
		case a.failure.Code != wire.TooLarge || detail(*a.failure, "size") <= detail(*a.failure, "limit"):
			w.t.Errorf("a record that is too large: %s", a.raw)
		}
		break
	}
	if a, err := w.tally.insist(nc, "muster.declare.view.large", ""); err != nil || a.failure != nil || grown != 0 && a.decl.Revision != grown {
		w.t.Errorf("a record that was to grow too large after revision %d: %v %.300s", grown, err, a.raw)
	}
	if _, err := try(nc, time.Second, "muster.declare.apply.large", strings.Repeat(" ", 300<<10)); !errors.Is(err, nats.ErrMaxPayload) {
		w.t.Errorf("a request over max_payload: %v", err)
	}
}

// noRoom takes from the declarations' bucket the room for more. Writes are refused, reads go on, and with room they work again.
func (w *whole) noRoom() {
	js, err := jetstream.New(w.nc(2))
	if err != nil {
		w.t.Fatal(err)
	}
	limit := func(bytes func(jetstream.StreamState) int64) {
		w.t.Helper()
		natstest.Eventually(w.t, wholeLimit, "the bucket's limit is changed", func() bool {
			once, cancel := context.WithTimeout(w.ctx, 3*time.Second)
			defer cancel()
			s, err := js.Stream(once, "KV_muster_wanted")
			if err != nil {
				return false
			}
			config := s.CachedInfo().Config
			config.MaxBytes = bytes(s.CachedInfo().State)
			_, err = js.UpdateStream(once, config)
			return err == nil
		})
	}
	full := func() { limit(func(s jetstream.StreamState) int64 { return int64(s.Bytes) }) }
	full()
	defer func() { limit(func(jetstream.StreamState) int64 { return -1 }) }()
	refused := 0
	natstest.Eventually(w.t, wholeLimit, "writes are refused", func() bool {
		a, err := w.tally.try(w.nc(2), wholeWait, fmt.Sprintf("muster.declare.set.noroom%d.a", refused), state("up"))
		if err == nil && a.failure == nil { // what is remembered of earlier requests has expired, and made room
			full()
		}
		if err != nil || a.failure == nil {
			return false
		}
		if a.failure.Code != wire.Unavailable || a.failure.Details["reason"] != wire.JetStreamUnavailable {
			w.t.Errorf("without room: %s", a.raw)
		}
		refused++
		return refused > 5
	})
	for _, c := range w.callers {
		if a, err := w.tally.insist(w.nc(2), "muster.declare.view."+c.hive, ""); err != nil || a.failure != nil {
			w.t.Errorf("a view without room: %v %s", err, a.raw)
		}
	}
}
