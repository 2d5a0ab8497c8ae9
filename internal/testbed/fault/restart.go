package fault

import (
	"context"
	"fmt"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// redisRestart restarts Redis, or as many nodes as a Redlock can lose. All locks on these servers are
// lost (failure mode F20).
var redisRestart = Fault{
	Name:       catalog.RedisRestart,
	Hits:       lock.Redis | lock.RedisQuorum,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	On:         OwnServers,
	Severs:     true,
	Prepare:    ready(func(t Target) []Strike { return []Strike{{Do: t.restart(t.minority())}} }),
}

// redisRestartMost restarts a majority of the nodes of a Redlock. All locks on these nodes are lost.
var redisRestartMost = Fault{
	Name:       catalog.RedisRestartMost,
	Hits:       lock.RedisQuorum,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	On:         OwnServers,
	Severs:     true,
	Prepare:    ready(func(t Target) []Strike { return []Strike{{Do: t.restart(t.majority())}} }),
}

// restart returns a step that restarts the servers. The restart deletes their data.
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

// amnesia restarts one node while the affected drivers have their locks on a bare majority of a
// Redlock's nodes. The loss of this one node is enough to break the lock (failure mode F18).
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

// dbRestart ends every database session, and thereby every lock that belongs to a session (failure
// mode F32). Committed data stays.
var dbRestart = Fault{
	Name:       catalog.DBRestart,
	TTL:        10 * time.Second,
	ContendFor: 0.1,
	On:         RealServers,
	Severs:     true,
	Prepare:    ready(func(t Target) []Strike { return []Strike{{Do: t.restart([]string{"db"})}} }),
}
