package natstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

const loopback = "127.0.0.1"

// Ports are drawn from below the range the kernel uses for outgoing connections
// and for "port 0" (Linux from 32768, others from 49152). A stopped server keeps
// its port free for its return that way, and a client that redials an absent
// server can't be given the very port it dials and so connect to itself.
const firstPort, endPort = 20000, 32000

var (
	portsMu    sync.Mutex
	portsGiven = map[int]bool{}
)

// freePort returns a loopback port that nobody listens on and that this process
// has not given out before. Another process may draw the same one while its
// holder is stopped; with 12,000 to draw from that is rare enough.
func freePort(t testing.TB) int {
	t.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(endPort-firstPort)
		if portsGiven[port] {
			continue
		}
		l, err := net.Listen("tcp", address(port))
		if err != nil {
			continue
		}
		l.Close()
		portsGiven[port] = true
		return port
	}
	t.Fatalf("natstest: no free port found between %d and %d", firstPort, endPort)
	return 0
}

// givePortBack lets a later test have the port.
func givePortBack(port int) {
	portsMu.Lock()
	defer portsMu.Unlock()
	delete(portsGiven, port)
}

func address(port int) string { return fmt.Sprintf("%s:%d", loopback, port) }
