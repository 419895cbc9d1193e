package join

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/wire"
)

var updateStories = flag.Bool("update-stories", false, "write what happens into testdata/*.txt")

// Stories are told in testdata/*.txt: a line is what somebody does, and after the arrow what comes of it. Sleds go by their
// serial numbers. A line without an arrow comes to nothing that shows.
//
//	sleds a b c              there are these sleds
//	start peers=a,b config=1 an operator asks to start; what is left out is as accepted. config=2 is another network
//	initialize …             as start
//	complete                 an operator completes: the generation, "waits", or the code of the refusal
//	status, operation        what an operator sees
//	reset [force]            an operator resets
//	step [2]                 a driver (1 or 2) makes a step: what it asks of whom, and the state that follows
//	run                      a driver goes on until nothing changes: the states that it goes through
//	look 1, write 1          the two halves of a step, with "deliver [a]" between them, to all or only to and from a
//	lose                     what is under way is lost
//	work                     coordinators make configurations and send prepares; steps do that by themselves
//	silent a, back a         a sled does not answer; it does again
//	wipe a, foreign a        a sled loses its store; a sled belongs to another rack
//	break a start 3          the next three starts of a sled fail
//	pass 5s                  time goes on; a step takes a second, a run as long as the driver's pace
//	show                     what the sleds are: free, prepared, member, started, with epoch and network generation
//	writes                   how often the record was written since the last time
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { tell(t, file) })
	}
}

func tell(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &story{world: newWorld(t)}
	var out strings.Builder
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		does, want, _ := strings.Cut(line, " -> ")
		if words := strings.Fields(does); len(words) > 0 && words[0] != "#" {
			got := s.do(words[0], words[1:])
			if got != want && !*updateStories {
				t.Errorf("%s:%d: %s\n got %s\nwant %s", file, i+1, does, got, want)
			}
			if line = does; got != "" {
				line += " -> " + got
			}
		}
		out.WriteString(line + "\n")
	}
	if s.conflicts > 0 {
		t.Errorf("%s: a sled was shown two configurations for one epoch", file)
	}
	if *updateStories {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// story is a world and those who act in it.
type story struct {
	*world
	counted int // writes that were shown
}

func (s *story) do(what string, args []string) string {
	first := ""
	if len(args) > 0 {
		first = args[0]
	}
	switch what {
	case "sleds":
		for _, b := range sledsNamed(strings.Join(args, ",")) {
			s.sleds[b] = newModelSled(b)
		}
	case "start":
		return s.start(byJoin, args)
	case "initialize":
		return s.start(byInitialize, args)
	case "complete":
		generation, done, err := s.complete()
		switch {
		case err != nil:
			return code(err)
		case !done:
			return "waits"
		}
		return fmt.Sprintf("generation=%d", generation)
	case "status":
		return s.status()
	case "operation":
		o := operation(s.rec)
		return strings.Join(strings.Fields(fmt.Sprintf("%s %s", o.Status, o.Step)), " ")
	case "reset":
		left, err := s.reset(first == "force")
		out := "done"
		if err != nil {
			out = code(err)
		}
		if len(left) > 0 {
			out += " unreachable=" + names(left)
		}
		return out
	case "step":
		s.coordinateAll()
		s.deliverAll()
		out := s.lookOf(numeral(first))
		s.deliverAll()
		s.now = s.now.Add(time.Second)
		return out + s.writeOf(numeral(first))
	case "run":
		return s.run()
	case "look":
		return s.lookOf(numeral(first))
	case "write":
		return strings.TrimPrefix(s.writeOf(numeral(first)), ": ")
	case "deliver":
		s.deliverTo(first)
	case "lose":
		s.mail = nil
	case "work":
		s.coordinateAll()
	case "silent", "back":
		s.named(first).silent = what == "silent"
	case "wipe":
		s.named(first).wipe()
		s.wiped[sledNamed(first)] = true
	case "foreign":
		s.named(first).rackID = "rack-of-others"
	case "break":
		s.named(first).broken[args[1]] = numeral(args[2])
	case "pass":
		d, err := time.ParseDuration(first)
		if err != nil {
			s.t.Fatalf("pass: %v", err)
		}
		s.now = s.now.Add(d)
	case "show":
		return s.show()
	case "writes":
		n := s.writes - s.counted
		s.counted = s.writes
		return strconv.Itoa(n)
	default:
		s.t.Fatalf("nobody can %q", what)
	}
	return ""
}

// numeral reads a number; 1 if there is none.
func numeral(s string) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return 1
}

func (s *story) named(name string) *modelSled {
	sled := s.sleds[sledNamed(name)]
	if sled == nil {
		s.t.Fatalf("there is no sled %q", name)
	}
	return sled
}

// sledsNamed reads a,b,c and s01..s33.
func sledsNamed(list string) (all []wire.Baseboard) {
	for name := range strings.SplitSeq(list, ",") {
		if name == "" {
			continue
		}
		from, to, many := strings.Cut(name, "..")
		if !many {
			all = append(all, sledNamed(name))
			continue
		}
		for n := numeral(strings.TrimLeft(from, "s0")); n <= numeral(strings.TrimLeft(to, "s0")); n++ {
			all = append(all, sledNamed(fmt.Sprintf("s%02d", n)))
		}
	}
	return all
}

