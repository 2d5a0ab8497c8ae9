package lock

import (
	"context"
	_ "embed"

	"grablab/internal/catalog"
	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// setnxFenced is setnx with fencing tokens. For each order, the database stores the highest token
// with which the order was read.
//
// Suppose that A locks, reads and pauses. B locks with a higher token and reads, which raises the
// token in the row. A resumes, and the database refuses its write (cures F11 and F17). A lost lock
// then costs time, but the order stays safe. If Redis loses the counter, the tokens start again at
// the beginning and the counter must be raised (F27).
var setnxFenced = variant(setnx, Strategy{
	Name:   "setnx-fenced",
	Title:  "setnx with a fencing token, raised before the read",
	Source: "Kleppmann 2016: How to do distributed locking",
	Guard:  order.Fenced,
	Fences: true,
	Claims: catalog.ClaimsOf("setnx").Fenced(),
	InSearch: []SearchClaim{{
		Faults: []catalog.Fault{catalog.NodeClock}, As: catalog.NoFault,
		Why: "by the server's clock the lease has ended, the fence refuses the write, and the lock promises no notice of a loss",
	}},
	Breaks: []string{"F17", "F27"},
	New:    newSetnxFenced,
})

func newSetnxFenced(env Env) (Locker, error) {
	l, err := redisKeyLock{set: setFenced, unset: compareAndDelete}.New(env)
	return fencedLocker{l, env.Redis}, err
}

//go:embed setnx_fenced.lua
var setnxFencedLua string

var setnxFencedAcquire = redis.NewScript(setnxFencedLua)

func setFenced(ctx context.Context, l *redisKeyLease) (bool, error) {
	var err error
	l.fence, err = setnxFencedAcquire.Run(ctx, l.env.Redis, fenceKeys(l.key),
		l.value, l.env.TTL.Milliseconds(), fenceKeep.Milliseconds()).Uint64()
	return l.fence > 0, err
}
