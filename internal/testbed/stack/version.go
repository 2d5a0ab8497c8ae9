package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"grablab/internal/catalog"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

type serverInfo struct {
	version string // such as "Redis 7.0.15"
	id      string // identifies a Redis server; empty if unknown
	cluster bool   // whether the server is a node of a Redis Cluster
}

func versions(infos []serverInfo) string {
	all := catalog.Map(infos, func(info serverInfo) string { return info.version })
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// Accepts returns nil if a server accepts connections at addr. Call it before a client that would
// otherwise wait for the server or print errors.
func Accepts(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// askRedis returns a Redis server's version, and an ID that changes on each start. The entry is the server's
// address, or NAME@ADDR if a Sentinel watches the server.
func askRedis(ctx context.Context, entry string) (serverInfo, error) {
	addr, err := resolve(ctx, entry)
	if err != nil {
		return serverInfo{}, err
	}
	text, err := infoOf(ctx, addr, "server")
	return parseInfo(text), err
}

// infoOf returns a section of the reply to INFO. If nothing listens at addr, it fails immediately.
func infoOf(ctx context.Context, addr, section string) (text string, err error) {
	client := newRedis(addr)
	defer client.Close()
	if err = Accepts(ctx, addr); err == nil {
		text, err = client.Info(ctx, section).Result()
	}
	if err != nil {
		return "", fmt.Errorf("no Redis at %s: %w", addr, err)
	}
	return text, nil
}

// watchedName returns NAME@ADDR, the form in which the -redlock flag names a master that a Sentinel
// watches.
func watchedName(master, sentinel string) string { return master + "@" + sentinel }

// resolve returns the address of a server. For NAME@ADDR, it asks the Sentinel at ADDR for the master NAME.
func resolve(ctx context.Context, entry string) (addr string, err error) {
	if master, sentinel, watched := strings.Cut(entry, "@"); watched {
		return masterOf(ctx, sentinel, master)
	}
	return entry, nil
}

func masterOf(ctx context.Context, sentinel, master string) (addr string, err error) {
	client := newSentinel(sentinel)
	defer client.Close()
	at, err := client.GetMasterAddrByName(ctx, master).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", fmt.Errorf("the Sentinel at %s watches no master with the name %q", sentinel, master)
	case err != nil:
		return "", fmt.Errorf("no Sentinel at %s: %w", sentinel, err)
	}
	return net.JoinHostPort(at[0], at[1]), nil
}

// newRedis returns a Redis client that does not retry failed requests.
func newRedis(addr string) *redis.Client { return redis.NewClient(onceTo(addr)) }

// newSentinel returns a Sentinel client that does not retry failed requests.
func newSentinel(addr string) *redis.SentinelClient { return redis.NewSentinelClient(onceTo(addr)) }

func onceTo(addr string) *redis.Options {
	return &redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// replication returns the fields of the reply to INFO replication.
func replication(ctx context.Context, addr string) (map[string]string, error) {
	text, err := infoOf(ctx, addr, "replication")
	return infoFields(text), err
}

// infoFields parses the reply to INFO, whose lines have the form NAME:VALUE.
func infoFields(text string) map[string]string {
	field := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			field[name] = value
		}
	}
	return field
}

func parseInfo(text string) serverInfo {
	field := infoFields(text)
	info := serverInfo{id: field["run_id"], cluster: field["redis_mode"] == "cluster"}
	// Prefer the Valkey version, because Valkey also reports a Redis version for compatibility.
	if v := field["valkey_version"]; v != "" {
		info.version = "Valkey " + v
	} else {
		info.version = strings.TrimSpace("Redis " + field["redis_version"])
	}
	return info
}
