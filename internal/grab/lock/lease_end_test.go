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

// TestLeaseEndsWithItsKey checks that a lease that knows its end ends when the servers delete its key, or
// up to 2 % of the TTL before. If the key never expires, the lease must have no end.
func TestLeaseEndsWithItsKey(t *testing.T) {
	for _, st := range lock.Strategies {
		// The value of the key of setnx-getset contains the end of the lease, but the key never expires.
		if !st.OutlivesHolder() || st.Needs&lock.SQL != 0 || st.Name == "setnx-getset" {
			continue
		}
		t.Run(st.Name, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				lease, ok := s.actor(st.Name).lock().(lock.Bounded)
				if !ok {
					return
				}
				keys := 0
				for range 3 { // the last time, the lease has been renewed if the lock renews its leases
					for i, node := range s.nodes {
						if !node.Exists(theKey) {
							continue
						}
						keys++
						until, left := lease.Until(), node.TTL(theKey) // left is 0 if the key never expires
						early := time.Now().Add(left).Sub(until)
						if until.IsZero() != (left == 0) || left > 0 && (early < 0 || early > simulatedTTL/50) {
							s.Errorf("node %d keeps the key for %v, but the lease ends in %v", i+1, left, time.Until(until))
						}
					}
					time.Sleep(simulatedTTL / 4)
				}
				if keys < 3 {
					s.Errorf("found the key only %d times", keys)
				}
			})
		})
	}
}
