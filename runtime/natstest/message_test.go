package natstest

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadMessage(t *testing.T) {
	messages := []string{
		"INFO {\"max_payload\":1048576}\r\n",
		"CONNECT {\"verbose\":false}\r\n",
		"PING\r\n", "PONG\r\n", "+OK\r\n", "-ERR 'Stale Connection'\r\n",
		"SUB a.* queue 12\r\n", "UNSUB 12 3\r\n",
		"PUB a 0\r\n\r\n",
		"PUB a reply 13\r\nPUB b 2\r\nxy\r\n\r\n",
		"pub a  \t 1\r\n\n\r\n",
		"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
		"MSG a 9 reply 3\r\nabc\r\n",
		"HMSG a 9 12 12\r\nNATS/1.0\r\n\r\n\r\n",
		"PUB a many\r\n", "PUB a -1\r\n", "PUB a 99999999999999999999\r\n", "PUB\r\n", "\r\n",
	}
	r := bufio.NewReader(iotest.OneByteReader(strings.NewReader(strings.Join(messages, ""))))
	var got []string
	for {
		msg, err := readMessage(r)
		if err != nil {
			if !errors.Is(err, io.EOF) || len(msg) != 0 {
				t.Errorf("at the end: %q, %v", msg, err)
			}
			break
		}
		got = append(got, string(msg))
	}
	if !slices.Equal(got, messages) {
		t.Errorf("got %q", got)
	}

	for _, half := range []string{"PIN", "PUB a 5\r\n", "PUB a 5\r\nabc"} {
		msg, err := readMessage(bufio.NewReader(strings.NewReader(half)))
		if string(msg) != half || !(errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
			t.Errorf("cut off after %q: %q, %v", half, msg, err)
		}
	}
}
