package join

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/wire"
)

// sledNamed is a sled of the tests, and configNumber one of their network configs.
func sledNamed(name string) wire.Baseboard {
	return wire.Baseboard{PartNumber: "913-0000019", SerialNumber: name}
}

func configNumber(n int) *wire.RackNetworkConfig {
	c := smallRequest().RackNetworkConfig
	c.InfraIPLast = fmt.Sprintf("2001:db8::%d", n)
	return c
}

// chaos moves a world at random.
type chaos struct {
	*world
	t        *rapid.T
	all      []wire.Baseboard
	rivals   []*request // operators' requests that were judged and not yet written
	first    string     // join or initialize
	wipes    bool
	sticky   bool // the commits of two sleds fail for a while
	operator int  // of twenty events, so many are an operator's
}

// The events, as often as they stand here.
var events = []string{
	"step", "step", "step", "step", "part", "part", "part", "part", "look", "look", "look", "write", "write", "write", "crash",
	"deliver", "deliver", "deliver", "deliver", "deliver all", "lose", "twice", "coordinate", "coordinate", "time", "time",
	"silence", "silence", "back", "back", "break",
}

var operatorEvents = []string{
	"start again", "correct", "correct", "correct", "other config", "other config", "half a start", "other half", "other half",
	"complete", "complete", "complete", "initialize", "reset",
}

func (c *chaos) move() {
	if rapid.IntRange(0, 19).Draw(c.t, "whose") < c.operator {
		c.operate(rapid.SampledFrom(operatorEvents).Draw(c.t, "operator"))
		return
	}
	if c.rec.State == Committing && c.operator > 0 && rapid.IntRange(0, 2).Draw(c.t, "now of all times") == 0 {
		c.operate("correct")
	}
	if c.wipes && rapid.IntRange(0, 15).Draw(c.t, "wipe") == 15 {
		if s := c.sled(); !s.clean() {
			s.wipe()
			c.wiped[s.board] = true
		}
	}
	switch e := rapid.SampledFrom(events).Draw(c.t, "event"); e {
	case "step":
		if r := c.driver(); c.rounds[r] == nil {
			c.step(r)
		}
	case "part":
		if r := c.driver(); c.rounds[r] == nil {
			c.part(r)
		}
	case "look":
		base := c.rec
		if n := len(c.older); n > 0 && rapid.IntRange(0, 3).Draw(c.t, "old view") == 0 {
			base = c.older[n-1-rapid.IntRange(0, min(n, 4)-1).Draw(c.t, "how old")]
		}
		if r := c.driver(); base.exists() && c.rounds[r] == nil {
			c.look(r, base)
		}
	case "write":
		if r := c.driver(); c.rounds[r] != nil {
			c.write(r)
		}
	case "crash":
		delete(c.rounds, c.driver())
	case "deliver", "lose", "twice":
		if len(c.mail) == 0 {
			return
		}
		i := rapid.IntRange(0, min(len(c.mail), 12)-1).Draw(c.t, "letter")
		if e == "twice" {
			c.deliver(c.mail[i])
		} else if l := c.take(i); e == "deliver" {
			c.deliver(l)
		}
	case "deliver all":
		c.deliverAll()
	case "coordinate":
		c.coordinate(c.sled())
	case "time":
		c.now = c.now.Add(time.Duration(rapid.IntRange(1, 60).Draw(c.t, "tenths")) * time.Second / 10)
	case "silence":
		c.sled().silent = true
	case "back":
		c.sled().silent = false
	case "break":
		c.sled().broken[rapid.SampledFrom([]string{wire.SledReconfigure, wire.SledCommit, wire.SledStart, wire.SledNetwork}).Draw(c.t, "op")]++
	}
}

// part is a step in which some letters come too late.
func (c *chaos) part(driver int) {
	c.coordinateAll()
	c.look(driver, c.rec)
	late := rapid.Uint16().Draw(c.t, "late") & rapid.Uint16().Draw(c.t, "and")
	for range 2 { // there and back
		mail := c.mail
		c.mail = nil
		var kept []*letter
		for i, l := range mail {
			if late&(1<<(i%16)) != 0 {
				kept = append(kept, l)
			} else {
				c.deliver(l)
			}
		}
		c.mail = append(kept, c.mail...)
	}
	c.write(driver)
}

