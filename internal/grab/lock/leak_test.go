package lock_test

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/testbed/conformtest"

	"github.com/alicebob/miniredis/v2"
)

// TestWaitsLeaveNoGoroutines checks that waiting for a lock leaks no goroutine. No other test would
// notice such a leak before the process runs out of memory.
func TestWaitsLeaveNoGoroutines(t *testing.T) {
	const rounds = 20
	for _, s := range slices.Concat(lock.Strategies, lock.Peers) {
		if s.Needs != lock.Redis {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			client := conformtest.NewClient(miniredis.RunT(t).Addr())
			defer client.Close()
			env := conformtest.EnvOf(client)
			env.TTL, env.Wait = time.Hour, 10*time.Millisecond
			holder, waiter := start(t, s.Name, env), start(t, s.Name, env)
			mustAcquire(t, t.Context(), holder, "k")
			wait := func() {
				if _, err := waiter.Acquire(t.Context(), "k"); !errors.Is(err, lock.ErrBusy) {
					t.Fatalf("a taken lock: %v", err)
				}
			}
			for range 3 { // the first few waits open connections
				wait()
			}
			before := runtime.NumGoroutine()
			for range rounds {
				wait()
			}
			for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() >= before+rounds/2; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("after %d more waits, %d goroutines are running, want %d", rounds, runtime.NumGoroutine(), before)
				}
			}
		})
	}
}

// TestNothingStaysForever kills the processes before each command of each operation on a lock. Two
// days later, all keys of the lock must have expired, including its queue, counter and stock.
// Otherwise, the locks of old orders would fill the server's memory.
func TestNothingStaysForever(t *testing.T) {
	operations := []struct {
		name string
		run  func(a, b *actor)
	}{
		{"acquire", func(a, _ *actor) { _, _ = a.Acquire(a.s.Context(), theKey) }},
		{"wait", func(a, b *actor) {
			_, _ = b.Acquire(b.s.Context(), theKey)
			_, _ = a.Acquire(a.s.Context(), theKey)
		}},
		{"release", func(a, _ *actor) {
			if lease, err := a.Acquire(a.s.Context(), theKey); err == nil {
				_ = lease.Release(a.s.Context())
			}
		}},
		{"raise", func(a, _ *actor) {
			if r, ok := a.Locker.(lock.FenceRaiser); ok {
				_ = r.RaiseFence(a.s.Context(), theKey, 41)
			}
		}},
	}
	// The keys of setnx-nottl and setnx-getset never expire. redlock-miswired uses the same commands
	// as redlock.
	leftOut := []string{"setnx-nottl", "setnx-getset", "redlock-miswired"}
	for _, st := range lock.Strategies {
		if !st.OutlivesHolder() || slices.Contains(leftOut, st.Name) {
			continue
		}
		t.Run(st.Name, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				orders := new(order.Mem)
				if _, err := orders.Create(s.Context(), 7, 3); err != nil {
					s.Fatal(err)
				}
				change := func(e *lock.Env) { e.Orders, e.Wait = orders, time.Second }
				for _, op := range operations {
					for n, sent := 1, 0; sent >= n-1; n++ { // stop once the operation sends fewer than n commands
						a, b := s.actor(st.Name, change), s.actor(st.Name, change)
						a.diesBefore(n)
						sent = a.sent(func() { op.run(a, b) })
						for _, dies := range []*actor{a, b} {
							dies.cut(true)
							_ = dies.Close() // releases nothing
						}
						time.Sleep(49 * time.Hour)
						for i, node := range s.nodes {
							keys := node.Keys()
							if st.Name == "setnx-expire" && n == 2 {
								keys = nil // the process died between SETNX and EXPIRE
							}
							if len(keys) > 0 {
								s.Errorf("%s, death before command %d: node %d keeps %v", op.name, n, i+1, keys)
							}
						}
						s.forget(0, 1, 2)
					}
				}
			})
		})
	}
}
