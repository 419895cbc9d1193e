//go:build race

package test

// buildFlags make the program watch itself for data races, as this test does.
var buildFlags = []string{"-race"}
