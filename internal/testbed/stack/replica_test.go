package stack_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/redis/go-redis/v9"
)

// TestFailover checks that a failover loses the writes that were not replicated, but no others. After Close,
// an empty server must run at the old address.
func TestFailover(t *testing.T) {
	s := stacktest.Local(t)
	for _, server := range []string{"redis", "redlock-1"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			began := time.Now()
			rep, err := s.Replicate(ctx, server)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("replicates after %v", time.Since(began))
			defer func() {
				if err := rep.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			c := redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: []string{rep.Sentinel}, MasterName: rep.Server, MaxRetries: -1})
			defer c.Close()
			set := func(key string) {
				t.Helper()
				if err := c.Set(ctx, key, "token", time.Hour).Err(); err != nil {
					t.Fatal(err)
				}
			}
			set("kept")
			replica := redis.NewClient(&redis.Options{Addr: rep.Addr})
			defer replica.Close()
			eventually(t, func() bool { return replica.Exists(ctx, "kept").Val() == 1 }, "nothing is replicated")

			if err := rep.Lag(ctx); err != nil {
				t.Fatal(err)
			}
			set("lost")
			began = time.Now()
			if err := rep.Failover(ctx); err != nil {
				t.Fatal(err)
			}
			t.Logf("failed over after %v", time.Since(began))
			eventually(t, func() bool { return c.Set(ctx, "after", "token", 0).Err() == nil }, "the client does not use the promoted master")
			if kept, lost := c.Exists(ctx, "kept").Val(), c.Exists(ctx, "lost").Val(); kept != 1 || lost != 0 {
				t.Errorf("the promoted master has %d of 1 replicated keys, and %d keys that were not replicated", kept, lost)
			}

			began = time.Now()
			if err := rep.Close(ctx); err != nil {
				t.Fatal(err)
			}
			t.Logf("back after %v", time.Since(began))
			own := redis.NewClient(&redis.Options{Addr: addrOf(s, server)})
			defer own.Close()
			if n, err := own.DBSize(ctx).Result(); n != 0 || err != nil {
				t.Errorf("%d keys in a master that was killed and restarted, %v", n, err)
			}
			for _, addr := range []string{rep.Addr, rep.Sentinel} {
				if _, err := net.Dial("tcp", addr); err == nil {
					t.Errorf("%s still listens", addr)
				}
			}
		})
	}
}

// TestSplit checks that both masters work after a split, and that only the old one has the write that
// was not replicated. After Close, the old master must still have all its data.
func TestSplit(t *testing.T) {
	s := stacktest.Local(t)
	ctx := t.Context()
	rep, err := s.Replicate(ctx, "redlock-4")
	if err != nil {
		t.Fatal(err)
	}
	defer rep.Close(context.Background())
	follows := redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: []string{rep.Sentinel}, MasterName: rep.Server, MaxRetries: -1})
	defer follows.Close()
	old := redis.NewClient(&redis.Options{Addr: s.Redlock[3]})
	defer old.Close()
	defer old.Del(context.Background(), "split")

	if err := rep.Lag(ctx); err != nil {
		t.Fatal(err)
	}
	if err := follows.Set(ctx, "split", "before", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rep.Split(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return follows.SetNX(ctx, "split", "new", 0).Val() }, "the client does not use the new master, or finds the write that was not replicated")
	if err := old.SetXX(ctx, "split", "old", 0).Err(); err != nil {
		t.Errorf("the old master does not serve: %v", err)
	}
	if got := redisGet(rep.Addr, "split"); got != "new" {
		t.Errorf("the new master has %q", got)
	}
	if err := rep.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if got := redisGet(s.Redlock[3], "split"); got != "old" {
		t.Errorf("the old master has %q", got)
	}
	if info := old.Info(ctx, "replication").Val(); !strings.Contains(info, "role:master") {
		t.Errorf("the old master is %s", info)
	}
}

