package join

import (
	"crypto/sha3"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/functions/join/quorum"
	"muster/wire"
)

// world is one rack, its sleds, and what is under way between them and the drivers. Nothing in it moves by itself: a test
// moves it, one event at a time, in any order. It stands for the parts that are not pure: endpoints.go, driver.go and
// reset.go do on the bus what its methods of the same names do here.
type world struct {
	t    failer
	now  time.Time
	made int // ids

	rec     *record                            // as stored; never changed in place
	since   time.Time                          // when
	older   []*record                          // what it was before, for drivers that look at an old one
	configs map[uint64]*wire.RackNetworkConfig // stored, by generation
	sleds   map[wire.Baseboard]*modelSled
	mail    []*letter
	rounds  map[int]*round // of each driver

	ledger
}

// failer is *testing.T or *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// letter is one message under way: a driver's request, a coordinator's prepare, or the answer to either.
type letter struct {
	to       wire.Baseboard
	of       *round        // whose request it is; nil for a prepare
	ask      int           // of the round's
	body     any           // as sent
	sender   *modelSled    // of a prepare
	key      int           // that the share of a prepare is sealed to
	task     *coordination // the sender's
	reply    *answer       // it is on its way back
	prepared bool          // a prepare was acked; on its way back
	back     bool
}

// round is one step of a driver, from its look at the record until it writes.
type round struct {
	base    *record
	asks    []ask
	answers map[int]answer
}

func newWorld(t failer, sleds ...wire.Baseboard) *world {
	w := &world{
		t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), rec: &record{},
		configs: map[uint64]*wire.RackNetworkConfig{}, sleds: map[wire.Baseboard]*modelSled{}, rounds: map[int]*round{},
		ledger: newLedger(),
	}
	for _, b := range sleds {
		w.sleds[b] = newModelSled(b)
	}
	return w
}

func (w *world) newID() string {
	w.made++
	return fmt.Sprint(w.made)
}

// update is the store's: change works on a copy of the stored record, which is written if it says that it changed it.
func (w *world) update(change func(*record) (bool, error)) (changed bool, err error) {
	w.t.Helper()
	doc := w.rec.clone()
	before := string(encodeRecord(doc))
	changed, err = change(doc)
	after := string(encodeRecord(doc))
	switch {
	case err != nil && changed:
		w.t.Fatalf("a change failed and says that it changed the record: %v", err)
	case !changed && before != after:
		w.t.Fatalf("a change that says it changed nothing did\nbefore %s\nafter  %s", before, after)
	case changed && before == after:
		w.t.Fatalf("a change that changed nothing is written\n%s", after)
	case changed:
		w.written(w.rec, doc, after)
		w.older = append(w.older, w.rec)
		w.rec, w.since = doc, w.now
	}
	return changed, err
}

// remove is what a reset does in the end.
func (w *world) remove() {
	w.rec, w.older = &record{}, nil
	clear(w.configs)
}

// look is the first half of a driver's step: it sees the record, perhaps an old one, and asks.
func (w *world) look(driver int, base *record) {
	w.t.Helper()
	r := &round{base: base, asks: plan(base), answers: map[int]answer{}}
	w.rounds[driver] = r
	for i, a := range r.asks {
		body := a.Body
		if n, ok := body.(wire.SledNetworkConfig); ok {
			if n.Config = w.configs[n.Generation]; n.Config == nil {
				w.t.Fatalf("the config of generation %d is to be sent and was never stored", n.Generation)
			}
			body = n
		}
		w.sent(base, a)
		w.mail = append(w.mail, &letter{to: a.To, of: r, ask: i, body: body})
	}
}

// write is the second half: what was answered so far goes into the record, the rest counts as silent.
func (w *world) write(driver int) bool {
	w.t.Helper()
	r := w.rounds[driver]
	delete(w.rounds, driver)
	if len(r.asks) == 0 {
		return false
	}
	answers := make([]answer, len(r.asks))
	for i, a := range r.asks {
		got, ok := r.answers[i]
		if !ok {
			got = silent(a)
		}
		answers[i] = got
	}
	var ids []string
	if r.base.State == Committing {
		for range r.base.Peers {
			ids = append(ids, w.newID())
		}
	}
	changed, err := w.update(func(doc *record) (bool, error) {
		if !doc.exists() {
			return false, nil
		}
		return absorb(r.base, doc, answers, w.now, ids, w.age()), nil
	})
	if err != nil {
		w.t.Fatalf("absorb: %v", err)
	}
	w.now = w.now.Add(time.Millisecond)
	return changed
}

