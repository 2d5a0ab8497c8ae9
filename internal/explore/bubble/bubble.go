// Package bubble runs a program in virtual time. Go allows virtual time only in tests (see
// testing/synctest), so bubble runs the program as a test.
package bubble

import (
	"os"
	"testing"
	"testing/synctest"

	"grablab/internal/explore"
)

// Main runs f as a test and exits the process with the code that f returns. Main itself returns
// only if the test could not run.
func Main(f func(explore.Bubble) int) (code int) {
	testing.Init()
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "explore", F: func(t *testing.T) {
		os.Exit(f(func(run func()) {
			synctest.Test(t, func(*testing.T) { run() })
		}))
	}}}, nil, nil)
	return 1
}
