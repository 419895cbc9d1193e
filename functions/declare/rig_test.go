package declare

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

// rig is the function on buckets in memory.
type rig struct {
	*function
	wantedLog, reportedLog *store.Memory
}

func newRig() *rig {
	r := &rig{wantedLog: store.NewMemory(wire.BucketWanted), reportedLog: store.NewMemory(wire.BucketReported)}
	r.function = &function{
		wanted:   store.New(r.wantedLog, codec, store.Config{EventType: runtime.Wanted.EventType}),
		reported: r.reportedLog,
		now:      time.Now,
	}
	return r
}

// handler is what an op that changes or views a declaration does.
type handler[In any] func(context.Context, *runtime.Request[In], func(any, error))

// ask hands a request to a handler and waits for its answer, which must come once.
func ask[In any](t testing.TB, h handler[In], body In, ids ...string) (wire.Declaration, *wire.Error) {
	t.Helper()
	return wait(t, begin(t, h, &runtime.Request[In]{IDs: ids, Body: body}))
}

type answer struct {
	reply any
	err   error
}

// begin hands a request to a handler.
func begin[In any](t testing.TB, h handler[In], r *runtime.Request[In]) chan answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	answers := make(chan answer, 2)
	h(ctx, r, func(reply any, err error) { answers <- answer{reply, err} })
	return answers
}

// wait reads the answer to a request.
func wait(t testing.TB, answers chan answer) (d wire.Declaration, _ *wire.Error) {
	t.Helper()
	a := <-answers
	if len(answers) > 0 {
		t.Fatal("a request was answered twice")
	}
	if a.err != nil {
		e := wire.AsError(a.err)
		if e.Code == wire.Internal {
			t.Fatalf("internal error: %v", e)
		}
		return d, e
	}
	b := a.reply.(runtime.Appender).AppendJSON(nil)
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatalf("reply %s: %v", b, err)
	}
	return d, nil
}

func (r *rig) mustSet(t testing.TB, hive, agent string, s wire.State) wire.Declaration {
	t.Helper()
	d, err := ask(t, r.set, wire.Set{State: s}, hive, agent)
	if err != nil {
		t.Fatalf("set %s.%s %s: %v", hive, agent, s, err)
	}
	return d
}

// stored is what lies in the bucket, and at which revision.
func (r *rig) stored(t testing.TB, hive string) (string, uint64) {
	t.Helper()
	rev, err := r.wantedLog.Last(context.Background(), hive)
	if err != nil {
		t.Fatal(err)
	}
	return string(rev.Value), rev.Revision
}

// read decodes a record that must be readable.
func read(t testing.TB, record string) *document {
	t.Helper()
	if record == "" {
		return codec.New()
	}
	d, err := decode([]byte(record))
	if err != nil {
		t.Fatalf("decode %.200s: %v", record, err)
	}
	return d
}

// try applies changes to a copy of a document, as the store does.
func try(d *document, limit int, changes ...change) (*document, bool, error) {
	c := codec.Clone(d)
	changed, err := redeclare(c, changes, limit)
	return c, changed, err
}

// text is what a document is stored as.
func text(d *document) string { return string(codec.Encode(codec.Clone(d))) }

// agents lists name:state of a document, in order.
func agents(d *document) string {
	var b strings.Builder
	for i, a := range d.agents {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(a.name + ":" + string(a.state))
	}
	return b.String()
}

// roomy is a limit that nothing meets.
const roomy = 1 << 20

func setTo(agent string, s wire.State) change { return change{agent: agent, state: s} }
func createAs(agent string, s wire.State) change {
	return change{agent: agent, state: s, fresh: true}
}
