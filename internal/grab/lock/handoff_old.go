package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// handoff is the lock to recommend: one Redis, first come first served, and
// whoever releases hands the lease to the next and wakes it.
//
// State in Redis, four keys of one slot for each lock:
//
//	lock   string     name of the holder, and expires with its lease; or "queue",
//	                  if others wait or have waited, and outlives the lease
//	lease  string     name of the holder if the lock says "queue"; expires with its lease
//	queue  sorted set names of those who wait, by the number that each drew
//	fence  counter    the last number drawn
//
// A name is "channel/n": n is a place in its process, and the channel is where
// that process listens. It is used for one acquisition. Every transition but take
// is one script, so one atomic step; "the lease" is wherever it stands:
//
//	acquire  no lock:                  lock = me; fence = draw
//	         lease free:               pass; then it is mine, or as if it were not free
//	         lease is mine already:    renew; fence = draw (a reply was lost)
//	         else:                     queue me under a number drawn, or busy
//	take     as acquire, where there is no lock: SET NX PX and INCR
//	join     acquire for several of one process: their numbers are a row
//	release  lock = me:                delete it
//	next     lease is mine:            pass; if nobody is left, delete all
//	leave    take me out of the queue; if the lease is mine, as next; if nobody
//	         waits any more, lock = who has the lease
//	check    lease free: pass. Tell the holder, and who of mine is queued
//	renew    lease is mine: a whole TTL from now
//	pass     take the first from the queue; lease = it; publish to its channel;
//	         if nobody hears it, its process is gone: the next
//
// Take is two plain commands in one request, which cost less than a script. It is
// for a process that left the lock free itself, the last time that it had it: it
// will often find it so, and its counter there. It passes nobody, for as long as
// there is a queue there is a lock, whoever has died. Others may come between the
// two: so its number is a fence, but says nothing of the queue.
//
// The keys must be this lock's alone. A process whose version knows but one key
// for lock and lease is not to share them: it would take its lease for lost.
//
// Of a process one request at a time is under way for a key; who comes meanwhile
// joins with the next, all together. Whoever releases hands on without Redis if
// the next in the queue waits in its own process: numbers are drawn one by one, so
// nobody can stand between n and n+1. Such a run goes on under the name of the
// first who had the lease, whom Redis knows, with the time that the lease has
// left; the last release takes the names of the others out of the queue. (To hand
// on among neighbours first is the idea of lock cohorting, Dice, Marathe and
// Shavit 2012; here nobody is overtaken for it.)
//
// Why exclusive: the lease is set if it is free, or changed by a script that
// found its own name in it or found it free. The holder counts a TTL from before
// the request that got it was sent, less a hundredth, on the monotonic clock; so a
// fence that was drawn after the lease came too late to be believed. A lease that
// was pushed has no request before it, so its receiver must know that it is young
// (F12): it was granted after the last request that found its place in the queue,
// which was either the one that queued it or a check. It is believed if that was
// sent less than half a TTL ago, and if its fence is not from before that place
// was taken; in doubt the receiver asks, for the same name may take again (F25). No
// clock but its own is needed for that.
//
// Why first come, first served: numbers grow, and pass takes the lowest. Nobody
// takes a free lease past a queue, and a run takes the queue as it is. A waiter
// keeps its number as long as it lives: if its subscription was cut when its turn
// came it is passed over, but then stands where it stood; so it is when Redis
// forgot the queue.
//
// Why the fence grows: it is the number drawn when the waiter joined, if that
// is above the fence of the one who hands over, and else one drawn anew. A lost
// counter starts at the server's clock, in microseconds, above all before.
//
// Why nothing is left: whoever gives up leaves, and if it was handed the lease
// in that moment, hands it on. If leaving fails, the wake-up comes to a process
// that knows nobody of that name, and hands it on. Names of a dead process are
// taken out as they become first. A queue that nobody checks expires, and so does
// a lock whose lease nobody has.
//
// What the check is for: publishing is at most once, and the holder may die. So
// a waiter makes sure of its place every second, or a third of a TTL if that is
// less: a lost wake-up costs that, a dead holder its TTL and that. Checks and
// renewals of a process go out together, on one timer.
//
// What it costs: acquire and release are one round trip each if nobody else wants
// the lock, with 3 and 2 commands inside the scripts. A contended acquisition is as
// many requests, with 10 commands inside, and one message; or none, if the next
// waiter is of the same process: then the reply to the release wakes it. One more
// round trip is for who finds the lock taken that it left free, and for the first
// holder to be waited for, who learns that from the server. Where many of a process
// want one key at once, it is less: a crowd of k that comes while one request is
// under way joins by one more, and a run of neighbours is one release. Where more
// than a few scripts of a process are under way for different keys, they share
// requests, if its client Combines.
//
// What it does not do: the process may live while the work hangs (F15). One
// Redis may forget a lease, or a fail-over lose it (F17): then the fence stops
// the second writer. A process that is stopped, not dead, still listens as far
// as Redis knows, and so does one whose host vanished: each of its waiters, and
// of those whom its run has served already, may be handed the lease, and keep it
// for a TTL.
var handoffOld = Strategy{
	Name:   "handoff-old",
	Title:  "first come, first served: a release hands on and wakes the next",
	Family: "redis",
	Source: "our own",
	Needs:  Redis,
	Guard:  order.Fenced,
	Fences: true,
	Expect: map[catalog.Fault]catalog.Verdict{
		catalog.Hang: catalog.Stuck,
	},
	Excludes: catalog.Global,
	Survives: allBut(catalog.Pause, catalog.RedisRestart, catalog.Failover, catalog.Partition, catalog.NodeClock, catalog.RedisFull, catalog.FailoverSplit),
	Breaks:   []string{"F15", "F17"},
	Promises: Promises{InOrder: catalog.Global, ReleaseRetried: true},
	New:      newHandoff,
}

