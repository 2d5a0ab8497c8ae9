package fault

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// latency delays an acquire's reply, but not the request, until the lease has expired and another
// driver has the lock (F12 in docs/failure-modes.md).
var latency = Fault{
	Name:           catalog.Latency,
	Hits:           lock.Redis | lock.RedisQuorum,
	Reach:          grants,
	Course:         AtOnce,
	TTL:            time.Second, // shorter than the timeouts of most clients, which would otherwise give up the reply
	ContendFor:     1.5,
	HoldContenders: true,
	RepliesAfter:   1.15,
	On:             OwnServers,
	Prepare: func(_ context.Context, t Target) (Prepared, error) {
		return t.onRoutes(t.servers(), func(routes stack.Routes) []Strike {
			return []Strike{{Do: func(_ context.Context, lease time.Duration) (stack.Heal, error) {
				return routes.Each(func(r *stack.Route) (stack.Heal, error) {
					return r.Delay(leases(1.25, lease), leases(0.1, lease), stack.ToClient)
				})
			}}}
		})
	},
}
