package runtime_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
	"muster/wire"
)

// The files assume_*_test.go hold what the product believes of NATS, a test for each belief, without the product's own
// code: after an upgrade they tell which one no longer holds. One of them failing is no fault by itself; what leans on
// it must be looked at.

// raw is the product's bucket of record as the protocol shows it.
type raw struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	copies int
}

func newRaw(t *testing.T, url string, copies int) *raw {
	t.Helper()
	bucketOf(t, connect(t, url, copies), testBucket) // makes it
	r := &raw{nc: natstest.Connect(t, url), copies: copies}
	r.js = jetStream(t, r.nc)
	var err error
	if r.stream, err = r.js.Stream(within(t), wire.BucketStream(testBucket.Name)); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *raw) subject(key string) string { return wire.KeySubject(testBucket.Name, key) }

// message is one to publish under key, with headers given as name and value in turn.
func (r *raw) message(key, value string, headers ...string) *nats.Msg {
	m := nats.NewMsg(r.subject(key))
	m.Data = []byte(value)
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	return m
}

// publish stores a value under key and returns its sequence or the API's error.
func (r *raw) publish(t testing.TB, key, value string, headers ...string) (uint64, *jetstream.APIError) {
	t.Helper()
	reply, err := r.nc.RequestMsgWithContext(within(t), r.message(key, value, headers...))
	if err != nil {
		t.Fatalf("publish to %s: %v", key, err)
	}
	return acknowledged(t, reply)
}

func acknowledged(t testing.TB, reply *nats.Msg) (uint64, *jetstream.APIError) {
	t.Helper()
	var ack struct {
		Error *jetstream.APIError `json:"error"`
		Seq   uint64              `json:"seq"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		t.Fatalf("acknowledgement %q: %v", reply.Data, err)
	}
	return ack.Seq, ack.Error
}

// mustPublish stores a value and returns its sequence.
func (r *raw) mustPublish(t testing.TB, key, value string, headers ...string) uint64 {
	t.Helper()
	seq, err := r.publish(t, key, value, headers...)
	if err != nil {
		t.Fatalf("publish to %s: %v", key, err)
	}
	return seq
}

// expecting is the header of a write that follows a sequence.
func expecting(seq uint64) []string {
	return []string{jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(seq, 10)}
}

// get asks the stream's leader for a message, as the product does.
func (r *raw) get(t testing.TB, stream, body string) (seq uint64, header nats.Header, apiErr *jetstream.APIError) {
	t.Helper()
	reply, err := r.nc.RequestWithContext(within(t), wire.APIMessageGet(stream), []byte(body))
	if err != nil {
		t.Fatalf("get %s from %s: %v", body, stream, err)
	}
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Seq    uint64 `json:"seq"`
			Header []byte `json:"hdrs"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &got); err != nil {
		t.Fatalf("answer %q: %v", reply.Data, err)
	}
	if len(got.Message.Header) > 0 {
		if header, err = nats.DecodeHeadersMsg(got.Message.Header); err != nil {
			t.Fatal(err)
		}
	}
	return got.Message.Seq, header, got.Error
}

// isConflict tells whether an error is one of the two that say that another write came first.
func isConflict(err *jetstream.APIError) bool {
	return err != nil && (err.ErrorCode == 10071 || err.ErrorCode == 10164)
}

// assumption holds on one server and on three; key is its own.
type assumption func(t *testing.T, r *raw, key string)

func TestAssumeOfOneServer(t *testing.T) {
	t.Parallel()
	assume(t, newRaw(t, natstest.Start(t).URL(), 1))
}

func TestAssumeOfThreeServers(t *testing.T) {
	t.Parallel()
	assume(t, newRaw(t, natstest.StartCluster(t, 3).Node(0).URL(), 3))
}

func assume(t *testing.T, r *raw) {
	for _, list := range []map[string]assumption{assumedOfWrites, assumedOfReads, assumedOfBatches, assumedOfTTLs, assumedOfConsumers} {
		for name, run := range list {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(t, r, name)
			})
		}
	}
}

var assumedOfWrites = map[string]assumption{
	"StaleWriteIsAConflict":           staleWrite,
	"OneOfManyWritersWins":            oneWins,
	"CreateNeedsTheMarkersSequence":   overMarker,
	"MessageIdIsNoMemo":               messageID,
	"KVMarkersHaveAHeader":            markerHeaders,
	"LibraryMissesConflictsOfACreate": libraryMisses,
}

