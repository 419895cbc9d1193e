package test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
	"muster/wire"
)

// bus is what a service author sees of triggers and events.
type bus struct {
	t  testing.TB
	nc *nats.Conn
	js jetstream.JetStream
}

func busOf(t testing.TB, url string) *bus {
	t.Helper()
	nc := natstest.Connect(t, url)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return &bus{t, nc, js}
}

// trigger publishes a trigger with headers, names and values in turn, and returns its sequence in the stream.
func (b *bus) trigger(subject, body string, headers ...string) uint64 {
	b.t.Helper()
	m := &nats.Msg{Subject: "muster.trigger." + subject, Data: []byte(body), Header: nats.Header{}}
	for i := 0; i < len(headers); i += 2 {
		m.Header[headers[i]] = []string{headers[i+1]}
	}
	ack, err := b.js.PublishMsg(ctx(b.t), m)
	if err != nil {
		b.t.Fatalf("publish trigger %s: %v", subject, err)
	}
	return ack.Sequence
}

// event publishes a trigger in the plainest form.
func (b *bus) event(subject, id, data string) uint64 {
	b.t.Helper()
	return b.trigger(subject, `{"specversion":"1.0","id":"`+id+`","source":"/test","type":"t","data":`+data+`}`)
}

// left is how many triggers are not settled.
func (b *bus) left() uint64 { return b.state("MUSTER_TRIGGERS").Msgs }

func (b *bus) state(stream string) jetstream.StreamState {
	b.t.Helper()
	return b.stream(stream).CachedInfo().State
}

// stream looks at a stream. One whose leader has just died answers nothing, so it is asked again.
func (b *bus) stream(name string) (s jetstream.Stream) {
	b.t.Helper()
	natstest.Eventually(b.t, wholeLimit, name+" tells about itself", func() bool {
		once, cancel := context.WithTimeout(ctx(b.t), 3*time.Second)
		defer cancel()
		var err error
		s, err = b.js.Stream(once, name)
		return err == nil
	})
	return s
}

// settled waits until no trigger is left.
func (b *bus) settled() {
	b.t.Helper()
	natstest.Eventually(b.t, startLimit, "no trigger is left", func() bool { return b.left() == 0 })
}

// dead are the dead letters so far.
func (b *bus) dead() []*jetstream.RawStreamMsg { return b.all("MUSTER_DEAD") }

func (b *bus) all(stream string) []*jetstream.RawStreamMsg {
	b.t.Helper()
	s := b.stream(stream)
	state := s.CachedInfo().State
	var msgs []*jetstream.RawStreamMsg
	for seq := state.FirstSeq; seq > 0 && seq <= state.LastSeq; seq++ {
		if m, err := s.GetMsg(ctx(b.t), seq); err == nil {
			msgs = append(msgs, m)
		}
	}
	return msgs
}

func TestTriggersInEveryForm(t *testing.T) { onEach(t, triggersInEveryForm) }

func triggersInEveryForm(t *testing.T, copies int) {
	s := startNodes(t, copies)
	startReplica(t, s.URL(), "declare", copies)
	b := busOf(t, s.URL())
	const body = `{"state":"up"}`
	required := []string{"ce-specversion", "1.0", "ce-id", "1", "ce-source", "/b", "ce-type", "t"}
	b.trigger("declare.set.h1.binary", body, append(required, "ce-datacontenttype", "application/json", "ce-subject", "rack%20%C3%A9%201")...)
	b.trigger("declare.set.h1.upper", body, "Ce-Specversion", "1.0", "CE-ID", "2", "Ce-Source", "/b", "ce-TYPE", "t", "content-type", "application/json")
	b.trigger("declare.set.h1.sdk", body, "ce-specversion", "1.0", "ce-id", "3", "ce-source", "/b", "ce-type", "t", "content-type", "application/json", "ce-subject", "rack é 1 100%")
	b.trigger("declare.set.h1.structured", `{"specversion":"1.0","id":"4","source":"/b","type":"t","data":{"state":"up"}}`, "Content-Type", "application/cloudevents+json; charset=utf-8")
	b.trigger("declare.set.h1.plain", `{"specversion":"1.0","id":"5","source":"/b","type":"t","data":{"state":"up"}}`)
	b.trigger("declare.set.h1.base64", `{"specversion":"1.0","id":"6","source":"/b","type":"t","datacontenttype":"application/json","data_base64":"eyJzdGF0ZSI6InVwIn0="}`)
	b.trigger("declare.apply.h1", `{"agents":{"applied":{"state":"up"}}}`, required...)
	b.settled()
	if dead := b.dead(); len(dead) > 0 {
		t.Fatalf("dead: %s %v", dead[0].Subject, dead[0].Header)
	}
	d := ask(t, b.nc, "muster.declare.view.h1", "").ok(t)
	for _, agent := range []string{"binary", "upper", "sdk", "structured", "plain", "base64", "applied"} {
		if d.Agents[agent].State != wire.Up {
			t.Errorf("%s was not applied", agent)
		}
	}
}

// What a trigger caused says so: the event of its revision has the trigger's id, its request id, and its trace.
func TestTriggerCausesAnEvent(t *testing.T) { onEach(t, triggerCausesAnEvent) }