const (
	// A waiter makes sure of its place this often, or three times in a TTL.
	handoffPoll = time.Second
	// A queue outlives the last who joined or checked it by this much; and a lock
	// the lease, while others wait. So whoever finds neither finds no queue.
	handoffKeep = time.Minute
	// A counter that is lower than this has begun anew, and is yet to be set to the clock.
	handoffFirst = 1_000_000
)

var (
	errHandoffRing = errors.New("lock: handoff needs one Redis, a Cluster or a Sentinel; a Ring publishes where nobody listens")
	errClosed      = errors.New("lock: closed")
)

// oldHandoffLocker is one process's side of the lock: everything that it holds or
// waits for, by number.
type oldHandoffLocker struct {
	env   Env
	id    string        // of this locker, part of every name that it leaves in Redis
	ttl   any           // of its leases, in ms, as an argument
	check time.Duration // how often a waiter makes sure of its place

	closing chan struct{}
	running sync.WaitGroup
	nudged  chan struct{} // one slot: the minder is to look at the alarm again

	mu      sync.Mutex // never held across anything that waits
	closed  bool
	count   uint64
	places  map[uint64]*place
	crowds  map[string]*crowd // by key
	lines   map[string]*line  // by address; "" where there is but one Redis
	recents recents
	alarm   time.Time // when the minder looks at the places again; zero: not before it is nudged
}

func newHandoff(env Env) (Locker, error) {
	if err := needRedis(env); err != nil {
		return nil, err
	}
	if _, ok := env.Redis.(*redis.Ring); ok {
		return nil, errHandoffRing
	}
	l := &oldHandoffLocker{
		env:     env,
		id:      env.Token(),
		ttl:     env.TTL.Milliseconds(),
		check:   min(env.TTL/3, handoffPoll),
		closing: make(chan struct{}),
		nudged:  make(chan struct{}, 1),
		places:  map[uint64]*place{},
		crowds:  map[string]*crowd{},
		lines:   map[string]*line{},
	}
	l.running.Go(l.mind)
	return l, nil
}

// Acquire is one round trip if the lock is free, and two if its counter was
// forgotten meanwhile.
func (l *oldHandoffLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := l.enter(ctx, key)
	if err := p.obtain(ctx); err != nil {
		p.leave(ctx)
		return nil, err
	}
	return p, nil
}

