package test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
	"muster/wire"
)

// The function is killed after its write and before its ack: from the moment its write was passed on it hears nothing.
func TestField_B052_KilledBetweenWriteAndAck(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	line := natstest.StartProxy(t, s.URL())
	first := serveProcess(t, line.URL(), "declare")
	b := busOf(t, s.URL())
	for round := range 2 {
		hive := "h" + strconv.Itoa(round)
		line.OnClientBytes(func(data []byte) {
			if words := strings.Fields(string(data)); len(words) > 1 && strings.HasSuffix(words[0], "PUB") && words[1] == "$KV.muster_wanted."+hive {
				line.OnClientBytes(nil)
				line.DropToClient(true)
			}
		})
		b.event("declare.set."+hive+".a", "b052-"+hive, `{"state":"up"}`)
		natstest.Eventually(t, startLimit, "the change is stored", func() bool { return b.state("MUSTER_EVENTS").Msgs == uint64(round+1) })
		first.signal(syscall.SIGKILL)
		first.waitExit(5 * time.Second)
		line.Cut()
		line.DropToClient(false)
		line.Heal()
		if b.left() != 1 {
			t.Errorf("%d triggers are left, want the one that was not acknowledged", b.left())
		}
		first = serveProcess(t, line.URL(), "declare")
		b.settled()
		if h := wanted(t, b.nc).history(hive); len(h) != 1 {
			t.Errorf("%d revisions, want 1", len(h))
		}
	}
	c, err := b.js.Consumer(ctx(t), "MUSTER_TRIGGERS", wire.DurableTriggers("declare"))
	if err != nil {
		t.Fatal(err)
	}
	if i := c.CachedInfo(); i.NumAckPending != 0 || i.NumPending != 0 || len(b.dead()) != 0 || b.state("MUSTER_EVENTS").Msgs != 2 {
		t.Errorf("left to redeliver: %+v, dead: %d, events: %d", i, len(b.dead()), b.state("MUSTER_EVENTS").Msgs)
	}
}

// settlements are what was told to the queue of declare, by sequence of the trigger.
type settlements struct {
	mu sync.Mutex
	by map[uint64][]settlement
}

type settlement struct {
	word  string // +ACK, -NAK …
	count int    // of deliveries
	at    time.Time
}

