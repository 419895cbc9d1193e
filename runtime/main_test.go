package runtime_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
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
	code := m.Run()
	leaks := goleak.Find(
		// A store keeps some for its next work and has no end of its own.
		goleak.IgnoreAnyFunction("muster/runtime/store.(*crew).work"),
	)
	// A server that is shut down leaves some of its own behind now and then; ours have our name in their stack.
	if code == 0 && leaks != nil && strings.Contains(leaks.Error(), "muster/runtime") {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", leaks)
		code = 1
	}
	os.Exit(code)
}
