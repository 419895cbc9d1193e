package join

import (
	"fmt"
	"slices"
	"time"

	"muster/functions/join/quorum"
	"muster/wire"
)

// ask is a request to a sled. Its body is made of the record it was planned on, which is stored before it is sent: a
// crash in between repeats the request, and sleds answer repeats as they did before.
type ask struct {
	To   wire.Baseboard
	Op   string
	Body any // nil for none; of the network op the config is added by the driver
}

// answer is what came back.
type answer struct {
	From     wire.Baseboard
	Op       string
	Err      *wire.Error // set: refused, or silent
	Silent   bool        // no answer at all
	Identity *wire.Identity
	Status   *quorum.CoordinatorStatus
}

// plan tells what to ask of sleds next; nothing when the rack waits for nobody.
func plan(r *record) []ask {
	if r.Resetting {
		return nil
	}
	switch r.State {
	case Requested, Starting:
		return each(r.Peers, wire.SledIdentity, nil)
	case Reconfiguring:
		if !r.Told {
			return []ask{{*r.Coordinator, wire.SledReconfigure, quorum.Reconfigure{
				RackID: r.RackID, Epoch: r.Epoch, LastCommittedEpoch: r.LastCommitted,
				Threshold: quorum.Threshold(len(r.Peers)), Members: r.Peers,
			}}}
		}
		return []ask{{*r.Coordinator, wire.SledCoordinatorStatus, nil}}
	case Preparing:
		return []ask{{*r.Coordinator, wire.SledCoordinatorStatus, nil}}
	case Committing:
		return each(missing(r.Peers, r.Committed), wire.SledCommit, quorum.Commit{RackID: r.RackID, Epoch: r.Epoch})
	case StartingAgents:
		var asks []ask
		for _, s := range r.Sleds {
			if !s.Started {
				asks = append(asks, ask{s.Baseboard, wire.SledStart, wire.StartSled{SchemaVersion: 1, Body: wire.StartSledBody{
					ID: s.ID, Subnet: s.Subnet, UseTrustQuorum: true, RackID: r.RackID,
				}}})
			}
		}
		return asks
	case ConfiguringNetwork:
		return each(missing(r.Peers, r.Network), wire.SledNetwork, wire.SledNetworkConfig{Generation: r.Accepted})
	case AwaitingCompletion, Completed, Initialized, Failed, InvalidMembershipSize, Uninitialized:
	}
	return nil
}

func each(to []wire.Baseboard, op string, body any) []ask {
	asks := make([]ask, len(to))
	for i, b := range to {
		asks[i] = ask{b, op, body}
	}
	return asks
}

// absorb takes the answers to what was planned on base into r, which may be newer: what another driver or an operator
// changed meanwhile stays, and answers that belong to what is no more are dropped. ids are for sleds, one each; age is
// for how long the same was asked in vain. It tells whether r is another record now.
func absorb(base, r *record, answers []answer, now time.Time, ids []string, age time.Duration) bool {
	before := r.clone()
	if r.Resetting || r.RackID != base.RackID || r.Epoch != base.Epoch || !slices.Equal(r.Peers, base.Peers) {
		return false
	}
	var problems []sledProblem
	for _, a := range answers {
		if a.Err != nil {
			problems = append(problems, sledProblem{a.From, clipped(a.Err)})
		}
	}
	switch r.State {
	case Requested, Starting:
		r.State = Starting
		problems = append(problems, r.choose(answers)...)
	case Reconfiguring, Preparing:
		problems = append(problems, r.coordinate(answers, now, age)...)
	case Committing:
		r.commit(answers, ids)
		if age >= lostAfter {
			r.carryOver(answers)
		}
	case StartingAgents:
		r.start(answers)
	case ConfiguringNetwork:
		if base.State == ConfiguringNetwork && base.Accepted == r.Accepted {
			r.Network = add(r.Network, answers, wire.SledNetwork, r.Peers)
			if len(r.Network) == len(r.Peers) {
				r.written()
			}
		}
	case AwaitingCompletion, Completed, Initialized, Failed, InvalidMembershipSize, Uninitialized:
		return false
	}
	if r.State != before.State {
		problems = nil // they were of the stage that is over
	}
	r.Problems = problems
	if !news(before, r, age) {
		*r = *before
		return false
	}
	return true
}

// How long the same must have been asked in vain until it is written that something stands against a sled, and until other
// words for it are; and until what a sled lost is believed to be lost.
const (
	problemAfter = 200 * time.Millisecond
	restateAfter = 5 * time.Second
	lostAfter    = 3 * time.Second
)

