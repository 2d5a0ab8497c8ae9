// Package bubble gives a program bubbles of virtual time, which only a test may
// open (testing/synctest): it runs a function as the body of one.
package bubble

import (
	"os"
	"testing"
	"testing/synctest"

	"grablab/internal/explore"
)

// Main runs f as the body of a test and ends the process with the code that f
// returns: package testing would print a verdict of its own. It returns only where
// the test could not be run.
func Main(f func(explore.Bubble) int) (code int) {
	testing.Init()
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "explore", F: func(t *testing.T) {
		os.Exit(f(func(run func()) {
			synctest.Test(t, func(*testing.T) { run() })
		}))
	}}}, nil, nil)
	return 1
}
