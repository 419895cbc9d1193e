package wire

import (
	"errors"
	"fmt"
)

// Code is an error_code. The list is closed: callers branch on it.
type Code string

// Codes of requests.
const (
	InvalidRequest        Code = "InvalidRequest"
	UnsupportedAPIVersion Code = "UnsupportedApiVersion"
	AgentDestroyed        Code = "AgentDestroyed"
	HiveNotDeclared       Code = "HiveNotDeclared"
	RevisionMismatch      Code = "RevisionMismatch"
	RequestIDReused       Code = "RequestIdReused"
	TooLarge              Code = "TooLarge"
	CorruptRecord         Code = "CorruptRecord"
	Internal              Code = "Internal"
	Busy                  Code = "Busy"
	Contended             Code = "Contended"
	Unavailable           Code = "Unavailable"
	DeadlineExceeded      Code = "DeadlineExceeded"
)

// Codes of join.
const (
	RackNotFound                       Code = "RackNotFound"
	MultirackJoinPendingConfigUpdate   Code = "MultirackJoinPendingConfigUpdate"
	MultirackJoinGenerationUnavailable Code = "MultirackJoinGenerationUnavailable"
	MultirackJoinNotStarted            Code = "MultirackJoinNotStarted"
	MultirackJoinInProgress            Code = "MultirackJoinInProgress"
	MultirackJoinCompleted             Code = "MultirackJoinCompleted"
	MultirackJoinFailed                Code = "MultirackJoinFailed"
	MembershipChangeNoLongerAllowed    Code = "MembershipChangeNoLongerAllowed"
	StillInitializing                  Code = "StillInitializing"
	AlreadyInitialized                 Code = "AlreadyInitialized"
	InitializationFailed               Code = "InitializationFailed"
)

// Codes of resolve.
const (
	ServiceNotFound Code = "ServiceNotFound"
	LeaseExpired    Code = "LeaseExpired"
	NotResolvedYet  Code = "NotResolvedYet"
	TooStale        Code = "TooStale"
)

// Codes of sleds.
const (
	NotCoordinator             Code = "NotCoordinator"
	AlreadyStarted             Code = "AlreadyStarted"
	LastCommittedEpochMismatch Code = "LastCommittedEpochMismatch"
	WrongRack                  Code = "WrongRack"
	StaleEpoch                 Code = "StaleEpoch"
	EpochConflict              Code = "EpochConflict"
	NotPrepared                Code = "NotPrepared"
	NotMember                  Code = "NotMember"
	ShareMismatch              Code = "ShareMismatch"
	StaleGeneration            Code = "StaleGeneration"
	GenerationConflict         Code = "GenerationConflict"
)

type class struct {
	status    int
	retryable bool
}

// classes holds every code with its status and whether the same request may succeed later unchanged.
var classes = map[Code]class{
	InvalidRequest:        {400, false},
	UnsupportedAPIVersion: {400, false},
	AgentDestroyed:        {400, false},
	HiveNotDeclared:       {404, false},
	RevisionMismatch:      {409, false},
	RequestIDReused:       {409, false},
	TooLarge:              {413, false},
	CorruptRecord:         {500, false},
	Internal:              {500, false},
	Busy:                  {503, true},
	Contended:             {503, true},
	Unavailable:           {503, true},
	DeadlineExceeded:      {504, true},

	RackNotFound:                       {404, false},
	MultirackJoinPendingConfigUpdate:   {409, true},
	MultirackJoinGenerationUnavailable: {409, false},
	MultirackJoinNotStarted:            {409, false},
	MultirackJoinInProgress:            {409, false},
	MultirackJoinCompleted:             {409, false},
	MultirackJoinFailed:                {409, false},
	MembershipChangeNoLongerAllowed:    {409, false},
	StillInitializing:                  {409, false},
	AlreadyInitialized:                 {409, false},
	InitializationFailed:               {409, false},

	ServiceNotFound: {404, false},
	LeaseExpired:    {410, false},
	NotResolvedYet:  {503, true},
	TooStale:        {503, true},

	NotCoordinator:             {409, false},
	AlreadyStarted:             {409, false},
	LastCommittedEpochMismatch: {409, false},
	WrongRack:                  {409, false},
	StaleEpoch:                 {409, false},
	EpochConflict:              {409, false},
	NotPrepared:                {409, false},
	NotMember:                  {409, false},
	ShareMismatch:              {409, false},
	StaleGeneration:            {409, false},
	GenerationConflict:         {409, false},
}

// Codes returns every code with its status, for documents and tests.
func Codes() map[Code]int {
	m := make(map[Code]int, len(classes))
	for c, k := range classes {
		m[c] = k.status
	}
	return m
}

// Status is the HTTP-like status of a code; 500 for a code that is not in the list.
func (c Code) Status() int {
	if k, ok := classes[c]; ok {
		return k.status
	}
	return 500
}

// Retryable tells whether the same request may succeed later unchanged.
func (c Code) Retryable() bool { return classes[c].retryable }

// Reasons of Unavailable, in details.reason.
const (
	NotConnected         = "not_connected"
	JetStreamUnavailable = "jetstream_unavailable"
	BucketMissing        = "bucket_missing"
	PermissionDenied     = "permission_denied"
)

// Outcomes in details.outcome: what became of a change whose request failed.
const (
	NotApplied = "not_applied" // nothing was changed and nothing will be
	Recorded   = "recorded"    // the change is stored, what should follow is not done yet
	Unknown    = "unknown"     // the change may or may not be stored; ask again with the same request id
)

// maxMessage is the longest error message, in bytes.
const maxMessage = 512

// Error is a failed request: what the caller sees, and the cause, which only the log sees.
type Error struct {
	Code    Code
	Message string         // for the caller: at most 512 bytes, never the body
	Details map[string]any // members by code, see the contract in docs/contract.md; may be nil
	cause   error
}

// ErrorBody is the body of a failed reply.
type ErrorBody struct {
	Code      Code           `json:"error_code"`
	Message   string         `json:"message"`
	RequestID string         `json:"request_id"`
	Status    int            `json:"status"`
	Retryable bool           `json:"retryable"`
	Details   map[string]any `json:"details"`
}

// Errorf makes an Error with a message for the caller.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: clip(fmt.Sprintf(format, args...))}
}

// Invalid makes an InvalidRequest whose details.field is the dotted path of the wrong member or token; "" for none.
func Invalid(field, format string, args ...any) *Error {
	e := Errorf(InvalidRequest, format, args...)
	if field != "" {
		e.With("field", field)
	}
	return e
}

// With adds a member to the details and returns e.
func (e *Error) With(name string, value any) *Error {
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details[name] = value
	return e
}

// Because sets the cause, which is logged and never sent, and returns e.
func (e *Error) Because(cause error) *Error {
	e.cause = cause
	return e
}

func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// Body is what a caller is sent.
func (e *Error) Body(requestID string) ErrorBody {
	details := e.Details
	if details == nil {
		details = map[string]any{}
	}
	return ErrorBody{e.Code, clip(e.Message), requestID, e.Code.Status(), e.Code.Retryable(), details}
}

// AsError returns the Error in err's chain. Any other error is Internal: its text is the cause, not the message.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Errorf(Internal, "internal error; the log has the cause under this request_id").Because(err)
}

// clip cuts a message to maxMessage bytes without cutting a character in two.
func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	n := maxMessage - len("…")
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
