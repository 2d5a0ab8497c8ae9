// Package handoff is a lock in Redis for many processes. A release wakes the next client and hands
// the lock to it. Every acquisition comes with a fencing token.
//
//	locks, err := handoff.New(client, handoff.Options{})
//	…
//	lease, err := locks.Acquire(ctx, "order:7")
//	if err != nil {
//		return err
//	}
//	defer lease.Release(ctx)
//
// The package gives the following guarantees. They hold as long as the server loses no data and
// clock rates differ by less than 1 %.
//
//   - Only one client at a time holds the lock for a key. If a lease cannot be renewed, its holder
//     learns of the loss before another client can get the lock. The holder must then stop its
//     work.
//   - Each key's fencing tokens only increase. If the server loses its data, they continue from its
//     clock.
//   - No client starves. Processes take turns. Within a process, callers are served first come,
//     first served. A turn serves up to 32 callers that were waiting when it started.
//   - A dead or stopped process delays the others by one TTL plus one queue check (a second, or a
//     third of a TTL). This does not depend on how many of its callers were waiting. If Redis knows
//     that a waiting process is gone, that process causes no delay.
//   - An unused key leaves only a counter in Redis, which expires after a day.
//
// The package does not guarantee the following:
//
//   - A single holder after the server has lost a lease. Causes are a restart without persistence,
//     FLUSHALL, eviction, or a failover to a replica that had not received the lease. Until the
//     next renewal, the old holder and its process's other callers still believe that they have the
//     lock. Fence the write (see the Lease.Fence example), so that the resource refuses the lower
//     token.
//   - That a process stops at once if it was paused until its lease ended. It learns of the loss
//     only when it checks Lost or Context, so fence the write here too.
//   - Increasing tokens after a failover to a replica that lags behind. See RaiseFence.
//   - That the lock becomes free if the work hangs. The Locker renews the lease as long as the
//     process lives.
//
// PROTOCOL.md describes the protocol.
package handoff

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrBusy means that another client holds the lock or is next in the queue.
	ErrBusy = errors.New("handoff: busy")
	// ErrLost means that a lease ended before it was released. Either it was not renewed in time,
	// or Redis lost it. Another client may hold the lock now.
	ErrLost = errors.New("handoff: lease lost")
	// ErrClosed means that the Locker is closed.
	ErrClosed = errors.New("handoff: closed")
	// ErrProtocol means that the Redis key does not hold a lease of this protocol version. It may hold
	// another library's lock or a newer version's lease.
	ErrProtocol = errors.New("handoff: the key holds no lease of protocol version 1: use another key, or the same version of handoff in all processes")
	// ErrOptions means that an argument to New or RaiseFence is invalid.
	ErrOptions = errors.New("handoff: bad options")

	errReleased = errors.New("handoff: released")
)

// maxCheck is the longest interval between two checks of a waiter's place in the Redis queue.
const maxCheck = time.Second

// maxIdle is the maximum number of unused queues that are kept for reuse.
const maxIdle = 256

// DefaultTTL is the default of Options.TTL.
const DefaultTTL = 30 * time.Second

// Options configures a Locker. The zero value of each field selects its default.
type Options struct {
	// TTL is how long a lease lasts without renewal. After a crash, other clients wait this long.
	// It must be a whole number of milliseconds, at least 10. The default is DefaultTTL.
	TTL time.Duration
	// ID identifies this Locker in Redis, so no other Locker may have the same ID. The default is a
	// random ID.
	ID string
	// Logger receives warnings about lost leases and failed renewals, and debug messages about the
	// Redis subscription. If Logger is nil, the Locker logs nothing.
	Logger *slog.Logger
	// Hooks holds functions that the Locker calls on certain events, for example to update metrics.
	Hooks Hooks
}

