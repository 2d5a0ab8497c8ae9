package lock

import (
	"context"
	_ "embed"
	"time"

	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// watchdog is Redisson's RLock: a lease that is renewed every third of its TTL
// for as long as it is held, and waiters that are told instead of asking.
//
// It cures the work that lasts too long, not the process that lies still: A
// locks and pauses between its last look at the lease and its write, B locks
// and writes, A writes (F11). If the work hangs while the process lives, the
// lease is renewed for ever (F15). The key dies with a Redis that forgets it,
// and until the next renewal A does not know (F17).
var watchdog = Strategy{
	Name:   "watchdog",
	Title:  "a renewed lease, waiters are told",
	Family: "redis",
	Source: "Redisson: RLock",
	Needs:  Redis,
	Guard:  order.Naive,
	Expect: map[Fault]Verdict{
		Hang:         Stuck,
		RedisRestart: Unsafe,
		Failover:     Unsafe,
		NodeClock:    Unsafe,
	},
	Excludes: Global,
	Survives: []Fault{NoFault, Slow, Crash, PartitionDB, ClientClock, DBRestart},
	Breaks:   []string{"F13", "F15", "F17"},
	New: func(env Env) (Locker, error) {
		if err := needRedis(env); err != nil {
			return nil, err
		}
		return &watchdogLocker{env: env, wakeups: newWakeups(env.Redis)}, nil
	},
}

var (
	//go:embed watchdog_acquire.lua
	watchdogAcquireLua string
	//go:embed watchdog_renew.lua
	watchdogRenewLua string
	//go:embed watchdog_release.lua
	watchdogReleaseLua string

	watchdogAcquire = redis.NewScript(watchdogAcquireLua)
	watchdogRenew   = redis.NewScript(watchdogRenewLua)
	watchdogRelease = redis.NewScript(watchdogReleaseLua)
)

type ownerKey struct{}

// WithOwner makes the acquires of ctx those of one owner, who may hold a
// re-entrant lock several times at once. Without it each acquire is an owner
// of its own.
func WithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

type watchdogLocker struct {
	env     Env
	wakeups *wakeups
	keepers keepers
}

func (l *watchdogLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	lease := &watchdogLease{locker: l, key: key, token: l.env.Token()}
	giveUp := time.Now().Add(l.env.Wait)
	left, err := lease.try(ctx)
	if err == nil && left > 0 {
		err = lease.await(ctx, left, giveUp)
	}
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func (l *watchdogLocker) Close() error {
	l.wakeups.close()
	l.keepers.close()
	return nil
}

// watchdogLease is one hold. It is kept once it has been taken.
type watchdogLease struct {
	*keeper
	locker     *watchdogLocker
	key, token string
}

// await tries again whenever the lock may be free, until it is ours or the
// wait is over. left is for how long somebody else has it, if nobody renews it.
func (l *watchdogLease) await(ctx context.Context, left time.Duration, giveUp time.Time) error {
	if !time.Now().Before(giveUp) {
		return ErrBusy
	}
	waiter := l.locker.wakeups.join(l.channel())
	defer waiter.leave()
	for {
		patience := time.Until(giveUp)
		if patience <= 0 {
			return ErrBusy
		}
		if err := waiter.wait(ctx, min(left, patience)); err != nil {
			return err
		}
		var err error
		if left, err = l.try(ctx); err != nil {
			return err
		}
		waiter.looked()
		if left == 0 {
			return nil
		}
	}
}

// try takes the lock, or returns for how long somebody else has it. A hold that
// may be there for nobody is taken out again: because the reply got lost,
// because whoever asked has gone, or because the reply took longer than the
// lease lives (F12). Only what is known to be ours is kept, so that nothing is
// ever renewed for nobody (F14); should the request arrive after its undoing, the
// lock stays for one TTL.
func (l *watchdogLease) try(ctx context.Context) (left time.Duration, err error) {
	env := &l.locker.env
	end := time.Now().Add(env.TTL)
	ms, err := watchdogAcquire.Run(ctx, env.Redis, []string{l.key}, l.owner(ctx), l.token, env.TTL.Milliseconds()).Int64()
	if err == nil && ms > 0 {
		// Redis lets a key go in the millisecond after its last.
		return time.Duration(ms+1) * time.Millisecond, nil
	}
	if err == nil && ctx.Err() == nil && time.Now().Before(end) {
		l.keeper = l.locker.keepers.keep(ctx, end, env.TTL, l.renew)
		return 0, nil
	}
	l.undo(ctx)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return time.Millisecond, err
}

// undo takes a new token for what is tried next, which a late undoing must not
// hit. It may fail: the expiry is the second line.
func (l *watchdogLease) undo(ctx context.Context) {
	ctx, cancel := undoing(ctx)
	defer cancel()
	_ = l.takeOut(ctx)
	l.token = l.locker.env.Token()
}

func (l *watchdogLease) owner(ctx context.Context) string {
	if owner, ok := ctx.Value(ownerKey{}).(string); ok {
		return owner
	}
	return l.token
}

func (l *watchdogLease) channel() string { return l.key + ":free" }

func (l *watchdogLease) renew(ctx context.Context) (time.Time, error) {
	env := &l.locker.env
	end := time.Now().Add(env.TTL)
	renewed, err := watchdogRenew.Run(ctx, env.Redis, []string{l.key}, l.token, env.TTL.Milliseconds()).Int()
	if err == nil && renewed == 0 {
		err = ErrLost
	}
	return end, err
}

func (l *watchdogLease) takeOut(ctx context.Context) error {
	released, err := watchdogRelease.Run(ctx, l.locker.env.Redis, []string{l.key}, l.token, l.channel()).Int()
	if err == nil && released == 0 {
		return ErrLost
	}
	return err
}

func (l *watchdogLease) Token() string { return l.token }
func (l *watchdogLease) Fence() uint64 { return 0 }

func (l *watchdogLease) Release(ctx context.Context) error {
	l.stop()
	return l.takeOut(ctx)
}
