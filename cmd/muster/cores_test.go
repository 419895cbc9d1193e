package main

import (
	goruntime "runtime"
	"testing"
)

func TestShareCores_HalfOfThemUnlessTheEnvironmentSays(t *testing.T) {
	before := goruntime.GOMAXPROCS(0)
	defer goruntime.GOMAXPROCS(before)
	for _, c := range []struct {
		env        string
		have, want int
	}{{"", 4, 2}, {"", 2, 1}, {"", 1, 1}, {"4", 4, 4}} {
		t.Setenv("GOMAXPROCS", c.env)
		goruntime.GOMAXPROCS(c.have)
		if shareCores(); goruntime.GOMAXPROCS(0) != c.want {
			t.Errorf("%d of %d cores with GOMAXPROCS=%q, want %d", goruntime.GOMAXPROCS(0), c.have, c.env, c.want)
		}
	}
}
