package lock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/tap/redishook"
	"grablab/internal/testbed/conformtest"

	"github.com/redis/go-redis/v9"
)

// TestLeaseEndsByTheRequest delays the processing of every reply, for each Redis lock that knows when
// its lease ends. The TTL must count from the request, both for the grant and for a renewal. A lease
// must therefore end within one TTL after the latest reply arrived.
func TestLeaseEndsByTheRequest(t *testing.T) {
	const ttl, delay = 6 * time.Second, 50 * time.Millisecond
	bounded := 0
	var mu sync.Mutex
	t.Run("", func(t *testing.T) {
		for _, s := range lock.Strategies {
			if s.Needs&^(lock.Redis|lock.RedisQuorum) != 0 || s.Needs == 0 {
				continue
			}
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				var clients []redis.UniversalClient
				var replied time.Time // when the latest reply arrived
				late := redishook.Hook(func(ctx context.Context, _ []redis.Cmder, send func(context.Context) error) error {
					err := send(ctx)
					mu.Lock()
					replied = time.Now()
					mu.Unlock()
					time.Sleep(delay)
					return err
				})
				for _, addr := range embedded(t) {
					c := conformtest.NewClient(addr)
					defer c.Close()
					c.AddHook(late)
					clients = append(clients, c)
				}
				env := conformtest.EnvOf(clients[0], clients[1:]...)
				env.TTL = ttl
				locker, err := s.New(env)
				if err != nil {
					t.Fatal(err)
				}
				defer locker.Close()
				lease, err := locker.Acquire(t.Context(), "grab:end:{1}")
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = lease.Release(t.Context()) }()
				b, ok := lease.(lock.Bounded)
				if !ok || b.Until().IsZero() {
					return
				}
				check := func(end time.Time) {
					mu.Lock()
					defer mu.Unlock()
					bounded++
					if latest := replied.Add(ttl); end.After(latest) {
						t.Errorf("the lease ends %s later than one TTL after the latest reply", end.Sub(latest))
					}
				}
				first := b.Until()
				check(first)
				// Wait for a renewal, if the lock renews its lease.
				for until := time.Now().Add(ttl * 2 / 5); time.Now().Before(until); time.Sleep(delay / 10) {
					if end := b.Until(); !end.Equal(first) {
						check(end)
						break
					}
				}
			})
		}
	})
	if bounded < 5 {
		t.Errorf("only %d ends of leases were checked", bounded)
	}
}
