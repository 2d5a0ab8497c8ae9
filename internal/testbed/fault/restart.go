package fault

import (
	"context"
	"fmt"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// redisRestart restarts the one Redis, which then has forgotten all locks (F20). With Redlock, it
// restarts as many nodes as Redlock can lose.
var redisRestart = Fault{
	Name:       catalog.RedisRestart,
	Hits:       lock.Redis | lock.RedisQuorum,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	On:         OwnServers,
	Severs:     true,
	Prepare:    ready(func(t Target) []Strike { return []Strike{{Do: t.restart(t.minority())}} }),
}

// redisRestartMost restarts a majority of Redlock's nodes, which then have forgotten all locks.
var redisRestartMost = Fault{
	Name:       catalog.RedisRestartMost,
	Hits:       lock.RedisQuorum,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	On:         OwnServers,
	Severs:     true,
	Prepare:    ready(func(t Target) []Strike { return []Strike{{Do: t.restart(t.majority())}} }),
}

// restart returns a step that restarts the servers. They lose data that no heal can restore.
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

// amnesia shows that the restart of a single node can be enough. The faulted drivers reach only a
// bare majority of Redlock's nodes, and one of those loses its data (F18).
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

// dbRestart ends every session of the database, and so every lock that is bound to a session (F32).
// Committed data survives.
var dbRestart = Fault{
	Name:       catalog.DBRestart,
	TTL:        10 * time.Second,
	ContendFor: 0.1,
	On:         RealServers,
	Severs:     true,
	Prepare:    ready(func(t Target) []Strike { return []Strike{{Do: t.restart([]string{"db"})}} }),
}
