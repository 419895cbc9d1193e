package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/wire"
)

// answer is one reply, read from its body alone.
type answer struct {
	subject string
	raw     []byte
	header  nats.Header
	failure *wire.ErrorBody  // nil for a success
	decl    wire.Declaration // of a success whose body is one
}

// ask sends a request and fails the test unless there is an answer that holds to the form of answers. Headers are names
// and values in turn.
func ask(t testing.TB, nc *nats.Conn, subject, body string, headers ...string) answer {
	t.Helper()
	a, err := try(nc, 10*time.Second, subject, body, headers...)
	if err != nil {
		t.Fatalf("request %s: %v", subject, err)
	}
	return a
}

// try is ask for those that live with no answer, or on another goroutine than the test's.
func try(nc *nats.Conn, limit time.Duration, subject, body string, headers ...string) (answer, error) {
	msg := nats.NewMsg(subject)
	msg.Data = []byte(body)
	for i := 0; i+1 < len(headers); i += 2 {
		msg.Header[headers[i]] = []string{headers[i+1]}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	reply, err := nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return answer{}, err
	}
	return read(subject, reply)
}

// read reads a reply as one does that sees its body only, and then holds the headers against it.
func read(subject string, reply *nats.Msg) (answer, error) {
	a := answer{subject: subject, raw: reply.Data, header: reply.Header}
	var form struct {
		Code      *wire.Code      `json:"error_code"`
		Message   *string         `json:"message"`
		RequestID *string         `json:"request_id"`
		Status    any             `json:"status"` // of an answer of resolve a word
		Retryable *bool           `json:"retryable"`
		Details   *map[string]any `json:"details"`
	}
	dec := json.NewDecoder(bytes.NewReader(reply.Data))
	dec.UseNumber()
	if err := dec.Decode(&form); err != nil {
		return a, fmt.Errorf("a body that is no JSON object: %w: %.200q", err, reply.Data)
	}
	message, code := reply.Header.Get("Nats-Service-Error"), reply.Header.Get("Nats-Service-Error-Code")
	if form.Code == nil {
		if message != "" || code != "" {
			return a, fmt.Errorf("headers of a failure (%s %q) on the body of a success %.200q", code, message, reply.Data)
		}
		if err := json.Unmarshal(reply.Data, &a.decl); err != nil {
			a.decl = wire.Declaration{}
		}
		return a, nil
	}
	status, err := strconv.Atoi(fmt.Sprint(form.Status))
	if form.Message == nil || form.RequestID == nil || err != nil || form.Retryable == nil || form.Details == nil {
		return a, fmt.Errorf("an error body that lacks a member: %s", reply.Data)
	}
	a.failure = &wire.ErrorBody{
		Code: *form.Code, Message: *form.Message, RequestID: *form.RequestID, Status: status,
		Retryable: *form.Retryable, Details: *form.Details,
	}
	want, known := contract[*form.Code]
	if !known {
		want, known = joinContract[*form.Code]
	}
	if !known {
		want, known = resolveContract[*form.Code]
	}
	switch {
	case !known:
		return a, fmt.Errorf("unknown error_code in %s", reply.Data)
	case want.status != status, want.retryable != *form.Retryable:
		return a, fmt.Errorf("%s must have status %d and retryable %t: %s", *form.Code, want.status, want.retryable, reply.Data)
	case code != strconv.Itoa(status):
		return a, fmt.Errorf("the header says status %q, the body %d", code, status)
	case message != *form.Message:
		return a, fmt.Errorf("the header says %q, the body %q", message, *form.Message)
	case len(*form.Message) > 512:
		return a, fmt.Errorf("a message of %d bytes", len(*form.Message))
	case *form.RequestID == "":
		return a, errors.New("an error without a request_id")
	}
	return a, nil
}

// contract is the table of error codes of issue 2, as the contract has it.
var contract = map[wire.Code]struct {
	status    int
	retryable bool
}{
	"InvalidRequest":        {400, false},
	"UnsupportedApiVersion": {400, false},
	"AgentDestroyed":        {400, false},
	"HiveNotDeclared":       {404, false},
	"RevisionMismatch":      {409, false},
	"RequestIdReused":       {409, false},
	"TooLarge":              {413, false},
	"CorruptRecord":         {500, false},
	"Internal":              {500, false},
	"Busy":                  {503, true},
	"Contended":             {503, true},
	"Unavailable":           {503, true},
	"DeadlineExceeded":      {504, true},
}

// ok fails the test unless the request succeeded, and returns the declaration.
func (a answer) ok(t testing.TB) wire.Declaration {
	t.Helper()
	if a.failure != nil {
		t.Fatalf("%s failed: %s", a.subject, a.raw)
	}
	return a.decl
}

// refused fails the test unless the request failed with that code, and returns the error.
func (a answer) refused(t testing.TB, code wire.Code) wire.ErrorBody {
	t.Helper()
	if a.failure == nil {
		t.Fatalf("%s succeeded where %s is due: %.300s", a.subject, code, a.raw)
	}
	if a.failure.Code != code {
		t.Fatalf("%s: got %s, want %s: %s", a.subject, a.failure.Code, code, a.raw)
	}
	return *a.failure
}

// detail is a member of the details as a whole number; -1 when it is none.
func detail(e wire.ErrorBody, name string) int64 {
	n, ok := e.Details[name].(json.Number)
	if !ok {
		return -1
	}
	i, err := n.Int64()
	if err != nil {
		return -1
	}
	return i
}

// state is the body of a set or a create.
func state(s string) string { return `{"state":"` + s + `"}` }

// request is what one of several callers asks.
type request struct {
	subject, body string
	headers       []string
}

// together sends n requests at once and returns their answers in order. All must be answered.
func together(t testing.TB, nc *nats.Conn, n int, what func(i int) request) []answer {
	t.Helper()
	answers, errs := make([]answer, n), make([]error, n)
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		r := what(i)
		wg.Go(func() {
			<-gate
			answers[i], errs[i] = try(nc, startLimit, r.subject, r.body, r.headers...)
		})
	}
	close(gate)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%d requests at once: %v", n, err)
	}
	return answers
}

// into decodes a success whose body is no declaration.
func (a answer) into(t testing.TB, v any) {
	t.Helper()
	a.ok(t)
	if err := json.Unmarshal(a.raw, v); err != nil {
		t.Fatalf("%s: %v: %.300s", a.subject, err, a.raw)
	}
}

// joinContract is the table of join's own error codes.
var joinContract = map[wire.Code]struct {
	status    int
	retryable bool
}{
	"RackNotFound":                       {404, false},
	"MultirackJoinPendingConfigUpdate":   {409, true},
	"MultirackJoinGenerationUnavailable": {409, false},
	"MultirackJoinNotStarted":            {409, false},
	"MultirackJoinInProgress":            {409, false},
	"MultirackJoinCompleted":             {409, false},
	"MultirackJoinFailed":                {409, false},
	"MembershipChangeNoLongerAllowed":    {409, false},
	"StillInitializing":                  {409, false},
	"AlreadyInitialized":                 {409, false},
	"InitializationFailed":               {409, false},
}

// resolveContract is the table of resolve's own error codes.
var resolveContract = map[wire.Code]struct {
	status    int
	retryable bool
}{
	"ServiceNotFound": {404, false},
	"LeaseExpired":    {410, false},
	"NotResolvedYet":  {503, true},
	"TooStale":        {503, true},
}
