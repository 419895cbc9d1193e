package hive

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/wire"
)

// Whatever comes in whatever order: one change of an agent at a time, never more than the bound, always to what is wanted
// now, and in the end everything is as wanted.
func TestPlan_Property(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, now := newPlan(), start
		wanted, under := map[string]wire.State{}, []action{}
		name := rapid.StringMatching(`[a-l]`)
		state := rapid.SampledFrom(append(wire.States(), "banana"))
		begin := func() {
			for _, a := range p.start(now) {
				if slices.ContainsFunc(under, func(b action) bool { return a.agent == b.agent }) {
					t.Fatalf("two changes of %s at once", a.agent)
				}
				if wanted[a.agent] != a.state {
					t.Fatalf("%s is made %s, wanted is %q", a.agent, a.state, wanted[a.agent])
				}
				under = append(under, a)
			}
			if len(under) > parallel || len(under) != p.running {
				t.Fatalf("%d changes at once, the plan says %d", len(under), p.running)
			}
		}
		end := func(i int, problem string) {
			p.done(under[i], problem, now)
			under = slices.Delete(under, i, i+1)
		}
		for revision := range uint64(rapid.IntRange(1, 40).Draw(t, "events")) {
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0, 1:
				var agents []string
				for n, s := range rapid.MapOfN(name, state, 0, 12).Draw(t, "declared") {
					agents = append(agents, n+":"+string(s))
					if wanted[n] = s; !s.Valid() {
						delete(wanted, n)
					}
				}
				must(t, p, revision+1, strings.Join(agents, " "))
			case 2:
				if len(under) > 0 {
					end(rapid.IntRange(0, len(under)-1).Draw(t, "which"), rapid.SampledFrom([]string{"", "no"}).Draw(t, "problem"))
				}
			case 3:
				now = now.Add(time.Duration(rapid.IntRange(0, 40000).Draw(t, "ms")) * time.Millisecond)
			}
			begin()
		}
		for range 1000 {
			for len(under) > 0 {
				end(0, "")
			}
			if next := p.next(); next.After(now) {
				now = next
			}
			begin()
			if len(under) == 0 {
				break
			}
		}
		for n, s := range wanted {
			if p.agents[n].state != s || p.agents[n].problem != "" {
				t.Fatalf("in the end %s is %s (%s), wanted is %s", n, p.agents[n].state, p.agents[n].problem, s)
			}
		}
	})
}
