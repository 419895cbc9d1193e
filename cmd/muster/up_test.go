package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestUp(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	args := []string{"up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store", store}
	r := background(t, args...)
	url, http := r.ready(t)
	if status, body := get(t, http+"/readyz"); status != 200 {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if out := r.out.String(); !strings.HasSuffix(out, "\nready nats="+url+" http="+http+"\n") || strings.Count(out, url) < 3 {
		t.Errorf("what it says to try does not name %s, or comes after the line that says ready:\n%s", url, out)
	}
	if r := muster("call", "--nats", url, "declare.create.h2.atlas", `{"state":"up"}`); r.code != exitOK {
		t.Fatalf("create: %+v", r)
	}
	inSync(t, "h2", "--nats", url)

	second := muster(args...)
	if second.code != exitFault || !strings.Contains(second.err, "another muster up") {
		t.Errorf("a second one on the same store: %+v, want exit %d and why", second, exitFault)
	}
	if code := r.stop(t); code != exitOK {
		t.Errorf("stopped with %d, want %d", code, exitOK)
	}

	again := background(t, append(args, "--hives", "0")...)
	url, _ = again.ready(t)
	if r := muster("call", "--nats", url, "declare.view.h2"); r.code != exitOK || !strings.Contains(r.out, `"atlas":{"state":"up"}`) {
		t.Errorf("after a restart: %+v", r)
	}
}

func TestUp_PortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	begin := time.Now()
	r := muster("up", "--listen", l.Addr().String(), "--http", "127.0.0.1:0", "--store", t.TempDir())
	if r.code != exitFault || r.out != "" || !strings.Contains(r.err, "\nmuster: start NATS server: ") || !strings.Contains(r.err, "address already in use") {
		t.Errorf("got %+v, want exit %d and why", r, exitFault)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %v to say so", took)
	}
}

func TestUp_StoreThatCannotBe(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "file"), "no folder")
	r := muster("up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store", file)
	if r.code != exitFault || r.out != "" || !strings.Contains(r.err, "--store") {
		t.Errorf("got %+v, want exit %d and why", r, exitFault)
	}
}

func TestParseListen(t *testing.T) {
	for listen, want := range map[string]struct {
		host string
		port int
	}{
		"127.0.0.1:4222": {"127.0.0.1", 4222},
		"127.0.0.1:0":    {"127.0.0.1", -1}, // any free one
		"[::1]:65535":    {"::1", 65535},
		":4222":          {"", 4222},
	} {
		if host, port, err := parseListen(listen); err != nil || host != want.host || port != want.port {
			t.Errorf("parseListen(%q) = %q, %d, %v, want %q, %d", listen, host, port, err, want.host, want.port)
		}
	}
}
