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

// TestWaitsLeaveNoGoroutines checks that a process keeps no goroutine for each time that a caller has waited.
// A leak of one goroutine for each wait breaks no other property until the process runs out of memory.
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
					t.Fatalf("a lock that is taken: %v", err)
				}
			}
			for range 3 { // the first waits open connections
				wait()
			}
			before := runtime.NumGoroutine()
			for range rounds {
				wait()
			}
			for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() >= before+rounds/2; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("after %d more waits, %d goroutines run instead of %d", rounds, runtime.NumGoroutine(), before)
				}
			}
		})
	}
}
