package fault

import (
	"context"
	"errors"
	"slices"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/stack"
)

// redisDown is a Redis that cannot be reached for a while, with its data, and of
// Redlock's nodes those that it can do without. The victims release into it.
var redisDown = Fault{
	Name:     lock.RedisDown,
	About:    "Redis, of Redlock a minority, out of everybody's reach at the release",
	Hits:     lock.Redis | lock.RedisQuorum,
	Aim:      beforeClaim,
	Course:   AtOnce,
	TTL:      time.Second,
	Patience: 0.5,
	On:       OwnServers,
	Prepare:  func(_ context.Context, t Target) (Stage, error) { return t.refuse(t.minority()) },
}

// redisDownMost is likewise a majority of Redlock's nodes.
var redisDownMost = Fault{
	Name:     lock.RedisDownMost,
	About:    "a majority of Redlock's nodes out of everybody's reach at the release",
	Hits:     lock.RedisQuorum,
	Aim:      beforeClaim,
	Course:   AtOnce,
	TTL:      time.Second,
	Patience: 0.5,
	On:       OwnServers,
	Prepare:  func(_ context.Context, t Target) (Stage, error) { return t.refuse(t.majority()) },
}

// refuse has the servers refuse both instances.
func (t Target) refuse(servers []string) (Stage, error) {
	victim, err := t.routes(t.Victim, servers)
	if err != nil {
		return Stage{}, err
	}
	rival, err := t.routes(t.Rival, servers)
	if err != nil {
		return Stage{}, errors.Join(err, victim.Close())
	}
	both := slices.Concat(victim, rival)
	return Stage{
		Victim: victim.Detours(), Rival: rival.Detours(),
		Acts:  []Act{{Strike: befall(both, (*stack.Route).Refuse)}},
		Close: closing(both),
	}, nil
}
