package lock

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// watchdog follows Redisson's RLock. It renews the lease every third of its TTL while the lock is
// held. It notifies waiters, so that they need not poll.
//
// The lock tolerates work that takes too long, but not a paused process. Suppose that A locks and
// pauses between its last check of the lease and its write. B locks and writes, and then A writes
// too (F13; internal/explore/testdata/F11.txt shows the same without renewal). If the work hangs
// while the process lives, the lease is renewed forever (F15). If Redis loses its data, the lock is
// lost, and A learns of the loss only at the next renewal (F17).
var watchdog = Strategy{
	Name:     "watchdog",
	Title:    "a lease that is renewed; waiters are notified of a release",
	Family:   "redis",
	Source:   "Redisson: RLock",
	Needs:    Redis,
	Guard:    order.Naive,
	Claims:   catalog.ClaimsOf("watchdog"),
	Excludes: catalog.Global,
	Waiter:   "is told, and looks at the end of the lease",
	Breaks:   []string{"F11", "F13", "F15", "F17", "F38", "F39", "F41"},
	Promises: Promises{WakeUp: 1}, // a waiter that missed a message tries again when the lease would have ended
	New:      func(env Env) (Locker, error) { return newWatchdog(env, oneKey) },
}

type watchdogLocker struct {
	env      Env
	keys     func(key string) []string // the key of the lock, and the key of its counter if it has one
	notifier *notifier
	renewers renewers
}

func newWatchdog(env Env, keys func(string) []string) (*watchdogLocker, error) {
	if err := needRedis(env); err != nil {
		return nil, err
	}
	return &watchdogLocker{env: env, keys: keys, notifier: newNotifier(env.Redis)}, nil
}

func oneKey(key string) []string { return []string{key} }

func (l *watchdogLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	lease := l.lease(key)
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
	l.notifier.close()
	l.renewers.close()
	return nil
}

// lease returns a lease with a new token. The client does not hold this lease yet.
func (l *watchdogLocker) lease(key string) *watchdogLease {
	token := l.env.Token()
	return &watchdogLease{locker: l, entry: entry{l.env.Redis, l.env.TTL, l.keys(key), token, token}}
}

// A watchdogLease is a lease that its client renews while it holds the lease.
type watchdogLease struct {
	*renewer
	entry
	locker *watchdogLocker
	fence  uint64
}

// await tries to take the lock whenever the lock may be free, until the waiting time is over. left
// is how long the current holder's lease will last without renewal.
func (l *watchdogLease) await(ctx context.Context, left time.Duration, giveUp time.Time) error {
	if !time.Now().Before(giveUp) {
		return ErrBusy
	}
	waiter := l.locker.notifier.join(l.channel())
	defer waiter.leave()
	for {
		remaining := time.Until(giveUp)
		if remaining <= 0 {
			return ErrBusy
		}
		if err := waiter.wait(ctx, min(left, remaining)); err != nil {
			return err
		}
		var err error
		if left, err = l.try(ctx); err != nil {
			return err
		}
		waiter.noteChecked()
		if left == 0 {
			return nil
		}
	}
}

// try takes the lock. If another client has it, try returns how long that client's lease will last.
//
// try removes an entry that may exist without a holder. Such an entry may exist if the reply was
// lost, if the client has disconnected, or if the reply took longer than the TTL (F12). Renewals
// start only after a confirmed grant (F14). If the request arrives after its
// clean-up, the lock stays for one TTL.
func (l *watchdogLease) try(ctx context.Context) (left time.Duration, err error) {
	end := time.Now().Add(l.ttl)
	left, l.fence, err = l.enter(ctx)
	if err == nil && left > 0 {
		return left, nil
	}
	if err == nil && ctx.Err() == nil && time.Now().Before(end) {
		l.renewer = l.locker.renewers.start(ctx, end, l.ttl, l.renew)
		return 0, nil
	}
	l.undo(ctx)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return time.Millisecond, err
}

// undo removes our entry from the lock. The next attempt uses a new token, because this removal may
// arrive late.
func (l *watchdogLease) undo(ctx context.Context) {
	cleanUp(ctx, l.leave)
	l.entry = l.locker.lease(l.keys[0]).entry
}

func (l *watchdogLease) Token() string { return l.token }
func (l *watchdogLease) Fence() uint64 { return l.fence }

func (l *watchdogLease) Release(ctx context.Context) error {
	l.stop()
	return l.leave(ctx)
}
