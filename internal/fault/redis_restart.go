package fault

import (
	"context"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/stack"
)

// redisRestart makes the one Redis forget every lock, and of Redlock's nodes
// those that it can do without (F20).
var redisRestart = Fault{
	Name:     lock.RedisRestart,
	About:    "Redis, of Redlock a minority, killed and started again empty",
	Hits:     lock.Redis | lock.RedisQuorum,
	Aim:      beforeClaim,
	TTL:      3 * time.Second,
	Patience: 0.3,
	On:       OwnServers,
	Prepare:  staged(func(t Target) []Act { return []Act{{Strike: t.restart(t.minority())}} }),
}

// redisRestartMost makes a majority of Redlock's nodes forget.
var redisRestartMost = Fault{
	Name:     lock.RedisRestartMost,
	About:    "a majority of Redlock's nodes killed and started again empty",
	Hits:     lock.RedisQuorum,
	Aim:      beforeClaim,
	TTL:      3 * time.Second,
	Patience: 0.3,
	On:       OwnServers,
	Prepare:  staged(func(t Target) []Act { return []Act{{Strike: t.restart(t.majority())}} }),
}

// restart leaves nothing to be healed but what the servers have forgotten.
func (t Target) restart(servers []string) Step {
	return func(ctx context.Context, _ time.Duration) (stack.Heal, error) {
		for _, server := range servers {
			if err := t.Stack.Restart(ctx, server); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}
