package fault

import (
	"context"
	"fmt"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// redisRestart makes the one Redis, or as many Redlock nodes as Redlock can lose, forget all
// locks (F20).
var redisRestart = Fault{
	Name:       catalog.RedisRestart,
	Hits:       lock.Redis | lock.RedisQuorum,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	On:         OwnServers,
	Severs:     true,
	Prepare:    ready(func(t Target) []Strike { return []Strike{{Do: t.restart(t.minority())}} }),
}

// redisRestartMost makes a majority of Redlock's nodes forget.
var redisRestartMost = Fault{
	Name:       catalog.RedisRestartMost,
	Hits:       lock.RedisQuorum,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	On:         OwnServers,
	Severs:     true,
	Prepare:    ready(func(t Target) []Strike { return []Strike{{Do: t.restart(t.majority())}} }),
}

// restart restarts the servers, which lose data that healing cannot restore.
func (t Target) restart(servers []string) Step {
	return stepWithoutHeal(func(ctx context.Context) error {
		for _, server := range servers {
			if err := t.Stack.Restart(ctx, server); err != nil {
				return err
			}
		}
		return nil
	})
}

// amnesia shows that one restart can be enough. The faulted drivers reach a bare majority of
// Redlock's nodes, and one of those loses its data (F18).
var amnesia = Fault{
	Name:       catalog.Amnesia,
	Hits:       lock.RedisQuorum,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	On:         OwnServers,
	Severs:     true,
	Prepare: func(_ context.Context, t Target) (Prepared, error) {
		nodes, rest := t.servers(), t.beyondBare()
		if len(rest) == 0 {
			return Prepared{}, fmt.Errorf("fault: a bare majority of %d nodes is all of them", len(nodes))
		}
		last := len(nodes) - len(rest)
		return t.onRoutes(rest, func(beyond stack.Routes) []Strike {
			return []Strike{{Before: onEach(beyond, (*stack.Route).Refuse), Do: t.restart(nodes[last-1 : last])}}
		})
	},
}

// dbRestart ends every session of the database, including the locks bound to a session
// (F32). Committed data survives.
var dbRestart = Fault{
	Name:       catalog.DBRestart,
	TTL:        10 * time.Second,
	ContendFor: 0.1,
	On:         RealServers,
	Severs:     true,
	Prepare:    ready(func(t Target) []Strike { return []Strike{{Do: t.restart([]string{"db"})}} }),
}
