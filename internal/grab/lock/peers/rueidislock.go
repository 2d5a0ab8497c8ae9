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
// client in Env: to the same server or Cluster, and counted as that client is; behind
// Sentinel that dialer goes to the master, whatever address it is asked for.
func newRueidislock(majority int32) func(lock.Env) (lock.Locker, error) {
	return func(env lock.Env) (lock.Locker, error) {
		var addrs []string
		var dial func(ctx context.Context, network, addr string) (net.Conn, error)
		switch client := env.Redis.(type) {
		case *redis.Client:
			addrs, dial = []string{client.Options().Addr}, client.Options().Dialer
		case *redis.ClusterClient:
			addrs, dial = client.Options().Addrs, client.Options().Dialer
		default:
			return nil, errors.New("peers: rueidislock needs a single Redis, a Sentinel or a Cluster")
		}
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			KeyMajority: majority,
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
