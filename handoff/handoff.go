// Package handoff is a lock in Redis for many processes. A release hands the lock to the next
// client and wakes it, and every acquisition comes with a fencing token.
//
//	locks, err := handoff.New(client, handoff.Options{})
//	…
//	lease, err := locks.Acquire(ctx, "order:7")
//	if err != nil {
//		return err
//	}
//	defer lease.Release(ctx)
//
// The package gives the following guarantees. They require that the server keeps what it stores, and
// that the rates of clocks differ by less than a hundredth.
//
//   - No two clients hold the lock of a key at once. If a lease cannot be renewed, it is reported as
//     lost before the server gives it to another client. The caller must then stop its work.
//   - The tokens of a key increase. If the server loses its data, they continue from its clock.
//   - No client starves. Processes take turns. Within a process, callers are served in the order of
//     their calls. A turn serves up to 32 callers that were waiting when it started.
//   - A process that died or was stopped delays the others by one TTL and one check of the queue (a
//     second, or a third of a TTL). The delay does not depend on how many of its callers waited. If
//     Redis knows that a waiting process has gone, that process causes no delay.
//   - Redis keeps only a counter for each key, for a day after the last use of the key.
//
// The package does not guarantee the following:
//
//   - A single holder after the server has lost a lease. Causes are a restart without persistence,
//     FLUSHALL, eviction, or a failover to a replica that had not received the lease. Until the next
//     renewal, the old holder and the callers of its process still believe that they have the lock.
//     Fence the write (see the example of Lease.Fence), so that the resource refuses the lower token.
//   - That a process stops immediately if it was paused until its lease ended. It learns of the loss
//     when it checks Lost or Context. Fence the write here too.
//   - Increasing tokens after a failover to a replica that lags behind. See RaiseFence.
//   - Anything if the work hangs. The lease is renewed as long as the process lives.
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
	// ErrProtocol means that the key in Redis contains something other than a lease of this
	// protocol version. It may be the lock of another library, or a lease of a newer version.
	ErrProtocol = errors.New("handoff: the key holds no lease of protocol version 1: use another key, or the same version of handoff in all processes")
	// ErrOptions means that an argument of New or RaiseFence is invalid.
	ErrOptions = errors.New("handoff: bad options")

	errReleased = errors.New("handoff: released")
)

// maxCheck limits the time between two checks of a waiter's place in the Redis queue.
const maxCheck = time.Second

// maxIdle limits how many unused queues are kept in memory for reuse.
const maxIdle = 256

// DefaultTTL is the default of Options.TTL.
const DefaultTTL = 30 * time.Second

// Options configures a Locker. The zero value of each field selects its default.
type Options struct {
	// TTL is how long a lease lasts without renewal, and so how long other clients wait after a
	// crash. It must be at least 10 ms, in whole milliseconds. The default is DefaultTTL.
	TTL time.Duration
	// ID identifies this process in Redis, so it must be unique among all Lockers. The default is a
	// random ID.
	ID string
	// Logger receives warnings about lost leases and failed renewals, and debug messages about the
	// Redis subscription. If it is nil, nothing is logged.
	Logger *slog.Logger
	// Hooks lists functions that the Locker calls on certain events, for example to count them.
	Hooks Hooks
}

// Hooks are functions that the Locker calls on certain events. They must not block, and each of
// them may be nil.
type Hooks struct {
	// Acquired is called when a caller has got the lock of key, after waiting for the duration
	// waited. local is true if the previous holder used the same Locker.
	Acquired func(key string, waited time.Duration, local bool)
	// Released is called when a caller releases the lock of key. held is how long it had the lock.
	Released func(key string, held time.Duration)
	// Lost is called in its own goroutine when a lease is lost.
	Lost func(key string)
}

