package lock

import (
	"context"
	_ "embed"

	"grablab/internal/catalog"
	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// setnxFenced is setnx with fencing tokens. Each read of an order stores the token in the order's
// row, so that the database can refuse writes with a lower token.
//
// If A pauses between its read and its write until its lease expires, B locks and reads with a
// higher token. The database then refuses A's write. If Redis loses its token counter, the tokens
// restart, so the service raises the counter again.
var setnxFenced = variant(setnx, Strategy{
	Name:   "setnx-fenced",
	Title:  "setnx with a fencing token, stored before the read",
	Source: "Kleppmann 2016: How to do distributed locking",
	Guard:  order.Fenced,
	Fences: true,
	Claims: catalog.ClaimsOf("setnx").Fenced(),
	InSearch: []SearchClaim{{
		Faults: []catalog.Fault{catalog.NodeClock}, As: catalog.NoFault,
		Why: "the server's clock decides when a lease ends, so no two leases are valid at once. The fence refuses the late write. The holder is not told that its lease has ended, but this lock does not promise that",
	}},
	Breaks: []string{"F17", "F27"},
	New: func(env Env) (Locker, error) {
		return fencedLocker{redisKeyLock{set: setFenced, unset: compareAndDelete}.locker(env), env.Redis}, nil
	},
})

//go:embed setnx_fenced.lua
var setnxFencedLua string

var setnxFencedAcquire = redis.NewScript(setnxFencedLua)

func setFenced(ctx context.Context, l *redisKeyLease) (bool, error) {
	var err error
	l.fence, err = setnxFencedAcquire.Run(ctx, l.env.Redis, fenceKeys(l.key),
		l.value, l.env.TTL.Milliseconds(), fenceKeep.Milliseconds()).Uint64()
	return l.fence > 0, err
}

// setnxFenceWrite is like setnx-fenced, but checks the fencing token only at the write. If two
// clients have read the order and the one with the older token writes first, both writes succeed.
var setnxFenceWrite = variant(setnxFenced, Strategy{
	Name:   "setnx-fence-write",
	Title:  "setnx with a fencing token, checked only by the write",
	Source: "Kleppmann 2016, as many articles repeat it",
	Guard:  order.FenceWrite,
	// If Redis loses its data, the token counter restarts, so the next holder may get the same
	// token as the last one. In that case, the database refuses one of their two writes.
	Claims: catalog.ClaimsOf("setnx"),
	InSearch: []SearchClaim{{
		Faults: []catalog.Fault{catalog.Failover}, As: catalog.NoFault,
		Why: "in a search, the replica lacks only the last token, so the next holder gets the same token again, and the database refuses one of the two writes. To test a counter that starts again from zero, search with the fault `redis-restart`",
	}},
	Breaks: []string{"F34"},
})
