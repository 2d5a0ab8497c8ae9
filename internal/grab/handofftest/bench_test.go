package handoff_test

import (
	"context"
	"os"
	"testing"
	"time"

	"grablab/handoff"

	"github.com/redis/go-redis/v9"
)

// BenchmarkUncontended compares an acquire and its release with two PINGs on the same client. It
// needs the address of a Redis in HANDOFF_REDIS.
func BenchmarkUncontended(b *testing.B) {
	addr := os.Getenv("HANDOFF_REDIS")
	if addr == "" {
		b.Skip("set HANDOFF_REDIS to the address of a Redis server")
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	l, err := handoff.New(client, handoff.Options{TTL: 30 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	ctx := context.Background()
	b.Run("pings", func(b *testing.B) {
		for b.Loop() {
			client.Ping(ctx)
			client.Ping(ctx)
		}
	})
	b.Run("handoff", func(b *testing.B) {
		for b.Loop() {
			lease, err := l.Acquire(ctx, "bench:{1}")
			if err == nil {
				err = lease.Release(ctx)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