// FACTS 1.
func staleWrite(t *testing.T, r *raw, key string) {
	seq := r.mustPublish(t, key, "1")
	for _, stale := range []uint64{0, seq - 1, seq + 1} {
		_, err := r.publish(t, key, "2", expecting(stale)...)
		if err == nil || err.ErrorCode != 10071 && (r.copies == 1 || err.ErrorCode != 10164) {
			t.Errorf("a write behind %d, where %d is the last, got %v", stale, seq, err)
		}
	}
	if next := r.mustPublish(t, key, "2", expecting(seq)...); next <= seq {
		t.Errorf("sequence %d after %d", next, seq)
	}
}

func oneWins(t *testing.T, r *raw, key string) {
	last := uint64(0)
	for range 10 {
		var mu sync.Mutex
		var won []uint64
		var others sync.WaitGroup
		for w := range 16 {
			others.Go(func() {
				seq, err := r.publish(t, key, strconv.Itoa(w), expecting(last)...)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won = append(won, seq)
				case err.ErrorCode == 10164 && r.copies == 1, !isConflict(err):
					t.Errorf("a loser got %v", err)
				}
			})
		}
		others.Wait()
		if len(won) != 1 {
			t.Fatalf("%d writers behind %d won", len(won), last)
		}
		last = won[0]
	}
}

