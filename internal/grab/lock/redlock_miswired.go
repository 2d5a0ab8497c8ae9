package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"grablab/internal/catalog"
)

// redlockMiswired is a Redlock of three locks, two of which are on the same node by mistake. If
// that node loses its data, the majority is lost, and two clients can hold the lock.
var redlockMiswired = variant(redlock, Strategy{
	Name:   "redlock-miswired",
	Title:  "three re-entrant locks, two of them on the same node",
	Source: "the source articles: Redisson example",
	// A fault on one node affects two of the three locks, because they are on the same node.
	Claims: catalog.ClaimsOf("miswired"),
	Breaks: []string{"F11", "F13", "F15", "F20", "F41"},
	// Its leases make no allowance for drift, and a call waits for all three locks.
	Promises: Promises{InOrder: catalog.PerProcess, Patience: 1.0 / redlockShare},
	New: func(env Env) (Locker, error) {
		if len(env.Redlock) < 2 {
			return nil, fmt.Errorf("lock: redlock-miswired needs 2 nodes, but there are %d", len(env.Redlock))
		}
		one, two := env.Redlock[0], env.Redlock[1]
		return &miswiredLocker{env: env, nodes: [...]redis.UniversalClient{one, one, two}}, nil
	},
})

const miswiredQuorum = 2

type miswiredLocker struct {
	env      Env
	nodes    [3]redis.UniversalClient
	queue    keyedMutex
	renewers renewers
}

func (l *miswiredLocker) Acquire(ctx context.Context, key string) (lease Lease, err error) {
	wait, unlock, err := l.queue.lockToWait(ctx, key, l.env.wait(ctx))
	if err != nil {
		return nil, err
	}
	defer unlock()
	err = poll(ctx, wait, redlockBackoff, l.env.Rand, func() (ok bool, err error) {
		lease, err = l.try(ctx, key)
		if errors.Is(err, ErrBusy) {
			return false, nil
		}
		return err == nil, err
	})
	return lease, err
}

func (l *miswiredLocker) Close() error {
	l.renewers.close()
	return nil
}

// A miswiredLease has an entry in each of the three locks.
type miswiredLease struct {
	*renewer
	token   string
	entries []entry
}

// try tries once to acquire the lock at all nodes. If it cannot, it removes its entries again.
func (l *miswiredLocker) try(ctx context.Context, key string) (Lease, error) {
	lease := &miswiredLease{token: l.env.Token()}
	for i, node := range l.nodes {
		lease.entries = append(lease.entries, entry{node, l.env.TTL, oneKey(key), lease.token, fmt.Sprintf("%s/%d", lease.token, i)})
	}
	end := time.Now().Add(l.env.TTL)
	err := lease.ask(ctx, ErrBusy, func(e entry, ctx context.Context) error {
		left, _, err := e.enter(ctx)
		if err == nil && left > 0 {
			return ErrBusy
		}
		return err
	})
	if err == nil && ctx.Err() == nil && time.Now().Before(end) {
		lease.renewer = l.renewers.start(ctx, end, l.env.TTL, lease.renew)
		return lease, nil
	}
	for _, e := range lease.entries {
		cleanUp(ctx, e.leave)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err == nil: // all locks were granted, but too late
		return nil, ErrBusy
	default:
		return nil, err
	}
}

func (l *miswiredLease) renew(ctx context.Context) (time.Time, error) {
	end := time.Now().Add(l.entries[0].ttl)
	return end, l.ask(ctx, ErrLost, func(e entry, ctx context.Context) error {
		_, err := e.renew(ctx)
		return err
	})
}

func (l *miswiredLease) Token() string { return l.token }
func (l *miswiredLease) Fence() uint64 { return 0 }

func (l *miswiredLease) Release(ctx context.Context) error {
	l.stop()
	return l.ask(ctx, ErrLost, entry.leave)
}

// ask sends a request to all three locks. It returns nil if a majority succeeds. If so many
// requests fail with the error no that a majority is impossible, ask returns no. Otherwise, it
// returns errNoQuorum.
func (l *miswiredLease) ask(ctx context.Context, no error, do func(entry, context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, min(redlockTimeout, l.entries[0].ttl/redlockShare))
	defer cancel()
	answers := make([]error, len(l.entries))
	var asking sync.WaitGroup
	for i, e := range l.entries {
		asking.Go(func() { answers[i] = do(e, ctx) })
	}
	asking.Wait()

	yes, refused := 0, 0
	for _, err := range answers {
		if err == nil {
			yes++
		} else if errors.Is(err, no) {
			refused++
		}
	}
	switch {
	case yes >= miswiredQuorum:
		return nil
	case refused > len(l.entries)-miswiredQuorum:
		return no
	default:
		return fmt.Errorf("%w: %v", errNoQuorum, errors.Join(answers...))
	}
}
