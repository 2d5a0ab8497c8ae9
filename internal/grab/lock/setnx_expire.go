package lock

import (
	"context"

	"grablab/internal/order"
)

// setnxExpire is SETNX and then EXPIRE, two commands. A sets the key and dies
// before it sends the second: as without expiry (F4).
var setnxExpire = Strategy{
	Name:   "setnx-expire",
	Title:  "SETNX, then EXPIRE, released by DEL",
	Family: "redis",
	Source: "the source articles: SETNX and EXPIRE",
	Needs:  Redis,
	Guard:  order.Naive,
	Expect: map[Fault]Verdict{
		Slow:         Unsafe,
		Pause:        Unsafe,
		Crash:        Stuck, // between the two commands
		RedisRestart: Unsafe,
		Failover:     Unsafe,
		Partition:    Unsafe,
		PartitionDB:  Unsafe,
		NodeClock:    Unsafe,
	},
	Excludes: Global,
	Survives: []Fault{NoFault, Crash, ClientClock},
	Breaks:   []string{"F4", "F5"},
	Aims:     map[Fault]Point{Crash: {Phase: "acquire", Call: 1, After: true}},
	New:      keyLock{set: setThenExpire, unset: del}.New,
}

// setThenExpire is false also if the key has gone by the second command. That
// is PEXPIRE, for leases are not measured in whole seconds.
func setThenExpire(ctx context.Context, l *keyLease) (bool, error) {
	if ok, err := setForever(ctx, l); !ok {
		return false, err
	}
	return l.env.Redis.PExpire(ctx, l.key, l.env.TTL).Result()
}
