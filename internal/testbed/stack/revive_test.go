package stack_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// node returns a Redis that a test may strike, in a stack of the given kind.
func node(t *testing.T, kind string) (s *stack.Stack, server, addr string) {
	t.Helper()
	if kind == stack.Local {
		s = stacktest.Local(t)
	} else {
		s = start(t, stack.Config{Kind: kind, Needs: lock.RedisQuorum})
	}
	return s, "redlock-5", s.Redlock[4]
}

// A Redis that restarts has forgotten everything, and its clients are cut off.
func TestRestartARedis(t *testing.T) {
	for _, kind := range []string{stack.Embedded, stack.Local} {
		t.Run(kind, func(t *testing.T) {
			s, server, addr := node(t, kind)
			c := dial(t, addr)
			c.say("SET lock token")
			c.hears("+OK\r\n")
			for range 2 {
				if err := s.Restart(t.Context(), server); err != nil {
					t.Fatal(err)
				}
			}
			c.hearsTheEnd()
			c = dial(t, addr)
			c.say("GET lock")
			c.hears("$-1\r\n")

			for range 2 { // what is dead stays so
				if err := s.Kill(server); err != nil {
					t.Fatal(err)
				}
			}
			c.hearsTheEnd()
			if _, err := net.Dial("tcp", addr); err == nil {
				t.Error("a killed server listens")
			}
			if err := s.Revive(t.Context(), server); err != nil {
				t.Fatal(err)
			}
			if err := ping(addr); err != nil {
				t.Error(err)
			}
		})
	}
}

// A node that was started again ends with its stack, and so does one that was not.
func TestRestartLeavesNothing(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	s := start(t, stack.Config{Kind: stack.Embedded, Needs: lock.RedisQuorum})
	if err := errors.Join(s.Restart(t.Context(), "redlock-1"), s.Kill("redlock-2"), s.Close()); err != nil {
		t.Fatal(err)
	}
	for _, addr := range s.Redlock {
		if _, err := net.Dial("tcp", addr); err == nil {
			t.Errorf("%s still listens", addr)
		}
	}
	goleak.VerifyNone(t, ignore)
}

// The database keeps what it had committed, and comes back at its address.
func TestRestartTheDatabase(t *testing.T) {
	s := start(t, stack.Config{Kind: stack.Local})
	if err := query(s.DSN); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context(), "db"); err != nil {
		t.Fatal(err)
	}
	if err := query(s.DSN); err == nil {
		t.Error("the table is gone")
	}
}

func TestRestartRefusals(t *testing.T) {
	s := start(t, stack.Config{Kind: stack.Embedded, Needs: lock.Redis})
	for _, err := range []error{
		s.Kill("db"), s.Revive(t.Context(), "redlock-1"), s.Restart(t.Context(), "etcd"),
		s.Jump(t.Context(), "db", time.Second),
	} {
		if !errors.Is(err, stack.ErrRefused) {
			t.Errorf("%v, want a refusal", err)
		}
	}
}

// A jump of the clock ends leases whose time it passes, shortens or lengthens
// the others, and leaves alone what has no end.
func TestJump(t *testing.T) {
	for _, kind := range []string{stack.Embedded, stack.Local} {
		t.Run(kind, func(t *testing.T) {
			s, server, addr := node(t, kind)
			c := redis.NewClient(&redis.Options{Addr: addr})
			defer c.Close()
			ctx := t.Context()
			for key, ttl := range map[string]time.Duration{"short": time.Minute, "long": time.Hour, "endless": 0} {
				if err := c.Set(ctx, key, "token", ttl).Err(); err != nil {
					t.Fatal(err)
				}
			}
			jump := func(d time.Duration) {
				t.Helper()
				if err := s.Jump(ctx, server, d); err != nil {
					t.Fatal(err)
				}
			}
			jump(20 * time.Minute)
			if n := c.Exists(ctx, "short").Val(); n != 0 {
				t.Error("a lease has outlived its clock")
			}
			wantLeft(ctx, t, c, "long", 40*time.Minute)
			jump(-20 * time.Minute)
			wantLeft(ctx, t, c, "long", time.Hour)
			if left := c.PTTL(ctx, "endless").Val(); left != -1 {
				t.Errorf("a key without an end has one: %v", left)
			}
		})
	}
}

func wantLeft(ctx context.Context, t *testing.T, c *redis.Client, key string, want time.Duration) {
	t.Helper()
	const spent = 20 * time.Second // by the test
	if left := c.PTTL(ctx, key).Val(); left > want || left < want-spent {
		t.Errorf("%s has %v left, want %v", key, left, want)
	}
}
