package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"grablab/internal/grab/lock"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// newRueidislock needs so many of a lock's keys; 0: the library's default. The
// library comes with a client of its own. It connects through the dialer of the
// client in Env: to the same server, and counted as that client is; behind
// Sentinel that dialer goes to the master, whatever address it is asked for.
func newRueidislock(majority int32) func(lock.Env) (lock.Locker, error) {
	return func(env lock.Env) (lock.Locker, error) {
		client, ok := env.Redis.(*redis.Client)
		if !ok {
			return nil, errors.New("peers: rueidislock needs a single Redis")
		}
		opts := client.Options()
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			KeyMajority: majority,
			ClientOption: rueidis.ClientOption{
				InitAddress: []string{opts.Addr},
				DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
					return opts.Dialer(ctx, "tcp", addr)
				},
			},
		})
		if err != nil {
			return nil, fmt.Errorf("peers: rueidislock: %w", err)
		}
		return locker{
			acquire: func(ctx context.Context, key string) (func(context.Context) error, error) {
				_, cancel, err := l.WithContext(ctx, key)
				// cancel returns once the keys are gone, and cannot fail.
				return func(context.Context) error { cancel(); return nil }, err
			},
			close: func() error { l.Close(); return nil },
		}, nil
	}
}
