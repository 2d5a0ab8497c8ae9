package stack

import (
	"context"
	"strings"
	"time"
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

func keyTTLs(ctx context.Context, addr string, left map[string]time.Duration) error {
	client := newRedis(addr)
	defer client.Close()
	keys := client.Scan(ctx, 0, "", 0).Iterator()
	for keys.Next(ctx) {
		ttl, err := client.PTTL(ctx, keys.Val()).Result()
		if err != nil {
			return err
		}
		if ttl > 0 {
			left[addr+" "+keys.Val()] = ttl
		}
	}
	return keys.Err()
}
