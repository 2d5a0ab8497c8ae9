package lockbench

import (
	"context"
	"os"
	"testing"

	"grablab/internal/stack"
	"grablab/internal/stack/stacktest"
)

// TestMain makes the test binary a worker and a helper of the stack, as loadgen
// is.
func TestMain(m *testing.M) {
	stack.BeHelper() // before the switch below, which a helper must not see
	if len(os.Args) > 1 && os.Args[1] == WorkerCommand {
		os.Exit(WorkerMain(context.Background(), os.Args[2:], os.Stdout, os.Stderr))
	}
	stacktest.Main(m)
}
