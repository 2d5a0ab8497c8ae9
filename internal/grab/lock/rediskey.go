package lock

import (
	"context"
	"time"
)

// A redisKeyLock is a lock made of one Redis key. It contains the functions that set and delete
// that key.
type redisKeyLock struct {
	set   redisKeyCall // sets the key and reports whether the client has the lock
	unset redisKeyCall // deletes the key and reports whether the client still had the lock, if it can tell
	// acceptsLate means that a client uses the lock even if the reply took longer than the TTL.
	// Some strategies make this mistake.
	acceptsLate bool
	// endless means that the key never expires.
	endless bool
	// cleanup returns the context for cleaning up. The default is cleanupContext.
	cleanup func(context.Context) (context.Context, context.CancelFunc)
}

type redisKeyCall func(context.Context, *redisKeyLease) (bool, error)

func (k redisKeyLock) New(env Env) (Locker, error) { return k.locker(env), nil }

func (k redisKeyLock) locker(env Env) *redisKeyLocker {
	if k.cleanup == nil {
		k.cleanup = cleanupContext
	}
	return &redisKeyLocker{k, env}
}

type redisKeyLocker struct {
	redisKeyLock
	env Env
}

// Acquire polls the lock, because Redis does not notify the client when the lock becomes free. The
// lease is a *redisKeyLease.
func (l *redisKeyLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease := &redisKeyLease{redisKeyLocker: l, key: key}
	lease.rename()
	err := poll(ctx, l.env.wait(ctx), pollBackoff, l.env.Rand, func() (bool, error) { return lease.try(ctx) })
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func (l *redisKeyLocker) Close() error { return nil }

type redisKeyLease struct {
	plainLease
	*redisKeyLocker
	key   string
	value string // what the client stores in the key; normally the token
	fence uint64 // the fencing token; 0 unless set assigns one
	until time.Time
}

func (l *redisKeyLease) Until() time.Time { return l.until }

func (l *redisKeyLease) rename() {
	l.token = l.env.Token()
	l.value = l.token
}

// try makes one attempt to take the lock, and reports whether it succeeded.
//
// If the client may have set the key but must not use the lock, try deletes the key again. This
// happens after an error, after the end of ctx, or if the reply took longer than the TTL.
func (l *redisKeyLease) try(ctx context.Context) (bool, error) {
	sent := time.Now()
	ok, err := l.set(ctx, l)
	if err == nil && !ok {
		return false, nil
	}
	if err == nil && ctx.Err() == nil && (l.acceptsLate || time.Since(sent) < l.env.TTL) {
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

// undo deletes the key if it still contains the client's token. The next attempt uses a new token,
// so a delayed deletion cannot affect it.
func (l *redisKeyLease) undo(ctx context.Context) {
	ctx, cancel := l.cleanup(ctx)
	defer cancel()
	_, _ = compareAndDelete(ctx, l)
	l.rename()
}

func (l *redisKeyLease) Fence() uint64 { return l.fence }

func (l *redisKeyLease) Release(ctx context.Context) error { return orLost(l.unset(ctx, l)) }

// orLost returns ErrLost if the call succeeded but the lock was not ours. Otherwise, it returns
// err.
func orLost(ours bool, err error) error {
	if err == nil && !ours {
		return ErrLost
	}
	return err
}