func (c *chaos) operate(e string) {
	switch e {
	case "complete":
		_, _, _ = c.complete()
	case "initialize":
		_, _, _ = c.begin(c.world.ask(byInitialize, c.join()))
	case "half a start":
		c.rivals = append(c.rivals, c.world.ask(byJoin, c.corrected()))
	case "other half":
		if n := len(c.rivals); n > 0 {
			q := c.rivals[0]
			c.rivals = c.rivals[1:]
			_, _, _ = c.begin(q)
		}
	case "reset":
		if rapid.IntRange(0, 4).Draw(c.t, "really") == 4 && len(c.rivals) == 0 {
			c.tryReset(rapid.Bool().Draw(c.t, "force"))
		}
	case "correct":
		_, _, _ = c.begin(c.world.ask(byJoin, c.corrected()))
	case "other config":
		j := c.join()
		j.RackNetworkConfig = c.anyConfig()
		_, _, _ = c.begin(c.world.ask(byJoin, j))
	case "start again":
		_, _, _ = c.begin(c.world.ask(byJoin, c.join()))
	}
}

// tryReset resets the rack. What is under way then is lost: that a sled takes nothing of a rack that it was told to forget
// is for the sleds to see to.
func (c *chaos) tryReset(force bool) {
	rackID := c.rec.RackID
	c.mail, c.older, c.rounds = nil, nil, map[int]*round{}
	left, err := c.reset(force)
	if err != nil {
		c.code(err)
		return
	}
	c.seen["reset"]++
	for _, s := range c.sleds {
		if s.rackID == rackID && !slices.Contains(left, s.board) {
			c.t.Fatalf("a reset leaves nothing: %s has still %s", s.board, s.rackID)
		}
	}
}

func (c *chaos) driver() int { return rapid.IntRange(1, 2).Draw(c.t, "driver") }

func (c *chaos) sled() *modelSled { return c.sleds[rapid.SampledFrom(c.all).Draw(c.t, "sled")] }

func (c *chaos) anyConfig() *wire.RackNetworkConfig {
	return configNumber(rapid.IntRange(1, 3).Draw(c.t, "config"))
}

// join is the request that is equal to what is accepted; on a fresh rack any.
func (c *chaos) join() *wire.JoinRequest {
	if c.rec.exists() {
		return &wire.JoinRequest{TrustQuorumPeers: c.rec.Peers, RackNetworkConfig: c.configs[c.rec.Accepted]}
	}
	n := rapid.IntRange(3, 8).Draw(c.t, "sleds")
	return &wire.JoinRequest{TrustQuorumPeers: rapid.Permutation(c.all).Draw(c.t, "peers")[:n], RackNetworkConfig: c.anyConfig()}
}

// corrected is that with some sleds replaced, added or left out, and perhaps another config.
func (c *chaos) corrected() *wire.JoinRequest {
	j := c.join()
	peers := slices.Clone(j.TrustQuorumPeers)
	for range rapid.IntRange(1, 2).Draw(c.t, "changes") {
		b := rapid.SampledFrom(c.all).Draw(c.t, "of sled")
		if i := slices.Index(peers, b); i >= 0 {
			peers = slices.Delete(peers, i, i+1)
		} else if len(peers) > 0 && rapid.IntRange(0, 2).Draw(c.t, "replaces") > 0 {
			peers[rapid.IntRange(0, len(peers)-1).Draw(c.t, "which")] = b
		} else {
			peers = append(peers, b)
		}
	}
	j.TrustQuorumPeers = peers
	if rapid.IntRange(0, 3).Draw(c.t, "config too") == 0 {
		j.RackNetworkConfig = c.anyConfig()
	}
	return j
}

// What the random worlds differ in.
var profiles = []struct {
	name string
	chaos
}{
	{"an operator who keeps quiet", chaos{first: byJoin}},
	{"an operator who corrects", chaos{first: byJoin, operator: 1}},
	{"operators who meddle", chaos{first: byJoin, operator: 5}},
	{"commits that stick", chaos{first: byJoin, operator: 1, sticky: true}},
	{"wiped sleds", chaos{first: byJoin, operator: 1, wipes: true}},
	{"initialize", chaos{first: byInitialize, operator: 1}},
}