func code(err error) string {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return string(e.Code)
	}
	return err.Error()
}

func (s *story) start(kind string, args []string) string {
	join := &wire.JoinRequest{TrustQuorumPeers: s.rec.Peers, RackNetworkConfig: s.configs[s.rec.Accepted]}
	for _, a := range args {
		switch name, value, _ := strings.Cut(a, "="); name {
		case "peers":
			join.TrustQuorumPeers = sledsNamed(value)
		case "config":
			join.RackNetworkConfig = configNumber(numeral(value))
		}
	}
	out, changed, err := s.begin(s.ask(kind, join))
	switch {
	case err != nil:
		return code(err)
	case changed:
		return fmt.Sprintf("id=%s gen=%d changed", out.ID, out.Generation)
	}
	return fmt.Sprintf("id=%s gen=%d unchanged", out.ID, out.Generation)
}

// status is what join.status says, in short.
func (s *story) status() string {
	st := describe("r1", s.rec)
	out := []string{string(st.State)}
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if st.Config != nil {
		say("epoch=%d coordinator=%s", st.Config.Epoch, st.Config.Coordinator.SerialNumber)
	}
	if st.Epoch > 0 {
		say("epoch=%d", st.Epoch)
	}
	if st.LastCommittedEpoch != nil {
		say("after=%d", *st.LastCommittedEpoch)
	}
	if st.AckedPrepares != nil {
		say("acked=%s", names(*st.AckedPrepares))
	}
	if st.Acked != nil {
		say("acked=%s", names(*st.Acked))
	}
	if len(st.Missing) > 0 {
		say("missing=%s", names(st.Missing))
	}
	if st.Generation > 0 {
		say("gen=%d/%d", st.Generation, st.WrittenGeneration)
	}
	for _, p := range st.Problems {
		say("problem(%s)=%q", p.Baseboard.SerialNumber, p.Problem)
	}
	for _, a := range st.Sleds {
		if a.StartState.LastError != "" {
			say("last_error(%s)=%q", a.Baseboard.SerialNumber, a.StartState.LastError)
		}
	}
	if st.Message != "" {
		say("%q", st.Message)
	}
	return strings.Join(out, " ")
}

// lookOf tells what a driver asks.
func (s *story) lookOf(driver int) string {
	s.look(driver, s.rec)
	asks := s.rounds[driver].asks
	if len(asks) == 0 {
		return "nothing to do"
	}
	var to []wire.Baseboard
	for _, a := range asks {
		to = append(to, a.To)
	}
	return asks[0].Op + " of " + names(to)
}

// writeOf tells the state after a driver's write, and the epoch while there is no configuration of it.
func (s *story) writeOf(driver int) string {
	if len(s.rounds[driver].asks) == 0 {
		delete(s.rounds, driver)
		return ""
	}
	if !s.write(driver) {
		return ": no change"
	}
	out := ": " + string(s.rec.State)
	if s.rec.State == Reconfiguring {
		out += fmt.Sprintf(" epoch=%d coordinator=%s", s.rec.Epoch, s.rec.Coordinator.SerialNumber)
	}
	return out
}

func (s *story) run() string {
	var states []string
	for same, steps := 0, 0; same < 6 && steps < 200; steps++ {
		s.coordinateAll()
		s.deliverAll()
		if len(plan(s.rec)) == 0 {
			break
		}
		s.look(1, s.rec)
		s.deliverAll()
		if r := s.rounds[1]; s.write(1) {
			same = 0
		} else {
			var answers []answer
			for _, a := range r.answers {
				answers = append(answers, a)
			}
			s.now = s.now.Add(pace(s.rec, answers, same))
			same++
		}
		if n := len(states); n == 0 || states[n-1] != string(s.rec.State) {
			states = append(states, string(s.rec.State))
		}
	}
	return strings.Join(states, " ")
}

// deliverTo delivers what is under way to a sled and back; to all if name is empty.
func (s *story) deliverTo(name string) {
	for i := 0; i < len(s.mail); {
		if l := s.mail[i]; name == "" || l.to.SerialNumber == name {
			s.deliver(s.take(i))
			continue
		}
		i++
	}
}

func (s *story) show() string {
	var out []string
	for _, b := range s.boards() {
		m := s.sleds[b]
		id := m.identity()
		line := b.SerialNumber + "=" + sledState(*id)
		switch {
		case id.CommittedEpoch != nil:
			line += fmt.Sprintf("@%d", *id.CommittedEpoch)
		case id.PreparedEpoch != nil:
			line += fmt.Sprintf("@%d", *id.PreparedEpoch)
		}
		if id.NetworkGeneration > 0 {
			line += fmt.Sprintf("/%d", id.NetworkGeneration)
		}
		out = append(out, line)
	}
	return strings.Join(out, " ")
}
