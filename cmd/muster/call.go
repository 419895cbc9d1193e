package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"muster/wire"
)

// call is the command `muster call`.
type call struct {
	connection
	Subject string        `arg:"" help:"Subject without \"muster.\", as in declare.set.h1.atlas."`
	Body    string        `arg:"" optional:"" help:"JSON body; none means {}."`
	File    string        `short:"f" placeholder:"FILE" help:"Read the body from a file, - for standard input."`
	Timeout time.Duration `default:"4s" help:"How long the function may take, at most 60s."`
	ID      string        `placeholder:"ID" help:"Muster-Request-Id: repeat the same call with the same ID, and it is done once."`
}

func (c call) Run(ctx context.Context, std streams) error {
	body, err := c.body(std.in)
	if err != nil {
		return &exit{exitUsage, err}
	}
	if c.Timeout <= 0 {
		return &exit{exitUsage, errors.New("--timeout must be above 0")}
	}
	subject := wire.CallSubject(c.Subject)
	if err := checkSubject(subject); err != nil {
		return &exit{exitRefused, err}
	}
	nc, err := c.dial(nats.Name("muster call"), nats.Timeout(2*time.Second))
	if err != nil {
		return &exit{exitUnavailable, fmt.Errorf("connect to NATS: %w", err)}
	}
	defer nc.Close()
	msg := nats.NewMsg(subject)
	msg.Data = body
	msg.Header.Set(wire.HeaderTimeout, c.Timeout.String())
	if c.ID != "" {
		msg.Header.Set(wire.HeaderRequestID, c.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout+time.Second)
	defer cancel()
	reply, err := nc.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return &exit{exitUnavailable, fmt.Errorf("nobody answers %s: is the function running, and is that one of its ops? See: nats micro ls", subject)}
	case errors.Is(err, context.DeadlineExceeded):
		return &exit{exitUnavailable, fmt.Errorf("no answer from %s within %s; a change may or may not be done: repeat it with the same --id", subject, c.Timeout+time.Second)}
	case errors.Is(err, nats.ErrMaxPayload):
		return &exit{exitRefused, fmt.Errorf("the body is %d bytes, more than this server takes in a message", len(body))}
	case err != nil:
		return &exit{exitUnavailable, fmt.Errorf("request %s: %w", subject, err)}
	}
	fmt.Fprintf(std.out, "%s\n", reply.Data)
	return outcome(reply)
}

// outcome is the exit code of a reply.
func outcome(reply *nats.Msg) error {
	status, err := strconv.Atoi(reply.Header.Get(wire.HeaderErrorCode))
	if err != nil {
		var body wire.ErrorBody
		if json.Unmarshal(reply.Data, &body) != nil || body.Code == "" {
			return nil
		}
		status = body.Status
	}
	switch {
	case status == 409:
		return &exit{code: exitConflict}
	case status >= 400 && status < 500:
		return &exit{code: exitRefused}
	case status == 503 || status == 504:
		return &exit{code: exitUnavailable}
	}
	return &exit{code: exitFault}
}

func (c call) body(stdin io.Reader) ([]byte, error) {
	switch {
	case c.File != "" && c.Body != "":
		return nil, errors.New("give the body or -f, not both")
	case c.File == "-":
		return io.ReadAll(stdin)
	case c.File != "":
		return os.ReadFile(c.File)
	}
	return []byte(c.Body), nil
}

// checkSubject refuses what cannot travel: an empty token or a name that is none is never delivered.
func checkSubject(subject string) error {
	for i, token := range strings.Split(subject, ".") {
		if i > 0 && !wire.ValidName(token) {
			return fmt.Errorf("%q in the subject is not a name: it must match %s", token, wire.NamePattern)
		}
	}
	return nil
}
