package lock

import (
	"context"
	"time"
)

// A redisKeyLock is a lock that consists of one Redis key, such as setnx. Strategies of this kind
// differ only in how they use the key.
type redisKeyLock struct {
	set   redisKeyCall // returns true if the key now belongs to this client
	unset redisKeyCall // returns true if the key belonged to this client, as far as the function can tell
	// believesLate means that a client believes that it has the lock even if the reply took longer
	// than the TTL (failure mode F12).
	believesLate bool
	// endless means that the key never expires.
	endless bool
	// cleanup returns the context for cleaning up. If cleanup is nil, cleanupContext is used.
	cleanup func(context.Context) (context.Context, context.CancelFunc)
}

type redisKeyCall func(context.Context, *redisKeyLease) (bool, error)

// New has the signature of Strategy.New.
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

// acquire requests the lock repeatedly, because no message announces that the lock is free.
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
	value string // the value of the key while it belongs to this client; this is the token, unless set changes it
	fence uint64 // 0, unless set changes it
	until time.Time
}

// Until implements Bounded.
func (l *redisKeyLease) Until() time.Time { return l.until }

func (l *redisKeyLease) rename() {
	l.token = l.env.Token()
	l.value = l.token
}

// try reports whether it has taken the lock.
//
// It also removes a key that may exist without a holder. Such a key may exist if the reply was
// lost, or if the client has disconnected. It may also exist if the reply took longer than the TTL
// (F12), unless the variant accepts late replies. If the SET arrives after the clean-up, the key
// stays for one TTL.
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

// undo deletes the key if it still contains our token. The next attempt uses a new token, because
// this deletion may arrive late.
func (l *redisKeyLease) undo(ctx context.Context) {
	ctx, cancel := l.cleanup(ctx)
	defer cancel()
	_, _ = compareAndDelete(ctx, l)
	l.rename()
}

func (l *redisKeyLease) Fence() uint64 { return l.fence }

func (l *redisKeyLease) Release(ctx context.Context) error { return orLost(l.unset(ctx, l)) }

// orLost returns err. If err is nil and the key was not ours, it returns ErrLost.
func orLost(ours bool, err error) error {
	if err == nil && !ours {
		return ErrLost
	}
	return err
}
