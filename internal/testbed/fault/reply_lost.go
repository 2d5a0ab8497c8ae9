package fault

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/stack"
)

// replyLost makes a client get an error although the server has executed its request (F25 and F33
// in docs/failure-modes.md). It affects the COMMIT in the database and all replies of lock servers.
var replyLost = Fault{
	Name:       catalog.ReplyLost,
	Reach:      replies,
	Course:     AtOnce,
	TTL:        time.Second,
	ContendFor: 0.5,
	On:         RealServers,
	Prepare: func(_ context.Context, t Target) (Prepared, error) {
		if t.Wire {
			return Prepared{Strikes: []Strike{{}}, Loses: true}, nil
		}
		return t.onRoutes(append([]string{"db"}, t.servers()...), func(routes stack.Routes) []Strike {
			db, locks := routes[:1], routes[1:]
			strikes := []Strike{{Do: onEach(db, (*stack.Route).LoseCommits)}}
			if len(locks) > 0 { // restore the sessions last, because that takes a while
				strikes = append(strikes, Strike{Do: onEach(locks, (*stack.Route).LoseReplies)})
			}
			return strikes
		})
	},
}
