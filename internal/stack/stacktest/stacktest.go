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
	shared = map[lock.Backend]result{}
)

type result struct {
	stack *stack.Stack // nil: it did not start
	err   error
}

// Main is the TestMain of a package whose tests use stacks. It does not return.
func Main(m *testing.M) {
	stack.BeHelper()
	code := m.Run()
	for _, r := range shared {
		if r.stack == nil {
			continue
		}
		if err := r.stack.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Local is a local stack with Redis, the Redlock nodes and the database.
func Local(tb testing.TB) *stack.Stack {
	tb.Helper()
	return With(tb, lock.Redis|lock.RedisQuorum|lock.SQL)
}

// With is a local stack with what is needed, shared by the tests of the binary
// that need the same and ended by Main. What a test writes there must not be in
// the way of others.
func With(tb testing.TB, needs lock.Backend) *stack.Stack {
	tb.Helper()
	mu.Lock()
	defer mu.Unlock()
	r, ok := shared[needs]
	if !ok {
		r.stack, r.err = stack.Start(context.Background(), stack.Config{Kind: stack.Local, Needs: needs})
		shared[needs] = r
	}
	Check(tb, r.err)
	return r.stack
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
