package fault

import (
	"context"
	"fmt"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/stack"
)

// amnesia is one restart that is enough: the victims reach a bare majority of
// Redlock's nodes, and one of those forgets (F18).
var amnesia = Fault{
	Name:     lock.Amnesia,
	About:    "the holder has a bare majority of Redlock's nodes, and one of them restarts empty",
	Hits:     lock.RedisQuorum,
	Aim:      beforeClaim,
	TTL:      3 * time.Second,
	Patience: 0.3,
	On:       OwnServers,
	Prepare: func(_ context.Context, t Target) (Stage, error) {
		nodes := t.servers()
		if len(nodes) < 3 {
			return Stage{}, fmt.Errorf("fault: a bare majority of %d nodes is all of them", len(nodes))
		}
		bare := len(nodes)/2 + 1
		return t.onTheWay(nodes[bare:], func(beyond stack.Routes) []Act {
			return []Act{{Before: befall(beyond, (*stack.Route).Refuse), Strike: t.restart(nodes[bare-1 : bare])}}
		})
	},
}
