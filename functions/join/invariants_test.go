package join

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"muster/functions/join/quorum"
	"muster/wire"
)

// ledger is what was seen of a world: what every invariant is held against.
type ledger struct {
	writes    int
	conflicts int                                 // sleds that were shown two configurations for one epoch
	wiped     map[wire.Baseboard]bool             // sleds that lost what they knew of the rack
	deals     map[epochOf][]*quorum.Configuration // what coordinators made
	acks      map[epochOf][]wire.Baseboard        // of prepares, by the sleds that gave them
	commits   map[epochOf][]wire.Baseboard
	seen      map[string]int // states and codes, to know that a property looked at them
}

// epochOf is an epoch of a rack.
type epochOf struct {
	rackID string
	epoch  uint64
}

func newLedger() ledger {
	return ledger{
		wiped: map[wire.Baseboard]bool{}, deals: map[epochOf][]*quorum.Configuration{}, acks: map[epochOf][]wire.Baseboard{},
		commits: map[epochOf][]wire.Baseboard{}, seen: map[string]int{},
	}
}

// invariants must hold between a record and the one written over it, of the same rack. Each returns what is wrong.
var invariants = []struct {
	name  string
	check func(l *ledger, was, is *record) string
}{
	{"one configuration per rack and epoch", func(l *ledger, was, is *record) string {
		if was.Config != nil && is.Config != nil && was.Config.Epoch == is.Config.Epoch && !was.Config.Equal(*is.Config) {
			return fmt.Sprintf("the configuration of epoch %d changed", is.Config.Epoch)
		}
		if c := is.Config; c != nil {
			if c.Epoch != is.Epoch || c.RackID != is.RackID || c.Coordinator != *is.Coordinator || !slices.Equal(c.Baseboards(), is.Peers) {
				return "the configuration is not the record's"
			}
			deals := l.deals[epochOf{c.RackID, c.Epoch}]
			if !slices.ContainsFunc(deals, func(d *quorum.Configuration) bool { return d.Equal(*c) }) {
				return "nobody made this configuration"
			}
		}
		return ""
	}},
	{"epochs only rise", func(_ *ledger, was, is *record) string {
		if is.Epoch < was.Epoch || last(is) < last(was) || last(is) > is.Epoch {
			return fmt.Sprintf("from %d (committed %d) to %d (%d)", was.Epoch, last(was), is.Epoch, last(is))
		}
		if is.Epoch == was.Epoch && was.Coordinator != nil && is.Coordinator != nil && *was.Coordinator != *is.Coordinator {
			return "an epoch got another coordinator"
		}
		return ""
	}},
	{"generations only rise", func(_ *ledger, was, is *record) string {
		if is.Accepted < was.Accepted || is.Written < was.Written || is.Written > is.Accepted {
			return fmt.Sprintf("from %d (written %d) to %d (%d)", was.Accepted, was.Written, is.Accepted, is.Written)
		}
		return ""
	}},
	{"members only by commit", func(l *ledger, _, is *record) string {
		at := epochOf{is.RackID, is.Epoch}
		for _, b := range is.Committed {
			if !slices.Contains(l.commits[at], b) {
				return b.String() + " shows as committed and is not"
			}
		}
		for _, b := range is.Acked {
			if !slices.Contains(l.acks[at], b) {
				return b.String() + " shows as prepared and is not"
			}
		}
		return ""
	}},
	{"a superseded epoch has been committed by threshold + tolerance", func(l *ledger, was, is *record) string {
		if last(is) == last(was) {
			return ""
		}
		c := l.deals[epochOf{is.RackID, last(is)}]
		if n := len(l.commits[epochOf{is.RackID, last(is)}]); n < c[0].Threshold+quorum.Tolerance(len(c[0].Members)) {
			return fmt.Sprintf("by %d only", n)
		}
		return ""
	}},
	{"sealed after complete", func(_ *ledger, was, is *record) string {
		if was.Sealed && (!is.Sealed || is.Accepted != was.Accepted || !slices.Equal(is.Peers, was.Peers) || is.RackSubnet != was.RackSubnet) {
			return "a sealed join took a change"
		}
		if was.Completed != nil && (is.Completed == nil || *is.Completed != *was.Completed || is.State != Completed) {
			return "what was completed changed"
		}
		return ""
	}},
	{"a completed generation is the accepted one and written", func(_ *ledger, _, is *record) string {
		if (is.State == Completed) != (is.Completed != nil) {
			return "completed without a generation"
		}
		if is.Completed != nil && (*is.Completed != is.Accepted || is.Written != is.Accepted) {
			return fmt.Sprintf("completed %d, accepted %d, written %d", *is.Completed, is.Accepted, is.Written)
		}
		return ""
	}},
	{"ids and subnets are fixed before the first start", func(_ *ledger, was, is *record) string {
		if len(was.Sleds) > 0 && len(is.Sleds) != len(was.Sleds) {
			return "the list of sleds changed"
		}
		ids := map[string]bool{}
		for i, s := range is.Sleds {
			if len(was.Sleds) > 0 {
				if o := was.Sleds[i]; o.Baseboard != s.Baseboard || o.ID != s.ID || o.Subnet != s.Subnet || o.Started && !s.Started {
					return s.Baseboard.String() + " changed"
				}
			}
			want, err := sledSubnet(is.RackSubnet, i+1)
			if err != nil || s.Subnet.Net != want || s.ID == "" || ids[s.ID] || s.Baseboard != is.Peers[i] {
				return fmt.Sprintf("number %d is %+v", i+1, s)
			}
			ids[s.ID] = true
		}
		return ""
	}},
	{"a state has what belongs to it", func(_ *ledger, _, is *record) string {
		switch is.State {
		case Requested, Starting, InvalidMembershipSize, Failed, Uninitialized:
		case Reconfiguring:
			if is.Coordinator == nil || is.Epoch == 0 || is.Config != nil {
				return "no coordinator or a configuration"
			}
		case Preparing:
			if is.Config == nil || !is.Told || len(is.Acked) == len(is.Peers) {
				return "nothing to prepare"
			}
		case Committing:
			if is.Config == nil || len(is.Acked) != len(is.Peers) || len(is.Committed) == len(is.Peers) {
				return "nothing to commit"
			}
		case StartingAgents, ConfiguringNetwork, AwaitingCompletion, Completed, Initialized:
			if len(is.Sleds) != len(is.Peers) || len(is.Committed) != len(is.Peers) || last(is) != is.Epoch {
				return "not all have committed"
			}
			for _, s := range is.Sleds {
				if !s.Started && is.State != StartingAgents {
					return s.Baseboard.String() + " is not started"
				}
			}
		}
		if done := is.State == AwaitingCompletion || is.State == Completed || is.State == Initialized; done && is.Written != is.Accepted {
			return "the accepted config is not written"
		}
		if (is.State == Initialized) && is.Kind != byInitialize || (is.State == AwaitingCompletion || is.State == Completed) && is.Kind != byJoin {
			return "the end of the other kind"
		}
		return ""
	}},
	{"every sled that was asked to join is known for reset", func(_ *ledger, was, is *record) string {
		if len(missing(was.Known, is.Known)) > 0 || is.State != Requested && is.State != Starting && is.Epoch > 0 &&
			is.State != InvalidMembershipSize && is.State != Failed && len(missing(is.Peers, is.Known)) > 0 {
			return "known are " + names(is.Known)
		}
		return ""
	}},
	{"a rack stays what it is", func(_ *ledger, was, is *record) string {
		if was.exists() && (is.ID != was.ID || is.RackID != was.RackID || is.Kind != was.Kind) {
			return "its ids changed"
		}
		if was.State == Failed && is.State != Failed || was.State == Initialized && is.State != Initialized {
			return "it left its end"
		}
		return ""
	}},
}

