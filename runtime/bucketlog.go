package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"muster/runtime/store"
	"muster/wire"
)

// JetStream's error codes that the log tells apart, as the server documents them.
const (
	codeNoMessage       jetstream.ErrorCode = 10037
	codeStreamNotFound  jetstream.ErrorCode = 10059
	codeTooLarge        jetstream.ErrorCode = 10054
	codeNoTTL           jetstream.ErrorCode = 10166 // the bucket was made by hand without TTLs
	codeNoBatches       jetstream.ErrorCode = 10174 // or without atomic batches
	codeWrongSequence   jetstream.ErrorCode = 10071 // another revision is the last one
	codeWriteInFlight   jetstream.ErrorCode = 10164 // another write to the key is not replicated yet; ours may be right
	codeBatchIncomplete jetstream.ErrorCode = 10176
	codeBatchInflight   jetstream.ErrorCode = 10210
	codeCopyInFlight    jetstream.ErrorCode = 10158 // an earlier copy of this write is not replicated yet
	codeCopyInBatch     jetstream.ErrorCode = 10201 // or one of a batch is stored or under way
)

// full lists the codes that say that there is no room, until an operator makes some.
var full = []jetstream.ErrorCode{10002, 10023, 10047, 10077}

// getRequest is the body of the JetStream API's message get, and getReply its answer.
type getRequest struct {
	LastFor string `json:"last_by_subj,omitzero"`
	NextFor string `json:"next_by_subj,omitzero"`
	Seq     uint64 `json:"seq,omitzero"`
}

