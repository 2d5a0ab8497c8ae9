// Package bubble lets a program use bubbles of virtual time. Only a test may open these
// (testing/synctest), so the package runs a function as the body of a test.
package bubble

import (
	"os"
	"testing"
	"testing/synctest"

	"grablab/internal/explore"
)

// Main runs f as the body of a test and exits with the code that f returns. Otherwise,
// package testing would print a verdict of its own. Main returns only if the test could not
// run.
func Main(f func(explore.Bubble) int) (code int) {
	testing.Init()
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "explore", F: func(t *testing.T) {
		os.Exit(f(func(run func()) {
			synctest.Test(t, func(*testing.T) { run() })
		}))
	}}}, nil, nil)
	return 1
}
