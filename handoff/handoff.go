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
)

// maxCheck is how often a waiter looks at the lock, or three times in a TTL; a little more often, so
// that it is not in the moment in which its caller gives up after so many seconds.
const maxCheck = time.Second

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
	counts  string        // "1": PUBLISH counts all who listen
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
	cache              [256]*queue       // idle ones, each in the slot of its key
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
		client: client, opt: opt, ttl: opt.TTL.Milliseconds(), check: min(maxCheck, opt.TTL/3) - time.Millisecond,
		channel: fmt.Sprintf("handoff:%s:%d", opt.ID, opt.TTL.Milliseconds()), queues: map[string]*queue{},
	}
	if l.single, _ = client.(*redis.Client); l.single != nil {
		l.counts = "1" // of a Cluster, PUBLISH counts those on one node alone
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
	w := &waiter{ctx: context.WithoutCancel(ctx), since: time.Now(), try: wait <= 0, done: make(chan struct{})}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, ErrClosed
	}
	q := l.queueLocked(key)
	first := q.state == idle
	if w.try && !first {
		l.mu.Unlock()
		return nil, ErrBusy
	}
	q.waiters = append(q.waiters, w)
	if first {
		q.startLocked()
	} else {
		l.openLocked() // who waits behind its own process is to know if others wait, too
	}
	l.mu.Unlock()
	if first {
		q.ask(w.ctx)
	}
	select {
	case <-w.done:
	default:
		q.await(ctx, w, wait)
	}
	if w.err != nil {
		return nil, w.err
	}
	if err := ctx.Err(); err != nil {
		cleanup, cancel := context.WithTimeout(w.ctx, cleanupTimeout)
		defer cancel()
		_ = w.lease.Release(cleanup) // else it expires
		return nil, err
	}
	if f := l.opt.Hooks.Acquired; f != nil {
		f(key, time.Since(w.since), w.lease.local)
	}
	return w.lease, nil
}

// RaiseFence lifts the counter of key, so that its next fencing token is above fence. It is for a
// store that was restored from an old copy: where the resource has seen a higher token, raise to that.
func (l *Locker) RaiseFence(ctx context.Context, key string, fence uint64) error {
	if _, err := raiseScript.run(ctx, l.client, new(sendCounter), keysOf(key), fence); err != nil {
		return fmt.Errorf("handoff: raise the fence of %s: %w", key, err)
	}
	return nil
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
	slot := &l.cache[slotOf(key)]
	q := *slot
	if q == nil || q.key != key {
		q = &queue{Locker: l, key: key, keys: keysOf(key)}
	} else {
		*slot = nil
	}
	l.queues[key] = q
	return q
}

// retireLocked keeps an idle queue until another key takes its slot.
func (l *Locker) retireLocked(q *queue) {
	delete(l.queues, q.key)
	slot := &l.cache[slotOf(q.key)]
	if old := *slot; old != nil && old.timer != nil {
		old.timer.Stop()
	}
	*slot = q
}

// slotOf is a hash without a seed, FNV-1a, so that runs can be repeated.
func slotOf(key string) uint32 {
	hash := uint32(2166136261)
	for i := range len(key) {
		hash = (hash ^ uint32(key[i])) * 16777619
	}
	return hash % 256
}

// deliver takes a message to the queue that it is for.
func (l *Locker) deliver(m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queueLocked(m.key)
	q.deliverLocked(m)
	if q.state == idle {
		l.retireLocked(q)
	}
}

// background runs f, unless the locker is closed. It is called with mu held.
func (l *Locker) background(f func()) {
	if !l.closed {
		l.running.Go(f)
	}
}
