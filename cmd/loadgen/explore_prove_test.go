//go:build prove

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestExploreOwnStrategy explores the user-written lock of the README with a single command. It checks
// that the lock fails without a fault, and that the saved schedule replays the failure.
func TestExploreOwnStrategy(t *testing.T) {
	file, err := filepath.Abs(example)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "schedules")
	here := func(args ...string) (int, string) {
		cmd := loadgen(t, append([]string{"explore", "-file", file, "-no-timing", "-quiet"}, args...)...)
		cmd.Dir = "." // in the source tree
		code, stdout, stderr := output(t, cmd)
		t.Logf("exit %d\n%s%s", code, stdout, stderr)
		return code, stdout
	}
	code, stdout := here("-faults", "none", "-out", out)
	if code != int(exitAssert) || !strings.Contains(stdout, "setnx-healing") || !strings.Contains(stdout, "unsafe ✗ safe") {
		t.Errorf("exit %d", code)
	}
	code, stdout = here("-replay", filepath.Join(out, "setnx-healing-one-winner.txt"))
	if code != int(exitDone) || !strings.Contains(stdout, "breaks one-winner") {
		t.Errorf("replay: exit %d", code)
	}
}