func addrOf(s *stack.Stack, server string) string {
	return append([]string{s.Redis}, s.Redlock...)[slices.Index(s.Servers(), server)]
}

// TestExternalSentinel checks that an external stack accepts the address of a Sentinel instead of the
// master's address, and rejects wrong Sentinels and masters.
func TestExternalSentinel(t *testing.T) {
	s := stacktest.Local(t)
	rep, err := s.Replicate(t.Context(), "redlock-3")
	if err != nil {
		t.Fatal(err)
	}
	defer rep.Close(context.Background())
	cfg := stack.Config{
		Kind: stack.External, Needs: lock.Redis | lock.RedisQuorum, Addresses: stack.Addresses{
			Sentinel: []string{rep.Sentinel}, SentinelMaster: rep.Server,
			Redlock: []string{s.Redlock[0], s.Redlock[1], rep.Server + "@" + rep.Sentinel},
		},
	}
	external := start(t, cfg)
	if external.RedisVersion != s.RedisVersion || external.Redis != "" || external.SentinelMaster != rep.Server {
		t.Errorf("the external stack reports %q, %+v", external.RedisVersion, external.Addresses)
	}
	failsToStart(t, cfg, []badConfig{
		{"no such master", func(c *stack.Config) { c.SentinelMaster = "nobody" }, stack.ErrUnreachable, `watches no master with the name "nobody"`},
		{"no Sentinel", func(c *stack.Config) { c.Sentinel = []string{closedAddr(t)} }, stack.ErrUnreachable, "no Sentinel at"},
		{"one node twice", func(c *stack.Config) { c.Redlock = append(c.Redlock[:2:2], c.Redlock[2], s.Redlock[2]) }, stack.ErrRefused, "the same server"},
	})
}

// TestLag checks that a write does not reach the replica after Lag. Close must not remove the master's
// data.
func TestLag(t *testing.T) {
	s := stacktest.Local(t)
	rep, err := s.Replicate(t.Context(), "redlock-2")
	if err != nil {
		t.Fatal(err)
	}
	defer rep.Close(context.Background())
	master, replica := dial(t, s.Redlock[1]), dial(t, rep.Addr)
	if err := rep.Lag(t.Context()); err != nil {
		t.Fatal(err)
	}
	master.say("SET " + t.Name() + " x")
	master.hears("+OK\r\n")
	replica.say("GET " + t.Name())
	replica.hears("$-1\r\n")
	if err := rep.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := redisGet(s.Redlock[1], t.Name()); got != "x" {
		t.Errorf("a master that was not killed has lost its data: %q", got)
	}
	master.say("DEL " + t.Name())
	master.hears(":1\r\n")
}

func redisGet(addr, key string) string {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	return c.Get(context.Background(), key).Val()
}

// TestViaSentinel checks that Via replaces the address of a replicated server with its Sentinel's, and
// does not change the original addresses.
func TestViaSentinel(t *testing.T) {
	a := stack.Addresses{Redis: "r:1", Redlock: []string{"a:1", "b:2"}}
	got := a.Via(
		&stack.Replica{Server: "redis", Sentinel: "s:1"},
		&stack.Replica{Server: "redlock-2", Sentinel: "s:2"},
	)
	if got.Redis != "" || strings.Join(got.Sentinel, ",") != "s:1" || got.SentinelMaster != "redis" || strings.Join(got.Redlock, ",") != "a:1,redlock-2@s:2" {
		t.Errorf("Via returned %+v", got)
	}
	if a.Redis != "r:1" || a.Redlock[1] != "b:2" {
		t.Errorf("the original addresses have changed: %+v", a)
	}
}

func TestReplicateRefusals(t *testing.T) {
	_, err := stacktest.Local(t).Replicate(t.Context(), "redlock-9")
	if !errors.Is(err, stack.ErrRefused) || !strings.Contains(err.Error(), "no server") {
		t.Errorf("%v, want a refusal that says %q", err, "no server")
	}
}
