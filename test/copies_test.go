package test

import (
	"testing"

	"muster/runtime/natstest"
)

// onEach runs a test on one server, and on three that keep everything three times. It must hold on both.
func onEach(t *testing.T, test func(t *testing.T, copies int)) {
	t.Parallel()
	for name, copies := range map[string]int{"one server": 1, "three servers": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, copies)
		})
	}
}

// startNodes starts so many servers and returns the first.
func startNodes(t testing.TB, n int) *natstest.Node {
	t.Helper()
	if n == 1 {
		return natstest.Start(t)
	}
	return natstest.StartCluster(t, n).Node(0)
}