// news tells whether what the sleds answered is worth a revision. Progress is, at once. What stands against a sled is once
// it has stood for a moment, and other words for it are after a while: else a sled that fails in ever new words would have
// the record written, and itself asked, as fast as it answers.
func news(before, r *record, age time.Duration) bool {
	switch {
	case sameRecord(before, r):
		return false
	case !sameRecord(before.silenced(), r.silenced()):
		return true
	case slices.Equal(before.troubled(), r.troubled()):
		return age >= restateAfter
	}
	return age >= problemAfter
}

// silenced is the record without what stands against sleds.
func (r *record) silenced() *record {
	c := r.clone()
	c.Problems = nil
	for i := range c.Sleds {
		c.Sleds[i].LastError = ""
	}
	return c
}

// troubled are the sleds that something stands against, in order.
func (r *record) troubled() []wire.Baseboard {
	var all []wire.Baseboard
	for _, p := range r.Problems {
		all = append(all, p.Baseboard)
	}
	slices.SortFunc(all, wire.Baseboard.Compare)
	return all
}

// choose makes the first peer that answers the coordinator of the next epoch. While one of them is another rack's no epoch
// is begun: it could not end, and would bind the others, of which nothing is asked yet, to this rack.
func (r *record) choose(answers []answer) (problems []sledProblem) {
	var first *wire.Baseboard
	epoch := r.Epoch
	for _, a := range answers {
		if a.Op != wire.SledIdentity || a.Identity == nil {
			continue
		}
		id := a.Identity
		if id.RackID != nil && *id.RackID != r.RackID {
			problems = append(problems, sledProblem{a.From, "belongs to another rack, " + clipText(*id.RackID) +
				"; reset that rack, or if it needs this sled no more the sled alone, with " + wire.SledSubject(a.From, wire.SledReset)})
			continue
		}
		for _, seen := range []*uint64{id.PreparedEpoch, id.CommittedEpoch} {
			if seen != nil {
				epoch = max(epoch, *seen)
			}
		}
		if !r.mayCoordinate(id) {
			continue
		}
		avoided := r.Coordinator != nil && *r.Coordinator == a.From // it was silent or useless just now
		if !avoided && (first == nil || a.From.Compare(*first) < 0) {
			b := a.From
			first = &b
		}
	}
	if first == nil && r.Coordinator != nil { // nobody else answers: the same once more
		for _, a := range answers {
			if a.From == *r.Coordinator && a.Identity != nil && r.mayCoordinate(a.Identity) {
				first = r.Coordinator
			}
		}
	}
	if first == nil || len(problems) > 0 || epoch >= quorum.MaxEpoch {
		return problems
	}
	r.Coordinator, r.Epoch = first, epoch+1
	r.Told, r.SilentSince, r.Config, r.Acked, r.Committed = false, nil, nil, nil, nil
	r.State = Reconfiguring
	for _, p := range r.Peers {
		if !slices.Contains(r.Known, p) {
			r.Known = append(r.Known, p)
		}
	}
	return nil
}

// mayCoordinate tells whether a sled can make the next epoch: it is not another rack's, and it knows the last committed
// secret, which the next one must carry on.
func (r *record) mayCoordinate(id *wire.Identity) bool {
	if id.RackID != nil && *id.RackID != r.RackID {
		return false
	}
	return r.LastCommitted == nil || id.CommittedEpoch != nil && *id.CommittedEpoch == *r.LastCommitted
}

// coordinate takes the coordinator's answer.
func (r *record) coordinate(answers []answer, now time.Time, age time.Duration) (problems []sledProblem) {
	for _, a := range answers {
		if r.Coordinator == nil || a.From != *r.Coordinator {
			continue
		}
		useful := true
		switch {
		case a.Silent:
			useful = false
		case a.Err != nil && a.Op == wire.SledCoordinatorStatus && a.Err.Code == wire.NotCoordinator,
			a.Err != nil && a.Op == wire.SledReconfigure:
			r.handOver() // it cannot; a higher epoch with another one, or later with it, can
			continue
		case a.Err != nil:
			useful = a.Err.Code.Retryable() // it is at work, or says that it cannot be now
		case a.Op == wire.SledReconfigure:
			r.Told = true
		case a.Op == wire.SledCoordinatorStatus:
			if problem := r.prepared(a.Status); problem != "" {
				problems = append(problems, sledProblem{a.From, problem})
				useful = false
			}
		}
		r.heard(useful, now, age)
	}
	return problems
}

// heard notes whether the coordinator gave a useful answer. One that gives none for a while is replaced, whether it is
// silent or talks nonsense. For how long is told by one replica's own watch, by how long it has asked in vain: what clocks
// show may be stepped, and differs between replicas.
func (r *record) heard(useful bool, now time.Time, age time.Duration) {
	switch {
	case useful:
		r.SilentSince = nil
	case r.SilentSince == nil:
		at := now.UTC()
		r.SilentSince = &at
	case age >= coordinatorSilence:
		r.handOver()
	}
}

