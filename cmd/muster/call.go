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
	Subject string        `arg:"" help:"Function, op and names, as in declare.set.h1.atlas; the leading \"muster.\" may be left out."`
	Body    string        `arg:"" optional:"" help:"JSON object, in single quotes for the shell; none is the same as {}."`
	File    string        `short:"f" placeholder:"FILE" help:"Read the body from a file, - for standard input."`
	Timeout time.Duration `default:"4s" help:"How long the function may take, at most 60s."`
	ID      string        `placeholder:"ID" help:"Id of this request, sent as Muster-Request-Id. Repeated within 10 minutes with the same id, the call is done once and gives the first outcome again."`
}

// Help is printed by muster call --help.
func (call) Help() string {
	return `The reply, or the error in its place, is printed on standard output as JSON; what never reached a function is told on standard error.

    muster call declare.set.h1.atlas '{"state":"up"}'

    muster call declare.view.h1

` + exitCodes
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
	ctx, cancel := context.WithTimeout(ctx, c.Timeout+time.Second)
	defer cancel()
	ctx, refuse := context.WithCancelCause(ctx)
	nc, err := c.dial(nats.Name("muster call"), nats.Timeout(2*time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				refuse(err)
			}
		}))
	if err != nil {
		return dialFailed(err)
	}
	defer nc.Close()
	msg := nats.NewMsg(subject)
	msg.Data = body
	msg.Header.Set(wire.HeaderTimeout, c.Timeout.String())
	if c.ID != "" {
		msg.Header.Set(wire.HeaderRequestID, c.ID)
	}
	reply, err := nc.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(context.Cause(ctx), nats.ErrPermissionViolation):
		return &exit{exitRefused, fmt.Errorf("request %s: %w", subject, context.Cause(ctx))}
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

// dialFailed gives a failure to connect its exit code.
func dialFailed(err error) error {
	if e, ok := errors.AsType[*exit](err); ok {
		return e
	}
	return &exit{exitUnavailable, fmt.Errorf("connect to NATS: %w; is it running there? Say where with --nats, --context or NATS_URL", err)}
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
