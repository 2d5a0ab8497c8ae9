package lock

import "context"

// setnxCancelledCleanup cleans up on the context of whoever asked. The client
// hangs up while the lock is being granted; the DEL is never sent; the key stays
// for the full TTL (F22).
var setnxCancelledCleanup = knownBroken(setnx, "setnx-cancelled-cleanup", "setnx, cleaning up on the cancelled context", "F22",
	func(env Env) (Locker, error) {
		l, err := keyLock{set: setPX, unset: compareAndDelete}.locker(env)
		return hastyLocker{l}, err
	})

type hastyLocker struct{ *keyLocker }

func (l hastyLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease := l.lease(key)
	err := poll(ctx, l.env.wait(ctx), keyPace, l.env.Rand, func() (bool, error) {
		ok, err := l.set(ctx, lease)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			_, _ = compareAndDelete(ctx, lease)
		}
		return ok, err
	})
	return lease, err
}

// setnxBlindRetry asks again when no answer came. The first SET was applied; the
// second meets its key and reports busy; nobody has the lock until it runs out
// (F25).
var setnxBlindRetry = knownBroken(setnx, "setnx-blind-retry", "setnx, retrying a lost reply", "F25",
	keyLock{set: setTwice, unset: compareAndDelete}.New)

func setTwice(ctx context.Context, l *keyLease) (bool, error) {
	if ok, err := setPX(ctx, l); err == nil {
		return ok, nil
	}
	return setPX(ctx, l)
}

// setnxLateFence reads the counter once it has the lock. A locks; its lease runs
// out; B locks; A reads B's token: it raises the row with it before B does, and B,
// the real holder, is refused (F26).
var setnxLateFence = knownBroken(setnxFenced, "setnx-late-fence", "setnx-fenced, reading the token after the lock", "F26",
	func(env Env) (Locker, error) {
		l, err := keyLock{set: setFenced, unset: compareAndDelete}.locker(env)
		return fencedLocker{lateFenceLocker{l}, env.Redis}, err
	})

type lateFenceLocker struct{ *keyLocker }

func (l lateFenceLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease := l.lease(key)
	if err := lease.obtain(ctx); err != nil {
		return nil, err
	}
	var err error
	lease.fence, err = l.env.Redis.Get(ctx, fenceKeys(key)[1]).Uint64()
	return lease, err
}
