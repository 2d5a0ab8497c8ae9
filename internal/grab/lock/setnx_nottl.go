package lock

import (
	"context"

	"grablab/internal/order"
)

// setnxNoTTL is SETNX and DEL. A locks and dies; nobody can grab the order for
// ever (F3), nor when A's work hangs (F15), nor when its DEL does not arrive.
// Where nothing runs out, nothing outlives its lease: only a Redis that forgets
// the key lets two in, and then A's DEL frees B's lock (F5).
var setnxNoTTL = Strategy{
	Name:   "setnx-nottl",
	Title:  "SETNX, no expiry, released by DEL",
	Family: "redis",
	Source: "the source articles: SETNX",
	Needs:  Redis,
	Guard:  order.Naive,
	Expect: map[Fault]Verdict{
		Hang:         Stuck,
		Crash:        Stuck,
		RedisRestart: Unsafe,
		RedisDown:    Stuck, // its release fails
		Failover:     Unsafe,
		Partition:    Stuck, // likewise
	},
	Excludes: Global,
	Survives: []Fault{NoFault, Slow, Pause, Hang, Crash, RedisDown, Partition, PartitionDB, ClientClock, NodeClock, DBRestart},
	Breaks:   []string{"F3", "F5", "F15"},
	New:      keyLock{set: setForever, unset: del}.New,
}

func setForever(ctx context.Context, l *keyLease) (bool, error) {
	return l.env.Redis.SetNX(ctx, l.key, l.value, 0).Result()
}
