package stack

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Fill lowers the memory limit of a Redis server, so that writes fail with an OOM error but no keys
// are lost. The returned Heal restores the old limit.
func (s *Stack) Fill(ctx context.Context, server string) (Heal, error) {
	return s.exhaust(ctx, server, "noeviction")
}

// Evict briefly lowers the memory limit of a Redis server, so that it evicts all keys. The server
// keeps its connections and loaded scripts.
func (s *Stack) Evict(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	heal, err := s.exhaust(ctx, server, "allkeys-lru")
	if err != nil {
		return err
	}
	err = s.withRedis(server, func(client *redis.Client) error {
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

// exhaust sets the memory limit of a Redis server below its current use, together with an eviction
// policy. The returned Heal restores both.
func (s *Stack) exhaust(ctx context.Context, server, policy string) (Heal, error) {
	var was memory
	err := s.withRedis(server, func(client *redis.Client) (err error) {
		if was, err = memoryOf(ctx, client); err != nil {
			return err
		}
		if err = (memory{policy, 1}).set(ctx, client); err != nil {
			err = errors.Join(err, was.set(context.WithoutCancel(ctx), client))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return s.withRedis(server, func(client *redis.Client) error { return was.set(ctx, client) })
	}), nil
}

// withRedis calls do with a client of a Redis server. It returns an error if this server's memory
// limit cannot be changed.
func (s *Stack) withRedis(server string, do func(*redis.Client) error) error {
	addr, err := s.address(server)
	switch {
	case err != nil:
		return err
	case s.Kind == Embedded:
		return fmt.Errorf("%w: the Redis of the embedded stack has no memory limit: use -stack local", ErrRefused)
	case !isRedis(server):
		return fmt.Errorf("%w: %s has no memory limit: choose a Redis server", ErrRefused, server)
	}
	client := newRedis(addr)
	defer client.Close()
	if err := do(client); err != nil {
		return fmt.Errorf("stack: memory of %s: %w", server, err)
	}
	return nil
}

type memory struct {
	policy string
	most   uint64 // the limit in bytes; 0 means no limit
}

func memoryOf(ctx context.Context, client *redis.Client) (m memory, err error) {
	found, err := client.ConfigGet(ctx, "maxmemory*").Result()
	if err != nil {
		return m, err
	}
	m.policy = found["maxmemory-policy"]
	m.most, err = strconv.ParseUint(found["maxmemory"], 10, 64)
	return m, err
}

// set applies the settings of memory. It sets the policy first, because a new limit takes effect at
// once.
func (m memory) set(ctx context.Context, client *redis.Client) error {
	if err := client.ConfigSet(ctx, "maxmemory-policy", m.policy).Err(); err != nil {
		return err
	}
	return client.ConfigSet(ctx, "maxmemory", strconv.FormatUint(m.most, 10)).Err()
}