// Locker acquires locks for one process. Create one Locker for each Redis server or Cluster. A
// Locker is safe for concurrent use.
//
// Callers of the same Locker can hand over a lock without a request to Redis. The Locker opens an
// additional connection when a caller first has to wait.
type Locker struct {
	client  redis.UniversalClient
	single  *redis.Client // the same client, or nil if it is a Cluster client
	scripts scripts
	opt     Options
	ttl     any // in ms, as a script argument
	check   time.Duration
	channel string

	closing context.Context // done when the Locker is closed
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu                 sync.Mutex // never held while waiting
	closed             bool
	opened, subscribed bool // whether the subscription was started, and whether Redis has confirmed it
	turns              uint64
	queues             map[string]*queue // the queues of keys with a holder or a waiter
	idle               map[string]*queue // unused queues, kept for reuse
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
	l.closing, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

// Acquire waits for the lock of key until ctx is done. Processes take turns, and callers in the
// same process are served in the order of their calls.
//
// After a failed request, Acquire tries for up to a second to undo its effect. Only the client's
// timeouts can interrupt a running request.
func (l *Locker) Acquire(ctx context.Context, key string) (*Lease, error) {
	return l.AcquireWithin(ctx, key, math.MaxInt64)
}

// TryAcquire is like Acquire, but returns ErrBusy instead of waiting.
func (l *Locker) TryAcquire(ctx context.Context, key string) (*Lease, error) {
	return l.AcquireWithin(ctx, key, 0)
}

// AcquireWithin is like Acquire, but returns ErrBusy if the lock is not free within wait. It is
// cheaper than a context with a timeout.
func (l *Locker) AcquireWithin(ctx context.Context, key string, wait time.Duration) (*Lease, error) {
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
		l.openLocked() // messages tell this process whether other processes wait
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
	if f := l.opt.Hooks.Acquired; f != nil {
		f(key, le.waited, le.local)
	}
	return le, nil
}

// RaiseFence raises the counter of fencing tokens for key above fence. Call it after Redis was
// restored from an old copy, with the highest token that the protected resource has seen. It
// returns ErrOptions if fence is above 1<<52.
func (l *Locker) RaiseFence(ctx context.Context, key string, fence uint64) error {
	if fence > maxFence {
		return fmt.Errorf("%w: fence %d is too high: use at most %d", ErrOptions, fence, uint64(maxFence))
	}
	_, err := l.run(ctx, l.scripts.raise, keysOf(key), &argument{text: strconv.FormatUint(fence, 10)})
	return err
}

// Forget removes the counter of fencing tokens for a key that is no longer needed. Otherwise, the
// counter expires after a day. If the key is used again, its tokens still increase, because a new
// counter starts from the server's clock.
func (l *Locker) Forget(ctx context.Context, key string) error {
	return l.client.Del(ctx, keysOf(key)[2].(string)).Err()
}

// Close stops the background work of the Locker. Waiting callers get ErrClosed, and leases are no
// longer renewed, so each of them expires after its TTL unless it is released.
func (l *Locker) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.running.Wait()
	return nil
}

// queueLocked returns the queue of a key, and creates it if necessary.
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
		l.running.Go(f)
	}
}

// Lease is a lock that a caller holds. Until it is released or lost, the Locker renews it. A Lease
// is safe for concurrent use.
type Lease struct {
	queue *queue
	ctx   context.Context // the caller's context without its cancellation
	try   bool            // whether the caller tries only once

	// The Locker's mu guards these fields until decided is true.
	decided bool
	done    chan struct{} // closed when decided becomes true; nil if no one waits
	err     error         // why the caller did not get the lock; nil if it did
	turn    string        // the name under which Redis stores the lease
	nth     int64         // how many callers had the lock before, under the same name in Redis
	fence   int64
	since   time.Time // the beginning of the wait, and later of the lease
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

// Fence returns the fencing token, which increases with every acquisition of the key. A resource
// that refuses lower tokens than the highest one it has seen stays safe even if the lock fails.
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

// Context returns a context for the work under the lock. It ends when the lease is released or
// lost, with the cause ErrLost after a loss. It has the values of the context passed to Acquire,
// but does not end with it.
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

// endLocked ends the lease for the reason in why, which is errReleased or ErrLost. Call it only
// once per lease.
func (le *Lease) endLocked(why error) {
	le.ended = why
	if le.cancel != nil {
		le.cancel(why)
	}
	if why == ErrLost {
		close(le.lost)
	}
}

// Release releases the lock, or hands it over to the next caller of this Locker. It returns ErrLost
// if the lease was lost or already released. Release retries failed requests until ctx is done or
// the lease has expired.
func (le *Lease) Release(ctx context.Context) error {
	q := le.queue
	q.mu.Lock()
	now := time.Now()
	if q.holder == le {
		q.expireLocked(now)
	}
	if was := le.ended; was != nil {
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
