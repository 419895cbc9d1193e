//go:build !race

package test

// buildFlags are none: an ordinary build.
var buildFlags []string
