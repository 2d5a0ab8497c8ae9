package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisInfo is what a server says of itself.
type redisInfo struct {
	version string // "Redis 7.0.15"
	runID   string
	pid     string
}

// askRedis asks once, and does not wait for a server that is not there yet.
func askRedis(ctx context.Context, addr string) (redisInfo, error) {
	// go-redis prints what it cannot dial, which is no news here.
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return redisInfo{}, fmt.Errorf("no Redis at %s: %w", addr, err)
	}
	conn.Close()

	client := newRedis(addr)
	defer client.Close()
	text, err := client.Info(ctx, "server").Result()
	if err != nil {
		return redisInfo{}, fmt.Errorf("no Redis at %s: %w", addr, err)
	}
	return parseInfo(text), nil
}

// watched is the address of a Redis that a Sentinel knows by name, as an entry
// of -redlock gives it.
func watched(master, sentinel string) string { return master + "@" + sentinel }

// askNode asks a Redis at its address, or the one that a Sentinel names.
func askNode(ctx context.Context, entry string) (redisInfo, error) {
	master, sentinel, ok := strings.Cut(entry, "@")
	if !ok {
		return askRedis(ctx, entry)
	}
	addr, err := masterOf(ctx, sentinel, master)
	if err != nil {
		return redisInfo{}, err
	}
	return askRedis(ctx, addr)
}

// masterOf asks a Sentinel who the master of that name is.
func masterOf(ctx context.Context, sentinel, master string) (addr string, err error) {
	client := newSentinel(sentinel)
	defer client.Close()
	at, err := client.GetMasterAddrByName(ctx, master).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", fmt.Errorf("the Sentinel at %s watches no master %q", sentinel, master)
	case err != nil:
		return "", fmt.Errorf("no Sentinel at %s: %w", sentinel, err)
	}
	return net.JoinHostPort(at[0], at[1]), nil
}

// newRedis is a client that tries once.
func newRedis(addr string) *redis.Client { return redis.NewClient(onceTo(addr)) }

// newSentinel is such a client of a Sentinel.
func newSentinel(addr string) *redis.SentinelClient { return redis.NewSentinelClient(onceTo(addr)) }

func onceTo(addr string) *redis.Options {
	return &redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// infoFields are the lines of an answer to INFO.
func infoFields(text string) map[string]string {
	field := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			field[name] = value
		}
	}
	return field
}

func parseInfo(text string) redisInfo {
	field := infoFields(text)
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
