package natstest

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// link is one connection through a proxy: two goroutines, one a direction, that
// end independently, so that what one side sent before it hung up still arrives.
type link struct {
	p      *Proxy
	client net.Conn
	closed chan struct{}

	// watched is held from before a client's message is passed on until the
	// watcher has seen it. Whoever takes it after reading something from the
	// server knows what the watcher decided about all that caused it.
	watched sync.Mutex

	writing sync.Mutex // to the client
	kept    [][]byte   // from the client, see [Proxy.HoldToClient]

	mu     sync.Mutex
	server net.Conn // nil until dialled
	done   bool
}

// close ends both directions at once. It does not wait.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return
	}
	l.done = true
	close(l.closed)
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}

// run returns when both directions have ended.
func (l *link) run() {
	server, err := net.DialTimeout("tcp", l.p.target, 5*time.Second)
	if err != nil {
		return // the server is down: the client is hung up on
	}
	l.mu.Lock()
	if l.done {
		l.mu.Unlock()
		server.Close()
		return
	}
	l.server = server
	l.mu.Unlock()

	var both sync.WaitGroup
	both.Go(func() { l.copyToServer(server) })
	both.Go(func() { l.copyToClient(server) })
	both.Wait()
}

func (l *link) copyToServer(server net.Conn) {
	defer hangUp(server)
	r := bufio.NewReaderSize(l.client, 64<<10)
	for {
		msg, err := readMessage(r)
		if !l.p.hold.waitOff(l.closed) || !l.passToServer(server, msg) || err != nil {
			return
		}
	}
}

func (l *link) passToServer(server net.Conn, msg []byte) bool {
	watch := l.p.watcher()
	if watch == nil {
		_, err := server.Write(msg)
		return err == nil
	}
	l.watched.Lock()
	defer l.watched.Unlock()
	if _, err := server.Write(msg); err != nil {
		return false
	}
	if len(msg) > 0 {
		l.p.watching.Lock()
		defer l.p.watching.Unlock()
		watch(msg)
	}
	return true
}

func (l *link) copyToClient(server net.Conn) {
	defer hangUp(l.client)
	r := bufio.NewReaderSize(server, 64<<10)
	for {
		msg, err := readMessage(r)
		if !l.passToClient(msg) {
			return
		}
		if err != nil {
			// A dead line doesn't say that the other end hung up.
			l.p.drop.waitOff(l.closed)
			return
		}
	}
}

func (l *link) passToClient(msg []byte) bool {
	for {
		if !l.p.hold.waitOff(l.closed) {
			return false
		}
		l.watched.Lock()
		held, dropped := l.p.hold.isOn(), l.p.drop.isOn()
		l.watched.Unlock()
		switch {
		case held:
			continue // by the watcher, just now
		case dropped:
			return true
		}
		return l.write(msg)
	}
}

// write gives the client a message, or keeps it back.
func (l *link) write(msg []byte) bool {
	l.writing.Lock()
	defer l.writing.Unlock()
	if keep := l.p.keep.Load(); keep != nil && len(msg) > 0 && (*keep)(msg) {
		l.kept = append(l.kept, msg)
		return true
	}
	_, err := l.client.Write(msg)
	return err == nil
}

// release gives the client what was kept back and is not kept any more.
func (l *link) release(match func([]byte) bool) {
	l.writing.Lock()
	defer l.writing.Unlock()
	var still [][]byte
	for _, msg := range l.kept {
		if match(msg) {
			still = append(still, msg)
		} else if _, err := l.client.Write(msg); err != nil {
			return // it has hung up
		}
	}
	l.kept = still
}

// hangUp tells the other side that nothing more will come. It still may send.
func hangUp(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // it may be gone already, which says the same
	}
}

// toggle is a switch whose going off can be waited for. It starts off.
type toggle struct {
	mu  sync.Mutex
	off chan struct{} // closed when it goes off; nil while it is
}

func (s *toggle) set(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case on && s.off == nil:
		s.off = make(chan struct{})
	case !on && s.off != nil:
		close(s.off)
		s.off = nil
	}
}

func (s *toggle) isOn() bool { return s.state() != nil }

func (s *toggle) state() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.off
}

// waitOff returns true when the switch is off, false if stop is closed before.
func (s *toggle) waitOff(stop <-chan struct{}) bool {
	for off := s.state(); off != nil; off = s.state() {
		select {
		case <-off:
		case <-stop:
			return false
		}
	}
	return true
}
