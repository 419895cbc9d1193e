package natstest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// Main runs a package's tests for its TestMain, and fails them when goroutines of ours are left at the end. A server that
// is shut down leaves some of its own behind now and then; ours have our name in their stack. It returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	leaks := goleak.Find(
		// A store keeps some for its next work and has no end of its own.
		goleak.IgnoreAnyFunction("muster/runtime/store.(*crew).work"),
	)
	if leaks == nil {
		return 0
	}
	text := leaks.Error()
	if !strings.Contains(text, "muster/") {
		return 0
	}
	fmt.Fprintln(os.Stderr, "goroutines left behind:", text)
	return 1
}
