package runtime_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
	"golang.org/x/sync/errgroup"

	"muster/runtime/natstest"
)

// FACTS 19 and 20.
var assumedOfBatches = map[string]assumption{
	"BatchIsStoredAsOne":           batchAsOne,
	"FailedBatchStoresNothing":     failedBatch,
	"BatchHasSuccessiveSequences":  successive,
	"BatchMayHoldAThousand":        thousand,
	"UnfinishedBatchStoresNothing": unfinished,
	"BatchWithAnIdSentTwice":       batchTwice,
}

// batch stores messages as one and returns the last one's sequence.
func (r *raw) batch(t testing.TB, msgs ...*nats.Msg) (uint64, *jetstream.APIError) {
	t.Helper()
	ack, err := jetstreamext.PublishMsgBatch(within(t), r.js, msgs)
	if err == nil {
		return ack.Sequence, nil
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		t.Fatalf("batch: %v", err)
	}
	return 0, api
}

func (r *raw) has(t testing.TB, key string) bool {
	t.Helper()
	_, _, err := r.get(t, r.stream.CachedInfo().Config.Name, `{"last_by_subj":"`+r.subject(key)+`"}`)
	if err != nil && err.ErrorCode != 10037 {
		t.Fatal(err)
	}
	return err == nil
}

// memo is a message as a remembered outcome is written.
func (r *raw) memo(id string) *nats.Msg {
	return r.message("_req."+id, "memo", append(expecting(0), jetstream.MsgTTLHeader, "10m0s")...)
}

func batchAsOne(t *testing.T, r *raw, key string) {
	seq := r.mustPublish(t, key, "1")
	last, err := r.batch(t, r.memo(key), r.message(key, "2", expecting(seq)...))
	if err != nil {
		t.Fatal(err)
	}
	_, header, _ := r.get(t, r.stream.CachedInfo().Config.Name, `{"last_by_subj":"`+r.subject("_req."+key)+`"}`)
	if header.Get(jetstream.MsgTTLHeader) != "10m0s" {
		t.Errorf("the memo's headers: %v", header)
	}
	e, kvErr := keyValue(t, r.nc, testBucket.Name).Get(within(t), key)
	if kvErr != nil || e.Revision() != last || string(e.Value()) != "2" {
		t.Errorf("kv get: %v, %v; want revision %d", e, kvErr, last)
	}
}

func failedBatch(t *testing.T, r *raw, key string) {
	seq := r.mustPublish(t, key, "1")
	if _, err := r.batch(t, r.memo(key+"1"), r.message(key, "2", expecting(seq-1)...)); !isConflict(err) {
		t.Errorf("a stale record in a batch got %v", err)
	}
	if r.has(t, "_req."+key+"1") {
		t.Error("the memo of a failed batch is stored")
	}
	r.mustPublish(t, "_req."+key+"2", "memo")
	if _, err := r.batch(t, r.memo(key+"2"), r.message(key, "2", expecting(seq)...)); !isConflict(err) {
		t.Errorf("a memo that exists got %v", err)
	}
	last, err := r.batch(t, r.memo(key+"3"), r.message(key, "2", expecting(seq)...)) // the failed ones hold nothing up
	if err != nil || last <= seq {
		t.Errorf("the right batch got %d, %v", last, err)
	}
}

// successive: a memo tells the record's revision as an offset from its own, so nothing may come between them.
func successive(t *testing.T, r *raw, key string) {
	var writers errgroup.Group
	for w := range 4 {
		writers.Go(func() error {
			for i := range 10 {
				var msgs []*nats.Msg
				own := fmt.Sprintf("%s-%d-%d", key, w, i)
				for m := range 5 {
					msgs = append(msgs, r.message(own, strconv.Itoa(m)))
				}
				last, apiErr := r.batch(t, msgs...)
				if apiErr != nil {
					return apiErr
				}
				r.mustPublish(t, key+"-between", "1")
				for seq := last - 4; seq <= last; seq++ {
					m, err := r.stream.GetMsg(within(t), seq)
					if err != nil {
						return err
					}
					if want := strconv.FormatUint(seq-(last-4), 10); m.Subject != r.subject(own) || string(m.Data) != want {
						return fmt.Errorf("sequence %d of the batch that ended at %d is %s %s", seq, last, m.Subject, m.Data)
					}
				}
			}
			return nil
		})
	}
	if err := writers.Wait(); err != nil {
		t.Error(err)
	}
}

// thousand: the store's batches hold at most 901 messages.
func thousand(t *testing.T, r *raw, key string) {
	messages := func(n int) []*nats.Msg {
		msgs := make([]*nats.Msg, n)
		for i := range msgs {
			msgs[i] = r.message(fmt.Sprintf("%s.%d.%d", key, n, i), "1")
		}
		return msgs
	}
	if _, err := r.batch(t, messages(1000)...); err != nil {
		t.Errorf("1,000 messages: %v", err)
	}
	if _, err := r.batch(t, messages(1001)...); err == nil {
		t.Error("1,001 messages are taken now: the bound can rise")
	}
}

func unfinished(t *testing.T, r *raw, key string) {
	p, err := jetstreamext.NewBatchPublisher(r.js)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AddMsg(r.message(key, "1")); err != nil {
		t.Fatal(err)
	}
	r.mustPublish(t, key+"-other", "1") // goes past it
	if r.has(t, key) {
		t.Error("a message of an unfinished batch is stored")
	}
	last, cerr := p.CommitMsg(within(t), r.message(key, "2"))
	if cerr != nil || last.BatchSize != 2 {
		t.Errorf("commit: %+v, %v", last, cerr)
	}
}

// With a message id, which revisions have on three servers, the second copy has a code of its own while the id is known.
func batchTwice(t *testing.T, r *raw, key string) {
	send := func() (uint64, *jetstream.APIError) {
		return r.batch(t, r.memo(key), r.message(key, "1", append(expecting(0), jetstream.MsgIDHeader, "id-"+key)...))
	}
	if _, err := send(); err != nil {
		t.Fatal(err)
	}
	if _, err := send(); err == nil || err.ErrorCode != 10201 && err.ErrorCode != 10071 {
		t.Errorf("the second copy got %v, want 10201 or, from one who has forgotten the id, 10071", err)
	}
}

// An atomic batch survives what the store does after a silence: the same messages again are a conflict, not a second write.
func TestAssumeBatchSentTwice(t *testing.T) {
	t.Parallel()
	r := newRaw(t, natstest.Start(t).URL(), 1)
	send := func() (uint64, *jetstream.APIError) {
		return r.batch(t, r.memo("id"), r.message("key", "1", expecting(0)...))
	}
	if _, err := send(); err != nil {
		t.Fatal(err)
	}
	if _, err := send(); err == nil || err.ErrorCode != 10071 {
		t.Errorf("the second copy got %v, want 10071", err)
	}
}