// Hooks holds functions that the Locker calls on certain events. A hook must not block, and may be
// nil.
type Hooks struct {
	// Acquired is called when a caller acquires the lock for key. waited is how long the caller
	// waited, and local is true if the previous holder used the same Locker.
	Acquired func(key string, waited time.Duration, local bool)
	// Released is called when a caller releases the lock for key, which it held for the duration
	// held.
	Released func(key string, held time.Duration)
	// Lost is called in its own goroutine when a lease is lost.
	Lost func(key string)
}

// Locker acquires locks for one process. Create one Locker for each Redis server or Cluster. A
// Locker is safe for concurrent use.
//
// Callers of the same Locker can hand over a lock without a Redis request. When a caller first has
// to wait, the Locker opens one more connection.
type Locker struct {
	client  redis.UniversalClient
	single  *redis.Client // the same client; nil for a Cluster client
	scripts scripts
	opt     Options
	ttl     any // in ms, as a script argument
	check   time.Duration
	channel string

	closing context.Context // done when the Locker is closed
	cancel  context.CancelFunc

	mu                 sync.Mutex // never held during a request or a wait
	closed             bool
	pending            int        // how many calls and background requests Close must wait for
	ended              *sync.Cond // signals that pending has fallen
	opened, subscribed bool       // whether the subscription was started, and whether Redis has confirmed it
	turns              uint64
	queues             map[string]*queue // the queues of keys with a holder or a waiter
	idle               map[string]*queue // unused queues for reuse
}

// New returns a Locker for a single Redis server, Sentinels or a Cluster, without connecting yet.
// The client's timeouts limit each request. Close the Locker before the client.
func New(client redis.UniversalClient, opt Options) (*Locker, error) {
	opt.TTL, opt.ID = cmp.Or(opt.TTL, DefaultTTL), cmp.Or(opt.ID, rand.Text())
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	switch _, ring := client.(*redis.Ring); {
	case client == nil || ring:
		return nil, fmt.Errorf("%w: clients of type %T are not supported: use a client for one Redis, for Sentinels or for a Cluster", ErrOptions, client)
	case opt.TTL < 10*time.Millisecond || opt.TTL%time.Millisecond != 0:
		return nil, fmt.Errorf("%w: TTL %v: use a whole number of milliseconds, 10 or more", ErrOptions, opt.TTL)
	case strings.ContainsAny(opt.ID, " /+"):
		return nil, fmt.Errorf("%w: the ID %q must not contain spaces, '/' or '+': remove them", ErrOptions, opt.ID)
	}
	l := &Locker{
		client: client, scripts: onCluster, opt: opt, ttl: opt.TTL.Milliseconds(),
		check:   min(maxCheck, opt.TTL/3) - time.Millisecond,
		channel: fmt.Sprintf("%s%s:%d", prefix, opt.ID, opt.TTL.Milliseconds()),
		queues:  map[string]*queue{}, idle: map[string]*queue{},
	}
	if l.single, _ = client.(*redis.Client); l.single != nil {
		l.scripts = onOne
	}
	l.ended = sync.NewCond(&l.mu)
	l.closing, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

// Acquire waits for the lock for key until ctx is done. Processes take turns, and callers in the
// same process are served first come, first served.
//
// If a request fails, Acquire spends up to a second on undoing its effect. Only the client's
// timeouts can interrupt a running request, so set them.
func (l *Locker) Acquire(ctx context.Context, key string) (*Lease, error) {
	return l.AcquireWithin(ctx, key, math.MaxInt64)
}

// TryAcquire is like Acquire, but returns ErrBusy immediately if the lock is not free.
func (l *Locker) TryAcquire(ctx context.Context, key string) (*Lease, error) {
	return l.AcquireWithin(ctx, key, 0)
}

// AcquireWithin is like Acquire, but returns ErrBusy if it cannot get the lock within wait. It is
// cheaper than a context with a timeout.
func (l *Locker) AcquireWithin(ctx context.Context, key string, wait time.Duration) (*Lease, error) {
	le, err := l.acquire(ctx, key, wait)
	if f := l.opt.Hooks.Acquired; f != nil && err == nil {
		f(key, le.waited, le.local)
	}
	return le, err
}

// acquire joins the queue of the key in this process. If the queue was idle, it also requests the
// lock from Redis. It then waits for at most wait.
func (l *Locker) acquire(ctx context.Context, key string, wait time.Duration) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	since := time.Now()
	le := &Lease{ctx: context.WithoutCancel(ctx), since: since, try: wait <= 0, lost: make(chan struct{})}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, ErrClosed
	}
	l.pending++
	defer l.done()
	q := l.queueLocked(key)
	first := q.state == idle
	if le.try && !first {
		l.mu.Unlock()
		return nil, ErrBusy
	}
	le.queue = q
	q.waiters = append(q.waiters, le)
	if first {
		q.startLocked()
		l.mu.Unlock()
		q.ask()
		l.mu.Lock()
	} else {
		l.openLocked() // subscribe, because messages tell this process whether other processes wait
	}
	if le.decided {
		l.mu.Unlock()
	} else {
		le.done = make(chan struct{})
		l.mu.Unlock()
		select {
		case <-le.done:
		case <-ctx.Done():
			q.leave(le, ctx.Err())
		case <-time.After(wait - time.Since(since)):
			q.leave(le, ErrBusy)
		case <-l.closing.Done():
			q.leave(le, ErrClosed)
		}
	}
	if le.err != nil {
		return nil, le.err
	}
	if err := ctx.Err(); err != nil {
		cleanup, cancel := context.WithTimeout(le.ctx, cleanupTimeout)
		defer cancel()
		_ = le.Release(cleanup) // if this fails, the lease expires
		return nil, err
	}
	return le, nil
}

