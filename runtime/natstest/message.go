package natstest

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
)

// readMessage reads one message of the NATS client protocol: a line, and for
// PUB, HPUB, MSG and HMSG the payload whose size is the line's last word. What it
// does not understand it returns line by line. With an error it returns what came
// before it.
//
// https://docs.nats.io/reference/reference-protocols/nats-protocol
func readMessage(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return line, err
	}
	size, ok := payloadSize(line)
	if !ok {
		return line, nil
	}
	msg := make([]byte, len(line)+size+len("\r\n"))
	copy(msg, line)
	n, err := io.ReadFull(r, msg[len(line):])
	return msg[:len(line)+n], err
}

// payloadSize is what a line says about the bytes that follow it.
func payloadSize(line []byte) (int, bool) {
	words := bytes.Fields(line)
	if len(words) < 3 {
		return 0, false
	}
	switch string(bytes.ToUpper(words[0])) {
	case "PUB", "HPUB", "MSG", "HMSG":
	default:
		return 0, false
	}
	// The server refuses 64 MB and more, so that is no size but nonsense.
	size, err := strconv.Atoi(string(words[len(words)-1]))
	return size, err == nil && size >= 0 && size < 64<<20
}