type getReply struct {
	Error   *jetstream.APIError `json:"error"`
	Message struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Header  []byte    `json:"hdrs"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

type pubAck struct {
	Error *jetstream.APIError `json:"error"`
	Seq   uint64              `json:"seq"`
}

// Last implements [store.Log].
func (k *Bucket) Last(ctx context.Context, key string) (store.Revision, error) {
	return k.get(ctx, getRequest{LastFor: wire.KeySubject(k.spec.Name, key)})
}

// After implements [store.Log].
func (k *Bucket) After(ctx context.Context, key string, rev uint64) (store.Revision, error) {
	return k.get(ctx, getRequest{NextFor: wire.KeySubject(k.spec.Name, key), Seq: rev + 1})
}

// At implements [store.Log].
func (k *Bucket) At(ctx context.Context, rev uint64) (store.Revision, error) {
	r, err := k.get(ctx, getRequest{Seq: rev})
	if err == nil && r.Revision == 0 {
		err = store.ErrGone
	}
	return r, err
}

// get asks the stream's leader for a message.
func (k *Bucket) get(ctx context.Context, ask getRequest) (store.Revision, error) {
	if err := k.usable(); err != nil {
		return store.Revision{}, err
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return store.Revision{}, fmt.Errorf("encode message get: %w", err)
	}
	subject, began := wire.APIMessageGet(k.stream), time.Now()
	msg, err := k.bus.nc.RequestWithContext(ctx, subject, body)
	if err != nil {
		return store.Revision{}, k.failed(err, subject, began)
	}
	var reply getReply
	if err := json.Unmarshal(msg.Data, &reply); err != nil {
		return store.Revision{}, fmt.Errorf("decode message get: %w", err)
	}
	switch e := reply.Error; {
	case e == nil:
	case e.ErrorCode == codeNoMessage:
		return store.Revision{}, nil
	default:
		return store.Revision{}, k.failed(e, subject, began)
	}
	m := reply.Message
	r := store.Revision{Key: wire.SubjectKey(k.spec.Name, m.Subject), Revision: m.Seq, Value: m.Data, Time: m.Time}
	if len(m.Header) > 0 {
		h, err := nats.DecodeHeadersMsg(m.Header)
		if err != nil {
			return store.Revision{}, fmt.Errorf("decode headers of revision %d: %w", m.Seq, err)
		}
		r.Header = h
		r.Marker, r.Purge = marker(h)
	}
	return r, nil
}

// marker tells whether headers are those of a key that was deleted, purged or has expired.
func marker(h nats.Header) (marker, purge bool) {
	switch h.Get(wire.HeaderKVOperation) {
	case wire.KVDelete:
		return true, false
	case wire.KVPurge:
		return true, true
	}
	return h.Get(wire.HeaderMarker) != "", h.Get(wire.HeaderMarker) != ""
}

// Write implements [store.Log].
func (k *Bucket) Write(ctx context.Context, entries []store.Entry) (uint64, error) {
	if err := k.usable(); err != nil {
		return 0, err
	}
	msgs := make([]*nats.Msg, len(entries))
	for i, e := range entries {
		msgs[i] = k.message(e)
	}
	began := time.Now()
	last, size := msgs[len(msgs)-1], 0
	for _, m := range msgs {
		size = max(size, len(m.Data))
	}
	if len(msgs) == 1 {
		reply, err := k.bus.nc.RequestMsgWithContext(ctx, last)
		return k.acknowledged(reply, err, last.Subject, size, began)
	}
	ack, err := jetstreamext.PublishMsgBatch(ctx, k.bus.js, msgs, jetstreamext.BatchFlowControl{AckTimeout: lookTimeout})
	if err != nil {
		return 0, k.notWritten(err, last.Subject, size, began)
	}
	return ack.Sequence, nil
}

// Send implements [store.Log].
func (k *Bucket) Send(entry store.Entry, then func(uint64, error)) {
	if err := k.usable(); err != nil {
		then(0, err)
		return
	}
	msg, began := k.message(entry), time.Now()
	subject, size := msg.Subject, len(msg.Data)
	k.bus.requests.send(msg, func(reply *nats.Msg, err error) { then(k.acknowledged(reply, err, subject, size, began)) })
}

// acknowledged reads the answer to one write.
func (k *Bucket) acknowledged(reply *nats.Msg, err error, subject string, size int, began time.Time) (uint64, error) {
	if err != nil {
		return 0, k.notWritten(err, subject, size, began)
	}
	var ack pubAck
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return 0, fmt.Errorf("%w: decode ack: %w", store.ErrUnsure, err)
	}
	if ack.Error != nil {
		return 0, k.notWritten(ack.Error, subject, size, began)
	}
	return ack.Seq, nil
}

func (k *Bucket) message(e store.Entry) *nats.Msg {
	h := nats.Header(e.Header) // made for this write, and the same each time it is sent
	if h == nil {
		h = nats.Header{}
	}
	h[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(e.Follows, 10)}
	if k.spec.EventType != "" && (k.state.Load().copies > 1 || k.bus.copied.Load()) {
		identify(h)
	}
	switch marker, _ := marker(h); {
	case e.TTL > 0:
		h[jetstream.MsgTTLHeader] = []string{e.TTL.String()}
	case marker && k.spec.Leases: // names come and go there, their markers are not to stay
		h[jetstream.MsgTTLHeader] = []string{time.Second.String()}
	}
	return &nats.Msg{Subject: wire.KeySubject(k.spec.Name, e.Key), Header: h, Data: e.Value}
}

// identify gives what becomes an event a message id. The bucket needs none, but the events stream stores no id twice, so
// that a leader that takes again what the last one had taken repeats nothing. A single server has no such leaders, and the
// id would cost it a tenth of its writes.
func identify(h nats.Header) {
	if id := h[wire.HeaderCEID]; id != nil {
		h[jetstream.MsgIDHeader] = id
	} else if marker, _ := marker(h); marker && h[jetstream.MsgIDHeader] == nil {
		h[jetstream.MsgIDHeader] = []string{nuid.Next()}
	}
}

// notWritten sorts the failure of a write: was it refused, did nobody take it, or is that not known?
func (k *Bucket) notWritten(err error, subject string, size int, began time.Time) error {
	// Not errors.AsType[jetstream.JetStreamError]: a write's plain API errors have no such wrapper.
	if api := apiError(err); api != nil {
		switch code := api.ErrorCode; {
		case code == codeWrongSequence, code == codeWriteInFlight, code == codeCopyInFlight, code == codeCopyInBatch:
			return &store.Conflict{}
		case code == codeBatchIncomplete, code == codeBatchInflight, api.Code == 503 && !slices.Contains(full, code):
			return k.failed(err, subject, began) // not stored, tried again
		case code == codeNoTTL, code == codeNoBatches:
			return wire.Errorf(wire.Unavailable, "bucket %s was not made by muster and lacks what this takes: %s; /readyz has its settings",
				k.spec.Name, api.Description).
				With("reason", wire.BucketMissing).Because(err)
		case code == codeTooLarge: // the operator has set a limit of his own
			return store.TooLarge("the record", size, int(k.state.Load().largest)).Because(err)
		case slices.Contains(full, code):
			k.bus.log.Error("jetstream has no room", "bucket", k.spec.Name, "cause", err)
			return wire.Errorf(wire.Unavailable, "JetStream has no room for the change: %s", api.Description).
				With("reason", wire.JetStreamUnavailable).Because(err)
		}
		return fmt.Errorf("write to %s: %w", subject, wire.AsError(err))
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrReconnectBufExceeded), k.bus.refused(subject, began):
		return k.failed(err, subject, began)
	}
	k.look()
	return fmt.Errorf("%w: %w", store.ErrUnsure, err)
}

func apiError(err error) *jetstream.APIError {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api
	}
	if js, ok := errors.AsType[jetstream.JetStreamError](err); ok {
		return js.APIError()
	}
	return nil
}

// Keys implements [store.Log].
func (k *Bucket) Keys(ctx context.Context) ([]string, error) {
	if err := k.usable(); err != nil {
		return nil, err
	}
	began := time.Now()
	var subjects map[string]uint64
	s, err := k.bus.js.Stream(ctx, k.stream)
	if err == nil {
		var info *jetstream.StreamInfo
		if info, err = s.Info(ctx, jetstream.WithSubjectFilter(wire.RecordSubjects(k.spec.Name, k.spec.names()))); err == nil {
			subjects = info.State.Subjects
		}
	}
	if err != nil {
		return nil, k.unavailable(err, wire.APIStreamInfo(k.stream), began)
	}
	keys := make([]string, 0, len(subjects))
	for subject := range subjects {
		keys = append(keys, wire.SubjectKey(k.spec.Name, subject))
	}
	slices.Sort(keys)
	return keys, nil
}
