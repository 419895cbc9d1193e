package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"muster/wire"
)

// What callers branch on, copied from the contract, section 2. A row changes only when the contract does.
var codes = map[wire.Code]struct {
	literal   string
	status    int
	retryable bool
}{
	wire.InvalidRequest:        {"InvalidRequest", 400, false},
	wire.UnsupportedAPIVersion: {"UnsupportedApiVersion", 400, false},
	wire.AgentDestroyed:        {"AgentDestroyed", 400, false},
	wire.HiveNotDeclared:       {"HiveNotDeclared", 404, false},
	wire.RevisionMismatch:      {"RevisionMismatch", 409, false},
	wire.RequestIDReused:       {"RequestIdReused", 409, false},
	wire.TooLarge:              {"TooLarge", 413, false},
	wire.CorruptRecord:         {"CorruptRecord", 500, false},
	wire.Internal:              {"Internal", 500, false},
	wire.Busy:                  {"Busy", 503, true},
	wire.Contended:             {"Contended", 503, true},
	wire.Unavailable:           {"Unavailable", 503, true},
	wire.DeadlineExceeded:      {"DeadlineExceeded", 504, true},
}

func TestCodes_AreThoseOfTheContract(t *testing.T) {
	for code, want := range codes {
		if string(code) != want.literal || code.Status() != want.status || code.Retryable() != want.retryable {
			t.Errorf("%q has status %d, retryable %v; want %q, %d, %v",
				code, code.Status(), code.Retryable(), want.literal, want.status, want.retryable)
		}
	}
	have := wire.Codes()
	for code := range have {
		if _, ok := codes[code]; !ok {
			t.Errorf("code %q is not in the table above: copy its row from the contract", code)
		}
	}
	if want := slices.Sorted(maps.Keys(codes)); !slices.Equal(slices.Sorted(maps.Keys(have)), want) {
		t.Errorf("Codes() = %v, want %v", slices.Sorted(maps.Keys(have)), want)
	}
	for code, status := range have {
		if status != code.Status() {
			t.Errorf("Codes()[%s] = %d, Status() = %d", code, status, code.Status())
		}
	}
}

func TestCode_UnknownToUsCountsAsAServerFaultAndIsNotRetried(t *testing.T) {
	if c := wire.Code("NoSuchCode"); c.Status() != 500 || c.Retryable() {
		t.Errorf("status %d, retryable %v; want 500, false", c.Status(), c.Retryable())
	}
}

func TestReasonsAndOutcomes_AreThoseOfTheContract(t *testing.T) {
	for got, want := range map[string]string{
		wire.NotConnected: "not_connected", wire.JetStreamUnavailable: "jetstream_unavailable",
		wire.BucketMissing: "bucket_missing", wire.PermissionDenied: "permission_denied",
		wire.NotApplied: "not_applied", wire.Recorded: "recorded", wire.Unknown: "unknown",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestErrorBody_OnTheWire(t *testing.T) {
	e := wire.Errorf(wire.RevisionMismatch, "hive %s is at revision %d", "h1", 12).With("revision", uint64(12)).
		Because(errors.New("secret"))
	for name, c := range map[string]struct {
		err  *wire.Error
		want string
	}{
		"with details": {e, `{"error_code":"RevisionMismatch","message":"hive h1 is at revision 12","request_id":"r1","status":409,"retryable":false,"details":{"revision":12}}`},
		"details are an object when there are none": {wire.Errorf(wire.Busy, "busy"),
			`{"error_code":"Busy","message":"busy","request_id":"r1","status":503,"retryable":true,"details":{}}`},
		"the wrong member is named": {wire.Invalid("agents.a.state", "no"),
			`{"error_code":"InvalidRequest","message":"no","request_id":"r1","status":400,"retryable":false,"details":{"field":"agents.a.state"}}`},
		"no member to name": {wire.Invalid("", "no"),
			`{"error_code":"InvalidRequest","message":"no","request_id":"r1","status":400,"retryable":false,"details":{}}`},
	} {
		got, err := json.Marshal(c.err.Body("r1"))
		if err != nil || string(got) != c.want {
			t.Errorf("%s:\n got %s, %v\nwant %s", name, got, err, c.want)
		}
	}
}

func TestErrorBody_NeverShowsTheCause(t *testing.T) {
	cause := errors.New("nats: connection to 10.1.2.3 refused")
	for name, err := range map[string]error{
		"a plain error":         fmt.Errorf("read hive record: %w", cause),
		"an Error with a cause": wire.Errorf(wire.Unavailable, "away").Because(cause),
	} {
		e := wire.AsError(err)
		body, encodeErr := json.Marshal(e.Body("r1"))
		if encodeErr != nil || strings.Contains(string(body), "10.1.2.3") {
			t.Errorf("%s is sent as %s, %v", name, body, encodeErr)
		}
		if !errors.Is(e, cause) || !strings.Contains(e.Error(), "10.1.2.3") {
			t.Errorf("%s: the log does not get the cause: %v", name, e)
		}
	}
}

func TestAsError_FindsTheErrorInAChain(t *testing.T) {
	e := wire.Errorf(wire.Contended, "others won")
	for name, err := range map[string]error{
		"itself": e, "wrapped": fmt.Errorf("update: %w", e), "joined": errors.Join(nil, e, errors.New("more")),
	} {
		if got := wire.AsError(err); got != e {
			t.Errorf("%s: got %v, want the Error itself", name, got)
		}
	}
	if got := wire.AsError(errors.New("boom")); got.Code != wire.Internal {
		t.Errorf("another error is %s, want Internal", got.Code)
	}
}

// A message is cut to 512 bytes, between two characters.
func TestMessage_IsAtMost512Bytes(t *testing.T) {
	const limit = 512
	for _, char := range []string{"a", "é", "€", "😀"} {
		for n := limit - 10; n <= limit+10; n++ {
			for shift := range len(char) {
				full := strings.Repeat("x", shift)
				for len(full) < n {
					full += char
				}
				e := wire.Errorf(wire.Internal, "%s", full)
				for where, got := range map[string]string{
					"Errorf": e.Message,
					"Body":   (&wire.Error{Code: wire.Internal, Message: full}).Body("r1").Message,
				} {
					if len(full) <= limit {
						if got != full {
							t.Fatalf("%s changed a message of %d bytes", where, len(full))
						}
						continue
					}
					kept := strings.TrimSuffix(got, "…")
					if len(got) > limit || len(got) < limit-len("…")-len(char) || !utf8.ValidString(got) ||
						kept == got || !strings.HasPrefix(full, kept) {
						t.Fatalf("%s cut %d bytes of %q to %d: %q", where, len(full), char, len(got), got)
					}
				}
			}
		}
	}
}
