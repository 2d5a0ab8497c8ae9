package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockThree is rueidislock with its default options. A client needs two of three keys in one
// Redis server, and the library extends them. When a key is gone, CLIENT TRACKING notifies the
// waiters and the holder. The lock ends when its acquire's context ends.
//
// The client computes from its own clock when a key expires. If this clock is behind the server's
// by more than the lease, the keys expire immediately.
var rueidislockThree = lock.Strategy{
	Name:         "rueidislock",
	Title:        "rueidislock: two of three keys in one Redis; leases are extended, waiters are notified",
	Family:       "redis",
	Source:       "https://github.com/redis/rueidis/tree/main/rueidislock#readme",
	Module:       "github.com/redis/rueidis",
	Needs:        lock.Redis | lock.RedisTracking,
	Guard:        order.Naive,
	Claims:       catalog.ClaimsOf("rueidislock"),
	Excludes:     catalog.Global,
	Waiter:       "is notified, then retries",
	Breaks:       []string{"F9", "F11", "F12", "F13", "F17", "F19", "F38", "F39", "F40"},
	Lease:        "KeyValidity (5 s by default). The library extends the lease each time half of it has passed",
	Unexplorable: "its own client uses sockets, so a search cannot control its steps",
	Fails: map[string]string{
		"unconfirmed renewals": "a single extension without a response ends the lock",
		"two processes":        "the lock ends when the acquire's context ends, before the release",
	},
	Flaky: map[string]string{
		"contention":     "a waiter needs two of three keys, so waiters with one key each block each other. On a loaded machine, none of 20 waiters got the lock for 5 s",
		"wakes a waiter": untold,
	},
	New: newRueidislock(0),
}

const untold = "a waiter retries only after a tracking message about the key. On a loaded machine, no such message arrived within 2 s of the release"

// rueidislockOne uses a single key, as the library's README recommends for a single Redis server.
var rueidislockOne = func() lock.Strategy {
	s := rueidislockThree
	s.Name, s.Title, s.New = "rueidislock-1", "rueidislock with KeyMajority 1: one key; leases are extended, waiters are notified", newRueidislock(1)
	s.Fails = maps.Clone(s.Fails)
	s.Fails["cancelled in the middle"] = handedOver
	s.Flaky = map[string]string{ // with one key, these checks fail occasionally
		"wakes a waiter": untold,
		"release once":   "an acquire fails if a command takes longer than 20 ms, the default of the option TryNextAfter. On a loaded machine, some did",
	}
	return s
}()

// newRueidislock returns a constructor for lockers with the given KeyMajority. They connect with
// the dialer of the Redis client in Env, as all other strategies do.
func newRueidislock(majority int32) func(lock.Env) (lock.Locker, error) {
	return func(env lock.Env) (lock.Locker, error) {
		var addrs []string
		var dial func(ctx context.Context, network, addr string) (net.Conn, error)
		switch client := env.Redis.(type) {
		case *redis.Client:
			addrs, dial = []string{client.Options().Addr}, client.Options().Dialer
		case *redis.ClusterClient:
			addrs, dial = client.Options().Addrs, client.Options().Dialer
		}
		var releases sync.Map
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			KeyMajority: majority,
			KeyValidity: env.TTL,
			ClientBuilder: func(options rueidis.ClientOption) (rueidis.Client, error) {
				client, err := rueidis.NewClient(options)
				return rueidisClient{client, env, &releases}, err
			},
			ClientOption: rueidis.ClientOption{
				InitAddress: addrs,
				DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
					return dial(ctx, "tcp", addr)
				},
			},
		})
		if err != nil {
			return nil, fmt.Errorf("peers: rueidislock: %w", err)
		}
		return rueidisLocker{env, l, &releases}, nil
	}
}

type rueidisLocker struct {
	env       lock.Env
	lock      rueidislock.Locker
	releasing *sync.Map // pending releases, by key
}

func (l rueidisLocker) Close() error {
	l.lock.Close()
	return nil
}

// Acquire adds no deadline to ctx, because the library would end the lock when that deadline
// passes.
func (l rueidisLocker) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	waiting, giveUp := context.WithCancel(context.WithValue(ctx, ofLease{}, true))
	acquire := l.lock.TryWithContext
	if wait := lock.WaitIn(ctx, l.env.Wait); wait > 0 {
		acquire = l.lock.WithContext
		defer time.AfterFunc(wait, giveUp).Stop()
	}
	held, release, err := acquire(waiting, key)
	if err != nil {
		defer giveUp()
		return nil, notAcquired(ctx, waiting, errors.Is(err, rueidislock.ErrNotLocked), err)
	}
	return &lease{token: l.env.Token(), lost: held.Done(), release: func(ctx context.Context) error {
		defer giveUp()
		r := &pendingRelease{ctx: ctx}
		l.releasing.Store(key, r)
		defer l.releasing.CompareAndDelete(key, r) // the next holder may have stored its own release
		err := lostIf(held.Err() != nil, held.Err())
		release() // release cannot fail
		if err == nil && r.found.Load() == 0 {
			err = lostIf(true, errNoKey)
		}
		return err
	}}, nil
}

var errNoKey = errors.New("rueidislock: the lock was already lost when it was released")

// A pendingRelease is a release that has not finished. It counts how many keys still existed,
// because the library does not report that.
type pendingRelease struct {
	ctx   context.Context
	found atomic.Int32
}

// A rueidisClient wraps the library's client. This allows Env to intercept its commands and to
// change its clock.
type rueidisClient struct {
	rueidis.Client
	env       lock.Env
	releasing *sync.Map
}

// Do runs a library script through Env.AroundRedis, and shifts the script's deadline by the clock
// error in Env. Other commands run unchanged.
func (c rueidisClient) Do(ctx context.Context, cmd rueidis.Completed) (resp rueidis.RedisResult) {
	args := slices.Clone(cmd.Commands())
	if len(args) < 6 || args[0] != "EVALSHA" && args[0] != "EVAL" {
		return c.Client.Do(ctx, cmd)
	}
	if ahead := time.Until(c.env.Now()).Round(time.Millisecond); ahead != 0 {
		if at, err := strconv.ParseInt(args[5], 10, 64); err == nil {
			args[5] = strconv.FormatInt(at+ahead.Milliseconds(), 10)
			cmd = c.Client.B().Arbitrary(args[:3]...).Keys(args[3]).Args(args[4:]...).Build().ToRetryable()
		}
	}
	sent := false
	call := func() error {
		sent, resp = true, c.Client.Do(ctx, cmd)
		return resp.Error()
	}
	whose := ctx
	r := c.releaseOf(ctx, args[3])
	if r != nil {
		whose = r.ctx
	}
	err := c.env.AroundRedis.Run(whose, args[3], call)
	if err != nil && (!sent || resp.Error() == nil) {
		return rueidis.NewErrorResult(err)
	}
	if n, err := resp.AsInt64(); err == nil && r != nil {
		r.found.Add(int32(n))
	}
	return resp
}

// ofLease is a context key that marks the commands of acquires and renewals.
type ofLease struct{}

// releaseOf returns the release to which a script belongs, or nil for a script of an acquire or a
// renewal.
func (c rueidisClient) releaseOf(ctx context.Context, redisKey string) *pendingRelease {
	_, key, _ := strings.Cut(strings.TrimPrefix(redisKey, "rueidislock:"), ":") // the lock's name follows the key number
	r, ok := c.releasing.Load(key)
	if !ok || ctx.Value(ofLease{}) != nil {
		return nil
	}
	return r.(*pendingRelease)
}
