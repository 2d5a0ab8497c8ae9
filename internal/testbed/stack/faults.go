package stack

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// startedServer returns the description from which a server was started, for a restart.
func (s *Stack) startedServer(name string) server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[name]
}

// Kill kills a server as abruptly as a power failure, and waits until its connections are closed.
func (s *Stack) Kill(server string) error {
	if _, err := s.address(server); err != nil {
		return err
	}
	if mini := s.mini(server); mini != nil {
		mini.Close()
		return nil
	}
	return s.Process(server).Stop(0)
}

// Revive restarts a killed server at its old address and waits until it is ready. A database keeps
// its data on disk, but a Redis server starts empty.
func (s *Stack) Revive(ctx context.Context, server string) error {
	addr, err := s.address(server)
	if err != nil {
		return err
	}
	if s.Kind == Embedded {
		_, err = s.serveMini(server, addr)
		return err
	}
	_, err = s.serveAt(ctx, s.startedServer(server), addr)
	return err
}

// Restart kills a server and starts it again.
func (s *Stack) Restart(ctx context.Context, server string) error {
	if err := s.Kill(server); err != nil {
		return err
	}
	return s.Revive(ctx, server)
}

//go:embed jump.lua
var jumpLua string

// Jump makes a Redis server's keys expire earlier by d, as if its clock had jumped ahead. However,
// the server's reply to TIME does not change.
func (s *Stack) Jump(ctx context.Context, server string, d time.Duration) error {
	return s.withRedis(server, "cannot move the clock", func(client *redis.Client) error {
		return redis.NewScript(jumpLua).Eval(ctx, client, nil, d.Milliseconds(), redisDatabases).Err()
	})
}

// Fill lowers the memory limit of a local stack's Redis server, so that writes fail with an OOM
// error but no keys are lost. The returned Heal restores the old limit.
func (s *Stack) Fill(ctx context.Context, server string) (Heal, error) {
	return s.exhaust(ctx, server, "noeviction")
}

// Evict briefly lowers the memory limit of a local stack's Redis server, so that it evicts all keys.
// Unlike a restart, this keeps connections and loaded scripts.
func (s *Stack) Evict(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	heal, err := s.exhaust(ctx, server, "allkeys-lru")
	if err != nil {
		return err
	}
	err = s.withRedis(server, "memory", func(client *redis.Client) error {
		return await(ctx, nil, func() error {
			n, err := client.DBSize(ctx).Result()
			if err == nil && n > 0 {
				err = fmt.Errorf("stack: %s still stores %d keys that it should have evicted", server, n)
			}
			return err
		})
	})
	return errors.Join(err, heal())
}

// exhaust sets a Redis server's memory limit below its current use, together with an eviction
// policy. The returned Heal restores both.
func (s *Stack) exhaust(ctx context.Context, server, policy string) (Heal, error) {
	var was map[string]string
	restore := func(ctx context.Context, client *redis.Client) error {
		return limitMemory(ctx, client, was["maxmemory-policy"], was["maxmemory"])
	}
	err := s.withRedis(server, "memory", func(client *redis.Client) (err error) {
		if was, err = client.ConfigGet(ctx, "maxmemory*").Result(); err != nil {
			return err
		}
		if err = limitMemory(ctx, client, policy, "1"); err != nil {
			err = errors.Join(err, restore(context.WithoutCancel(ctx), client))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return s.withRedis(server, "memory", func(client *redis.Client) error { return restore(ctx, client) })
	}), nil
}

// withRedis calls do with a client for a Redis server. An error begins with the text about.
func (s *Stack) withRedis(server, about string, do func(*redis.Client) error) error {
	addr, err := s.address(server)
	if err != nil {
		return err
	}
	client := newRedis(addr)
	defer client.Close()
	if err := do(client); err != nil {
		return fmt.Errorf("stack: %s of %s: %w", about, server, err)
	}
	return nil
}

// limitMemory sets the eviction policy and the memory limit in bytes, where 0 means no limit. It sets
// the policy first, because a new limit takes effect at once.
func limitMemory(ctx context.Context, client *redis.Client, policy, limit string) error {
	if err := client.ConfigSet(ctx, "maxmemory-policy", policy).Err(); err != nil {
		return err
	}
	return client.ConfigSet(ctx, "maxmemory", limit).Err()
}

// KeyTTLs returns the remaining TTL of every key in the Redis servers of the stack. It is 0 for keys
// that never expire. The dry run of a user's service calls it to find the lock keys.
func (s *Stack) KeyTTLs(ctx context.Context) (map[string]time.Duration, error) {
	left := map[string]time.Duration{}
	for _, addr := range append(strings.Split(s.Redis, ","), s.Redlock...) {
		if addr == "" || strings.Contains(addr, "@") { // only Sentinels know this master
			continue
		}
		if err := keyTTLs(ctx, addr, left); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// redisDatabases is the number of databases in a Redis server. A service may use any of them.
const redisDatabases = 16

// keyTTLs adds the TTLs of the keys in one server.
func keyTTLs(ctx context.Context, addr string, left map[string]time.Duration) error {
	client := newRedis(addr)
	defer client.Close()
	conn := client.Conn() // a single connection, because SELECT applies only to its own
	defer conn.Close()
	for db := range redisDatabases {
		err := conn.Select(ctx, db).Err()
		if _, refused := errors.AsType[redis.Error](err); refused && db > 0 {
			return nil // a node of a Cluster has only database 0
		}
		if err != nil {
			return err
		}
		keys := conn.Scan(ctx, 0, "", 0).Iterator()
		for keys.Next(ctx) {
			ttl, err := conn.PTTL(ctx, keys.Val()).Result()
			if err != nil {
				return err
			}
			if ttl != -2 { // otherwise, the key has expired meanwhile
				left[fmt.Sprintf("%s/%d %s", addr, db, keys.Val())] = max(ttl, 0)
			}
		}
		if err := keys.Err(); err != nil {
			return err
		}
	}
	return nil
}
