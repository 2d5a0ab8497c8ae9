// Package handoff is a lock in Redis for many processes: whoever releases it hands it to the next and
// wakes it, and a fencing token comes with each acquisition.
//
//	locks, err := handoff.New(client, handoff.Options{})
//	…
//	lease, err := locks.Acquire(ctx, "order:7")
//	if err != nil {
//		return err
//	}
//	defer lease.Release(ctx)
//
// It guarantees, while the server keeps what it stores and clocks run at rates that differ by less than a
// hundredth:
//
//   - No two hold the lock of a key at once. A lease that cannot be renewed is known to be lost
//     before the server gives it to another; work that goes on all the same is the caller's.
//   - Tokens of a key grow, also when the server loses its memory: they go on from its clock.
//   - Nobody starves: processes have the lock in turns, and within a process it is first come, first
//     served. A turn is for those who waited when it began, 32 at most.
//   - A process that died or was stopped costs the others one TTL and one look (a second, or a third of
//     a TTL), however many of it waited. If it is known to be gone, and waits, it costs nothing.
//   - Nothing is left in Redis but a counter for each key, for a day after its last use.
//
// It does not guarantee:
//
//   - That there is one holder when the server forgets: a restart without persistence, FLUSHALL,
//     eviction, or a fail-over to a replica that had not heard of the lease. Until its next renewal the old
//     holder, and callers of its process to whom it is handed on, believe to have it. Fence the
//     write (see the example of Lease.Fence): then the one with the lower token is refused.
//   - That a process that was paused past its lease stops at once: it finds out when it looks at Lost
//     or Context. Fence the write.
//   - That tokens grow over a fail-over to a replica that lags. See RaiseFence.
//   - Anything if the work hangs: the lease is renewed as long as the process lives.
//
// The protocol is in PROTOCOL.md.
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
	// ErrBusy says that somebody else has the lock, or is to have it next.
	ErrBusy = errors.New("handoff: busy")
	// ErrLost says that a lease has ended before it was released: it could not be renewed
	// in time, or the server does not have it any more. Somebody else may have the lock.
	ErrLost = errors.New("handoff: lease lost")
	// ErrClosed says that the Locker was closed.
	ErrClosed = errors.New("handoff: closed")
	// ErrOptions says that a Locker cannot be made so.
	ErrOptions = errors.New("handoff: bad options")

	errReleased = errors.New("handoff: released")
)

// maxCheck is how often a waiter looks at the lock, or three times in a TTL; a little more often, so
// that it is not in the moment in which its caller gives up after so many seconds.
const maxCheck = time.Second

// maxIdle is how many queues are kept of keys that nobody wants.
const maxIdle = 256

// DefaultTTL is for how long a lease lives without renewal, if Options does not say.
const DefaultTTL = 30 * time.Second

// Options of a Locker. The zero value of each is its default.
type Options struct {
	// TTL is for how long a lease lives without renewal: so long others wait for a process
	// that died with it. Whole milliseconds, at least 10; DefaultTTL. It is renewed after a third.
	TTL time.Duration
	// ID names this process in Redis. It must be of no other Locker, of this process or
	// another, present or past. Random.
	ID string
	// Logger is told of lost leases, of renewals that fail (as warnings) and of lost
	// subscriptions (for debugging). None.
	Logger *slog.Logger
	// Hooks are called when something happens, to count and measure it. None.
	Hooks Hooks
}

// Hooks are called when something happens. They must not block. Each may be nil.
type Hooks struct {
	// Acquired: a caller has got the lock of key after waiting for so long. local: from
	// another caller of this Locker, without a request.
	Acquired func(key string, waited time.Duration, local bool)
	// Released: a caller has given it back after holding it for so long.
	Released func(key string, held time.Duration)
	// Lost: a lease was lost. It is called on a goroutine of its own.
	Lost func(key string)
}

// Locker takes locks for one process. It is safe for concurrent use; have one for each Redis,
// for callers of different Lockers do not hand on to each other without Redis. It uses one
// connection more than its client does, as soon as somebody has to wait.
type Locker struct {
	client  redis.UniversalClient
	single  *redis.Client // the same; nil: a Cluster
	scripts scripts
	opt     Options
	ttl     any // in ms, as an argument
	check   time.Duration
	channel string

	closing context.Context // done when it is closed
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu                 sync.Mutex // never held across anything that waits
	closed             bool
	opened, subscribed bool // the subscription is being opened, and stands
	turns              uint64
	queues             map[string]*queue // those that are not idle
	idle               map[string]*queue // others, for when their key is locked again
}