func overMarker(t *testing.T, r *raw, key string) {
	kv := keyValue(t, r.nc, testBucket.Name)
	r.mustPublish(t, key, "1")
	for _, remove := range []func() error{
		func() error { return kv.Delete(within(t), key) },
		func() error { return kv.Purge(within(t), key) },
	} {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		marker, _, err := r.get(t, r.stream.CachedInfo().Config.Name, `{"last_by_subj":"`+r.subject(key)+`"}`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.publish(t, key, "2", expecting(0)...); !isConflict(err) {
			t.Errorf("a create over a marker got %v", err)
		}
		r.mustPublish(t, key, "2", expecting(marker)...)
	}
}

// FACTS 1: a lost create over a marker is sometimes a bare 10164, which the library's errors do not match.
func libraryMisses(t *testing.T, _ *raw, _ string) {
	bare := &jetstream.APIError{Code: 400, ErrorCode: 10164}
	if errors.Is(bare, jetstream.ErrKeyExists) {
		t.Error("errors.Is(ErrKeyExists) knows 10164 now")
	}
	if !errors.Is(&jetstream.APIError{Code: 400, ErrorCode: 10071}, jetstream.ErrKeyExists) {
		t.Error("errors.Is(ErrKeyExists) does not know 10071 any more")
	}
}

// FACTS 8.
func messageID(t *testing.T, r *raw, key string) {
	headers := append(expecting(0), jetstream.MsgIDHeader, "id-"+key)
	seq := r.mustPublish(t, key, "1", headers...)
	again, err := r.publish(t, key, "1", headers...)
	switch {
	case r.copies == 1 && (err == nil || err.ErrorCode != 10071):
		t.Errorf("a repeated id on one server got %d, %v; believed is 10071", again, err)
	case r.copies > 1 && (err != nil || again != seq):
		t.Errorf("a repeated id on three servers got %d, %v; believed is a duplicate of %d", again, err, seq)
	}
}

func markerHeaders(t *testing.T, r *raw, key string) {
	kv := keyValue(t, r.nc, testBucket.Name)
	for want, remove := range map[string]func() error{
		"DEL":   func() error { return kv.Delete(within(t), key) },
		"PURGE": func() error { return kv.Purge(within(t), key) },
	} {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		_, header, err := r.get(t, r.stream.CachedInfo().Config.Name, `{"last_by_subj":"`+r.subject(key)+`"}`)
		if err != nil || header.Get("KV-Operation") != want {
			t.Errorf("the marker has headers %v, %v; want KV-Operation %s", header, err, want)
		}
	}
}

// The codes that the product tells apart are those the server documents.
func TestAssumeErrorCodes(t *testing.T) {
	t.Parallel()
	for want, is := range map[int]server.ErrorIdentifier{
		10037: server.JSNoMessageFoundErr,
		10059: server.JSStreamNotFoundErr,
		10071: server.JSStreamWrongLastSequenceErrF,
		10164: server.JSStreamWrongLastSequenceConstantErr,
		10166: server.JSMessageTTLDisabledErr,
		10174: server.JSAtomicPublishDisabledErr,
		10176: server.JSAtomicPublishIncompleteBatchErr,
		10210: server.JSAtomicPublishTooManyInflight,
		10158: server.JSStreamDuplicateMessageConflict,
		10201: server.JSAtomicPublishContainsDuplicateMessageErr,
		// no room
		10002: server.JSAccountResourcesExceededErr,
		10023: server.JSInsufficientResourcesErr,
		10047: server.JSStorageResourcesExceededErr,
		10077: server.JSStreamStoreFailedF,
	} {
		if int(is) != want {
			t.Errorf("the server's code is %d, the product's is %d", is, want)
		}
	}
}

var assumedOfReads = map[string]assumption{
	"LeaderTellsTheLastMessage":  lastMessage,
	"NothingThereIsItsOwnCode":   nothingThere,
	"NextMessageOfAKey":          nextMessage,
	"BindsAsAKVBucket":           bindsAsBucket,
	"LastSequenceIsNeverBehind":  lastSequence,
	"MissingStreamIsItsOwnCode":  missingStream,
	"SubjectFilterListsKeysOnly": filterLists,
}

func lastMessage(t *testing.T, r *raw, key string) {
	for i := range 50 { // FACTS 2: the leader is never stale
		want := r.mustPublish(t, key, strconv.Itoa(i), "X-Test", strconv.Itoa(i))
		seq, header, err := r.get(t, r.stream.CachedInfo().Config.Name, `{"last_by_subj":"`+r.subject(key)+`"}`)
		if err != nil || seq != want || header.Get("X-Test") != strconv.Itoa(i) {
			t.Fatalf("got %d, %v, %v; acknowledged was %d", seq, header, err, want)
		}
	}
}

func nothingThere(t *testing.T, r *raw, key string) {
	last := r.mustPublish(t, key, "1")
	for _, body := range []string{
		`{"last_by_subj":"` + r.subject("nothing") + `"}`,
		fmt.Sprintf(`{"next_by_subj":%q,"seq":%d}`, r.subject(key), last+1),
		`{"seq":1000000000}`,
	} {
		if _, _, err := r.get(t, r.stream.CachedInfo().Config.Name, body); err == nil || err.ErrorCode != 10037 {
			t.Errorf("%s got %v, want 10037", body, err)
		}
	}
}

func missingStream(t *testing.T, r *raw, _ string) {
	if _, _, err := r.get(t, "KV_missing", `{"seq":1}`); err == nil || err.ErrorCode != 10059 {
		t.Errorf("got %v, want 10059", err)
	}
}

func nextMessage(t *testing.T, r *raw, key string) {
	first := r.mustPublish(t, key, "1")
	r.mustPublish(t, key+"-other", "1")
	second := r.mustPublish(t, key, "2")
	for from, want := range map[uint64]uint64{first: first, first + 1: second, second: second} {
		seq, _, err := r.get(t, r.stream.CachedInfo().Config.Name, fmt.Sprintf(`{"next_by_subj":%q,"seq":%d}`, r.subject(key), from))
		if err != nil || seq != want {
			t.Errorf("the next from %d is %d, %v; want %d", from, seq, err, want)
		}
	}
}

// FACTS 2 and 9.
func bindsAsBucket(t *testing.T, r *raw, key string) {
	c := r.stream.CachedInfo().Config
	if c.AllowDirect || c.MaxMsgsPerSubject != 256 || !c.AllowAtomicPublish || !c.AllowMsgTTL {
		t.Errorf("direct get %t, history %d, atomic batches %t, TTLs %t", c.AllowDirect, c.MaxMsgsPerSubject, c.AllowAtomicPublish, c.AllowMsgTTL)
	}
	kv := keyValue(t, r.nc, testBucket.Name)
	want := r.mustPublish(t, key, "1")
	e, err := kv.Get(within(t), key)
	if err != nil || e.Revision() != want || string(e.Value()) != "1" {
		t.Errorf("kv get: %v, %v", e, err)
	}
	for range 300 {
		r.mustPublish(t, key, "2")
	}
	natstest.Eventually(t, limit, "the history is 256 revisions", func() bool { // a consumer may begin behind the leader
		all, err := kv.History(within(t), key)
		return err == nil && len(all) == 256
	})
}

// Shared views lean on it: what was acknowledged to anybody is in the last sequence the leader tells afterwards.
func lastSequence(t *testing.T, r *raw, key string) {
	for range 50 {
		seq := r.mustPublish(t, key, "1")
		info, err := r.stream.Info(within(t))
		if err != nil || info.State.LastSeq < seq {
			t.Fatalf("last sequence %d, %v; acknowledged was %d", info.State.LastSeq, err, seq)
		}
	}
}

func filterLists(t *testing.T, r *raw, key string) {
	r.mustPublish(t, key, "1")
	r.mustPublish(t, "_req."+key+".id", "1")
	info, err := r.stream.Info(within(t), jetstream.WithSubjectFilter(r.subject("*")))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for subject := range info.State.Subjects {
		listed = append(listed, subject)
	}
	if !slices.Contains(listed, r.subject(key)) || slices.Contains(listed, r.subject("_req."+key+".id")) {
		t.Errorf("listed are %q", listed)
	}
}