// handOver gives the epoch up: the next one is above it, with another coordinator if one answers.
func (r *record) handOver() {
	r.Told, r.Config, r.Acked = false, nil, nil
	r.State = Starting
}

// refused tells whether an epoch was given up just now because its coordinator refused it, and not after a while of silence.
func (r *record) refused() bool {
	return r.State == Starting && r.Coordinator != nil && r.SilentSince == nil
}

// prepared takes how far the coordinator has come. A configuration is taken once for each epoch, and only if it is the
// one that was asked for.
func (r *record) prepared(s *quorum.CoordinatorStatus) (problem string) {
	c := &s.Config
	switch {
	case c.RackID != r.RackID || c.Epoch != r.Epoch:
		return "its configuration is of another epoch"
	case c.Validate() != nil:
		return "its configuration is not valid"
	case c.Coordinator != *r.Coordinator || c.Threshold != quorum.Threshold(len(r.Peers)) || !slices.Equal(c.Baseboards(), r.Peers):
		return "its configuration is not the one that was asked for"
	case r.Config != nil && !r.Config.Equal(*c):
		return "it has two configurations for one epoch"
	}
	r.Config, r.State = c, Preparing
	for _, b := range s.AckedPrepares {
		if slices.Contains(r.Peers, b) && !slices.Contains(r.Acked, b) {
			r.Acked = append(r.Acked, b)
		}
	}
	slices.SortFunc(r.Acked, wire.Baseboard.Compare)
	if len(r.Acked) == len(r.Peers) {
		r.State = Committing
	}
	return ""
}

// commit takes acks of commits. When all have committed, each sled gets its id and its subnet, for good.
func (r *record) commit(answers []answer, ids []string) {
	r.Committed = add(r.Committed, answers, wire.SledCommit, r.Peers)
	if len(r.Committed) < len(r.Peers) || len(ids) < len(r.Peers) {
		return
	}
	epoch := r.Epoch
	r.LastCommitted, r.State = &epoch, StartingAgents
	if len(r.Sleds) > 0 {
		return
	}
	for i, b := range r.Peers {
		subnet, err := sledSubnet(r.RackSubnet, i+1)
		if err != nil {
			r.State, r.Message = Failed, fmt.Sprintf("the rack subnet has no room: %v", err)
			return
		}
		r.Sleds = append(r.Sleds, sled{Baseboard: b, ID: ids[i], Subnet: wire.Subnet{Net: subnet}})
	}
}

// carryOver begins another epoch with the same sleds when one of them has lost its store since it acked its prepare: what
// it lost is gone, and it can never commit. Enough others must have, as for a correction.
func (r *record) carryOver(answers []answer) {
	lost := func(a answer) bool { return a.Op == wire.SledCommit && a.Err != nil && a.Err.Code == wire.NotPrepared }
	if r.State != Committing || !r.canFollow() || !slices.ContainsFunc(answers, lost) {
		return
	}
	epoch, before := r.Epoch, r.Coordinator
	r.LastCommitted = &epoch
	r.restart()
	r.State, r.Coordinator = Starting, before
}

// start takes acks of starts, and shows why the others have not.
func (r *record) start(answers []answer) {
	all := true
	for i := range r.Sleds {
		s := &r.Sleds[i]
		for _, a := range answers {
			if a.From != s.Baseboard || a.Op != wire.SledStart {
				continue
			}
			if a.Err == nil {
				s.Started, s.LastError = true, ""
			} else {
				s.LastError = clipped(a.Err)
			}
		}
		all = all && s.Started
	}
	if all {
		r.State = ConfiguringNetwork
	}
}

// add adds those of peers that acked op.
func add(acked []wire.Baseboard, answers []answer, op string, peers []wire.Baseboard) []wire.Baseboard {
	for _, a := range answers {
		if a.Op == op && a.Err == nil && slices.Contains(peers, a.From) && !slices.Contains(acked, a.From) {
			acked = append(acked, a.From)
		}
	}
	slices.SortFunc(acked, wire.Baseboard.Compare)
	return acked
}

// sameRecord tells whether two records say the same.
func sameRecord(a, b *record) bool { return string(encodeRecord(a)) == string(encodeRecord(b)) }

// maxProblem is the longest problem shown of a sled, in bytes.
const maxProblem = 200

func clipped(e *wire.Error) string { return clipText(string(e.Code) + ": " + e.Message) }

func clipText(s string) string {
	if len(s) > maxProblem {
		s = s[:maxProblem]
	}
	out := []rune{}
	for _, c := range s {
		if c >= ' ' && c != '\uFFFD' {
			out = append(out, c)
		}
	}
	return string(out)
}
