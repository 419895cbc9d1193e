package runtime

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"muster/runtime/store"
	"muster/wire"
)

// Function is what a function is: a value that declares everything it touches. Micro service, decoding, schemas,
// metrics, permissions and documents are made from it.
type Function struct {
	Name        string   // as in the subject: muster.<name>.<op>
	Instance    []string // names between name and op, for what there is one of each: muster.sled.<part>.<serial>.<op>
	Version     string   // strict SemVer
	Description string
	Ops         []Op
	Buckets     []Use
	Keys        []Key // single keys, for one who is let at no more than those
	Workers     []Worker
	Gauges      []Gauge
	Asks        []Ask                   // requests that it sends itself
	Tasks       []func(context.Context) // what runs beside requests, from Serve until the service is stopped
	Ready       func() []Check          // lines of /readyz of its own; may be nil
}

// Key is a single key of a bucket that others make: one that is read, or one that is written.
type Key struct {
	Bucket string
	Key    string
	Writes bool
}

// Ask is an op of another function that a function asks for.
type Ask struct {
	Function string
	Subject  string // or the pattern of all of them
}

// path is what stands between muster and the op in the function's subjects.
func (f *Function) path() string { return strings.Join(append([]string{f.Name}, f.Instance...), ".") }

// Use is a bucket that a function reads, and perhaps writes.
type Use struct {
	Bucket BucketSpec
	Writes bool
	Views  bool // with a store's View, which a feed confirms
	Log    bool // as a [store.Log] and not through a store, so that nothing is remembered of requests
	Mirror bool // as a [Mirror]
	Shown  bool // to callers, who may follow its keys
}

// eventful tells whether what the function writes there becomes events.
func (u Use) eventful() bool {
	return u.Writes && slices.ContainsFunc(eventful, func(b BucketSpec) bool { return b.Name == u.Bucket.Name })
}

// triggerable tells whether triggers can ask for anything of the function. What there is one of each, as a sled, has none.
func (f *Function) triggerable() bool {
	return len(f.Instance) == 0 && slices.ContainsFunc(f.Ops, func(o Op) bool { return o.Changes })
}

// streams are those that the function needs.
func (f *Function) streams() []StreamSpec {
	var specs []StreamSpec
	if slices.ContainsFunc(f.Buckets, Use.eventful) {
		specs = append(specs, Events)
	}
	if f.triggerable() {
		specs = append(specs, Triggers, Dead)
	}
	return specs
}

// Op is one operation of a function. Make it with [NewOp].
type Op struct {
	Name        string
	Description string
	IDs         []string    // what the tokens behind the op in the subject name, e.g. "hive", "agent"
	Changes     bool        // it changes state, so that a trigger may ask for it
	Codes       []wire.Code // that it can answer, beside those that every op can
	request     reflect.Type
	reply       reflect.Type
	hot         bool // handle does not wait
	handle      func(ctx context.Context, in *inbound, answer func(any, error))
}

// Request is what a handler gets.
type Request[In any] struct {
	IDs    []string // the names from the subject, in the op's order, checked
	Body   In
	Origin store.Origin // for the store
	API    int          // 1 or 2
	Header map[string][]string
}

// common are the codes that every op can answer.
var common = []wire.Code{
	wire.InvalidRequest, wire.UnsupportedAPIVersion, wire.TooLarge, wire.Internal, wire.Busy, wire.Unavailable, wire.DeadlineExceeded,
}

// NewOp makes an op of a handler. Reply is what is said of the reply in schemas; a handler may return any value that
// encodes as it. A handler knows no NATS: it gets names and a body that were checked, and a context that ends a little
// before its caller's deadline, and returns the reply or a [*wire.Error]; any other error is Internal.
func NewOp[In, Reply any](o Op, handle func(context.Context, *Request[In]) (any, error)) Op {
	o.request, o.reply = reflect.TypeFor[In](), reflect.TypeFor[Reply]()
	o.handle = func(ctx context.Context, in *inbound, answer func(any, error)) {
		r, err := request[In](&o, in, nil)
		if err != nil {
			answer(nil, err)
			return
		}
		answer(handle(ctx, r))
	}
	return o
}

// NewHotOp makes an op of a handler that does not wait: it hands its outcome to answer, then or later, exactly once. It
// runs on the goroutine that takes requests off the connection, so that a thousand requests under way need no goroutine
// each; what it does itself must take microseconds. What the body points to may be another request's too, and must not be
// changed.
func NewHotOp[In, Reply any](o Op, handle func(ctx context.Context, r *Request[In], answer func(any, error))) Op {
	o.request, o.reply, o.hot = reflect.TypeFor[In](), reflect.TypeFor[Reply](), true
	known := new(Recent[In])
	o.handle = func(ctx context.Context, in *inbound, answer func(any, error)) {
		r, err := request(&o, in, known)
		if err != nil {
			answer(nil, err)
			return
		}
		handle(ctx, r, answer)
	}
	return o
}

// request reads what a handler gets. known has bodies that were read before, if they may be shared.
func request[In any](o *Op, in *inbound, known *Recent[In]) (*Request[In], error) {
	r := &Request[In]{IDs: in.ids, API: in.api, Header: in.header}
	share, ok := known != nil && len(in.data) <= shortBody, false
	if share {
		r.Body, ok = known.Get(in.data)
	}
	if !ok {
		if err := decode(in.data, &r.Body); err != nil {
			return nil, err
		}
		if share {
			known.Put(in.data, r.Body)
		}
	}
	r.Origin = store.Origin{RequestID: in.requestID, Trace: in.trace, Cause: in.cause}
	if in.requestID != "" && o.Changes {
		digest, err := digest(r.Body)
		if err != nil {
			return nil, err
		}
		r.Origin.Digest, r.Origin.MemoKey = digest, wire.MemoKey(o.Name, in.ids, in.requestID)
		if in.trigger {
			r.Origin.MemoKey = wire.TriggerMemoKey(o.Name, in.ids, in.requestID)
		}
	}
	return r, nil
}

// shortBody is the largest body that is likely to come again as it is, in bytes.
const shortBody = 64

// Appender is a reply that encodes itself, for the hot paths. It must append one JSON object.
type Appender interface {
	AppendJSON([]byte) []byte
}

// encode appends an encoded reply.
func encode(b []byte, reply any) ([]byte, error) {
	if a, ok := reply.(Appender); ok {
		return a.AppendJSON(b), nil
	}
	data, err := json.Marshal(reply, json.Deterministic(true))
	return append(b, data...), err
}
