package stack_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/redis/go-redis/v9"
)

func clientOf(t *testing.T, s *stack.Stack) redis.UniversalClient {
	t.Helper()
	opts := redis.UniversalOptions{Addrs: s.Sentinel, MasterName: s.SentinelMaster}
	if s.Redis != "" {
		opts.Addrs = strings.Split(s.Redis, ",")
	}
	c := redis.NewUniversalClient(&opts)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestTopology checks that a failover loses the keys that the replica lacks, and that planned changes
// of the master lose no keys. Rebuild must leave empty servers and a replica that follows its master.
func TestTopology(t *testing.T) {
	stacktest.Local(t)
	keys := []string{"a", "b", "c", "d"}
	for _, tt := range []struct {
		name   string
		kind   catalog.Topology
		lags   bool
		strike func(context.Context, *stack.Topology) (stack.Heal, error)
		kept   bool
	}{
		{"frozen", catalog.RedisCluster, true, func(ctx context.Context, top *stack.Topology) (stack.Heal, error) { return top.Freeze(ctx) }, false},
		{"moved", catalog.RedisCluster, false, func(ctx context.Context, top *stack.Topology) (stack.Heal, error) {
			return nil, top.MoveSlots(ctx, keys)
		}, true},
		{"asked", catalog.RedisSentinel, false, func(ctx context.Context, top *stack.Topology) (stack.Heal, error) { return nil, top.SwitchOver(ctx) }, true},
	} {
		t.Run(string(tt.kind)+" "+tt.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			s := start(t, stack.Config{Kind: stack.Local, Needs: lock.Redis, Topology: tt.kind})
			if _, err := s.Route("instance 1", "redis"); err == nil || !strings.Contains(err.Error(), "-redis-topology single") {
				t.Errorf("a route to one of several servers: %v", err)
			}
			if err := s.Topology.Aim(ctx, keys); err != nil {
				t.Fatal(err)
			}
			if tt.lags {
				if err := s.Topology.Lag(ctx); err != nil {
					t.Fatal(err)
				}
			}
			c := clientOf(t, s)
			for _, key := range keys {
				if err := c.Set(ctx, key, "1", time.Minute).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if left, err := s.KeyTTLs(ctx); err != nil || tt.kind == catalog.RedisCluster && len(left) < len(keys) {
				t.Errorf("TTLs %v, %v", left, err)
			}
			heal, err := tt.strike(ctx, s.Topology)
			if err != nil {
				t.Fatal(err)
			}
			after := clientOf(t, s) // a new client, which does not know the old master
			for _, key := range keys {
				if n, err := after.Exists(ctx, key).Result(); (n == 1) != tt.kept || err != nil {
					t.Errorf("%s is kept: %v, %v", key, n == 1, err)
				}
			}
			if heal != nil {
				if err := heal(); err != nil {
					t.Error(err)
				}
			}
			if err := s.Topology.Rebuild(ctx); err != nil {
				t.Fatal(err)
			}
			if err := s.Topology.Lag(ctx); err != nil { // fails if the replica does not follow its master
				t.Error(err)
			}
			c = clientOf(t, s)
			for _, key := range keys {
				if n, err := c.Exists(ctx, key).Result(); n != 0 || err != nil {
					t.Errorf("after Rebuild, %s is kept: %v, %v", key, n == 1, err)
				}
			}
		})
	}
}