// New makes a Locker on a client of one Redis (with Sentinel or without) or of a Cluster. It
// sends nothing. The client's own options hold: its time-outs bound each request, and
// its retries do no harm. It is not closed with the Locker.
func New(client redis.UniversalClient, opt Options) (*Locker, error) {
	opt.TTL, opt.ID = cmp.Or(opt.TTL, DefaultTTL), cmp.Or(opt.ID, rand.Text())
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	switch _, ring := client.(*redis.Ring); {
	case client == nil || ring:
		return nil, fmt.Errorf("%w: it needs a client of one Redis, of Sentinels or of a Cluster, not %T", ErrOptions, client)
	case opt.TTL < 10*time.Millisecond || opt.TTL%time.Millisecond != 0:
		return nil, fmt.Errorf("%w: a TTL is whole milliseconds, at least 10, not %v", ErrOptions, opt.TTL)
	case strings.ContainsAny(opt.ID, " /+"):
		return nil, fmt.Errorf("%w: an ID is without a space, / and +, not %q", ErrOptions, opt.ID)
	}
	l := &Locker{
		client: client, scripts: onCluster, opt: opt, ttl: opt.TTL.Milliseconds(),
		check:   min(maxCheck, opt.TTL/3) - time.Millisecond,
		channel: fmt.Sprintf("handoff:%s:%d", opt.ID, opt.TTL.Milliseconds()),
		queues:  map[string]*queue{}, idle: map[string]*queue{},
	}
	if l.single, _ = client.(*redis.Client); l.single != nil {
		l.scripts = onOne
	}
	l.closing, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

// Acquire waits for the lock of key until ctx is done, and then returns its error. Those who wait
// are served in turns of processes, and within a process first come, first served. Any other error
// is of a request that failed, which may have been carried out all the same; it has tried
// to undo that for up to a second. A request under way is not given up with ctx: the client's
// time-outs bound it.
func (l *Locker) Acquire(ctx context.Context, key string) (*Lease, error) {
	return l.AcquireWithin(ctx, key, math.MaxInt64)
}

// TryAcquire is Acquire without waiting: it returns ErrBusy where somebody else has the lock of
// key, or waits for it.
func (l *Locker) TryAcquire(ctx context.Context, key string) (*Lease, error) {
	return l.AcquireWithin(ctx, key, 0)
}

// AcquireWithin is Acquire, but returns ErrBusy after wait, and TryAcquire if that is 0. It is
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
		l.openLocked() // who waits behind its own process is to know if others wait, too
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
		_ = le.Release(cleanup) // else it expires
		return nil, err
	}
	if f := l.opt.Hooks.Acquired; f != nil {
		f(key, le.waited, le.local)
	}
	return le, nil
}

// RaiseFence lifts the counter of key, so that its next fencing token is above fence. It is for a
// store that was restored from an old copy: where the resource has seen a higher token, raise to that.
func (l *Locker) RaiseFence(ctx context.Context, key string, fence uint64) error {
	_, err := l.run(ctx, l.scripts.raise, keysOf(key), &argument{text: strconv.FormatUint(fence, 10)})
	return err
}

// Forget removes the counter of key, a day before it expires by itself: for a key that nobody has
// a reason to lock again. If it is locked all the same, its tokens go on from the server's clock.
func (l *Locker) Forget(ctx context.Context, key string) error {
	return l.client.Del(ctx, keysOf(key)[2].(string)).Err()
}

// Close ends the background work of the Locker: nothing is renewed any more, and who waits
// gets ErrClosed. It releases no lease.
func (l *Locker) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.running.Wait()
	return nil
}

// queueLocked finds what there is of a key in this process.
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

// retireLocked keeps an idle queue for when its key is locked again, until there are too many.
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

// background runs f, unless the locker is closed. It is called with mu held.
func (l *Locker) background(f func()) {
	if !l.closed {
		l.running.Go(f)
	}
}

// Lease is a lock that is held. It is renewed until it is released or lost.
type Lease struct {
	queue *queue
	ctx   context.Context // the acquire's values, without its end
	try   bool            // it does not wait

	// Guarded by the Locker's mu until it is decided.
	decided bool
	done    chan struct{} // closes then, if there is one
	err     error         // why it was not got
	turn    string        // in Redis
	nth     int64         // in the turn, from 0
	fence   int64
	since   time.Time // it waits, or is held
	waited  time.Duration
	local   bool

	// Guarded by the Locker's mu.
	lost   chan struct{}
	ended  error // errReleased or ErrLost; nil: it is held
	own    context.Context
	cancel context.CancelCauseFunc
}

// decideLocked ends the wait: it is held, or failed.
func (le *Lease) decideLocked(err error) {
	le.decided, le.err = true, err
	if le.done != nil {
		close(le.done)
	}
}

// Key is the key whose lock it is.
func (le *Lease) Key() string { return le.queue.key }

// Token names this acquisition and no other, for logs: the name in Redis, and a number in its turn.
func (le *Lease) Token() string { return fmt.Sprintf("%s.%d", le.turn, le.nth) }

// Fence is the fencing token: that of each acquisition of a key is above those of all before. A
// resource that refuses a write with a token below one that it has seen is safe whatever
// becomes of the lock.
func (le *Lease) Fence() uint64 { return uint64(le.fence) }

// Lost closes when the lease is known to be lost, at the latest a hundredth of a TTL
// before it can have ended. It looks at the clock itself, so that in a process that was
// stopped it is right at once. It stays open if the lease is released.
func (le *Lease) Lost() <-chan struct{} {
	q := le.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.holder == le {
		q.expireLocked(time.Now())
	}
	return le.lost
}

// Context is a context for the work under the lock. It carries the values of Acquire's, and is
// cancelled when the lease is lost, with ErrLost as its cause, or released. It does not end with
// Acquire's context, which bounds the wait.
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

// endLocked is called once.
func (le *Lease) endLocked(why error) {
	le.ended = why
	if le.cancel != nil {
		le.cancel(why)
	}
	if why == ErrLost {
		close(le.lost)
	}
}

// Release gives the lock back: to the next caller of this Locker without a request, or to the next
// process, or to nobody, with one. ErrLost: the lease was lost before, or released already. A request
// that fails is sent again until ctx is done or the lease has run out; any other error is of the
// last one, and others may have to wait until the lease has run out. One request is made even if
// ctx is done already.
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
			q.undo(ctx, le.turn) // the server may have it for a little longer
		}
		return ErrLost
	}
	le.endLocked(errReleased)
	err := q.release(ctx, now) // and unlocks
	if f := q.opt.Hooks.Released; f != nil {
		f(q.key, now.Sub(le.since))
	}
	return err
}
