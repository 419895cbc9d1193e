package main

import (
	goruntime "runtime"
	"testing"
)

func TestShareCores_HalfOfThemUnlessTheEnvironmentSays(t *testing.T) {
	before := goruntime.GOMAXPROCS(4)
	defer goruntime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", "")
	restore := shareCores()
	if n := goruntime.GOMAXPROCS(0); n != 2 {
		t.Errorf("%d of 4 cores", n)
	}
	if restore(); goruntime.GOMAXPROCS(0) != 4 {
		t.Errorf("%d cores afterwards", goruntime.GOMAXPROCS(0))
	}
	goruntime.GOMAXPROCS(1)
	restore = shareCores()
	if n := goruntime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d of 1 core", n)
	}
	restore()
	goruntime.GOMAXPROCS(4)
	t.Setenv("GOMAXPROCS", "4")
	shareCores()()
	if n := goruntime.GOMAXPROCS(0); n != 4 {
		t.Errorf("%d cores although the environment says 4", n)
	}
}
