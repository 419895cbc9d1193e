package natstest

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy is a line to a server that a test can cut, hold and make lossy. It passes
// on whole protocol messages, so that no half of one is ever lost. TLS does not
// go through it.
//
// A client behind a proxy in front of a cluster learns of the members' own
// addresses and goes there when the line is cut, unless it is given
// nats.IgnoreDiscoveredServers.
type Proxy struct {
	t      testing.TB
	target string
	addr   string
	url    string

	hold toggle
	drop toggle
	keep atomic.Pointer[func([]byte) bool] // nil keeps nothing

	mu       sync.Mutex
	listener net.Listener // nil while cut
	links    map[*link]bool
	ended    bool
	watch    func([]byte)

	watching sync.Mutex     // one call of watch at a time
	running  sync.WaitGroup // the accepting loop and the links
}

// StartProxy starts a proxy in front of one nats URL.
func StartProxy(t testing.TB, targetURL string) *Proxy {
	t.Helper()
	if !strings.Contains(targetURL, "://") {
		targetURL = "nats://" + targetURL
	}
	u, err := url.Parse(targetURL)
	if err != nil || u.Scheme != "nats" || u.Port() == "" {
		t.Fatalf("natstest: a proxy needs one nats://host:port, not %q", targetURL)
	}
	port := freePort(t)
	p := &Proxy{t: t, target: u.Host, addr: address(port), links: map[*link]bool{}}
	u.Host = p.addr
	p.url = u.String()
	t.Cleanup(func() {
		p.end()
		givePortBack(port)
	})
	p.Heal()
	return p
}

// URL is the target's URL, credentials included, with the proxy's address.
func (p *Proxy) URL() string { return p.url }

// Cut closes all connections and refuses new ones, as if the server were gone.
// What the server was sent before stays sent; what the proxy still held is lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for l := range p.links {
		l.close()
	}
}

// Heal takes connections again after [Proxy.Cut].
func (p *Proxy) Heal() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.ended {
		return
	}
	listener, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Errorf("natstest: proxy listens: %v", err)
		return
	}
	p.listener = listener
	p.running.Add(1)
	go p.accept(listener)
}

// Blackhole holds everything back in both directions while on: connections stay
// open, new ones are taken, nothing arrives, nobody is told. Switched off, all of
// it arrives, in order, late; also what a client sent that has given up since. A
// message that is passing at the moment of the call may still arrive.
func (p *Proxy) Blackhole(on bool) { p.hold.set(on) }

// DropToClient loses what the server sends while on; the client's own messages
// still arrive there. The client isn't told if the server hangs up. Switched off,
// the connections work again with those messages missing. What the server sends
// after the call is lost; a message that is passing at that moment may arrive.
func (p *Proxy) DropToClient(on bool) { p.drop.set(on) }

// OnClientBytes sets what is called with each protocol message from a client
// (such as "PUB subject size\r\npayload\r\n") after it went on to the server, nil
// for nothing. The slice may be kept. Calls come one at a time.
//
// While f runs nothing the server answers reaches that client. So a f that calls
// [Proxy.DropToClient], [Proxy.Blackhole] or [Proxy.Cut] is certain to act after
// the server was sent the message and before the client gets the answer. (To stop
// the server in f does not take back an answer it gave meanwhile: drop that first.)
// f may call any method of p, but must not wait for a client behind p.
func (p *Proxy) OnClientBytes(f func(b []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = f
}

// HoldToClient keeps back what match says of what the server sends, each protocol message (such as
// "MSG subject sid reply size\r\npayload\r\n"); the rest passes it by. Called again, what was kept arrives, late, unless
// the new match keeps it, too; nil keeps nothing. What is kept when the line is cut is lost. Calls of match may come
// several at a time.
func (p *Proxy) HoldToClient(match func(b []byte) bool) {
	if match == nil {
		match = func([]byte) bool { return false }
	}
	p.keep.Store(&match)
	p.mu.Lock()
	links := slices.Collect(maps.Keys(p.links))
	p.mu.Unlock()
	for _, l := range links {
		l.release(match)
	}
}

func (p *Proxy) watcher() func([]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watch
}

func (p *Proxy) accept(listener net.Listener) {
	defer p.running.Done()
	for {
		client, err := listener.Accept()
		if err != nil {
			return // cut
		}
		p.add(listener, client)
	}
}

// add starts a link, unless the proxy was cut since the client was accepted.
func (p *Proxy) add(listener net.Listener, client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != listener {
		client.Close()
		return
	}
	l := &link{p: p, client: client, closed: make(chan struct{})}
	p.links[l] = true
	p.running.Go(func() {
		defer p.remove(l)
		l.run()
	})
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	l.close()
}

// end cuts for ever and waits for all goroutines.
func (p *Proxy) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.Cut()
	p.running.Wait()
}
