package lock

import (
	"context"
	"time"
)

// redisKeyLock is a lock that is one key of one Redis: setnx and its variants. They
// differ in how the key is set and how it is unset, and in whether they look at how
// old a grant is when it arrives. All else is the same for all of them, clean-up
// included, so that each has its own mistake and no other.
type redisKeyLock struct {
	set   redisKeyCall // true: the key is ours from now on
	unset redisKeyCall // true: as far as it can tell, the key was ours until now
	// believesLate: a grant counts however long its reply took, as in the articles,
	// which ask whether SETNX has set the key and never when (F12).
	believesLate bool
	// endless: nothing runs out.
	endless bool
	// cleanup makes the context of a clean-up; nil: cleanupContext.
	cleanup func(context.Context) (context.Context, context.CancelFunc)
}

type redisKeyCall func(context.Context, *redisKeyLease) (bool, error)

// New is for Strategy.
func (k redisKeyLock) New(env Env) (Locker, error) { return k.locker(env) }

func (k redisKeyLock) locker(env Env) (*redisKeyLocker, error) {
	if err := needRedis(env); err != nil {
		return nil, err
	}
	if k.cleanup == nil {
		k.cleanup = cleanupContext
	}
	return &redisKeyLocker{k, env}, nil
}

type redisKeyLocker struct {
	redisKeyLock
	env Env
}

func (l *redisKeyLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease, err := l.acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// acquire polls: no message says that the lock is free.
func (l *redisKeyLocker) acquire(ctx context.Context, key string) (*redisKeyLease, error) {
	lease := l.lease(key)
	return lease, poll(ctx, l.env.wait(ctx), pollBackoff, l.env.Rand, func() (bool, error) { return lease.try(ctx) })
}

func (l *redisKeyLocker) Close() error { return nil }

func (l *redisKeyLocker) lease(key string) *redisKeyLease {
	lease := &redisKeyLease{redisKeyLocker: l, key: key}
	lease.rename()
	return lease
}

type redisKeyLease struct {
	plainLease
	*redisKeyLocker
	key   string
	value string // what the key holds while it is ours; the token, unless set says otherwise
	fence uint64 // 0, unless set says otherwise
	until time.Time
}

// Until is Bounded's.
func (l *redisKeyLease) Until() time.Time { return l.until }

func (l *redisKeyLease) rename() {
	l.token = l.env.Token()
	l.value = l.token
}

// try is true if the lock is ours from now on. A key that may have been set for
// no client is removed: because the reply got lost, because the client has gone,
// or because the reply took longer than the lease lives (F12), unless the variant
// believes that. Should the SET arrive after even that, the key stays for one TTL.
func (l *redisKeyLease) try(ctx context.Context) (bool, error) {
	sent := time.Now()
	ok, err := l.set(ctx, l)
	if err == nil && !ok {
		return false, nil
	}
	if err == nil && ctx.Err() == nil && (l.believesLate || time.Since(sent) < l.env.TTL) {
		if !l.endless {
			l.until = sent.Add(l.env.TTL)
		}
		return true, nil
	}
	l.undo(ctx)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return false, err
}

// undo compares, whatever the release does: the key may be another client's. What
// is tried next gets a new token, which a late clean-up must not hit. The clean-up
// may fail: then the key expires.
func (l *redisKeyLease) undo(ctx context.Context) {
	ctx, cancel := l.cleanup(ctx)
	defer cancel()
	_, _ = compareAndDelete(ctx, l)
	l.rename()
}

func (l *redisKeyLease) Fence() uint64 { return l.fence }

func (l *redisKeyLease) Release(ctx context.Context) error { return orLost(l.unset(ctx, l)) }

// orLost is ErrLost where a server has answered that the lock is not ours.
func orLost(ours bool, err error) error {
	if err == nil && !ours {
		return ErrLost
	}
	return err
}
