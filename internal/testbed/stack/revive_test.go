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

// node returns a Redis server in a stack of the given kind. Tests can inject faults into this server.
func node(t *testing.T, kind string) (s *stack.Stack, server, addr string) {
	t.Helper()
	if kind == stack.Local {
		s = stacktest.Local(t)
	} else {
		s = start(t, stack.Config{Kind: kind, Needs: lock.RedisQuorum})
	}
	return s, "redlock-5", s.Redlock[4]
}

// TestRestartARedis checks that a Redis server loses its data and its connections when it restarts. After
// Kill, Revive must start the server again at the same address.
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

			for range 2 { // the second call must do nothing
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

// TestRestartLeavesNothing checks that Close stops all servers, even if one was restarted and another
// one was killed before.
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

// TestRestartTheDatabase checks that a database keeps its tables and its address when it restarts.
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
		s.Jump(t.Context(), "redlock-1", time.Second),
	} {
		if !errors.Is(err, stack.ErrRefused) {
			t.Errorf("%v, want a refusal", err)
		}
	}
}

// TestJump checks the effect of a clock jump on keys in Redis. A key must expire if its TTL is shorter
// than the jump. Otherwise, its TTL must change by the jump, and a key without a TTL must stay in Redis.
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
			second := redis.NewClient(&redis.Options{Addr: addr, DB: 1})
			defer second.Close()
			if err := second.Set(ctx, "short", "token", time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			left, err := s.KeyTTLs(ctx)
			if endless, ok := left[addr+"/0 endless"]; err != nil || left[addr+"/1 short"] == 0 || left[addr+"/0 long"] == 0 || !ok || endless != 0 {
				t.Errorf("TTLs %v, %v", left, err)
			}
			jump(20 * time.Minute)
			if n := c.Exists(ctx, "short").Val() + second.Exists(ctx, "short").Val(); n != 0 {
				t.Errorf("%d keys short have not expired", n)
			}
			wantLeft(ctx, t, c, "long", 40*time.Minute)
			jump(-20 * time.Minute)
			wantLeft(ctx, t, c, "long", time.Hour)
			if left := c.PTTL(ctx, "endless").Val(); left != -1 {
				t.Errorf("a key without a TTL now has the TTL %v", left)
			}
		})
	}
}

func wantLeft(ctx context.Context, t *testing.T, c *redis.Client, key string, want time.Duration) {
	t.Helper()
	const spent = 20 * time.Second // the most time that the test may take
	if left := c.PTTL(ctx, key).Val(); left > want || left < want-spent {
		t.Errorf("%s has %v left, want %v", key, left, want)
	}
}
