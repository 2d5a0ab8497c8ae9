package lock

import "context"

// setnxNoTTL is SETNX and DEL. A locks and dies; the order cannot be grabbed any
// more (F3, internal/explore/testdata/F3.txt), nor when A's work hangs (F15), nor
// when its DEL does not arrive. Where nothing runs out, nothing outlives its lease:
// only a Redis that forgets the key lets two in, and then A's DEL frees B's lock (F5).
var setnxNoTTL = variant(setnx, Strategy{
	Name:   "setnx-nottl",
	Title:  "SETNX, no expiry, released by DEL",
	Source: "the source articles: SETNX",
	Expect: map[Fault]Verdict{
		Hang:         Stuck,
		Crash:        Stuck,
		RedisRestart: Unsafe,
		RedisDown:    Stuck, // its release fails
		Failover:     Unsafe,
		Partition:    Stuck, // likewise
	},
	Survives: []Fault{NoFault, Slow, Pause, Hang, Crash, RedisDown, Partition, PartitionDB, ClientClock, NodeClock, DBRestart},
	Breaks:   []string{"F3", "F5", "F15"},
	New:      redisKeyLock{set: setForever, unset: del}.New,
})

func setForever(ctx context.Context, l *redisKeyLease) (bool, error) {
	return l.env.Redis.SetNX(ctx, l.key, l.value, 0).Result()
}
