package fault

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/stack"
)

// replyLost has servers carry out what they are asked, and the client get an
// error in place of the reply: those of the locks all replies (F25), the database
// that to a COMMIT (F33). Leases outlive it.
var replyLost = Fault{
	Name:     catalog.ReplyLost,
	Reach:    replies,
	Course:   AtOnce,
	TTL:      time.Second,
	Patience: 0.5,
	On:       RealServers,
	Prepare: func(_ context.Context, t Target) (Prepared, error) {
		return t.onRoutes(append(t.servers(), "db"), func(routes stack.Routes) []Strike {
			locks, db := routes[:len(routes)-1], routes[len(routes)-1:]
			lose := Strike{Do: onEach(locks, (*stack.Route).LoseReplies)}
			loseCommits := Strike{Do: onEach(db, (*stack.Route).LoseCommits)}
			if len(locks) == 0 {
				return []Strike{loseCommits}
			}
			return []Strike{lose, loseCommits}
		})
	},
}
