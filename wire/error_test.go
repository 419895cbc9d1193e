package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"muster/wire"
)

// row is a line of the contract's table of codes.
type row struct {
	status    int
	retryable bool
}

// What callers branch on, copied from the contract, sections 2 and 5, by its literal text. A row changes only when the
// contract does. It may be ahead of us: the codes of a function come with the function.
var contract = map[string]row{
	"InvalidRequest": {400, false}, "UnsupportedApiVersion": {400, false}, "AgentDestroyed": {400, false},
	"HiveNotDeclared": {404, false}, "RackNotFound": {404, false}, "ServiceNotFound": {404, false},
	"RevisionMismatch": {409, false}, "RequestIdReused": {409, false},
	"MultirackJoinPendingConfigUpdate": {409, true}, "MultirackJoinGenerationUnavailable": {409, false},
	"MultirackJoinNotStarted": {409, false}, "MultirackJoinInProgress": {409, false},
	"MultirackJoinCompleted": {409, false}, "MultirackJoinFailed": {409, false},
	"MembershipChangeNoLongerAllowed": {409, false}, "StillInitializing": {409, false},
	"AlreadyInitialized": {409, false}, "InitializationFailed": {409, false},
	"LeaseExpired": {410, false}, "TooLarge": {413, false}, "CorruptRecord": {500, false}, "Internal": {500, false},
	"Busy": {503, true}, "Contended": {503, true}, "Unavailable": {503, true},
	"NotResolvedYet": {503, true}, "TooStale": {503, true}, "DeadlineExceeded": {504, true},
	// of sleds
	"NotCoordinator": {409, false}, "AlreadyStarted": {409, false}, "LastCommittedEpochMismatch": {409, false},
	"WrongRack": {409, false}, "StaleEpoch": {409, false}, "EpochConflict": {409, false}, "NotPrepared": {409, false},
	"NotMember": {409, false}, "ShareMismatch": {409, false}, "StaleGeneration": {409, false}, "GenerationConflict": {409, false},
}

func TestCodes_AreThoseOfTheContract(t *testing.T) {
	for code, status := range wire.Codes() {
		want, ok := contract[string(code)]
		if !ok {
			t.Errorf("code %q is not in the contract", code)
			continue
		}
		if got := (row{code.Status(), code.Retryable()}); got != want || status != want.status {
			t.Errorf("%s: %+v, in Codes() %d, want %+v", code, got, status, want)
		}
	}
}

// The spelling of the codes that every function and declare can give.
func TestCodes_Literals(t *testing.T) {
	for code, want := range map[wire.Code]string{
		wire.InvalidRequest: "InvalidRequest", wire.UnsupportedAPIVersion: "UnsupportedApiVersion",
		wire.AgentDestroyed: "AgentDestroyed", wire.HiveNotDeclared: "HiveNotDeclared",
		wire.RevisionMismatch: "RevisionMismatch", wire.RequestIDReused: "RequestIdReused", wire.TooLarge: "TooLarge",
		wire.CorruptRecord: "CorruptRecord", wire.Internal: "Internal", wire.Busy: "Busy", wire.Contended: "Contended",
		wire.Unavailable: "Unavailable", wire.DeadlineExceeded: "DeadlineExceeded",
	} {
		if string(code) != want {
			t.Errorf("%q, want %q", code, want)
		}
		if _, ok := wire.Codes()[code]; !ok {
			t.Errorf("Codes() leaves out %s", code)
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
