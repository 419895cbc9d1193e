package test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/functions/declare"
	"muster/functions/join"
	"muster/functions/resolve"
	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

// prisoner is a client that tries what it is not permitted.
type prisoner struct {
	*nats.Conn
	t       *testing.T
	user    string
	mu      sync.Mutex
	refused []string
}

func (s *lockedServer) imprison(t *testing.T, user string) *prisoner {
	t.Helper()
	p := &prisoner{t: t, user: user}
	p.Conn = s.connect(user, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.refused = append(p.refused, err.Error())
		}
	}))
	return p
}

// mayNot tries to publish to subjects, and to subscribe to others, and expects the server to refuse each.
func (p *prisoner) mayNot(publish, subscribe []string) {
	p.t.Helper()
	var expected []string
	for _, s := range publish {
		expected = append(expected, fmt.Sprintf("Publish to %q", s))
		if err := p.PublishRequest(s, p.NewInbox(), []byte("{}")); err != nil {
			p.t.Fatal(err)
		}
	}
	for _, s := range subscribe {
		subject, queue, _ := strings.Cut(s, " ")
		expected = append(expected, fmt.Sprintf("Subscription to %q", subject))
		if _, err := p.QueueSubscribe(subject, queue, func(*nats.Msg) {}); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := p.Flush(); err != nil {
		p.t.Fatal(err)
	}
	for _, want := range expected {
		natstest.Eventually(p.t, startLimit, p.user+" is refused: "+want, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return slices.ContainsFunc(p.refused, func(s string) bool { return strings.Contains(s, want) })
		})
	}
}

// outsiders are roles that are not in the functions' account.
var outsiders = []string{"operator", "reader", "trigger", "dead", "hive:h1", "hive:h2", "sled:P:one", "sled:P:two"}

// jail is a locked server on which all functions run, with two hives declared, and a user root who may do everything.
func jail(t *testing.T) (s *lockedServer, root *nats.Conn) {
	t.Helper()
	s = startJail(t, "conf", 1)
	launch(t, s.as("function.all", "serve", "--http", "127.0.0.1:0")...).waitReady()
	root = s.root("MUSTER")
	ask(t, root, "muster.declare.set.h1.a", state("up")).ok(t)
	ask(t, root, "muster.declare.set.h2.a", state("paused")).ok(t)
	return s, root
}

// everySecret are subjects that only functions have business with.
var everySecret = []string{
	"$KV.muster_wanted.h1", "$KV.muster_wanted.h2", "$KV.muster_wanted._req.set.h1.a.x", "$KV.muster_racks.r1", "$KV.muster_networks.r1.1",
	"$JS.API.STREAM.INFO.KV_muster_wanted", "$JS.API.STREAM.MSG.GET.KV_muster_wanted", "$JS.API.DIRECT.GET.KV_muster_wanted",
	"$JS.API.DIRECT.GET.KV_muster_wanted.$KV.muster_wanted.h2", "$JS.API.DIRECT.GET.KV_muster_reported.$KV.muster_reported.h2",
	"$JS.API.STREAM.MSG.GET.KV_muster_networks", "$JS.API.STREAM.PURGE.KV_muster_wanted", "$JS.API.STREAM.DELETE.KV_muster_wanted",
	"$JS.API.STREAM.UPDATE.KV_muster_wanted", "$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.SNAPSHOT.KV_muster_wanted",
	"$JS.API.STREAM.MSG.DELETE.KV_muster_wanted", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.INFO",
	"$JS.API.CONSUMER.CREATE.KV_muster_wanted", "$JS.API.CONSUMER.CREATE.KV_muster_wanted.c",
	"$JS.API.CONSUMER.CREATE.KV_muster_wanted.c.$KV.muster_wanted.h2", "$JS.API.CONSUMER.CREATE.KV_muster_wanted.c.$KV.muster_wanted.>",
	"$JS.API.CONSUMER.DURABLE.CREATE.KV_muster_wanted.c", "$JS.API.CONSUMER.CREATE.KV_muster_networks.c",
	"$JS.API.CONSUMER.MSG.NEXT.KV_muster_racks.muster-join", "$JS.API.CONSUMER.DELETE.KV_muster_racks.muster-join",
	"$SRV.PING", "$SRV.INFO.muster-declare", "$SYS.REQ.SERVER.PING", "muster.sled.P.two.commit", "muster.sled.P.two.start", "muster.sled.P.two.reset",
	"_INBOX.operator.operator.x",
}

var everyEar = []string{
	">", "*.>", "muster.>", "muster.declare.>", "muster.declare.set.> declare", "$KV.>", "$JS.>", "_INBOX.>", "_INBOX.hive.>", "_INBOX.hive.h2.>",
	"_INBOX.function.all.>", "_INBOX.sled.P.two.>", "muster.sled.P.two.identity sled", "muster.sled.P.two.prepare", "$JS.EVENT.ADVISORY.>",
}

