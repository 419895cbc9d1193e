package natstest

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// short is how long a test waits for what must not come.
const short = 200 * time.Millisecond

func TestProxy_passesOn(t *testing.T) {
	n := Start(t)
	p := StartProxy(t, n.URL())
	nc := Connect(t, p.URL())
	if got := nc.ConnectedUrl(); got != p.URL() || got == n.URL() {
		t.Errorf("connected to %s", got)
	}
	echo(t, Connect(t, n.URL()), "echo")
	mustAnswer(t, nc, "echo")

	big := bytes.Repeat([]byte("\r\nPUB x 3\r\n"), 90_000) // payloads are not looked into
	m, err := nc.Request("echo", big, limit)
	if err != nil || !bytes.Equal(m.Data, big) {
		t.Errorf("a big message: %v", err)
	}
	withHeader := nats.NewMsg("echo")
	withHeader.Header.Set("A", "b")
	withHeader.Data = []byte("x")
	if _, err := nc.RequestMsg(withHeader, limit); err != nil {
		t.Errorf("a message with headers: %v", err)
	}

	kv := bucket(t, nc, "b", 1)
	put(t, kv, "k", "v")
	eventuallyHas(t, kv, "k", "v")

	nc.Close()
	Eventually(t, limit, "the proxy forgets a closed connection", func() bool { return p.open() == 0 })
	Eventually(t, limit, "the server does too", func() bool { return n.Server().NumClients() == 1 })
}

func (p *Proxy) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func TestProxy_URL(t *testing.T) {
	p := StartProxy(t, "nats://me:secret@127.0.0.1:1")
	if !strings.HasPrefix(p.URL(), "nats://me:secret@127.0.0.1:") {
		t.Errorf("URL is %s", p.URL())
	}
	if _, err := nats.Connect(p.URL()); err == nil {
		t.Error("connected to nobody")
	}
}

func TestProxy_serverRestarts(t *testing.T) {
	n := Start(t)
	p := StartProxy(t, n.URL())
	nc := Connect(t, p.URL())
	n.Stop()
	Eventually(t, limit, "the client sees the server go", func() bool { return !nc.IsConnected() })
	n.Up()
	Eventually(t, limit, "the client is back", nc.IsConnected)
}

func TestProxy_cut(t *testing.T) {
	n := Start(t)
	p := StartProxy(t, n.URL())
	echo(t, Connect(t, n.URL()), "echo")
	var lost, back atomic.Int32
	nc := Connect(t, p.URL(),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { lost.Add(1) }),
		nats.ReconnectHandler(func(*nats.Conn) { back.Add(1) }))
	for i := range int32(3) {
		p.Cut()
		p.Cut() // again is nothing
		Eventually(t, limit, "the client sees the cut", func() bool { return lost.Load() == i+1 && !nc.IsConnected() })
		if c, err := net.Dial("tcp", p.addr); err == nil {
			c.Close()
			t.Fatal("a cut proxy takes connections")
		}
		p.Heal()
		p.Heal()
		Eventually(t, limit, "the client is back", func() bool { return back.Load() == i+1 && nc.IsConnected() })
		mustAnswer(t, nc, "echo")
	}
}