func triggerCausesAnEvent(t *testing.T, copies int) {
	s := startNodes(t, copies)
	startReplica(t, s.URL(), "declare", copies)
	b := busOf(t, s.URL())
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	plain, err := b.nc.SubscribeSync("muster.event.>") // as `nats sub` does
	if err != nil {
		t.Fatal(err)
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	b.trigger("declare.set.h1.a", `{"state":"up"}`, "ce-specversion", "1.0", "ce-id", "or%C3%A9 1", "ce-source", "/deploy", "ce-type", "t", "ce-traceparent", trace)
	m, err := plain.NextMsg(startLimit)
	if err != nil {
		t.Fatalf("no event is heard: %v", err)
	}
	for name, want := range map[string]string{
		"ce-causationid": "or%C3%A9%201", "ce-traceparent": trace, "ce-subject": "h1", "ce-source": "/muster/muster_wanted",
		"ce-type": "muster.hive.declared.v1", "ce-specversion": "1.0", "ce-datacontenttype": "application/json", "ce-previous": "0",
		"ce-requestid": wire.TriggerID("/deploy", "oré 1"),
	} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if m.Subject != "muster.event.hive.h1" || string(m.Data) != `{"agents":{"a":{"state":"up"}}}` {
		t.Errorf("%s: %s", m.Subject, m.Data)
	}
	ask(t, b.nc, "muster.declare.set.h1.a", state("paused"), "Muster-Request-Id", "mine", "traceparent", trace).ok(t)
	if m, err = plain.NextMsg(startLimit); err != nil || m.Header.Get("ce-requestid") != "mine" || m.Header.Get("ce-traceparent") != trace || m.Header.Get("ce-causationid") != "" {
		t.Errorf("%v: %v", err, m.Header)
	}
	if b.state("MUSTER_EVENTS").Msgs != 2 { // the memos are no events
		t.Errorf("%+v", b.state("MUSTER_EVENTS"))
	}
}

func TestTriggersThatCanNeverSucceed(t *testing.T) { onEach(t, triggersThatCanNeverSucceed) }

func triggersThatCanNeverSucceed(t *testing.T, copies int) {
	s := startNodes(t, copies)
	r := startReplica(t, s.URL(), "declare", copies)
	b := busOf(t, s.URL())
	ask(t, b.nc, "muster.declare.set.h1.gone", state("destroyed")).ok(t)
	for i, c := range []struct {
		what, subject, data string
		code                wire.Code
	}{
		{"an op that only reads", "declare.view.h1", `{}`, wire.InvalidRequest},
		{"no op", "declare.frob.h1", `{}`, wire.InvalidRequest},
		{"a name too many", "declare.set.h1.a.b", `{"state":"up"}`, wire.InvalidRequest},
		{"a body with a typo", "declare.set.h1.a", `{"stat":"up"}`, wire.InvalidRequest},
		{"a state that stands against it", "declare.set.h1.gone", `{"state":"up"}`, wire.AgentDestroyed},
		{"a revision that is over", "declare.set.h1.a", `{"state":"up","if_revision":99}`, wire.RevisionMismatch},
	} {
		seq := b.event(c.subject, "never-"+strconv.Itoa(i), c.data)
		var dead *jetstream.RawStreamMsg
		natstest.Eventually(t, startLimit, c.what+" is dead", func() bool {
			all := b.dead()
			if len(all) == i+1 {
				dead = all[i]
			}
			return dead != nil
		})
		if dead.Subject != "muster.dead."+c.subject || dead.Header.Get("Muster-Error-Code") != string(c.code) ||
			dead.Header.Get("Muster-Error") == "" || dead.Header.Get("Muster-Deliveries") != "1" ||
			dead.Header.Get("Muster-Stream-Sequence") != strconv.FormatUint(seq, 10) {
			t.Errorf("%s: %s %v", c.what, dead.Subject, dead.Header)
		}
	}
	b.settled()
	if got := triggersOf(t, r, "dead"); got != 6 {
		t.Errorf("%v are counted", got)
	}
}

// triggersOf is what the metrics count of triggers with an outcome.
func triggersOf(t testing.TB, r *replica, outcome string) float64 {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "muster_triggers_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" && l.GetValue() == outcome {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	t.Fatalf("no series for outcome %s", outcome)
	return 0
}

// The same event, published twice and delivered however often, is applied once; what changed in between stays.
func TestTriggerIsAppliedOnce(t *testing.T) { onEach(t, triggerIsAppliedOnce) }

func triggerIsAppliedOnce(t *testing.T, copies int) {
	s := startNodes(t, copies)
	startReplica(t, s.URL(), "declare", copies)
	b := busOf(t, s.URL())
	b.event("declare.set.h1.a", "once", `{"state":"up"}`)
	b.settled()
	ask(t, b.nc, "muster.declare.set.h1.a", state("paused")).ok(t)
	b.event("declare.set.h1.a", "once", `{"state":"up"}`)
	b.settled()
	if d := ask(t, b.nc, "muster.declare.view.h1", "").ok(t); d.Agents["a"].State != wire.Paused {
		t.Errorf("applied twice: %+v", d)
	}
	b.event("declare.set.h1.a", "once", `{"state":"offline"}`) // another body under the same id
	natstest.Eventually(t, startLimit, "it is dead", func() bool { return len(b.dead()) == 1 })
	if code := b.dead()[0].Header.Get("Muster-Error-Code"); code != string(wire.RequestIDReused) {
		t.Errorf("dead of %s", code)
	}
}