func last(r *record) uint64 {
	if r.LastCommitted == nil {
		return 0
	}
	return *r.LastCommitted
}

// written holds a write against every invariant. A status must be there for whatever is stored.
func (w *world) written(was, is *record, encoded string) {
	w.t.Helper()
	w.writes++
	w.seen[string(is.State)]++
	if last(is) > last(was) && is.State == Requested {
		w.seen["an epoch followed one that was being committed"]++
	}
	if is.State == Starting && (was.State == Reconfiguring || was.State == Preparing) {
		w.seen["another took over"]++
	}
	for _, i := range invariants {
		if wrong := i.check(&w.ledger, was, is); wrong != "" {
			w.t.Fatalf("%s: %s\nwas %s\nis  %s", i.name, wrong, encodeRecord(was), encoded)
		}
	}
	back, err := decodeRecord([]byte(encoded))
	if err != nil || string(encodeRecord(back)) != encoded {
		w.t.Fatalf("a record is not read as it was written: %v\n%s", err, encoded)
	}
	if _, err := json.Marshal(describe("r1", is)); err != nil {
		w.t.Fatalf("encode status: %v", err)
	}
}

// sent is told of every request to a sled. It was planned on a stored record, so what it says is stored.
func (w *world) sent(base *record, a ask) {
	w.t.Helper()
	at := epochOf{base.RackID, base.Epoch}
	switch b := a.Body.(type) {
	case quorum.Reconfigure:
		if b.Epoch != base.Epoch || !slices.Contains(base.Known, a.To) {
			w.t.Fatalf("saved before sent: epoch %d", b.Epoch)
		}
	case quorum.Commit:
		if without := missing(base.Config.Baseboards(), w.acks[at]); b.Epoch != base.Epoch || len(without) > 0 {
			w.t.Fatalf("every member acks its prepare before the first commit: %s had not", names(without))
		}
	case wire.StartSled:
		if without := missing(base.Peers, w.commits[at]); len(without) > 0 {
			w.t.Fatalf("every member commits before the first start: %s had not", names(without))
		}
		i := slices.IndexFunc(base.Sleds, func(s sled) bool { return s.Baseboard == a.To })
		if i < 0 || base.Sleds[i].ID != b.Body.ID || base.Sleds[i].Subnet != b.Body.Subnet || b.Body.RackID != base.RackID {
			w.t.Fatalf("ids and subnets are fixed before the first start: sent %+v", b)
		}
	}
}