// age is how long the record is what it is, where that is all that counts; elsewhere as long as it takes.
func (w *world) age() time.Duration {
	if w.rec.State == Reconfiguring || w.rec.State == Preparing {
		return w.now.Sub(w.since)
	}
	return restateAfter
}

// deliver hands a letter over; the answer is a letter of its own. A silent sled gets nothing.
func (w *world) deliver(l *letter) {
	s := w.sleds[l.to]
	switch {
	case l.back && l.of != nil:
		l.of.answers[l.ask] = *l.reply
	case l.back:
		if l.sender.task == l.task && l.prepared && !slices.Contains(l.task.acked, l.to) {
			l.task.acked = append(l.task.acked, l.to)
		}
	case s.silent:
	case l.of != nil:
		a := s.answer(w, l.of.asks[l.ask].Op, l.body)
		if a.Err == nil {
			w.took(s, l.body)
		}
		w.mail = append(w.mail, &letter{to: l.to, of: l.of, ask: l.ask, reply: &a, back: true})
	default:
		err := s.prepare(l.task.config, l.key)
		if err == nil {
			w.prepared(s.board, l.task.config)
		} else if err.Code == wire.EpochConflict {
			w.conflicts++
		}
		w.mail = append(w.mail, &letter{to: l.to, sender: l.sender, task: l.task, prepared: err == nil, back: true})
	}
}

// take takes the i-th letter out.
func (w *world) take(i int) *letter {
	l := w.mail[i]
	w.mail = slices.Delete(w.mail, i, i+1)
	return l
}

// deliverAll delivers until nothing is under way.
func (w *world) deliverAll() {
	for len(w.mail) > 0 {
		w.deliver(w.take(0))
	}
}

// coordinate lets a sled do its work as a coordinator: make the configuration, and prepare those who have not acked.
func (w *world) coordinate(s *modelSled) {
	if s.silent || s.task == nil {
		return
	}
	t := s.task
	if t.config == nil {
		if t.config = w.deal(s); t.config == nil {
			return
		}
		if s.prepare(t.config, s.key) != nil {
			return
		}
		w.prepared(s.board, t.config)
		t.acked = []wire.Baseboard{s.board}
	}
	for _, b := range missing(t.asked.Members, t.acked) {
		w.mail = append(w.mail, &letter{to: b, sender: s, key: w.sleds[b].key, task: t})
	}
}

func (w *world) coordinateAll() {
	for _, b := range w.boards() {
		w.coordinate(w.sleds[b])
	}
}

// deal makes the configuration of a coordinator's epoch, another one each time; nil while it cannot recover the secret of
// the last committed epoch.
func (w *world) deal(s *modelSled) *quorum.Configuration {
	m := s.task.asked
	if m.LastCommittedEpoch != nil {
		last := s.configs[*m.LastCommittedEpoch]
		n := 0
		for _, b := range last.Baseboards() {
			if o := w.sleds[b]; !o.silent && o.rackID == m.RackID && o.committed >= *m.LastCommittedEpoch {
				n++
			}
		}
		if n < last.Threshold {
			return nil
		}
	}
	c := &quorum.Configuration{RackID: m.RackID, Epoch: m.Epoch, Coordinator: s.board, Threshold: m.Threshold}
	if m.LastCommittedEpoch != nil {
		c.EncryptedRackSecrets = &quorum.EncryptedRackSecrets{Salt: make(quorum.Hex, 32), Data: make(quorum.Hex, 16+8+quorum.SecretSize)}
	}
	nonce := w.newID()
	for _, b := range m.Members {
		c.Members = append(c.Members, quorum.Member{Baseboard: b, ShareDigest: sha3.Sum256([]byte(nonce + b.String()))})
	}
	w.dealt(c)
	return c
}

