package test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
	"muster/wire"
)

// What porcupine is told of declare on one hive: the record is its revision and the states of three agents.

var linearAgents = []string{"a", "b", "c"}

type record struct {
	revision uint64
	agents   [3]wire.State
}

// asked is one request: a view, or a set of an agent, perhaps with if_revision.
type asked struct {
	set        bool
	agent      int
	state      wire.State
	ifRevision uint64 // 0: without
}

// told is the answer to it: a record, or the current revision of a RevisionMismatch.
type told struct {
	mismatch bool
	changed  bool
	record
}

// declareModel is what the contract says of set and view. Requests that wait together may be written as one revision;
// then one that changes nothing is told the revision of that write, which may be one further than where it was true.
func declareModel(first record) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return first },
		Step: func(was, input, output any) (bool, any) {
			now, in, out := was.(record), input.(asked), output.(told)
			switch {
			case !in.set:
				return out.record == now, now
			case out.mismatch:
				return in.ifRevision != 0 && in.ifRevision != now.revision && out.revision == now.revision, now
			case in.ifRevision != 0 && in.ifRevision != now.revision:
				return false, now
			case !out.changed:
				return now.agents[in.agent] == in.state && out.revision >= now.revision, now
			case now.agents[in.agent] == in.state, out.revision < now.revision, out.revision == in.ifRevision:
				return false, now
			}
			now.revision, now.agents[in.agent] = out.revision, in.state
			return true, now
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
}

func TestLinearizable(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	a, b := pair(t, s.URL(), s.URL(), 1)
	linearizable(t, natstest.Connect(t, s.URL()), a, b, 6, nil)
}

func TestLinearizableOnThreeNodes(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t, 3)
	a, b := pair(t, c.Node(0).URL(), c.Node(1).URL(), 3)
	linearizable(t, natstest.Connect(t, c.Node(2).URL()), a, b, 6, nil)
}

// While the bucket's leader changes, requests may fail with an outcome that is unknown. Each is then repeated under its
// id until its outcome is known, and counts as one that took as long.
func TestLinearizableWhileLeadersChange(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t, 3)
	a, b := pair(t, c.Node(0).URL(), c.Node(1).URL(), 3)
	linearizable(t, natstest.Connect(t, c.Node(2).URL()), a, b, 3, func() { c.StepDown("KV_muster_wanted") })
}

// linearizable has eight clients work on one hive after another, through both replicas, and holds what they were told
// against the model.
func linearizable(t *testing.T, nc *nats.Conn, a, b *replica, hives int, disturb func()) {
	const clients, each = 8, 40
	for h := range hives {
		hive := fmt.Sprintf("h%d", h)
		d := ask(t, nc, a.subject("apply."+hive), `{"agents":{"a":{"state":"up"},"b":{"state":"up"},"c":{"state":"up"}}}`).ok(t)
		first := record{d.Revision, [3]wire.State{"up", "up", "up"}}
		began := time.Now()
		histories := make([][]porcupine.Operation, clients)
		errs := make([]error, clients)
		var wg sync.WaitGroup
		for id := range clients {
			wg.Go(func() {
				c := linearClient{
					nc: nc, via: []*replica{a, b}, hive: hive, id: id, seen: first.revision, patient: disturb != nil,
					rand: rand.New(rand.NewPCG(uint64(h), uint64(id))),
				}
				histories[id], errs[id] = c.run(each, began)
			})
		}
		if disturb != nil {
			disturb()
		}
		wg.Wait()
		var all []porcupine.Operation
		for id, history := range histories {
			if errs[id] != nil {
				t.Fatalf("hive %s, client %d: %v", hive, id, errs[id])
			}
			all = append(all, history...)
		}
		oneRecordARevision(t, all)
		changes := 0
		for _, o := range all {
			if o.Output.(told).changed {
				changes++
			}
		}
		if changes < each {
			t.Errorf("hive %s: only %d of %d requests changed anything", hive, changes, len(all))
		}
		if got := porcupine.CheckOperationsTimeout(declareModel(first), all, 20*time.Second); got != porcupine.Ok {
			t.Errorf("hive %s: %d operations are %s, not linearizable", hive, len(all), got)
		}
	}
}

// oneRecordARevision checks that all answers that name a revision carry the same record.
func oneRecordARevision(t *testing.T, all []porcupine.Operation) {
	t.Helper()
	seen := map[uint64]record{}
	for _, o := range all {
		out := o.Output.(told)
		if out.mismatch {
			continue
		}
		if other, ok := seen[out.revision]; ok && other != out.record {
			t.Errorf("two records at one revision: %+v and %+v", other, out.record)
		}
		seen[out.revision] = out.record
	}
}

// linearClient asks one thing after the other.
type linearClient struct {
	nc      *nats.Conn
	via     []*replica
	hive    string
	id      int
	rand    *rand.Rand
	seen    uint64 // the last revision it was told of
	patient bool   // repeats what failed, under the same id
	tally   *tally // nil: nobody counts, and whoever gets no answer gives up
}

func (c *linearClient) run(n int, began time.Time) (history []porcupine.Operation, err error) {
	for i := range n {
		in := asked{set: c.rand.IntN(10) < 7}
		if in.set {
			in.agent, in.state = c.rand.IntN(3), []wire.State{"up", "offline", "paused"}[c.rand.IntN(3)]
			if c.rand.IntN(3) == 0 {
				in.ifRevision = c.seen
			}
		}
		o := porcupine.Operation{ClientId: c.id, Input: in, Call: time.Since(began).Nanoseconds()}
		out, err := c.ask(in, fmt.Sprintf("%d-%d", c.id, i))
		if err != nil {
			return nil, fmt.Errorf("%+v: %w", in, err)
		}
		o.Output, o.Return = out, time.Since(began).Nanoseconds()
		c.seen = out.revision
		history = append(history, o)
	}
	return history, nil
}

func (c *linearClient) ask(in asked, id string) (told, error) {
	op, body := "view."+c.hive, ""
	if in.set {
		op = "set." + c.hive + "." + linearAgents[in.agent]
		body = state(string(in.state))
		if in.ifRevision != 0 {
			body = fmt.Sprintf(`{"state":%q,"if_revision":%d}`, in.state, in.ifRevision)
		}
	}
	var headers []string
	if c.patient || c.id%2 == 0 {
		headers = []string{"Muster-Request-Id", id}
	}
	for end := time.Now().Add(c.tally.limit()); ; <-time.After(20 * time.Millisecond) {
		a, err := c.tally.try(c.nc, 10*time.Second, c.via[c.rand.IntN(len(c.via))].subject(op), body, headers...)
		switch {
		case err != nil && c.tally != nil && time.Now().Before(end):
		case err != nil:
			return told{}, err
		case a.failure == nil:
			out := told{changed: a.decl.Changed, record: record{revision: a.decl.Revision}}
			for i, name := range linearAgents {
				out.agents[i] = a.decl.Agents[name].State
			}
			return out, nil
		case a.failure.Code == wire.RevisionMismatch:
			return told{mismatch: true, record: record{revision: uint64(detail(*a.failure, "revision"))}}, nil
		case !c.patient || !a.failure.Retryable || time.Now().After(end):
			return told{}, fmt.Errorf("%s", a.raw)
		}
	}
}