func TestProxy_blackhole(t *testing.T) {
	n := Start(t)
	p := StartProxy(t, n.URL())
	direct := Connect(t, n.URL())
	nc := Connect(t, p.URL(), nats.Timeout(short))
	atServer, err := direct.SubscribeSync("up")
	if err != nil {
		t.Fatal(err)
	}
	flush(t, direct)
	atClient, err := nc.SubscribeSync("down")
	if err != nil {
		t.Fatal(err)
	}
	flush(t, nc)

	p.Blackhole(true)
	p.Blackhole(true)
	for _, data := range []string{"1", "2", "3"} {
		publish(t, nc, "up", data)
		publish(t, direct, "down", data)
	}
	flush(t, direct)
	if err := nc.FlushTimeout(short); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("a ping into the hole: %v", err)
	}
	if m, err := atServer.NextMsg(short); err == nil {
		t.Errorf("%q reached the server", m.Data)
	}
	if m, err := atClient.NextMsg(short); err == nil {
		t.Errorf("%q reached the client", m.Data)
	}
	if _, err := nats.Connect(p.URL(), nats.Timeout(short)); err == nil {
		t.Error("connected through the hole")
	}
	if !nc.IsConnected() {
		t.Fatal("the connection was closed")
	}

	p.Blackhole(false)
	for _, want := range []string{"1", "2", "3"} {
		for _, sub := range []*nats.Subscription{atServer, atClient} {
			if m, err := sub.NextMsg(limit); err != nil || string(m.Data) != want {
				t.Fatalf("on %s want %s: %v, %v", sub.Subject, want, m, err)
			}
		}
	}

	// What a client sent that gave up meanwhile arrives, late.
	p.Blackhole(true)
	publish(t, nc, "up", "last words")
	if err := nc.FlushTimeout(short); err == nil {
		t.Error("a ping through the hole")
	}
	nc.Close()
	p.Blackhole(false)
	if m, err := atServer.NextMsg(limit); err != nil || string(m.Data) != "last words" {
		t.Errorf("from a closed client: %v, %v", m, err)
	}

	// A cut frees what is held.
	held := Connect(t, p.URL())
	p.Blackhole(true)
	publish(t, held, "up", "")
	p.Cut()
	Eventually(t, limit, "the client sees the cut", func() bool { return !held.IsConnected() })
	Eventually(t, limit, "all links are gone", func() bool { return p.open() == 0 })
}

func TestProxy_dropToClient(t *testing.T) {
	n := Start(t)
	p := StartProxy(t, n.URL())
	direct := Connect(t, n.URL())
	echo(t, direct, "echo")
	var reconnects atomic.Int32
	nc := Connect(t, p.URL(),
		nats.PingInterval(short), nats.MaxPingsOutstanding(2), nats.Timeout(short),
		nats.ReconnectHandler(func(*nats.Conn) { reconnects.Add(1) }))
	inbox, err := nc.SubscribeSync("down")
	if err != nil {
		t.Fatal(err)
	}
	flush(t, nc)

	p.DropToClient(true)
	publish(t, direct, "down", "lost")
	flush(t, direct)
	if _, err := nc.Request("echo", []byte("lost"), short); err == nil {
		t.Error("an answer arrived")
	}
	p.DropToClient(false)
	publish(t, direct, "down", "kept")
	if m, err := inbox.NextMsg(limit); err != nil || string(m.Data) != "kept" {
		t.Errorf("after the loss: %v, %v", m, err)
	}
	mustAnswer(t, nc, "echo")

	// Long enough, and the client's own pings find out.
	p.DropToClient(true)
	Eventually(t, limit, "the client finds the line dead", func() bool { return !nc.IsConnected() })
	p.DropToClient(false)
	Eventually(t, limit, "the client is back", func() bool { return nc.IsConnected() && reconnects.Load() > 0 })
	mustAnswer(t, nc, "echo")
}

func TestProxy_dropHidesThatTheServerIsGone(t *testing.T) {
	n := Start(t)
	p := StartProxy(t, n.URL())
	gone := make(chan struct{}, 1)
	nc := Connect(t, p.URL(), nats.DisconnectErrHandler(func(*nats.Conn, error) { gone <- struct{}{} }))
	p.DropToClient(true)
	n.Stop()
	select {
	case <-gone:
		t.Error("the client was told")
	case <-time.After(short):
	}
	p.DropToClient(false)
	Eventually(t, limit, "the client sees the server go", func() bool { return !nc.IsConnected() })
}

func TestProxy_onClientBytes(t *testing.T) {
	n := Start(t)
	p := StartProxy(t, n.URL())
	nc := Connect(t, p.URL())
	kv := bucket(t, nc, "muster_wanted", 1)

	var mu sync.Mutex
	var seen [][]byte
	p.OnClientBytes(func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, b)
	})
	put(t, kv, "h1", "plain")
	if _, err := kv.Create(t.Context(), "h2", []byte("with header")); err != nil {
		t.Fatal(err)
	}
	p.OnClientBytes(nil)
	put(t, kv, "h1", "unseen")
	mu.Lock()
	defer mu.Unlock()
	count := func(verb, subject, data string) (n int) {
		for _, b := range seen {
			if bytes.HasPrefix(b, []byte(verb+" "+subject+" ")) && bytes.HasSuffix(b, []byte(data+"\r\n")) {
				n++
			}
		}
		return n
	}
	if count("PUB", "$KV.muster_wanted.h1", "plain") != 1 ||
		count("HPUB", "$KV.muster_wanted.h2", "with header") != 1 ||
		count("PUB", "$KV.muster_wanted.h1", "unseen") != 0 {
		t.Errorf("seen %q", seen)
	}
}

