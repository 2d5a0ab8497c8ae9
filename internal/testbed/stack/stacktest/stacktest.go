// Package stacktest starts real servers for tests. Tests in one binary that need the same servers share
// them.
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

// RequireEnv names an environment variable. If the variable is 1, tests fail if a program is
// missing. Otherwise, they are skipped.
const RequireEnv = "GRABLAB_REQUIRE_SERVERS"

var (
	mu     sync.Mutex
	shared = map[stackKey]result{}
)

type stackKey struct {
	needs    lock.Backend
	postgres bool
}

type result struct {
	stack *stack.Stack // nil if it did not start
	err   error
}

// Command lets a test binary act as a hidden loadgen command. If the first argument is Name, the binary
// runs the function instead of its tests.
type Command struct {
	Name string
	Run  func(ctx context.Context, args []string, stdout, stderr io.Writer) int
}

// Main runs the tests of a package, or one of the commands, and exits. Call it in TestMain of every
// package that uses stacks.
func Main(m *testing.M, commands ...Command) {
	stack.BeHelper() // must be first, because a helper has its own arguments
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

// Local returns a stack with Redis, the Redlock nodes and the database, which all tests share.
func Local(tb testing.TB) *stack.Stack {
	tb.Helper()
	return With(tb, lock.Redis|lock.RedisQuorum|lock.SQL)
}

// With returns a stack with the given servers. All tests share it, so they must not disturb each
// other.
func With(tb testing.TB, needs lock.Backend) *stack.Stack {
	tb.Helper()
	return with(tb, stackKey{needs: needs})
}

// Postgres returns a local stack with a PostgreSQL server, which all tests share.
func Postgres(tb testing.TB) *stack.Stack {
	tb.Helper()
	return with(tb, stackKey{postgres: true})
}

func with(tb testing.TB, key stackKey) *stack.Stack {
	tb.Helper()
	mu.Lock()
	defer mu.Unlock()
	r, ok := shared[key]
	if !ok {
		r.stack, r.err = stack.Start(context.Background(), stack.Config{Kind: stack.Local, Needs: key.needs, Postgres: key.postgres})
		shared[key] = r
	}
	Check(tb, r.err)
	return r.stack
}

// Check fails the test if err is not nil. For a missing program, it skips the test instead, unless
// RequireEnv is set.
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

// OpenFiles returns how many files the test binary has open.
func OpenFiles(tb testing.TB) int {
	tb.Helper()
	files, err := os.ReadDir("/dev/fd")
	if err != nil {
		tb.Fatal(err)
	}
	return len(files)
}
