// Package stacktest gives tests a stack of real servers, one for the whole test
// binary.
package stacktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
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

// Command is what a test binary does instead of its tests if its first argument is
// Name, as loadgen does by its hidden subcommands.
type Command struct {
	Name string
	Run  func(ctx context.Context, args []string, stdout, stderr io.Writer) int
}

// Main is the TestMain of a package whose tests use stacks, and start their own
// binary for the commands. It does not return.
func Main(m *testing.M, commands ...Command) {
	stack.BeHelper() // first: a helper has arguments of its own
	for _, c := range commands {
		if len(os.Args) > 1 && os.Args[1] == c.Name {
			os.Exit(c.Run(context.Background(), os.Args[2:], os.Stdout, os.Stderr))
		}
	}
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
