package join

import (
	"os"
	"testing"

	"muster/runtime/natstest"
)

// Every goroutine of ours that a test started is gone at the end.
func TestMain(m *testing.M) { os.Exit(natstest.Main(m)) }
