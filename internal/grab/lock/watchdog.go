package lock

import (
	"context"
	"time"

	"grablab/internal/order"
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
	New:      func(env Env) (Locker, error) { return newWatchdog(env, oneKey) },
}

type watchdogLocker struct {
	env     Env
	keys    func(key string) []string // the lock, and its counter if it has one
	wakeups *wakeups
	keepers keepers
}

func newWatchdog(env Env, keys func(string) []string) (*watchdogLocker, error) {
	if err := needRedis(env); err != nil {
		return nil, err
	}
	return &watchdogLocker{env: env, keys: keys, wakeups: newWakeups(env.Redis)}, nil
}

func oneKey(key string) []string { return []string{key} }

func (l *watchdogLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	lease := l.lease(ctx, key)
	giveUp := time.Now().Add(l.env.wait(ctx))
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

func (l *watchdogLocker) lease(ctx context.Context, key string) *watchdogLease {
	token := l.env.Token()
	return &watchdogLease{locker: l, hold: hold{l.env.Redis, l.env.TTL, l.keys(key), ownerOf(ctx, token), token}}
}

// watchdogLease is kept once it has been taken.
type watchdogLease struct {
	*keeper
	hold
	locker *watchdogLocker
	fence  uint64
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
	end := time.Now().Add(l.ttl)
	left, l.fence, err = l.take(ctx)
	if err == nil && left > 0 {
		return left, nil
	}
	if err == nil && ctx.Err() == nil && time.Now().Before(end) {
		l.keeper = l.locker.keepers.keep(ctx, end, l.ttl, l.renew)
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
	l.takeOutLater(ctx)
	l.hold = l.locker.lease(ctx, l.keys[0]).hold
}

func (l *watchdogLease) Token() string { return l.token }
func (l *watchdogLease) Fence() uint64 { return l.fence }

func (l *watchdogLease) Release(ctx context.Context) error {
	l.stop()
	return l.takeOut(ctx)
}