// Raise lifts the counter of key, in one step. Fences keep growing without it,
// unless the counter was lost and the server's clock fell back, or a fail-over
// promoted a replica that lagged.
func (l *oldHandoffLocker) Raise(ctx context.Context, key string, fence uint64) error {
	if err := handoffRaise.run(ctx, l.env.Redis, handoffKeys(key), fence).Err(); err != nil {
		return fmt.Errorf("lock: raise %s: %w", key, err)
	}
	return nil
}

func (l *oldHandoffLocker) Forget(ctx context.Context, key string) error {
	return l.env.Redis.Del(ctx, handoffKeys(key)[3].(string)).Err()
}

// Close leaves the lines and ends the renewals.
func (l *oldHandoffLocker) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	close(l.closing)
	lines := make([]*line, 0, len(l.lines))
	for _, n := range l.lines {
		lines = append(lines, n)
	}
	l.mu.Unlock()

	for _, n := range lines {
		n.hangUp()
	}
	l.running.Wait()
	return nil
}

// enter registers a place before anything is sent: a wake-up may overtake the
// reply.
func (l *oldHandoffLocker) enter(ctx context.Context, key string) *place {
	p := &place{
		oldHandoffLocker: l, ctx: context.WithoutCancel(ctx), wait: l.env.wait(ctx),
		key: key, wake: make(chan wakeup, 1),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	p.number, p.keys = l.count, l.recents.of(key).keys
	l.places[p.number] = p
	return p
}

// nodeOf returns the node that has key. On a Cluster a line must go to that
// very one: PUBLISH counts only who listens on its own node.
func (l *oldHandoffLocker) nodeOf(ctx context.Context, key string) (client redis.UniversalClient, addr string, err error) {
	cluster, ok := l.env.Redis.(*redis.ClusterClient)
	if !ok {
		return l.env.Redis, "", nil
	}
	master, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, "", fmt.Errorf("lock: master of %s: %w", key, err)
	}
	return master, master.Options().Addr, nil
}

// lineTo returns the line to a node. It is called with mu held.
func (l *oldHandoffLocker) lineTo(client redis.UniversalClient, addr string) *line {
	n, ok := l.lines[addr]
	if !ok {
		n = newLine(l, client, addr)
		l.lines[addr] = n
	}
	return n
}

// deliver takes a wake-up to whom it is for. One that nobody waits for came to
// a lease that was handed to somebody who had left: it is handed on.
func (l *oldHandoffLocker) deliver(payload string) {
	w, ok := parseWakeup(payload)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.placeNamed(w.name); p != nil {
		p.signal(w)
	} else {
		l.handOn(w.key, w.name)
	}
}

// placeNamed is called with mu held.
func (l *oldHandoffLocker) placeNamed(name string) *place {
	number, _ := placeOf(name)
	if p, ok := l.places[number]; ok && p.name == name {
		return p
	}
	return nil
}

// handOn is called with mu held.
func (l *oldHandoffLocker) handOn(key string, names ...any) {
	if l.closed {
		return
	}
	l.running.Go(func() {
		ctx, cancel := cleanupContext(context.Background())
		defer cancel()
		l.takeOut(ctx, handoffKeys(key), names)
	})
}

// takeOut takes names out of Redis, with all that they have. If the request fails
// it is sent once more, and whole: the reply that was lost may have said that
// the script is not known. After that the expiry is the second line.
func (l *oldHandoffLocker) takeOut(ctx context.Context, keys, names []any) {
	if handoffLeave.run(ctx, l.env.Redis, keys, names...).Err() != nil {
		_ = l.env.Redis.Process(ctx, handoffLeave.command(ctx, true, keys, names...))
	}
}

// handoffEnd is when a lease must be given up that cannot have begun before
// since: a hundredth before its time, for clocks run at slightly different rates.
func handoffEnd(since time.Time, ttl time.Duration) time.Time { return since.Add(ttl - ttl/100) }
