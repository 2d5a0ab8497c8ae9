package instance_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/redis/go-redis/v9"
)

// TestSentinel checks that an instance that uses Sentinels writes to the master, and to the promoted
// replica after a failover. This must work for the single Redis server and for a Redlock node.
func TestSentinel(t *testing.T) {
	s, err := stack.Start(t.Context(), stack.Config{Kind: stack.Local, Needs: lock.Redis | lock.RedisQuorum})
	stacktest.Check(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for server, client := range map[string]func(lock.Env) redis.UniversalClient{
		"redis":     func(env lock.Env) redis.UniversalClient { return env.Redis },
		"redlock-1": func(env lock.Env) redis.UniversalClient { return env.Redlock[0] },
	} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			rep, err := s.Replicate(ctx, server)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := rep.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			c := client(envOf(t, s.Via(rep)))
			if err := c.Set(ctx, "kept", "token", time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			replica := redis.NewClient(&redis.Options{Addr: rep.Addr})
			defer replica.Close()
			await(t, func() bool { return replica.Exists(ctx, "kept").Val() == 1 })
			if err := rep.Failover(ctx); err != nil {
				t.Fatal(err)
			}
			await(t, func() bool { return c.Set(ctx, "after", "token", 0).Err() == nil })
			if n := replica.Exists(ctx, "kept", "after").Val(); n != 2 {
				t.Errorf("%d of 2 keys in the new master", n)
			}
		})
	}
}

// envOf returns the Env of strategies in an instance with these addresses.
func envOf(t *testing.T, at stack.Addresses) lock.Env {
	cfg := instance.Config{Instance: "8004", Sentinel: at.Sentinel, SentinelMaster: at.SentinelMaster, Redlock: at.Redlock, TTL: time.Second}
	env, end, err := instance.NewEnv(t.Context(), cfg, new(instance.Sent), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	return env
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the condition is not met after 10 s")
		}
	}
}
