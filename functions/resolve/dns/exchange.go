package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	mdns "github.com/miekg/dns"
)

// udpSize is the largest answer asked for over UDP: it crosses any network in one piece.
const udpSize = 1232

// transport sends a query to a server over "udp" or "tcp" and hands each packet that comes back to take, until take says
// that it was the answer. sent is when the query was out, zero if it never was.
type transport func(ctx context.Context, network, server string, query []byte, take func([]byte) bool) (sent time.Time, err error)

// errUnreadable: what came over TCP is no answer to the query.
var errUnreadable = errors.New("unreadable answer")

// overNetwork is the transport over sockets. Each query has a socket of its own, connected to the server, so its port is
// new each time and packets from elsewhere never arrive.
func overNetwork(ctx context.Context, network, server string, query []byte, take func([]byte) bool) (time.Time, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		return time.Time{}, fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() {
		// The error would be that the connection is closed, which is as good.
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
	defer stop()
	if network == "tcp" {
		return overTCP(conn, query, take)
	}
	if _, err := conn.Write(query); err != nil {
		return time.Now(), fmt.Errorf("send: %w", err)
	}
	sent := time.Now()
	packet := make([]byte, 1<<16)
	for {
		n, err := conn.Read(packet)
		if err != nil {
			return sent, fmt.Errorf("receive: %w", err)
		}
		if take(packet[:n]) {
			return sent, nil
		}
	}
}

func overTCP(conn net.Conn, query []byte, take func([]byte) bool) (time.Time, error) {
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	if _, err := conn.Write(framed); err != nil {
		return time.Now(), fmt.Errorf("send: %w", err)
	}
	sent := time.Now()
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return sent, fmt.Errorf("receive: %w", err)
	}
	packet := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, packet); err != nil {
		return sent, fmt.Errorf("receive: %w", err)
	}
	if !take(packet) {
		return sent, errUnreadable
	}
	return sent, nil
}

func newQuery(k key) *mdns.Msg {
	m := new(mdns.Msg)
	m.SetQuestion(k.name, k.qtype)
	m.SetEdns0(udpSize, false)
	return m
}

// unanswered says in our words why there is no answer; unread is how many packets came that are none.
func unanswered(err error, network, server string, timeout time.Duration, unread int) reply {
	over := ""
	if network == "tcp" {
		over = " over TCP"
	}
	switch {
	case unread > 0 || errors.Is(err, errUnreadable):
		return brokenf("unreadable answer%s from %s", over, server)
	case errors.Is(err, syscall.ECONNREFUSED):
		return brokenf("no DNS server listens%s at %s", over, server)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return brokenf("%s hung up%s", server, over)
	case isTimeout(err):
		r := brokenf("no answer%s from %s in %v", over, server, timeout)
		r.silent = true
		return r
	}
	return brokenf("cannot reach %s%s", server, over)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func gaveUp() reply {
	r := brokenf("time was up before a server answered")
	r.cut = true
	return r
}