// took is told what a sled did as it was asked.
func (w *world) took(s *modelSled, body any) {
	switch b := body.(type) {
	case quorum.Commit:
		note(w.commits, epochOf{b.RackID, b.Epoch}, s.board)
	case wire.SledNetworkConfig:
		if s.generation != b.Generation {
			w.t.Fatalf("%s took generation %d and has %d", s.board, b.Generation, s.generation)
		}
	}
}

func (w *world) prepared(b wire.Baseboard, c *quorum.Configuration) {
	note(w.acks, epochOf{c.RackID, c.Epoch}, b)
}

func (w *world) dealt(c *quorum.Configuration) {
	w.t.Helper()
	at := epochOf{c.RackID, c.Epoch}
	if w.deals[at] = append(w.deals[at], c); len(w.deals[at]) > 1 && len(w.wiped) == 0 {
		w.t.Fatalf("one configuration per rack and epoch: epoch %d was dealt twice", c.Epoch)
	}
}

func note(m map[epochOf][]wire.Baseboard, at epochOf, b wire.Baseboard) {
	if !slices.Contains(m[at], b) {
		m[at] = append(m[at], b)
	}
}

// begun is told how a start or initialize went.
func (w *world) begun(was *record, q *request, out started, changed bool, err error) {
	w.t.Helper()
	w.code(err)
	if err != nil {
		return
	}
	if was.exists() && !changed && (out.ID != was.ID || out.Generation != was.Accepted) {
		w.t.Fatalf("an equal start is the first one: %+v of %s", out, encodeRecord(was))
	}
	if out.ID != w.rec.ID || out.Generation != w.rec.Accepted || w.configs[out.Generation] == nil ||
		!sameConfig(w.configs[out.Generation], q.join.RackNetworkConfig) {
		w.t.Fatalf("an accepted config is stored under its generation: %+v", out)
	}
	if was.exists() && q.generation == 0 && out.Generation != was.Accepted {
		w.t.Fatalf("a membership-only change keeps the generation: %d after %d", out.Generation, was.Accepted)
	}
}

// completed is told how a complete went.
func (w *world) completed(was *record, changed, done bool, generation uint64, err error) {
	w.t.Helper()
	w.code(err)
	if was.exists() && was.Kind == byJoin && !was.Resetting && was.State != Failed && was.Written != 0 && was.Accepted > was.Written {
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.MultirackJoinPendingConfigUpdate {
			w.t.Fatalf("an accepted config is either written or refused to complete: %v of %s", err, encodeRecord(was))
		}
	}
	if err != nil && changed {
		w.t.Fatalf("a refused complete seals nothing")
	}
	if !done {
		return
	}
	if w.rec.State != Completed || generation != w.rec.Accepted {
		w.t.Fatalf("complete answered %d of %s", generation, encodeRecord(w.rec))
	}
	for _, b := range w.rec.Peers {
		s := w.sleds[b]
		if !w.wiped[b] && s.rackID == w.rec.RackID && (s.generation != generation || !sameConfig(s.network, w.configs[generation])) {
			w.t.Fatalf("complete answered %d and %s has %d", generation, b, s.generation)
		}
	}
}

func (w *world) code(err error) {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		w.seen[string(e.Code)]++
	}
}
