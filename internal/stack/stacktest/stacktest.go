// Package stacktest gives tests a stack of real servers, one for the whole test
// binary.
package stacktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"grablab/internal/grab/lock"
	"grablab/internal/stack"
)

// RequireEnv, set to 1, makes tests fail rather than skip where the programs of
// the local stack are missing.
const RequireEnv = "GRABLAB_REQUIRE_SERVERS"

var (
	mu     sync.Mutex
	shared *stack.Stack
	failed error
)

// Main is the TestMain of a package whose tests use stacks. It does not return.
func Main(m *testing.M) {
	stack.BeHelper()
	code := m.Run()
	if shared != nil {
		if err := shared.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Local is a local stack with everything, shared by the tests of the binary and
// ended by Main. What a test writes there must not be in the way of others.
func Local(tb testing.TB) *stack.Stack {
	tb.Helper()
	mu.Lock()
	defer mu.Unlock()
	if shared == nil && failed == nil {
		shared, failed = stack.Start(context.Background(), stack.Config{
			Kind: stack.Local, Needs: lock.Redis | lock.RedisQuorum | lock.SQL,
		})
	}
	Check(tb, failed)
	return shared
}

// Check ends the test if err is not nil: it skips where programs are missing,
// unless they are required.
func Check(tb testing.TB, err error) {
	tb.Helper()
	switch {
	case err == nil:
	case errors.Is(err, stack.ErrMissing) && os.Getenv(RequireEnv) != "1":
		tb.Skipf("%v (set %s=1 to fail instead)", err, RequireEnv)
	default:
		tb.Fatal(err)
	}
}