func (w *world) boards() []wire.Baseboard {
	var all []wire.Baseboard
	for b := range w.sleds {
		all = append(all, b)
	}
	slices.SortFunc(all, wire.Baseboard.Compare)
	return all
}

// step is one undisturbed step of a driver, with the coordinator's work before and after. It tells whether the record was
// written.
func (w *world) step(driver int) bool {
	w.t.Helper()
	w.coordinateAll()
	w.deliverAll()
	w.look(driver, w.rec)
	w.deliverAll()
	return w.write(driver)
}

// request is an operator's start or initialize under way: it was judged on a record, its config may be stored.
type request struct {
	kind       string
	join       *wire.JoinRequest
	base       *record
	generation uint64
	stored     bool
	ids        fresh
}

// ask is the first half of an operator's request.
func (w *world) ask(kind string, join *wire.JoinRequest) *request {
	q := &request{kind: kind, join: normal(join), base: w.rec, ids: fresh{w.newID(), "rack-" + w.newID()}}
	if w.rec.exists() {
		if sameConfig(w.configs[w.rec.Accepted], join.RackNetworkConfig) {
			return q
		}
		if refusal(w.rec, kind, false) != nil {
			q.generation = w.rec.Accepted + 1
			return q
		}
	}
	for q.generation = w.rec.Accepted + 1; w.configs[q.generation] != nil; q.generation++ {
	}
	w.configs[q.generation], q.stored = join.RackNetworkConfig, true
	return q
}

// begin is the second half, and the whole again as often as the record has moved on.
func (w *world) begin(q *request) (started, bool, error) {
	w.t.Helper()
	for {
		var out started
		was := w.rec
		changed, err := w.update(func(doc *record) (_ bool, err error) {
			if doc.exists() != q.base.exists() || doc.Accepted != q.base.Accepted || doc.ID != q.base.ID {
				return false, errMoved
			}
			if q.generation != 0 && !q.stored && refusal(doc, q.kind, false) == nil {
				return false, errMoved
			}
			changed, o, err := begin(doc, q.kind, q.join, q.generation, q.ids)
			out = o
			return changed, err
		})
		if q.stored && notTaken(w.rec, q.generation, err) {
			delete(w.configs, q.generation)
		}
		if errors.Is(err, errMoved) {
			q = w.ask(q.kind, q.join)
			continue
		}
		w.begun(was, q, out, changed, err)
		return out, changed, err
	}
}

// complete is one look of an operator's complete at the record.
func (w *world) complete() (generation uint64, done bool, err error) {
	w.t.Helper()
	was := w.rec
	changed, err := w.update(func(doc *record) (changed bool, err error) {
		changed, done, generation, err = complete(doc)
		return changed, err
	})
	w.completed(was, changed, done, generation, err)
	return generation, done, err
}

// reset is an operator's, with nothing else under way that it can meet.
func (w *world) reset(force bool) (unreachable []wire.Baseboard, err error) {
	w.t.Helper()
	if !w.rec.exists() {
		return nil, errNotFound("r1")
	}
	if !w.rec.Resetting {
		if _, err := w.update(func(doc *record) (bool, error) { doc.Resetting = true; return true, nil }); err != nil {
			return nil, err
		}
	}
	for _, a := range each(w.rec.Known, wire.SledReset, wire.SledForget{RackID: w.rec.RackID}) {
		s := w.sleds[a.To]
		if s.silent {
			unreachable = append(unreachable, a.To)
		} else if got := s.answer(w, a.Op, a.Body); got.Err != nil && got.Err.Code != wire.WrongRack {
			unreachable = append(unreachable, a.To)
		}
	}
	if len(unreachable) > 0 && !force {
		return unreachable, wire.Errorf(wire.Unavailable, "%d sleds did not answer", len(unreachable))
	}
	w.remove()
	return unreachable, nil
}

// names are baseboards' serial numbers.
func names(boards []wire.Baseboard) string {
	var list []string
	for _, b := range boards {
		list = append(list, b.SerialNumber)
	}
	return strings.Join(list, ",")
}
