package lock

import (
	"context"
	"time"
)

// keyLock is a lock that is one key of one Redis: setnx, and the ladder of
// mistakes around it. The rungs differ in how the key is set and how it is
// unset. All else is the same for all of them, clean-up included, so that each
// has its own mistake and no other.
type keyLock struct {
	// set is true if the key has become ours.
	set func(context.Context, *keyLease) (bool, error)
	// unset is true if there was something of ours to delete, as far as it can tell.
	unset func(context.Context, *keyLease) (bool, error)
}

// New is for Strategy.
func (k keyLock) New(env Env) (Locker, error) { return k.locker(env) }

func (k keyLock) locker(env Env) (*keyLocker, error) {
	if err := needRedis(env); err != nil {
		return nil, err
	}
	return &keyLocker{k, env}, nil
}

// keyPace: nobody tells a waiter that the lock is free, so it asks.
var keyPace = pace{first: 2 * time.Millisecond, most: 100 * time.Millisecond}

type keyLocker struct {
	keyLock
	env Env
}

func (l *keyLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease := l.lease(key)
	if err := lease.obtain(ctx); err != nil {
		return nil, err
	}
	return lease, nil
}

func (l *keyLocker) Close() error { return nil }

func (l *keyLocker) lease(key string) *keyLease {
	lease := &keyLease{keyLocker: l, key: key}
	lease.rename()
	return lease
}

type keyLease struct {
	*keyLocker
	key   string
	token string
	value string // what the key holds while it is ours; the token, unless set says otherwise
	fence uint64 // 0, unless set says otherwise
}

func (l *keyLease) rename() {
	l.token = l.env.Token()
	l.value = l.token
}

func (l *keyLease) obtain(ctx context.Context) error {
	return poll(ctx, l.env.wait(ctx), keyPace, l.env.Rand, func() (bool, error) { return l.try(ctx) })
}

// try is true if the lock is ours from now on. A key that may have been set for
// nobody is removed: because the reply got lost, because whoever asked has gone,
// or because the reply took longer than the lease lives (F12). Should the SET
// arrive after even that, the key stays for one TTL.
func (l *keyLease) try(ctx context.Context) (bool, error) {
	sent := time.Now()
	ok, err := l.set(ctx, l)
	if err == nil && !ok {
		return false, nil
	}
	if err == nil && ctx.Err() == nil && time.Since(sent) < l.env.TTL {
		return true, nil
	}
	l.undo(ctx)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return false, err
}

// undo compares, whatever the release does: what is there may be somebody
// else's. What is tried next gets a new token, which a late undoing must not
// hit. It may fail: the expiry is the second line.
func (l *keyLease) undo(ctx context.Context) {
	ctx, cancel := undoing(ctx)
	defer cancel()
	_, _ = compareAndDelete(ctx, l)
	l.rename()
}

func (l *keyLease) Token() string         { return l.token }
func (l *keyLease) Fence() uint64         { return l.fence }
func (l *keyLease) Lost() <-chan struct{} { return nil }

func (l *keyLease) Release(ctx context.Context) error {
	ours, err := l.unset(ctx, l)
	if err == nil && !ours {
		return ErrLost
	}
	return err
}
