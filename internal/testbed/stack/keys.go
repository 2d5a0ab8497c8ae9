package stack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// KeyTTLs returns the remaining TTL of every key in the Redis servers of the stack, except for keys
// that never expire.
func (s *Stack) KeyTTLs(ctx context.Context) (map[string]time.Duration, error) {
	left := map[string]time.Duration{}
	for _, addr := range append(strings.Split(s.Redis, ","), s.Redlock...) {
		if addr == "" || strings.Contains(addr, "@") { // only Sentinels know this master
			continue
		}
		if err := keyTTLs(ctx, addr, left); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// redisDatabases is the number of databases in a Redis server. A service may use any of them.
const redisDatabases = 16

// keyTTLs adds the TTLs of the keys in one server.
func keyTTLs(ctx context.Context, addr string, left map[string]time.Duration) error {
	client := newRedis(addr)
	defer client.Close()
	conn := client.Conn() // a single connection, because SELECT applies only to its own
	defer conn.Close()
	for db := range redisDatabases {
		err := conn.Select(ctx, db).Err()
		if _, refused := errors.AsType[redis.Error](err); refused && db > 0 {
			return nil // a node of a Cluster has only database 0
		}
		if err != nil {
			return err
		}
		keys := conn.Scan(ctx, 0, "", 0).Iterator()
		for keys.Next(ctx) {
			ttl, err := conn.PTTL(ctx, keys.Val()).Result()
			if err != nil {
				return err
			}
			if ttl > 0 {
				left[fmt.Sprintf("%s/%d %s", addr, db, keys.Val())] = ttl
			}
		}
		if err := keys.Err(); err != nil {
			return err
		}
	}
	return nil
}
