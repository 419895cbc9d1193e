package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/runtime/natstest"
	"muster/wire"
)

// call runs `muster call` against a server and returns its exit code and what it printed.
func call(t *testing.T, url, stdin string, args ...string) (code int, out, errOut string) {
	t.Helper()
	p := prepare(t, append([]string{"call", "--nats", url}, args...)...)
	p.cmd.Stdin = strings.NewReader(stdin)
	p.start()
	code = p.waitExit(startLimit)
	return code, p.out.String(), p.err.String()
}

func TestCallExitCodes(t *testing.T) {
	s := natstest.Start(t)
	startReplica(t, s.URL(), "declare", 1)
	kv := wanted(t, natstest.Connect(t, s.URL()))
	kv.put("broken", "not json")
	nobody := natstest.Start(t)
	down := natstest.Reserve(t)
	denied := natstest.Start(t)
	r := startReplica(t, denied.URL(), "declare", 1)
	if err := wanted(t, natstest.Connect(t, denied.URL())).js.DeleteStream(ctx(t), "KV_muster_wanted"); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, startLimit, "the bucket is missed", func() bool { return r.problem(ctx(t)) != "" })
	large := filepath.Join(t.TempDir(), "large.json")
	if err := os.WriteFile(large, []byte(`{"state":"up"`+strings.Repeat(" ", 2<<20)+"}"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := filepath.Join(t.TempDir(), "up.json")
	if err := os.WriteFile(up, []byte(state("up")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code   int
		url    string
		stdin  string
		args   []string
		answer wire.Code // in the body on standard output; "" for none
	}{
		{code: 0, args: []string{"declare.create.h1.a", state("up")}},
		{code: 0, args: []string{"muster.declare.view.h1"}},
		{code: 0, args: []string{"declare.set.h1.a", "-f", up}},
		{code: 0, args: []string{"declare.set.h1.b", "-f", "-"}, stdin: state("paused")},
		{code: 0, args: []string{"declare.list"}},
		{code: 0, args: []string{"declare.set.h1.c", state("up"), "--id", "once"}},
		{code: 0, args: []string{"declare.set.h1.d", state("destroyed")}},
		{code: 2, args: nil},
		{code: 2, args: []string{"declare.view.h1", "--no-such-flag"}},
		{code: 2, args: []string{"declare.set.h1.a", state("up"), "-f", "-"}, stdin: state("up")},
		{code: 2, args: []string{"declare.set.h1.a", "-f", up + ".none"}},
		{code: 2, args: []string{"declare.view.h1", "--timeout", "soon"}},
		{code: 2, args: []string{"declare.view.h1", "--timeout", "0s"}},
		{code: 3, args: []string{"declare.set.h1.a", `{"stat":"up"}`}, answer: wire.InvalidRequest},
		{code: 3, args: []string{"declare.view.nowhere"}, answer: wire.HiveNotDeclared},
		{code: 3, args: []string{"declare.set.h1.d", state("up")}, answer: wire.AgentDestroyed},
		{code: 3, args: []string{"declare.set.h1.a", "-f", large}},
		{code: 3, args: []string{"declare.view.a b"}},
		{code: 3, args: []string{"declare.view.a..b"}},
		{code: 3, args: []string{"declare.view."}},
		{code: 3, args: []string{"declare.view.*"}},
		{code: 3, args: []string{"declare.view.>"}},
		{code: 3, args: []string{"declare.view.a\tb"}},
		{code: 3, args: []string{"declare.view.a\r\nb"}},
		{code: 3, args: []string{"declare.view.é"}},
		{code: 3, args: []string{"declare.view." + strings.Repeat("a", 5000)}},
		{code: 4, args: []string{"declare.set.h1.a", `{"state":"paused","if_revision":999}`}, answer: wire.RevisionMismatch},
		{code: 4, args: []string{"declare.set.h1.c", state("paused"), "--id", "once"}, answer: wire.RequestIDReused},
		{code: 5, url: nobody.URL(), args: []string{"declare.view.h1"}},
		{code: 5, url: down.URL(), args: []string{"declare.view.h1"}},
		{code: 5, url: denied.URL(), args: []string{"declare.view.h1"}, answer: wire.Unavailable},
		{code: 5, args: []string{"declare.no-such-op.h1"}},
		{code: 6, args: []string{"declare.view.broken"}, answer: wire.CorruptRecord},
		{code: 6, args: []string{"declare.set.broken.a", state("up")}, answer: wire.CorruptRecord},
	} {
		url := s.URL()
		if c.url != "" {
			url = c.url
		}
		name := fmt.Sprintf("%.80q", c.args)
		code, out, errOut := call(t, url, c.stdin, c.args...)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d; printed %s%s", name, code, c.code, out, errOut)
			continue
		}
		var body wire.ErrorBody
		isJSON := json.Unmarshal([]byte(out), &body) == nil
		switch {
		case (c.code == 0 || c.answer != "") && (!isJSON || body.Code != c.answer):
			t.Errorf("%s: printed %s, want a body with code %q", name, out, c.answer)
		case c.code == 0 && errOut != "":
			t.Errorf("%s: a success complains: %s", name, errOut)
		case c.code != 0 && c.answer == "" && errOut == "":
			t.Errorf("%s: fails with %d and says nothing", name, code)
		}
	}
}

// A request that gets no answer at all ends in time, and with the code of what timed out.
func TestCallTimesOut(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	nc := natstest.Connect(t, s.URL())
	if _, err := nc.SubscribeSync("muster.declare.view.h1"); err != nil { // takes requests, and is silent
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	code, out, errOut := call(t, s.URL(), "", "declare.view.h1", "--timeout", "300ms")
	if took := time.Since(began); code != 5 || out != "" || errOut == "" || took > 10*time.Second {
		t.Errorf("exit code %d after %v, printed %q and %q", code, took, out, errOut)
	}
}
