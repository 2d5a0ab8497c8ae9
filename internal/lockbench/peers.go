package lockbench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"grablab/internal/grab/lock"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// peers are the libraries that one would take instead, each as it comes, and
// those that poll with retries of 5 ms beside it. On what they do not set
// themselves they are given what our own have.
var peers = []Contestant{
	{Name: "redsync", Title: "go-redsync, one node, its defaults: retries after 50 to 250 ms", Peer: true, Needs: lock.Redis, Excludes: lock.Global, open: openRedsync()},
	{Name: "redsync-5ms", Title: "go-redsync, one node, retries after 5 ms", Peer: true, Needs: lock.Redis, Excludes: lock.Global,
		open: openRedsync(redsync.WithRetryDelay(shortDelay), redsync.WithTries(int(peerPatience/shortDelay)))},
	{Name: "redislock", Title: "bsm/redislock, its defaults: no retry, so it is called again at once", Peer: true, Needs: lock.Redis, Excludes: lock.Global, open: openRedislock(nil)},
	{Name: "redislock-5ms", Title: "bsm/redislock, retries after 5 ms", Peer: true, Needs: lock.Redis, Excludes: lock.Global,
		open: openRedislock(func() redislock.RetryStrategy { return redislock.LinearBackoff(shortDelay) })},
	{Name: "rueidislock", Title: "rueidislock, its defaults: two of three keys", Peer: true, Needs: lock.Redis, Excludes: lock.Global, open: openRueidislock(0)},
	{Name: "rueidislock-1", Title: "rueidislock, KeyMajority 1", Peer: true, Needs: lock.Redis, Excludes: lock.Global, open: openRueidislock(1)},
	etcdMutex,
}

const (
	shortDelay   = 5 * time.Millisecond
	peerPatience = 10 * time.Second
)

func openRedsync(options ...redsync.Option) func(tools) (contender, error) {
	return func(t tools) (contender, error) {
		sync := redsync.New(goredis.NewPool(t.Redis))
		take := func(ctx context.Context, key string) (release, error) {
			m := sync.NewMutex(key, options...)
			if err := m.LockContext(ctx); err != nil {
				return nil, busyIf(err, isRedsyncTaken(err))
			}
			return func(ctx context.Context) error {
				_, err := m.UnlockContext(ctx)
				return err
			}, nil
		}
		return contender{take: take, close: func() error { return nil }}, nil
	}
}

// isRedsyncTaken: after its last try redsync says how many nodes were taken.
func isRedsyncTaken(err error) bool {
	var taken *redsync.ErrTaken
	return errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken)
}

func openRedislock(retry func() redislock.RetryStrategy) func(tools) (contender, error) {
	return func(t tools) (contender, error) {
		client := redislock.New(t.Redis)
		take := func(ctx context.Context, key string) (release, error) {
			var opts redislock.Options
			if retry != nil {
				opts.RetryStrategy = retry()
			}
			l, err := client.Obtain(ctx, key, t.TTL, &opts)
			if err != nil {
				return nil, busyIf(err, errors.Is(err, redislock.ErrNotObtained))
			}
			return l.Release, nil
		}
		return contender{take: take, close: func() error { return nil }}, nil
	}
}

// openRueidislock has a client of its own, for the lock comes with one. A
// majority of 0 is its default.
func openRueidislock(majority int32) func(tools) (contender, error) {
	return func(t tools) (contender, error) {
		addrs := t.servers.Sentinel
		if t.servers.Redis != "" {
			addrs = []string{t.servers.Redis}
		}
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			KeyMajority: majority,
			ClientOption: rueidis.ClientOption{
				InitAddress: addrs,
				Sentinel:    rueidis.SentinelOption{MasterSet: t.servers.SentinelMaster},
				DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
					return t.counted(d.DialContext)(ctx, "tcp", addr)
				},
			},
		})
		if err != nil {
			return contender{}, fmt.Errorf("lockbench: rueidislock: %w", err)
		}
		take := func(ctx context.Context, key string) (release, error) {
			_, cancel, err := locker.WithContext(ctx, key)
			if err != nil {
				return nil, err
			}
			// It returns once the keys are gone, and cannot fail.
			return func(context.Context) error { cancel(); return nil }, nil
		}
		return contender{take: take, close: func() error { locker.Close(); return nil }}, nil
	}
}

// busyIf turns the errors that say that the lock was not free into the one.
func busyIf(err error, busy bool) error {
	if busy {
		return fmt.Errorf("%w: %w", lock.ErrBusy, err)
	}
	return err
}
