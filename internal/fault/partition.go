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
		way, err := t.routes(t.Victim, t.servers())
		cut := func(about string, d stack.Direction) Act {
			return Act{About: about, Strike: func(context.Context, time.Duration) (stack.Heal, error) {
				return way.each(func(r *stack.Route) (stack.Heal, error) { return r.Cut(d) })
			}}
		}
		return Stage{
			Victim: way.detours(),
			Acts: []Act{
				cut("both ways", stack.BothWays),
				cut("requests are lost", stack.ToServer),
				cut("replies are lost", stack.ToClient),
			},
			Close: func(context.Context) error { return way.close() },
		}, err
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
		way, err := t.routes(t.Victim, []string{"db"})
		return Stage{
			Victim: way.detours(),
			Acts: []Act{{Strike: func(context.Context, time.Duration) (stack.Heal, error) {
				return way.each(func(r *stack.Route) (stack.Heal, error) { return r.Still(stack.BothWays) })
			}}},
			Close: func(context.Context) error { return way.close() },
		}, err
	},
}
