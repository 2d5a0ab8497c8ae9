package stack

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"

	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// RedisOptions reads an address as every part of the project takes it:
// host:port, or a redis:// URL where a password or TLS is needed.
func RedisOptions(addr string) (*redis.Options, error) {
	if !strings.Contains(addr, "://") {
		return &redis.Options{Addr: addr}, nil
	}
	opts, err := redis.ParseURL(addr)
	if err != nil {
		return nil, fmt.Errorf("stack: bad Redis address: %w", err)
	}
	return opts, nil
}

// redisInfo is what a server says of itself.
type redisInfo struct {
	version string // "Redis 7.0.15"
	runID   string
	pid     string
}

// askRedis asks once, and does not wait for a server that is not there yet.
func askRedis(ctx context.Context, addr string) (redisInfo, error) {
	opts, err := RedisOptions(addr)
	if err != nil {
		return redisInfo{}, err
	}
	// go-redis prints what it cannot dial, which is no news here.
	conn, err := new(net.Dialer).DialContext(ctx, cmp.Or(opts.Network, "tcp"), opts.Addr)
	if err != nil {
		return redisInfo{}, fmt.Errorf("Redis at %s: %w", opts.Addr, err)
	}
	conn.Close()

	opts.MaxRetries, opts.DialerRetries = -1, 1
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(opts)
	defer client.Close()
	text, err := client.Info(ctx, "server").Result()
	if err != nil {
		return redisInfo{}, fmt.Errorf("Redis at %s: %w", opts.Addr, err)
	}
	return parseInfo(text), nil
}

func parseInfo(text string) redisInfo {
	field := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			field[name] = value
		}
	}
	info := redisInfo{runID: field["run_id"], pid: field["process_id"]}
	// Valkey says a Redis version too, for the clients that ask for one.
	if v := field["valkey_version"]; v != "" {
		info.version = "Valkey " + v
	} else {
		info.version = strings.TrimSpace("Redis " + field["redis_version"])
	}
	return info
}

// databaseVersion asks the database of dsn once what it is.
func databaseVersion(ctx context.Context, dsn string) (string, error) {
	db, err := order.Connect(ctx, dsn, order.Options{MaxConns: 1})
	if err != nil {
		return "", err
	}
	defer db.Close()
	return db.Version(ctx)
}
