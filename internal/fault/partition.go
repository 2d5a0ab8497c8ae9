package fault

import (
	"context"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/stack"
)

// partition cuts one instance off from where its locks are, for longer than the
// lease and through the release of its victims (F13, F29, F30).
var partition = Fault{
	Name:     lock.Partition,
	About:    "one instance cut off from the locks for longer than the lease: both ways, requests alone, replies alone",
	Hits:     locks &^ lock.SQLLocks,
	Aim:      afterRead,
	Course:   BeforeHeal,
	TTL:      time.Second,
	Patience: 1.5,
	On:       OwnServers,
	Prepare: func(_ context.Context, t Target) (Stage, error) {
		return t.onTheWay(t.servers(), func(way stack.Routes) []Act {
			cut := func(about string, d stack.Direction) Act {
				return Act{About: about, Strike: befall(way, func(r *stack.Route) (stack.Heal, error) { return r.Cut(d) })}
			}
			return []Act{
				cut("both ways", stack.BothWays),
				cut("requests are lost", stack.ToServer),
				cut("replies are lost", stack.ToClient),
			}
		})
	},
}

// partitionDB keeps the claims of one instance under way until their leases
// have run out. No pause is needed: TCP sends again what did not arrive.
var partitionDB = Fault{
	Name:     lock.PartitionDB,
	About:    "one instance cut off from the database: its claims arrive after their leases",
	Aim:      beforeClaim,
	Course:   AtOnce,
	TTL:      time.Second,
	Patience: 1.5,
	On:       RealServers,
	Prepare: func(_ context.Context, t Target) (Stage, error) {
		return t.onTheWay([]string{"db"}, func(way stack.Routes) []Act {
			return []Act{{Strike: befall(way, func(r *stack.Route) (stack.Heal, error) { return r.Still(stack.BothWays) })}}
		})
	},
}
