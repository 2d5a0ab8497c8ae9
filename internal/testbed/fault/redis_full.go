package fault

import (
	"context"
	"errors"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// redisFull makes Redis run out of memory (F38 in docs/failure-modes.md). For some orders, Redis
// then evicts all its data. For the others, it instead rejects commands that need memory. With
// Redlock, only a minority of the nodes is affected.
var redisFull = Fault{
	Name:       catalog.RedisFull,
	Hits:       lock.Redis | lock.RedisQuorum,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	On:         RealServers,
	Prepare: ready(func(t Target) []Strike {
		return []Strike{{Do: t.evict(t.minority())}, {Do: t.fill(t.minority())}}
	}),
}

func (t Target) evict(servers []string) Step {
	return func(ctx context.Context, _ time.Duration) (stack.Heal, error) {
		return nil, errors.Join(catalog.Map(servers, func(server string) error { return t.Stack.Evict(ctx, server) })...)
	}
}

// fill returns a step that makes the servers reject any command that needs memory.
func (t Target) fill(servers []string) Step {
	return func(ctx context.Context, _ time.Duration) (stack.Heal, error) {
		var done stack.Heals
		for _, server := range servers {
			heal, err := t.Stack.Fill(ctx, server)
			if err != nil {
				return done.All, err
			}
			done = append(done, heal)
		}
		return done.All, nil
	}
}
