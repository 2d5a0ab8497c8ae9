package lock

import (
	"context"

	"grablab/internal/catalog"
)

// setnxCancelledCleanup cleans up on the context of the acquire. The client hangs
// up while the lock is being granted; the DEL is never sent; the key stays for the
// full TTL (F22, internal/explore/testdata/F22.txt).
var setnxCancelledCleanup = variant(setnx, Strategy{
	Name:   "setnx-cancelled-cleanup",
	Title:  "setnx, cleaning up on the cancelled context",
	Breaks: []string{"F22"},
	New:    redisKeyLock{set: setPX, unset: compareAndDelete, cleanup: context.WithCancel}.New,
})

// setnxBlindRetry asks again when no answer came. The first SET was applied; the
// second meets its key and reports busy; no client has the lock until it runs out
// (F25, internal/explore/testdata/F25.txt).
var setnxBlindRetry = variant(setnx, Strategy{
	Name:   "setnx-blind-retry",
	Title:  "setnx, retrying a lost reply",
	Breaks: []string{"F25"},
	New:    redisKeyLock{set: setTwice, unset: compareAndDelete}.New,
})

func setTwice(ctx context.Context, l *redisKeyLease) (bool, error) {
	if ok, err := setPX(ctx, l); err == nil {
		return ok, nil
	}
	return setPX(ctx, l)
}

// setnxNoTTLNoCleanup leaves after an error whatever its SETNX may have done. The
// reply is lost (F25), or the client hangs up (F22); the key is there, no client has the
// lock, and it stays for ever.
var setnxNoTTLNoCleanup = variant(setnxNoTTL, Strategy{
	Name:   "setnx-nottl-no-cleanup",
	Title:  "setnx-nottl, leaving its key after a lost reply",
	Breaks: []string{"F3", "F5", "F15", "F22", "F25"},
	Claims: catalog.ClaimsOf("nottl").But(catalog.GetsStuck, catalog.ReplyLost, catalog.Cancel),
	New:    redisKeyLock{set: setForever, unset: del, believesLate: true, endless: true, cleanup: cancelled}.New,
})

// cancelled is a context on which no clean-up is sent.
func cancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

// setnxLateFence reads the counter once it has the lock. A locks; its lease runs
// out; B locks; A reads B's token: it raises the row with it before B does, and B,
// the real holder, is refused (F26, internal/explore/testdata/F26.txt).
var setnxLateFence = variant(setnxFenced, Strategy{
	Name:   "setnx-late-fence",
	Title:  "setnx-fenced, reading the token after the lock",
	Breaks: []string{"F26"},
	New: func(env Env) (Locker, error) {
		l, err := redisKeyLock{set: setFenced, unset: compareAndDelete}.locker(env)
		return fencedLocker{lateFenceLocker{l}, env.Redis}, err
	},
})

type lateFenceLocker struct{ *redisKeyLocker }

func (l lateFenceLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease, err := l.acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	lease.fence, err = l.env.Redis.Get(ctx, fenceKeys(key)[1]).Uint64()
	return lease, err
}
