package store

// Origin is where a change comes from: what makes its retry recognisable, and what its event tells.
type Origin struct {
	RequestID string // the caller's Muster-Request-Id, or what a trigger's source and id make; "" for none
	MemoKey   string // where the outcome is remembered; "" for a request without an id
	Digest    string // of the request's content; the same id with another digest is refused
	Cause     string // CloudEvents id of the trigger; "" for a request
	Trace     string // W3C traceparent
}
