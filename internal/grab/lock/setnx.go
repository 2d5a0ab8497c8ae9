package lock

import (
	"context"
	_ "embed"
	"time"

	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// setnx is one key with an expiry: SET key token NX PX ttl, and a release that
// compares the token. It is as right as a lock in one Redis without renewal
// gets. A locks and pauses for longer than the TTL, B locks and writes, A wakes
// and writes (F11); and the key dies with a Redis that forgets it (F17).
var setnx = Strategy{
	Name:   "setnx",
	Title:  "SET NX PX, released by compare-and-delete",
	Family: "redis",
	Source: "redis.io: SET, “Patterns”",
	Needs:  Redis,
	Guard:  order.Naive,
	Expect: map[Fault]Verdict{
		Slow:         Unsafe, // the lease ends before the work does
		Pause:        Unsafe,
		RedisRestart: Unsafe,
		Failover:     Unsafe,
		Partition:    Unsafe, // the holder cannot know, and goes on past its lease
		PartitionDB:  Unsafe, // its claim arrives after its lease
		NodeClock:    Unsafe,
	},
	Excludes: Global,
	Survives: []Fault{NoFault, Crash, ClientClock},
	Breaks:   []string{"F11", "F17"},
	New: func(env Env) (Locker, error) {
		if err := needRedis(env); err != nil {
			return nil, err
		}
		return &setnxLocker{env}, nil
	},
}

// setnxPace: nobody tells a waiter that the lock is free, so it asks.
var setnxPace = pace{first: 2 * time.Millisecond, most: 50 * time.Millisecond}

//go:embed setnx_release.lua
var setnxReleaseLua string

var setnxRelease = redis.NewScript(setnxReleaseLua)

type setnxLocker struct{ env Env }

func (l *setnxLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease := &setnxLease{env: &l.env, key: key, token: l.env.Token()}
	err := poll(ctx, l.env.Wait, setnxPace, l.env.Rand, func() (bool, error) { return lease.try(ctx) })
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func (l *setnxLocker) Close() error { return nil }

type setnxLease struct {
	env        *Env
	key, token string
}

// try is true if the lock is ours from now on. A key that may have been set for
// nobody is removed: because the reply got lost, because whoever asked has gone,
// or because the reply took longer than the lease lives (F12). Should the SET
// arrive after even that, the key stays for one TTL.
func (l *setnxLease) try(ctx context.Context) (bool, error) {
	sent := time.Now()
	ok, err := l.env.Redis.SetNX(ctx, l.key, l.token, l.env.TTL).Result()
	if err == nil && !ok {
		return false, nil
	}
	if err == nil && ctx.Err() == nil && time.Since(sent) < l.env.TTL {
		return true, nil
	}
	l.undo(ctx)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return false, err
}

// undo takes a new token for what is tried next, which a late undoing must not
// hit. It may fail: the expiry is the second line.
func (l *setnxLease) undo(ctx context.Context) {
	ctx, cancel := undoing(ctx)
	defer cancel()
	_ = l.Release(ctx)
	l.token = l.env.Token()
}

func (l *setnxLease) Token() string         { return l.token }
func (l *setnxLease) Fence() uint64         { return 0 }
func (l *setnxLease) Lost() <-chan struct{} { return nil }

func (l *setnxLease) Release(ctx context.Context) error {
	released, err := setnxRelease.Run(ctx, l.env.Redis, []string{l.key}, l.token).Int()
	if err == nil && released == 0 {
		return ErrLost
	}
	return err
}
