package fault

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

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
		TTL:        time.Second,
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