// RaiseFence makes sure that key's next fencing tokens are higher than fence. Call it after
// restoring Redis from an old copy, with the highest token that the protected resource has seen. It
// returns ErrOptions if fence is above 1<<52.
func (l *Locker) RaiseFence(ctx context.Context, key string, fence uint64) error {
	if fence > maxFence {
		return fmt.Errorf("%w: fence %d is too high: use at most %d", ErrOptions, fence, uint64(maxFence))
	}
	_, err := l.run(ctx, l.scripts.raise, keysOf(key), &argument{text: strconv.FormatUint(fence, 10)})
	return err
}

// Forget deletes the fencing token counter of a key that is no longer needed, which otherwise
// expires after a day. If the key is used again, its tokens still increase, because a new counter
// starts from the server's clock.
func (l *Locker) Forget(ctx context.Context, key string) error {
	return l.client.Del(ctx, keysOf(key)[2].(string)).Err()
}

// Close stops the Locker's background work. Waiting callers get ErrClosed, and Close returns once
// they have withdrawn their requests. The Locker no longer renews leases, so each expires after its
// TTL unless its holder releases it first.
func (l *Locker) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.cancel()
	for l.pending > 0 {
		l.ended.Wait()
	}
	return nil
}

// queueLocked returns the queue for a key, and creates it if necessary.
func (l *Locker) queueLocked(key string) *queue {
	if q, ok := l.queues[key]; ok {
		return q
	}
	q := l.idle[key]
	if q == nil {
		q = &queue{Locker: l, key: key, keys: keysOf(key)}
		q.timer = time.AfterFunc(math.MaxInt64, q.fire)
		q.timer.Stop()
	}
	delete(l.idle, key)
	l.queues[key] = q
	return q
}

// retireLocked stores an unused queue for reuse. If maxIdle queues are already stored, it drops
// them all first.
func (l *Locker) retireLocked(q *queue) {
	if len(l.idle) == maxIdle {
		for _, old := range l.idle {
			old.timer.Stop()
		}
		clear(l.idle)
	}
	delete(l.queues, q.key)
	l.idle[q.key] = q
}

