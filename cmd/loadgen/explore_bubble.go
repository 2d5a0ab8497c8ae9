package main

import (
	"os"
	"testing"
	"testing/synctest"

	"grablab/internal/explore"
)

// inTest runs f as the body of a test, for only a test may open bubbles of
// virtual time, and ends the process with the code that f returns: package
// testing would print a verdict of its own.
func inTest(f func(explore.Bubble) int) {
	testing.Init()
	testing.Main(matchAll, []testing.InternalTest{{Name: "explore", F: func(t *testing.T) {
		os.Exit(f(func(run func()) {
			synctest.Test(t, func(*testing.T) { run() })
		}))
	}}}, nil, nil)
}

func matchAll(_, _ string) (bool, error) { return true, nil }
