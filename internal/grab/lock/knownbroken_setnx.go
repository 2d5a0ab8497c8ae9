package lock

import (
	"context"

	"grablab/internal/catalog"
)

// setnxCancelledCleanup cleans up with the acquire's context. If the client has disconnected, that
// context is cancelled, so no DEL is sent, and the key stays for a full TTL.
var setnxCancelledCleanup = variant(setnx, Strategy{
	Name:   "setnx-cancelled-cleanup",
	Title:  "setnx that cleans up with the cancelled context",
	Breaks: []string{"F22"},
	New:    redisKeyLock{set: setPX, unset: compareAndDelete, cleanup: context.WithCancel}.New,
})

// setnxBlindRetry retries a SET that got no reply. If the first SET succeeded, the second one finds
// the client's own key, so the client wrongly reports that another client has the lock.
var setnxBlindRetry = variant(setnx, Strategy{
	Name:   "setnx-blind-retry",
	Title:  "setnx that retries its SET after a lost reply",
	Breaks: []string{"F25"},
	New:    redisKeyLock{set: setTwice, unset: compareAndDelete}.New,
})

func setTwice(ctx context.Context, l *redisKeyLease) (bool, error) {
	if ok, err := setPX(ctx, l); err == nil {
		return ok, nil
	}
	return setPX(ctx, l)
}

// setnxNoTTLNoCleanup does not clean up after an error. If a reply is lost or the client
// disconnects, its key stays forever although no client holds the lock.
var setnxNoTTLNoCleanup = variant(setnxNoTTL, Strategy{
	Name:   "setnx-nottl-no-cleanup",
	Title:  "setnx-nottl that leaves its key behind after a lost reply",
	Breaks: []string{"F3", "F5", "F15", "F22", "F25"},
	Claims: catalog.ClaimsOf("nottl").But(catalog.GetsStuck, catalog.ReplyLost, catalog.Cancel),
	New:    redisKeyLock{set: setForever, unset: del, acceptsLate: true, endless: true, cleanup: cancelledContext}.New,
})

func cancelledContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

// setnxLateFence takes the lock first, and reads the fencing token in a second step. If its lease
// expires between the two steps, it gets the next holder's token. The database then refuses that
// holder's write.
var setnxLateFence = variant(setnxFenced, Strategy{
	Name:   "setnx-late-fence",
	Title:  "setnx-fenced that reads the token only after acquiring the lock",
	Breaks: []string{"F26"},
	New: func(env Env) (Locker, error) {
		l := redisKeyLock{set: setFenced, unset: compareAndDelete}.locker(env)
		return fencedLocker{lateFenceLocker{l}, env.Redis}, nil
	},
})

type lateFenceLocker struct{ *redisKeyLocker }

func (l lateFenceLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease, err := l.redisKeyLocker.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	lease.(*redisKeyLease).fence, err = l.env.Redis.Get(ctx, fenceKeys(key)[1]).Uint64()
	return lease, err
}
