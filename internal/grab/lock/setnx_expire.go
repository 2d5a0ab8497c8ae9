package lock

import "context"

// setnxExpire is SETNX and then EXPIRE, two commands. A sets the key and dies
// before it sends the second: as without expiry (F4, internal/explore/testdata/F4.txt).
var setnxExpire = variant(setnx, Strategy{
	Name:   "setnx-expire",
	Title:  "SETNX, then EXPIRE, released by DEL",
	Source: "the source articles: SETNX and EXPIRE",
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
	Breaks: []string{"F4", "F5"},
	Aims:   map[Fault]Point{Crash: {Phase: "acquire", Call: 1, After: true}},
	New:    redisKeyLock{set: setThenExpire, unset: del}.New,
})

// setThenExpire is false also if the key has gone by the second command. That
// is PEXPIRE, for leases are not measured in whole seconds.
func setThenExpire(ctx context.Context, l *redisKeyLease) (bool, error) {
	if ok, err := setForever(ctx, l); !ok {
		return false, err
	}
	return l.env.Redis.PExpire(ctx, l.key, l.env.TTL).Result()
}
