package runtime_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// Every goroutine that a test started is gone at the end, the servers' included.
func TestMain(m *testing.M) {
	// Most tests here wait for servers and clocks, so more of them than there are processors can run at once. What the
	// command line says comes later and counts.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m,
		// A store keeps some for its next work and has no end of its own.
		goleak.IgnoreAnyFunction("muster/runtime/store.(*crew).work"),
		// A server that is shut down now and then leaves one of these behind; it is the server's.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"),
	)
}
