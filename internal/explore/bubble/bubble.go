// Package bubble lets a program use virtual time. Only tests may use virtual time (see
// testing/synctest), so the package runs a function as a test.
package bubble

import (
	"os"
	"testing"
	"testing/synctest"

	"grablab/internal/explore"
)

// Main runs f as a test and exits with its code. It returns only if the test could not run.
func Main(f func(explore.Bubble) int) (code int) {
	testing.Init()
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "explore", F: func(t *testing.T) {
		os.Exit(f(func(run func()) {
			synctest.Test(t, func(*testing.T) { run() })
		}))
	}}}, nil, nil)
	return 1
}
