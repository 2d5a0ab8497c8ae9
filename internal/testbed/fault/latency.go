package fault

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// These are the mean delay of a reply and how much it varies to either side, in leases.
const (
	replyDelay  = 1.25
	replyJitter = 0.1
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
	RepliesAfter:   replyDelay - replyJitter,
	On:             OwnServers,
	Prepare: func(_ context.Context, t Target) (Prepared, error) {
		return t.onRoutes(t.servers(), func(routes stack.Routes) []Strike {
			return []Strike{{Do: func(_ context.Context, lease time.Duration) (stack.Heal, error) {
				return routes.Each(func(r *stack.Route) (stack.Heal, error) {
					return r.Delay(leases(replyDelay, lease), leases(replyJitter, lease), stack.ToClient)
				})
			}}}
		})
	},
}
