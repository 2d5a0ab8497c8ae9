package fault

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// The table Faults lists these faults. Package experiment calls Prepare before the instances start.

// redisDown makes Redis, or a minority of the Redlock nodes, unreachable for a while, without
// losing data. Meanwhile, the affected drivers try to release their locks.
var redisDown = outage(catalog.RedisDown, lock.Redis|lock.RedisQuorum, Target.minority)

// redisDownMost makes a majority of the Redlock nodes unreachable for a while.
var redisDownMost = outage(catalog.RedisDownMost, lock.RedisQuorum, Target.majority)

func outage(name catalog.Fault, hits lock.Backend, servers func(Target) []string) Fault {
	return Fault{
		Name:       name,
		Hits:       hits,
		Course:     AtOnce,
		ContendFor: 0.5,
		Lasts:      true,
		On:         OwnServers,
		Prepare:    func(_ context.Context, t Target) (Prepared, error) { return t.refuse(servers(t)) },
	}
}

// refuse prepares a fault in which the proxies in front of these servers refuse connections.
func (t Target) refuse(servers []string) (Prepared, error) {
	both, err := t.routes(servers, t.Affected, t.Contender)
	if err != nil {
		return Prepared{}, err
	}
	return Prepared{
		Affected: both[:len(servers)].Detours(), Contender: both[len(servers):].Detours(),
		Strikes: []Strike{{Do: onEach(both, (*stack.Route).Refuse)}},
		Close:   closing(both),
	}, nil
}

// partition cuts an instance off from its lock servers for longer than the TTL. Meanwhile, the
// affected drivers try to release their locks (F13, F29 and F30 in docs/failure-modes.md).
var partition = Fault{
	Name:       catalog.Partition,
	Hits:       locks &^ lock.SQLLocks,
	Course:     BeforeHeal,
	ContendFor: 1.5,
	On:         OwnServers,
	Prepare: func(_ context.Context, t Target) (Prepared, error) {
		return t.onRoutes(t.servers(), func(routes stack.Routes) []Strike {
			cut := func(d stack.Direction) Strike {
				return Strike{Do: onEach(routes, func(r *stack.Route) (stack.Heal, error) { return r.Cut(d) })}
			}
			return []Strike{cut(stack.BothWays), cut(stack.ToServer), cut(stack.ToClient)}
		})
	},
}

// partitionDB delays an instance's database writes until its leases have expired. The writes are
// not lost, because TCP delivers them when the network works again.
var partitionDB = Fault{
	Name:       catalog.PartitionDB,
	Course:     AtOnce,
	ContendFor: 1.5,
	On:         RealServers,
	Prepare: func(_ context.Context, t Target) (Prepared, error) {
		return t.onRoutes([]string{"db"}, func(routes stack.Routes) []Strike {
			return []Strike{{Do: onEach(routes, func(r *stack.Route) (stack.Heal, error) { return r.Stall(stack.BothWays) })}}
		})
	},
}

// replyDelay is the delay of a reply, in leases. If no other driver has got past the lock by then, the
// delay of a reply to a user's service ends after longestReplyDelay.
const (
	replyDelay        = 1.25
	longestReplyDelay = 1.75
)

// latency delays a lock server's reply, but not the request, until the lease has expired and another
// driver has the lock (F12 in docs/failure-modes.md).
var latency = Fault{
	Name:           catalog.Latency,
	Hits:           lock.Redis | lock.RedisQuorum,
	Reach:          grants,
	Course:         AtOnce,
	TTL:            time.Second, // shorter than the timeouts of most clients, which would otherwise give up the reply
	ContendFor:     1.5,
	HoldContenders: true,
	RepliesAfter:   replyDelay,
	RepliesBy:      longestReplyDelay,
	On:             OwnServers,
	Prepare: func(_ context.Context, t Target) (Prepared, error) {
		delay := replyDelay
		if t.Wire { // package experiment ends the delay sooner
			delay = longestReplyDelay + 1
		}
		return t.onRoutes(t.servers(), func(routes stack.Routes) []Strike {
			return []Strike{{Do: func(_ context.Context, lease time.Duration) (stack.Heal, error) {
				return routes.Each(func(r *stack.Route) (stack.Heal, error) {
					return r.Delay(leases(delay, lease), stack.ToClient)
				})
			}}}
		})
	},
}

// replyLost makes a client get an error although the server has executed its request (F25 and F33
// in docs/failure-modes.md). It affects the COMMIT in the database and all replies of lock servers.
var replyLost = Fault{
	Name:       catalog.ReplyLost,
	Reach:      replies,
	Course:     AtOnce,
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