// background runs f in a goroutine, unless the Locker is closed. The caller must hold mu.
func (l *Locker) background(f func()) {
	if !l.closed {
		l.goLocked(f)
	}
}

// goLocked runs f in a goroutine, for which Close waits.
func (l *Locker) goLocked(f func()) {
	l.pending++
	go func() {
		defer l.done()
		f()
	}()
}

func (l *Locker) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending--
	l.ended.Broadcast()
}

// Lease is a lock that a caller holds. The Locker renews it until it is released or lost. A Lease
// is safe for concurrent use.
type Lease struct {
	queue *queue
	ctx   context.Context // the caller's context without its cancellation
	try   bool            // whether the caller tries only once

	// The Locker's mu guards these fields until decided is true.
	decided bool
	done    chan struct{} // closed when decided becomes true; nil if no one waits
	err     error         // why the caller did not get the lock; nil if it did
	turn    string        // the lease's name in Redis
	nth     int64         // how many earlier callers got the lock under the same turn
	fence   int64
	since   time.Time // when the wait began, and later when the lease began
	waited  time.Duration
	local   bool

	// The Locker's mu guards these fields.
	lost   chan struct{}
	ended  error // errReleased or ErrLost; nil while the lease is held
	own    context.Context
	cancel context.CancelCauseFunc
}

// decideLocked ends the caller's wait. If err is nil, the caller gets the lock. Otherwise, Acquire
// returns err.
func (le *Lease) decideLocked(err error) {
	le.decided, le.err = true, err
	if le.done != nil {
		close(le.done)
	}
}

// Key returns the key of the lock.
func (le *Lease) Key() string { return le.queue.key }

// Token returns a unique name for this lease, for use in logs.
func (le *Lease) Token() string { return fmt.Sprintf("%s.%d", le.turn, le.nth) }

// Fence returns the fencing token, which increases with every acquisition of the key. If the
// protected resource refuses tokens lower than the highest one it has seen, it stays safe even when
// the lock fails.
func (le *Lease) Fence() uint64 { return uint64(le.fence) }

// Lost returns a channel that is closed when the lease is lost or about to expire. The channel
// stays open after a release.
func (le *Lease) Lost() <-chan struct{} {
	q := le.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.holder == le {
		q.expireLocked(time.Now())
	}
	return le.lost
}

// Context returns a context for the work under the lock. The context is cancelled when the lease is
// released or lost; after a loss, its cause is ErrLost. It carries the values of Acquire's context,
// but not its cancellation.
func (le *Lease) Context() context.Context {
	q := le.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if le.own == nil {
		le.own, le.cancel = context.WithCancelCause(le.ctx)
		if le.ended != nil {
			le.cancel(le.ended)
		}
	}
	return le.own
}

// endLocked ends the lease. why is the reason, errReleased or ErrLost. Call endLocked only once per
// lease.
func (le *Lease) endLocked(why error) {
	le.ended = why
	if le.cancel != nil {
		le.cancel(why)
	}
	if why == ErrLost {
		close(le.lost)
	}
}

// Release releases the lock, or hands it to this Locker's next caller. It returns ErrLost if the
// lease was lost or already released. It retries failed requests until ctx is done or the lease
// expires.
func (le *Lease) Release(ctx context.Context) error {
	q := le.queue
	q.mu.Lock()
	now := time.Now()
	if q.holder == le {
		q.expireLocked(now)
	}
	if was := le.ended; was != nil {
		if was == ErrLost && q.past == le.turn {
			q.past = "" // if a late request takes the lock for this turn, give it back
		}
		q.mu.Unlock()
		if was == ErrLost {
			q.undo(ctx, le.turn) // Redis may still store the lease
		}
		return ErrLost
	}
	le.endLocked(errReleased)
	err := q.release(ctx, now) // release unlocks mu
	if f := q.opt.Hooks.Released; f != nil {
		f(q.key, now.Sub(le.since))
	}
	return err
}
