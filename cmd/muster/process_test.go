package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/runtime/natstest"
)

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestServe_StartsBeforeItsServer(t *testing.T) {
	node := natstest.Reserve(t)
	r := background(t, "serve", "declare", "--nats", node.URL(), "--http", "127.0.0.1:0")
	natstest.Eventually(t, 10*time.Second, "an HTTP address in the log", func() bool {
		return strings.Contains(r.err.String(), "msg=http")
	})
	if out := r.out.String(); out != "" {
		t.Errorf("before there is a server it says %q", out)
	}
	node.Up()
	at, http := r.ready(t)
	if at != node.URL() {
		t.Errorf("ready at %s, want %s", at, node.URL())
	}
	if status, body := get(t, http+"/readyz"); status != 200 || !strings.Contains(body, `"ready":true`) {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if status, body := get(t, http+"/livez"); status != 200 || body != "ok\n" {
		t.Errorf("/livez: %d %s", status, body)
	}
	if code := r.stop(t); code != exitOK {
		t.Errorf("stopped with %d, want %d", code, exitOK)
	}
	if out := r.out.String(); strings.Count(out, "\n") != 1 {
		t.Errorf("more than the ready line on standard output:\n%s", out)
	}
}

func TestServe_StopsWithoutAServer(t *testing.T) {
	r := background(t, "serve", "--nats", natstest.Reserve(t).URL(), "--http", "127.0.0.1:0")
	natstest.Eventually(t, 10*time.Second, "it serves", func() bool { return strings.Contains(r.err.String(), "msg=serving") })
	if code := r.stop(t); code != exitOK {
		t.Errorf("stopped with %d, want %d", code, exitOK)
	}
}

func TestHTTP_DefaultGivesWayAnAddressThatWasGivenDoesNot(t *testing.T) {
	node := natstest.Start(t)
	l, err := net.Listen("tcp", httpDefault)
	ours := err == nil // else somebody else has it, perhaps not for long
	if ours {
		defer l.Close()
	}
	given, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	for name, args := range map[string][]string{
		"serve": {"serve", "--nats", node.URL()},
		"up":    {"up", "--listen", "127.0.0.1:0", "--store", t.TempDir()},
	} {
		r := background(t, args...)
		_, http := r.ready(t)
		if ours && (http == "http://"+httpDefault || !strings.Contains(r.err.String(), "taken")) {
			t.Errorf("%s: HTTP at %s, want another address and a word about it", name, http)
		}
		if status, _ := get(t, http+"/livez"); status != 200 {
			t.Errorf("%s: /livez: %d", name, status)
		}
		r.stop(t)

		r = background(t, append(args, "--http", given.Addr().String())...)
		if code := r.wait(t, 10*time.Second); code != exitFault || !strings.Contains(r.err.String(), "address already in use") {
			t.Errorf("%s: a given address that is taken: exit %d, want %d and why", name, code, exitFault)
		}
	}
}

func TestSignals_TheFirstStops(t *testing.T) {
	node := natstest.Start(t)
	p := inProcess(t, "serve", "--nats", node.URL(), "--http", "127.0.0.1:0")
	p.says(t, "ready nats=")
	p.terminate()
	if err := <-p.end; err != nil {
		t.Errorf("after SIGTERM: %v, want exit 0; it wrote:\n%s", err, &p.out)
	}
}

func TestSignals_TheSecondEndsAtOnce(t *testing.T) {
	node := natstest.Start(t)
	serving(t, node.URL())
	if r := muster("call", "--nats", node.URL(), "declare.set.h1.atlas", `{"state":"up"}`); r.code != exitOK {
		t.Fatalf("call: %+v", r)
	}
	const deaf = `trap "" TERM; echo has begun >&2; sleep 8`
	p := inProcess(t, "hive", "--nats", node.URL(), "--name", "h1", "--on-change", deaf)
	p.says(t, "has begun")
	p.terminate() // it waits for its command, which does not listen
	natstest.Eventually(t, 4*time.Second, "a second SIGTERM ends it", func() bool {
		p.terminate()
		return len(p.end) > 0
	})
	var ended *exec.ExitError
	if err := <-p.end; !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("ended with %v, want by the signal", err)
	}
}
