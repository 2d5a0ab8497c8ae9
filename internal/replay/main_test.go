package replay

import (
	"context"
	"os"
	"testing"

	"grablab/internal/fleet"
	"grablab/internal/instance"
	"grablab/internal/stack"
	"grablab/internal/stack/stacktest"
)

// TestMain makes the test binary an instance and a helper of the stack, as
// loadgen is.
func TestMain(m *testing.M) {
	stack.BeHelper() // before the switch below, which a helper must not see
	if len(os.Args) > 1 && os.Args[1] == fleet.Command {
		os.Exit(instance.Main(context.Background(), os.Args[2:], os.Stdout, os.Stderr))
	}
	stacktest.Main(m)
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) { w.t.Logf("%s", b); return len(b), nil }
