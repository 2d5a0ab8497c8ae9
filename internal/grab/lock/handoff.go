package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

var handoff = Strategy{
	Name:   "handoff",
	Title:  "first come, first served: a release hands on and wakes the next",
	Family: "redis",
	Source: "our own",
	Needs:  Redis,
	Guard:  order.Fenced,
	Fences: true,
	Expect: map[Fault]Verdict{
		Hang: Stuck,
	},
	Excludes: Global,
	Survives: []Fault{NoFault, Slow, Crash, PartitionDB, ClientClock, DBRestart},
	Breaks:   []string{"F15", "F17"},
	New:      newHandoff,
}

const (
	// A waiter makes sure of its place so often, or three times a TTL: what a
	// wake-up costs that was lost.
	handoffPoll = time.Second
	// A queue outlives the last who joined or checked it for so long.
	handoffKeep = time.Minute
)

var (
	errHandoffRing = errors.New("lock: handoff needs one Redis, a Cluster or a Sentinel; a Ring publishes where nobody listens")
	errClosed      = errors.New("lock: closed")
)

// handoffLocker is one process's side of the lock: everything that it holds or
// waits for, by number.
type handoffLocker struct {
	env   Env
	id    string        // of this locker, part of every name that it leaves in Redis
	ttl   any           // of its leases, in ms, as an argument
	check time.Duration // how often a waiter makes sure of its place

	closing chan struct{}
	running sync.WaitGroup
	nudged  chan struct{} // one slot: the minder is to look at the alarm again

	mu     sync.Mutex // never held across anything that waits
	closed bool
	count  uint64
	places map[uint64]*place
	lines  map[string]*line // by address; "" where there is but one Redis
	alarm  time.Time        // when the minder looks at the places again; zero: not before it is nudged
}

func newHandoff(env Env) (Locker, error) {
	if err := needRedis(env); err != nil {
		return nil, err
	}
	if _, ok := env.Redis.(*redis.Ring); ok {
		return nil, errHandoffRing
	}
	l := &handoffLocker{
		env:     env,
		id:      env.Token(),
		ttl:     env.TTL.Milliseconds(),
		check:   min(env.TTL/3, handoffPoll),
		closing: make(chan struct{}),
		nudged:  make(chan struct{}, 1),
		places:  map[uint64]*place{},
		lines:   map[string]*line{},
	}
	l.running.Go(l.mind)
	return l, nil
}

// Acquire is one round trip if the lock is free.
func (l *handoffLocker) Acquire(ctx context.Context, key string) (Lease, error) {
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
func (l *handoffLocker) Raise(ctx context.Context, key string, fence uint64) error {
	if err := handoffRaise.run(ctx, l.env.Redis, handoffKeys(key), fence).Err(); err != nil {
		return fmt.Errorf("lock: raise %s: %w", key, err)
	}
	return nil
}

// Close leaves the lines and ends the renewals.
func (l *handoffLocker) Close() error {
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
func (l *handoffLocker) enter(ctx context.Context, key string) *place {
	p := &place{
		handoffLocker: l, ctx: context.WithoutCancel(ctx),
		key: key, keys: handoffKeys(key), wake: make(chan wakeup, 1),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	p.number = l.count
	l.places[p.number] = p
	return p
}

func (l *handoffLocker) forget(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.places, p.number)
}

// nodeOf returns the node that has key. On a Cluster a line must go to that
// very one: PUBLISH counts only who listens on its own node.
func (l *handoffLocker) nodeOf(ctx context.Context, key string) (client redis.UniversalClient, addr string, err error) {
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
func (l *handoffLocker) lineTo(client redis.UniversalClient, addr string) *line {
	n, ok := l.lines[addr]
	if !ok {
		n = newLine(l, client, addr)
		l.lines[addr] = n
	}
	return n
}

// deliver takes a wake-up to whom it is for. One that nobody waits for came to
// a lease that was handed to somebody who had left: it is handed on.
func (l *handoffLocker) deliver(payload string) {
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
func (l *handoffLocker) placeNamed(name string) *place {
	number, _ := placeOf(name)
	if p, ok := l.places[number]; ok && p.name == name {
		return p
	}
	return nil
}

// handOn is called with mu held.
func (l *handoffLocker) handOn(key, name string) {
	if l.closed {
		return
	}
	l.running.Go(func() {
		ctx, cancel := undoing(context.Background())
		defer cancel()
		_ = handoffLeave.run(ctx, l.env.Redis, handoffKeys(key), name).Err() // the expiry is the second line
	})
}

// handoffEnd is when a lease must be given up that cannot have begun before
// since: a hundredth before its time, for clocks run at slightly different rates.
func handoffEnd(since time.Time, ttl time.Duration) time.Time { return since.Add(ttl - ttl/100) }
