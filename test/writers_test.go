package test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
)

func TestWritersOfOneHive(t *testing.T) {
	s := natstest.Start(t)
	a, b := pair(t, s.URL(), s.URL(), 1)
	writersOfOneHive(t, natstest.Connect(t, s.URL()), a, b)
}

func TestWritersOfOneHiveOnThreeNodes(t *testing.T) {
	c := natstest.StartCluster(t, 3)
	a, b := pair(t, c.Node(0).URL(), c.Node(1).URL(), 3)
	writersOfOneHive(t, natstest.Connect(t, c.Node(2).URL()), a, b)
}

// writersOfOneHive has 64 callers each set an agent of their own on one hive at once, through two replicas. All succeed,
// within the default deadline, and none is lost.
func writersOfOneHive(t *testing.T, nc *nats.Conn, a, b *replica) {
	for round := range 10 {
		want := []string{"up", "paused"}[round%2]
		for i, got := range together(t, nc, 64, func(i int) request {
			var headers []string
			if i%3 == 0 {
				headers = []string{"Muster-Request-Id", fmt.Sprintf("r%d-%d", round, i)}
			}
			return request{[]*replica{a, b}[i%2].subject(fmt.Sprintf("set.h1.agent%d", i)), state(want), headers}
		}) {
			if d := got.ok(t); !d.Changed || string(d.Agents[fmt.Sprintf("agent%d", i)].State) != want {
				t.Fatalf("round %d, writer %d: %s", round, i, got.raw)
			}
		}
		view := ask(t, nc, a.subject("view.h1"), "").ok(t)
		for i := range 64 {
			if got := string(view.Agents[fmt.Sprintf("agent%d", i)].State); got != want {
				t.Fatalf("round %d: agent%d is %q, %s was acknowledged", round, i, got, want)
			}
		}
	}
}
