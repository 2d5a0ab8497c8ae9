package stack

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Fill has a Redis, by its name, have no memory left: it refuses all that needs
// some, with OOM, and evicts nothing. With its heal there is as much as before.
func (s *Stack) Fill(ctx context.Context, server string) (Heal, error) {
	return s.exhaust(ctx, server, "noeviction")
}

// Evict has a Redis, by its name, have no memory left, under a policy by which any
// key may go, until all have gone. It runs on meanwhile, and keeps its connections
// and scripts.
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
				err = fmt.Errorf("stack: %s has not evicted %d keys", server, n)
			}
			return err
		})
	})
	return errors.Join(err, heal())
}

// exhaust bounds the memory of a Redis below what it uses. A cache that grows beside
// the locks comes to the same, later.
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

// withRedis calls do with a client of a Redis that has a bound on its memory.
func (s *Stack) withRedis(server string, do func(*redis.Client) error) error {
	addr, err := s.address(server)
	switch {
	case err != nil:
		return err
	case s.Kind == Embedded:
		return fmt.Errorf("%w: the embedded stack's Redis has no bound on its memory; use -stack local", ErrRefused)
	case !isRedis(server):
		return fmt.Errorf("%w: %s is no Redis, and has no bound on its memory", ErrRefused, server)
	}
	client := newRedis(addr)
	defer client.Close()
	if err := do(client); err != nil {
		return fmt.Errorf("stack: memory of %s: %w", server, err)
	}
	return nil
}

// memory is how a Redis is configured to use it.
type memory struct {
	policy string // what it evicts
	most   uint64 // bytes; 0: no bound
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

// set sets the policy first: a bound strikes at once.
func (m memory) set(ctx context.Context, client *redis.Client) error {
	if err := client.ConfigSet(ctx, "maxmemory-policy", m.policy).Err(); err != nil {
		return err
	}
	return client.ConfigSet(ctx, "maxmemory", strconv.FormatUint(m.most, 10)).Err()
}
