package runtime_test

import (
	"flag"
	"os"
	"testing"

	"muster/runtime/natstest"
)

// Every goroutine that a test started is gone at the end, the servers' included.
func TestMain(m *testing.M) {
	// Most tests here wait for servers and clocks, so more of them than there are processors can run at once. What the
	// command line says comes later and counts.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(natstest.Main(m))
}