// spyOnAcks reads the acknowledgements on their way: their subjects tell which delivery of what they are for.
func spyOnAcks(t *testing.T, nc *nats.Conn) *settlements {
	t.Helper()
	s := &settlements{by: map[uint64][]settlement{}}
	_, err := nc.Subscribe("$JS.ACK.MUSTER_TRIGGERS.>", func(m *nats.Msg) {
		tokens := strings.Split(m.Subject, ".")
		word, _, _ := strings.Cut(string(m.Data), " ")
		count, err := strconv.Atoi(tokens[4])
		seq, err2 := strconv.ParseUint(tokens[5], 10, 64)
		if err != nil || err2 != nil || word == "+WPI" {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.by[seq] = append(s.by[seq], settlement{word, count, time.Now()})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return s
}

// JetStream answers the function nothing for 10 s, while triggers arrive at it.
func TestField_B054_JetStreamAwayWhileTriggersArrive(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	line := natstest.StartProxy(t, s.URL())
	startReplica(t, line.URL(), "declare", 1)
	b := busOf(t, s.URL())
	told := spyOnAcks(t, b.nc)
	line.HoldToClient(func(m []byte) bool {
		words := strings.Fields(string(m[:min(len(m), 200)]))
		return len(words) > 1 && strings.HasSuffix(words[0], "MSG") && strings.HasPrefix(words[1], "_INBOX")
	})
	const triggers = 20
	for i := range triggers {
		b.event(fmt.Sprintf("declare.set.h%d.a", i), fmt.Sprintf("b054-%d", i), `{"state":"paused"}`)
		<-time.After(100 * time.Millisecond)
	}
	<-time.After(10*time.Second - triggers*100*time.Millisecond) // the report's own measure
	line.HoldToClient(nil)
	b.settled()
	for i := range triggers {
		if d := ask(t, b.nc, fmt.Sprintf("muster.declare.view.h%d", i), "").ok(t); d.Agents["a"].State != wire.Paused {
			t.Errorf("hive h%d: %+v", i, d)
		}
	}
	if len(b.dead()) > 0 {
		t.Errorf("%d are dead", len(b.dead()))
	}
	told.mu.Lock()
	defer told.mu.Unlock()
	tried := 0
	for seq, all := range told.by {
		for i := range all {
			tried = max(tried, all[i].count)
			if i == 0 {
				continue
			}
			gap := all[i].at.Sub(all[i-1].at)
			if gap < time.Second || i > 1 && all[i].word == "-NAK" && gap < all[i-1].at.Sub(all[i-2].at) {
				t.Errorf("trigger %d: deliveries %+v: gaps must grow and be 1s at least", seq, all)
			}
		}
	}
	if tried > 5 || tried < 2 {
		t.Errorf("%d deliveries, want 2 to 5", tried)
	}
}

// burn has a trigger delivered so many times without an outcome.
func (b *bus) burn(times int) {
	b.t.Helper()
	c, err := b.js.Consumer(ctx(b.t), "MUSTER_TRIGGERS", wire.DurableTriggers("declare"))
	if err != nil {
		b.t.Fatal(err)
	}
	for range times {
		m, err := c.Next(jetstream.FetchMaxWait(startLimit))
		if err != nil {
			b.t.Fatal(err)
		}
		if err := m.Nak(); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestField_B057_TriggersEndInMusterDead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		burned int
		code   wire.Code
	}{
		"outlives its time every time":   {19, wire.DeadlineExceeded},
		"kills its worker every time":    {20, wire.Internal},
		"was delivered even more often":  {25, wire.Internal},
		"has deliveries left, and lives": {18, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t)
			startReplica(t, s.URL(), "declare", 1).stop()
			b := busOf(t, s.URL())
			body := `{"specversion":"1.0","id":"1","source":"/b057","type":"t","data":{"state":"up"}}`
			seq := b.trigger("declare.set.h1.a", body, "Muster-Timeout", "1us", "X-Mine", "kept", "nats-msg-id", "mine")
			b.burn(c.burned)
			r := startReplica(t, s.URL(), "declare", 1)
			if c.code == "" {
				natstest.Eventually(t, startLimit, "it is retried", func() bool { return triggersOf(t, r, "retried") >= 1 })
				if len(b.dead()) != 0 || b.left() != 1 {
					t.Errorf("%d dead, %d left", len(b.dead()), b.left())
				}
				return
			}
			b.settled()
			dead := b.dead()
			if len(dead) != 1 {
				t.Fatalf("%d dead letters", len(dead))
			}
			h := dead[0].Header
			if dead[0].Subject != "muster.dead.declare.set.h1.a" || string(dead[0].Data) != body || h.Get("X-Mine") != "kept" || h.Get("Muster-Timeout") != "1us" ||
				h.Get("Muster-Error-Code") != string(c.code) || h.Get("Muster-Error") == "" || h.Get("Muster-Deliveries") != "20" ||
				h.Get("Muster-Stream-Sequence") != strconv.FormatUint(seq, 10) {
				t.Errorf("%s %v %s", dead[0].Subject, h, dead[0].Data)
			}
			if n := triggersOf(t, r, "dead"); n != 1 {
				t.Errorf("%v are counted", n)
			}
		})
	}
}

// To each trigger subject what B045 sends to endpoints: all end as InvalidRequest, and nothing else is hurt.
func TestField_B045_GarbageAsTriggers(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	p := serveProcess(t, s.URL())
	b := busOf(t, s.URL())
	bodies := []string{
		"", "null", "[]", "{}", `{"state":null}`, "7", `"x"`, strings.Repeat("[", 10_000), "\x00\xff\xfe random \x80", `{"specversion":"1.0","id":"1","source":"/s","type":"t","data":`,
		`[{"specversion":"1.0","id":"1","source":"/s","type":"t"}]`, `{"specversion":"1.0","id":7,"source":"/s","type":"t"}`, `{"specversion":"1.0","id":"1","source":"/s","type":"t","data":[],"x":{}}`,
		`{"specversion":"1.0","id":"g","source":"/s","type":"t","data":{"nobody":[1,2,3]}}`,
	}
	ids := map[string]string{
		"declare.set": ".h1.a", "declare.create": ".h1.a", "declare.apply": ".h1", "join.start": ".r1", "join.initialize": ".r1",
		"join.reset": ".r1", "resolve.define": ".s1", "resolve.register": ".s1.b1",
	}
	sent := 0
	for _, op := range slices.Sorted(maps.Keys(ids)) {
		for _, body := range bodies {
			b.trigger(op+ids[op], body)
			b.trigger(op+ids[op], body, "Content-Type", "application/cloudevents+json")
			sent += 2
		}
	}
	natstest.Eventually(t, startLimit, "all are dead", func() bool { return b.state("MUSTER_DEAD").Msgs == uint64(sent) && b.left() == 0 })
	for _, dead := range b.dead() {
		if code := dead.Header.Get("Muster-Error-Code"); code != string(wire.InvalidRequest) {
			t.Errorf("%s %.80q: %s %s", dead.Subject, dead.Data, code, dead.Header.Get("Muster-Error"))
		}
	}
	ask(t, b.nc, "muster.declare.set.h1.a", state("up")).ok(t)
	for name, value := range series(t, p) {
		if strings.HasPrefix(name, "muster_panics_total") && value != "0" {
			t.Errorf("%s is %s", name, value)
		}
	}
}

// Events and triggers flow while a replica is killed, the durable and the events stream are deleted, and the broker is
// restarted. Each trigger is applied once, and its event is there.
func TestTriggersSurviveWhatHappensToThem(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	replicas := []*program{serveProcess(t, s.URL(), "declare"), serveProcess(t, s.URL(), "declare")}
	b := busOf(t, s.URL())
	var sent atomic.Int64
	flowing, stop := context.WithCancel(ctx(t))
	var wg sync.WaitGroup
	const hives = 8
	for i := range hives {
		wg.Go(func() {
			for n := 0; flowing.Err() == nil; n++ {
				m := &nats.Msg{
					Subject: fmt.Sprintf("muster.trigger.declare.set.h%d.a", i),
					Data:    fmt.Appendf(nil, `{"specversion":"1.0","id":"%d-%d","source":"/flow","type":"t","data":{"state":%q}}`, i, n, []string{"up", "paused"}[n%2]),
				}
				for flowing.Err() == nil { // at least once; the id makes it once
					if _, err := b.nc.RequestMsg(m, time.Second); err == nil {
						sent.Add(1)
						break
					}
				}
				<-time.After(4 * time.Millisecond)
			}
		})
	}
	more := func(what string, n int64) {
		t.Helper()
		from := sent.Load()
		natstest.Eventually(t, startLimit, what, func() bool { return sent.Load() > from+n })
	}
	more("triggers flow", 200)
	replicas[0].signal(syscall.SIGKILL)
	more("they flow past a killed replica", 200)
	replicas[0] = serveProcess(t, s.URL(), "declare")
	if err := b.js.DeleteConsumer(ctx(t), "MUSTER_TRIGGERS", wire.DurableTriggers("declare")); err != nil {
		t.Fatal(err)
	}
	more("they flow past a deleted durable", 200)
	s.Restart()
	more("they flow past a restart", 200)
	if err := b.js.DeleteStream(ctx(t), "MUSTER_EVENTS"); err != nil {
		t.Fatal(err)
	}
	more("they flow past deleted events", 100)
	stop()
	wg.Wait()
	b.settled()
	if dead := b.dead(); len(dead) > 0 {
		t.Errorf("%d dead, the first of %s", len(dead), dead[0].Header.Get("Muster-Error-Code"))
	}
	revisions, causes := map[string]uint64{}, map[string]bool{}
	for _, m := range b.all("KV_muster_wanted") {
		if strings.Contains(m.Subject, "_req") {
			continue
		}
		cause := m.Header.Get("ce-causationid")
		if causes[cause] || cause == "" {
			t.Errorf("%s: trigger %q was applied twice, or not named", m.Subject, cause)
		}
		causes[cause] = true
		revisions["muster.event.hive."+strings.TrimPrefix(m.Subject, "$KV.muster_wanted.")]++
	}
	natstest.Eventually(t, startLimit, "the events of all revisions are there again", func() bool {
		events := map[string]uint64{}
		s, err := b.js.Stream(ctx(t), "MUSTER_EVENTS")
		if err == nil {
			var info *jetstream.StreamInfo
			if info, err = s.Info(ctx(t), jetstream.WithSubjectFilter("muster.event.>")); err == nil {
				events = info.State.Subjects
			}
		}
		return err == nil && maps.Equal(events, revisions)
	})
	t.Logf("%d triggers", sent.Load())
}

// Whose settings the durable has is defined: those that it was made with. Who would have others says so.
func TestTriggersDurableIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	r := startReplica(t, s.URL(), "declare", 1)
	b := busOf(t, s.URL())
	name := wire.DurableTriggers("declare")
	c, err := b.js.Consumer(ctx(t), "MUSTER_TRIGGERS", name)
	if err != nil {
		t.Fatal(err)
	}
	config := c.CachedInfo().Config
	config.AckWait = 77 * time.Second
	if _, err := b.js.UpdateConsumer(ctx(t), "MUSTER_TRIGGERS", config); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, startLimit, "readiness names the difference", func() bool { return strings.Contains(r.problem(ctx(t)), "ack_wait is 1m17s, not 10s") })
	b.event("declare.set.h1.a", "1", `{"state":"up"}`) // it works on
	b.settled()
	if c, err = b.js.Consumer(ctx(t), "MUSTER_TRIGGERS", name); err != nil || c.CachedInfo().Config.AckWait != 77*time.Second {
		t.Errorf("it was changed: %v", err)
	}
	// Somebody else's consumer stands in the way.
	if _, err := b.js.CreateConsumer(ctx(t), "MUSTER_TRIGGERS", jetstream.ConsumerConfig{Durable: "THIEF", FilterSubject: "muster.trigger.*.set.>"}); err == nil {
		t.Error("another consumer may take our triggers")
	}
	r.stop()
	if err := b.js.DeleteConsumer(ctx(t), "MUSTER_TRIGGERS", name); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.CreateConsumer(ctx(t), "MUSTER_TRIGGERS", jetstream.ConsumerConfig{Durable: "THIEF", FilterSubject: "muster.trigger.*.set.>"}); err != nil {
		t.Fatal(err)
	}
	again := connectReplica(t, s.URL(), "declare", 1)
	natstest.Eventually(t, startLimit, "readiness names the other one", func() bool { return strings.Contains(again.problem(ctx(t)), "THIEF") })
	ask(t, b.nc, "muster.declare.set.h1.a", state("paused")).ok(t) // requests are served
	if err := b.js.DeleteConsumer(ctx(t), "MUSTER_TRIGGERS", "THIEF"); err != nil {
		t.Fatal(err)
	}
	b.event("declare.set.h1.a", "2", `{"state":"offline"}`)
	b.settled()
	natstest.Eventually(t, startLimit, "ready", func() bool { return again.problem(ctx(t)) == "" })
}
