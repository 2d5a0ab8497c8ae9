package stack

import (
	"context"
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
		for db := range redisDatabases {
			if err := keyTTLs(ctx, addr, db, left); err != nil {
				return nil, err
			}
		}
	}
	return left, nil
}

// redisDatabases is the number of databases in a Redis server. A service may use any of them.
const redisDatabases = 16

func keyTTLs(ctx context.Context, addr string, db int, left map[string]time.Duration) error {
	options := onceTo(addr)
	options.DB = db
	client := redis.NewClient(options)
	defer client.Close()
	keys := client.Scan(ctx, 0, "", 0).Iterator()
	for keys.Next(ctx) {
		ttl, err := client.PTTL(ctx, keys.Val()).Result()
		if err != nil {
			return err
		}
		if ttl > 0 {
			left[fmt.Sprintf("%s/%d %s", addr, db, keys.Val())] = ttl
		}
	}
	return keys.Err()
}
