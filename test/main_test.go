// Package test holds the whole product to its contract: the built program and the functions, on real servers, alone and
// in clusters, stopped, killed and cut off. Each field report is a test named after it.
//
// Replicas are processes of the built binary where their death, their signals or their HTTP are the matter. Elsewhere
// they run in the test's process, and may each serve under a name of their own, so that a test can choose which of them
// answers.
package test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is the program, built once for all tests.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv(asNATSServer) != "" {
		natsServer()
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "whole-product-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "make a directory for the program:", err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what is left lies in the system's temporary directory
	binary = filepath.Join(dir, "program")
	args := append([]string{"build", "-o", binary}, buildFlags...)
	build := exec.Command("go", append(args, "muster/cmd/muster")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the program:", err)
		return 1
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil { // those that are parallel here wait more than they work
		fmt.Fprintln(os.Stderr, "run tests in parallel:", err)
		return 1
	}
	return m.Run()
}
