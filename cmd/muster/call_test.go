package main

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
	"muster/wire"
)

// inSync waits until a hive reports what is declared.
func inSync(t *testing.T, hive string, flags ...string) {
	t.Helper()
	natstest.Eventually(t, 20*time.Second, "hive "+hive+" in sync", func() bool {
		var status struct {
			InSync bool `json:"in_sync"`
		}
		r := muster(append([]string{"call", "declare.status." + hive}, flags...)...)
		return r.code == exitOK && json.Unmarshal([]byte(r.out), &status) == nil && status.InSync
	})
}

func TestOutcome(t *testing.T) {
	failed := func(code wire.Code) *nats.Msg {
		body, err := json.Marshal(wire.Errorf(code, "so it is").Body("id"))
		if err != nil {
			t.Fatal(err)
		}
		return &nats.Msg{Data: body}
	}
	want := map[int]int{400: exitRefused, 404: exitRefused, 409: exitConflict, 410: exitRefused, 413: exitRefused,
		500: exitFault, 503: exitUnavailable, 504: exitUnavailable}
	for code, status := range wire.Codes() {
		exitCode, known := want[status]
		if !known {
			t.Errorf("status %d of %s is not in this test", status, code)
		}
		bare := failed(code) // a bridge may have dropped the headers
		full := failed(code)
		full.Header = nats.Header{wire.HeaderErrorCode: {strconv.Itoa(status)}}
		for how, msg := range map[string]*nats.Msg{"by body": bare, "by header": full} {
			if got := exitOf(outcome(msg)); got != exitCode {
				t.Errorf("%s %s: exit %d, want %d", code, how, got, exitCode)
			}
		}
	}
	for _, body := range []string{`{}`, `{"hive":"h1"}`, `{"error_code":""}`, `pong`, ``, `[1]`} {
		if err := outcome(&nats.Msg{Data: []byte(body)}); err != nil {
			t.Errorf("reply %q: %v, want success", body, err)
		}
	}
	odd := &nats.Msg{Header: nats.Header{wire.HeaderErrorCode: {"302"}}}
	if got := exitOf(outcome(odd)); got != exitFault {
		t.Errorf("an error that nobody knows: exit %d, want %d", got, exitFault)
	}
}

func exitOf(err error) int {
	if e, ok := errors.AsType[*exit](err); ok {
		return e.code
	}
	return exitOK
}

func TestCall_StoredRecordThatNobodyCanRead(t *testing.T) {
	node := natstest.Start(t)
	serving(t, node.URL())
	nc := natstest.Connect(t, node.URL())
	if _, err := nc.Request(wire.KeySubject(wire.BucketWanted, "h1"), []byte(`junk`), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	r := muster("call", "--nats", node.URL(), "declare.view.h1")
	if r.code != exitFault || !strings.Contains(r.out, `"error_code":"CorruptRecord"`) {
		t.Errorf("got %+v, want CorruptRecord and exit %d", r, exitFault)
	}
}

func TestCall_BucketGone(t *testing.T) {
	node := natstest.Start(t)
	serving(t, node.URL())
	nc := natstest.Connect(t, node.URL())
	if _, err := nc.Request("$JS.API.STREAM.DELETE."+wire.BucketStream(wire.BucketWanted), nil, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	r := muster("call", "--nats", node.URL(), "declare.set.h1.atlas", `{"state":"up"}`)
	if r.code != exitUnavailable || !strings.Contains(r.out, `"error_code":"Unavailable"`) {
		t.Errorf("got %+v, want Unavailable and exit %d", r, exitUnavailable)
	}
}

func TestCall_NobodyThere(t *testing.T) {
	r := muster("call", "--nats", natstest.Reserve(t).URL(), "declare.view.h1")
	if r.code != exitUnavailable || r.out != "" || !strings.Contains(r.err, "connect to NATS") {
		t.Errorf("no server: %+v, want exit %d and why", r, exitUnavailable)
	}

	node := natstest.Start(t, natstest.WithoutJetStream())
	nc := natstest.Connect(t, node.URL())
	asked := make(chan *nats.Msg, 1)
	if _, err := nc.ChanSubscribe("muster.declare.set.h1.mute", asked); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	r = muster("call", "--nats", node.URL(), "--timeout", "50ms", "--id", "try-1", "declare.set.h1.mute", `{"state":"up"}`)
	if r.code != exitUnavailable || r.out != "" || !strings.Contains(r.err, "may or may not be done") {
		t.Errorf("no answer: %+v, want exit %d and that nothing is known", r, exitUnavailable)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("no answer took %v", took)
	}
	msg := <-asked
	if msg.Header.Get(wire.HeaderTimeout) != "50ms" || msg.Header.Get(wire.HeaderRequestID) != "try-1" || string(msg.Data) != `{"state":"up"}` {
		t.Errorf("sent %v %s", msg.Header, msg.Data)
	}
}

func TestCall_NotPermitted(t *testing.T) {
	node := natstest.Start(t, natstest.WithoutJetStream(), natstest.With(func(o *server.Options) {
		o.Users = []*server.User{{Username: "reader", Password: "pw", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{"muster.declare.view.>"}},
		}}}
	}))
	url := strings.Replace(node.URL(), "//", "//reader:pw@", 1)
	begin := time.Now()
	r := muster("call", "--nats", url, "--timeout", "20s", "declare.set.h1.atlas", `{"state":"up"}`)
	if r.code != exitRefused || r.out != "" || !strings.Contains(strings.ToLower(r.err), "permissions violation") {
		t.Errorf("got %+v, want exit %d and why", r, exitRefused)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v: it waited for an answer that cannot come", took)
	}
	if r := muster("call", "--nats", node.URL(), "declare.view.h1"); r.code != exitUnavailable {
		t.Errorf("without user: %+v, want exit %d", r, exitUnavailable)
	}
}

func TestCall_BodyTooLargeForTheServer(t *testing.T) {
	node := natstest.Start(t, natstest.WithoutJetStream(), natstest.MaxPayload(4096))
	body := `{"state":"` + strings.Repeat("x", 5000) + `"}`
	r := musterIn(body, "call", "--nats", node.URL(), "declare.set.h1.atlas", "-f", "-")
	if r.code != exitRefused || !strings.Contains(r.err, "5012 bytes") {
		t.Errorf("got %+v, want exit %d and the size", r, exitRefused)
	}
}