// Operators, two drivers, silent, broken and wiped sleds, messages that come late, twice or never, in any order: the
// invariants hold at every write and for every request, and once it is calm the rack gets where it should.
func TestMachine_Property_RandomInterleavings(t *testing.T) {
	seen := map[string]int{}
	for _, p := range profiles {
		t.Run(p.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				c := p.chaos
				c.run(rt)
				for name, n := range c.seen {
					seen[name] += n
				}
			})
		})
	}
	checks, err := strconv.Atoi(flag.Lookup("rapid.checks").Value.String())
	enough := err == nil && checks >= 100
	for _, name := range []string{
		"starting", "trust_quorum_preparing", "trust_quorum_committing", "start_sled_agents", "configuring_network",
		"awaiting_completion", "completed", "initialized", "failed", "invalid_membership_size", "reset", "another took over",
		"an epoch followed one that was being committed", "StillInitializing", "AlreadyInitialized", "MultirackJoinInProgress",
		"MultirackJoinCompleted", "MultirackJoinFailed", "MembershipChangeNoLongerAllowed", "progress was made",
	} {
		if seen[name] == 0 && !t.Failed() && enough {
			t.Errorf("the property never came by %q; it proves less than it seems to", name)
		}
	}
	t.Logf("came by %v", seen)
}

func (c *chaos) run(rt *rapid.T) {
	c.t = rt
	for i := range 9 {
		c.all = append(c.all, sledNamed(fmt.Sprintf("s%d", i+1)))
	}
	c.world = newWorld(rt, c.all...)
	_, _, _ = c.begin(c.world.ask(c.first, c.join()))
	for i := range 2 {
		if c.sticky {
			c.sleds[c.rec.Peers[i]].broken[wire.SledCommit] = rapid.IntRange(1, 10).Draw(rt, "sticks")
		}
	}
	for range rapid.SampledFrom([]int{10, 40, 80, 120, 160}).Draw(rt, "events") {
		c.move()
		if c.conflicts > 0 && len(c.wiped) == 0 {
			rt.Fatalf("no sled ever sees two configurations for one epoch: one was shown another")
		}
	}
	c.calm()
}

// calmSteps bounds the steps of a driver, and calmTime the time, from when faults stop until the rack is where it should be.
const (
	calmSteps = 40
	calmTime  = 15 * time.Second
)

// calm ends all faults and lets what is under way arrive. Then a rack with legal peers goes on to its end.
func (c *chaos) calm() {
	for _, s := range c.sleds {
		s.silent, s.broken = false, map[string]int{}
	}
	c.deliverAll()
	for _, q := range c.rivals {
		_, _, _ = c.begin(q)
	}
	for r := range c.rounds {
		c.write(r)
	}
	since, before := c.now, c.writes
	for range calmSteps {
		if len(plan(c.rec)) == 0 {
			break
		}
		c.step(1)
		c.now = c.now.Add(pollMax)
	}
	if reason := c.excused(); reason != "" {
		c.seen["excused: "+reason]++
		return
	}
	want := AwaitingCompletion
	switch {
	case c.rec.Kind == byInitialize:
		want = Initialized
	case c.rec.Sealed:
		want = Completed
	}
	if c.rec.State != want || c.now.Sub(since) > calmTime || c.writes-before > 20 {
		c.t.Fatalf("when faults stop a join goes on: wanted %s, after %v and %d writes it is\n%s",
			want, c.now.Sub(since), c.writes-before, encodeRecord(c.rec))
	}
	c.seen["progress was made"]++
}

// excused tells why a rack need not get to its end without an operator; "" if it must.
func (c *chaos) excused() string {
	switch r := c.rec; {
	case !r.exists(), r.Resetting:
		return "reset"
	case r.State == Failed, r.State == InvalidMembershipSize:
		return string(r.State)
	case len(c.wiped) > 0:
		return "a sled was wiped"
	case c.knowsLast() == 0 && r.LastCommitted != nil:
		return "all sleds that knew the last secret were replaced"
	}
	for _, b := range c.rec.Peers {
		if s := c.sleds[b]; s.foreign(c.rec.RackID) {
			return "a sled is another rack's"
		}
	}
	return ""
}

// knowsLast counts the peers that have committed the last committed epoch.
func (c *chaos) knowsLast() (n int) {
	for _, b := range c.rec.Peers {
		if c.sleds[b].committed >= last(c.rec) {
			n++
		}
	}
	return n
}