// TestPerms_EachIsKeptToItsOwn: every role tries what is not its own.
func TestPerms_EachIsKeptToItsOwn(t *testing.T) {
	t.Parallel()
	s, root := jail(t)
	var requests, changes, triggers []string
	for _, fn := range []runtime.Function{declare.New(declare.Deps{}), join.New(join.Deps{}), resolve.New(resolve.Deps{})} {
		for _, op := range fn.Ops {
			subject := fn.Name + "." + op.Name + strings.Repeat(".x", len(op.IDs))
			requests = append(requests, "muster."+subject)
			if op.Changes {
				changes = append(changes, "muster."+subject)
				triggers = append(triggers, "muster.trigger."+subject)
			}
		}
	}
	everything := func(lists ...[]string) []string { return slices.Concat(lists...) }

	hive := s.imprison(t, "hive.h1")
	hive.mayNot(everything(everySecret, requests, triggers, []string{"$KV.muster_reported.h2", "$KV.muster_sleds.P.one", "muster.sled.P.two.identity"}), everyEar)
	sled := s.imprison(t, "sled.P.one")
	sled.mayNot(everything(everySecret, requests, triggers, []string{"$KV.muster_sleds.P.two", "$KV.muster_reported.h1"}),
		everything(everyEar, []string{"muster.sled.*.*.identity sled", "muster.sled.P.one.> sled", "muster.sled.P.one.prepare"}))
	s.imprison(t, "operator.operator").mayNot(without(everySecret, "_INBOX.operator.operator.x"), everyEar)
	s.imprison(t, "reader.reader").mayNot(everything(everySecret, changes, triggers), everyEar)
	s.imprison(t, "trigger.trigger").mayNot(everything(everySecret, requests, []string{"$JS.API.DIRECT.GET.MUSTER_DEAD"}), everyEar)
	s.imprison(t, "dead.dead").mayNot(everything(everySecret, requests, []string{"$JS.API.STREAM.MSG.DELETE.MUSTER_EVENTS"}), everyEar)
	s.imprison(t, "function.all").mayNot([]string{
		"$JS.API.STREAM.DELETE.KV_muster_wanted", "$JS.API.STREAM.UPDATE.KV_muster_wanted", "$JS.API.STREAM.PURGE.KV_muster_wanted",
		"$KV.muster_reported.h1", "$KV.muster_sleds.P.one", "muster.sled.P.one.prepare", "muster.sled.P.one.share", "muster.declare.set.h1.a",
	}, []string{">", "_INBOX.>", "_INBOX.operator.operator.>", "muster.sled.P.one.prepare sled", "muster.declare.set.>"})

	if d := ask(t, root, "muster.declare.view.h1", "").ok(t); d.Revision != 1 {
		t.Errorf("after all that h1 is at revision %d", d.Revision)
	}
	// The subject of a consumer's making says which key it is for, and the body cannot say otherwise.
	for _, body := range []string{
		`"filter_subject":"$KV.muster_wanted.h2"`, `"filter_subjects":["$KV.muster_wanted.h2"]`, `"filter_subject":"$KV.muster_wanted.>"`,
		`"filter_subject":""`, `"filter_subjects":["$KV.muster_wanted.h1","$KV.muster_wanted.h2"]`,
	} {
		m, err := hive.Request("$JS.API.CONSUMER.CREATE.KV_muster_wanted.c.$KV.muster_wanted.h1",
			[]byte(`{"stream_name":"KV_muster_wanted","config":{"name":"c","ack_policy":"none","deliver_subject":"_INBOX.hive.h1.c",`+body+`}}`), startLimit)
		if err != nil || !strings.Contains(string(m.Data), `"error"`) {
			t.Errorf("a consumer with %s: %v, %s", body, err, m.Data)
		}
	}
}

// TestPerms_NobodySendsForAnother: an answer goes where the caller says, under the permissions of who answers, and a consumer
// delivers where its maker says. Functions therefore answer only into inboxes, and take no message from a consumer for a request.
func TestPerms_NobodySendsForAnother(t *testing.T) {
	t.Parallel()
	s, root := jail(t)
	operator, hive := s.connect("operator.operator"), s.connect("hive.h1")
	for _, reply := range []string{"$KV.muster_wanted.h2", "$KV.muster_racks.r1", "muster.declare.set.h2.a", "muster.trigger.declare.set.h2.a"} {
		if err := operator.PublishRequest("muster.declare.set.h3.a", reply, []byte(state("up"))); err != nil {
			t.Fatal(err)
		}
	}
	create := func(name, deliver string) {
		m, err := hive.Request("$JS.API.CONSUMER.CREATE.KV_muster_wanted."+name+".$KV.muster_wanted.h1", []byte(`{"stream_name":"KV_muster_wanted","config":
			{"name":"`+name+`","ack_policy":"none","deliver_policy":"last","filter_subject":"$KV.muster_wanted.h1","deliver_subject":"`+deliver+`"}}`), startLimit)
		if err != nil || strings.Contains(string(m.Data), `"error"`) {
			t.Fatalf("create consumer: %v, %s", err, m.Data)
		}
	}
	create("c0", "$KV.muster_reported.h2") // a stream
	create("c1", "muster.declare.apply.h2")
	create("c2", "muster.join.reset.r1")
	witness, err := root.SubscribeSync("_INBOX.seen")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(operator.Flush(), hive.Flush(), root.Flush()); err != nil {
		t.Fatal(err)
	}
	create("c3", "_INBOX.seen") // made last: when it has delivered, so have the others
	if _, err := witness.NextMsg(startLimit); err != nil {
		t.Fatal(err)
	}
	for range 3 { // requests that came before are served
		ask(t, root, "muster.declare.view.h1", "").ok(t)
		<-time.After(20 * time.Millisecond)
	}
	if m, err := root.Request("$JS.API.STREAM.MSG.GET.KV_muster_reported", []byte(`{"last_by_subj":"$KV.>"}`), startLimit); err != nil || !strings.Contains(string(m.Data), "10037") {
		t.Errorf("a stream stored what a consumer delivered: %v, %s", err, m.Data)
	}
	if d := ask(t, root, "muster.declare.view.h3", "").ok(t); d.Revision != 3 { // the operator may declare h3, and the rest did not come
		t.Errorf("h3 is %+v", d)
	}
	if d := ask(t, root, "muster.declare.view.h2", "").ok(t); d.Revision != 2 || d.Agents["a"].State != wire.Paused {
		t.Errorf("h2 is %+v", d)
	}
}
