package lock_test

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"grablab/internal/grab/lock"
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