func TestProxy_onClientBytesMayStopTheServer(t *testing.T) {
	n := Start(t)
	p := StartProxy(t, n.URL())
	nc := Connect(t, p.URL())
	kv := bucket(t, nc, "b", 1)
	p.OnClientBytes(func(b []byte) {
		if bytes.HasPrefix(b, []byte("PUB $KV.b.k ")) {
			p.OnClientBytes(nil)
			p.DropToClient(true) // the answer is perhaps on its way
			n.Stop()
		}
	})
	ctx, cancel := contextWithin(t, short)
	defer cancel()
	if _, err := kv.PutString(ctx, "k", "v"); err == nil {
		t.Error("the write was answered")
	}
	n.Up()
	p.DropToClient(false)
	Eventually(t, limit, "the client is back", func() bool { return nc.FlushTimeout(limit) == nil })
	put(t, kv, "k", "again")
}

// The write is done, its answer is lost: each way of losing it, many times over,
// because what is to be shown is that there is no race to win.
func TestProxy_onClientBytesActsBeforeTheAnswer(t *testing.T) {
	ways := map[string]func(*Proxy){
		"drop":      func(p *Proxy) { p.DropToClient(true) },
		"blackhole": func(p *Proxy) { p.Blackhole(true) },
		"cut":       func(p *Proxy) { p.Cut() },
	}
	for name, lose := range ways {
		t.Run(name, func(t *testing.T) {
			n := Start(t)
			p := StartProxy(t, n.URL())
			direct := bucket(t, Connect(t, n.URL()), "b", 1)
			nc := Connect(t, p.URL())
			through := bucket(t, nc, "b", 1)
			for i := range 30 {
				value := strings.Repeat("x", i+1)
				p.OnClientBytes(func(b []byte) {
					if bytes.HasPrefix(b, []byte("PUB $KV.b.k ")) {
						p.OnClientBytes(nil)
						lose(p)
					}
				})
				ctx, cancel := contextWithin(t, 20*time.Millisecond)
				if _, err := through.PutString(ctx, "k", value); err == nil {
					t.Fatalf("write %d was answered", i)
				}
				cancel()
				eventuallyHas(t, direct, "k", value)
				p.Blackhole(false)
				p.DropToClient(false)
				p.Heal()
				Eventually(t, limit, "the client is back", func() bool { return nc.FlushTimeout(limit) == nil })
			}
		})
	}
}

func TestProxy_holdToClient(t *testing.T) {
	n := Start(t)
	p := StartProxy(t, n.URL())
	nc, other := Connect(t, p.URL()), Connect(t, n.URL())
	got := make(chan string, 10)
	for _, subject := range []string{"a", "b", "c"} {
		if _, err := nc.Subscribe(subject, func(m *nats.Msg) { got <- m.Subject + string(m.Data) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	arrives := func(want ...string) {
		t.Helper()
		for _, w := range want {
			select {
			case g := <-got:
				if g != w {
					t.Errorf("got %s, want %s", g, w)
				}
			case <-time.After(limit):
				t.Fatalf("%s does not arrive", w)
			}
		}
	}
	of := func(subjects string) func([]byte) bool {
		return func(b []byte) bool { return bytes.ContainsAny(b[len("MSG "):len("MSG a")], subjects) }
	}
	p.HoldToClient(of("ab"))
	for _, s := range []string{"a", "b", "a", "c"} {
		if err := other.Publish(s, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	arrives("c1")
	p.HoldToClient(of("a"))
	arrives("b1")
	p.HoldToClient(nil)
	arrives("a1", "a1")
	if err := other.Publish("a", []byte("2")); err != nil {
		t.Fatal(err)
	}
	arrives("a2")
}
