package lock

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestTasksStartedDuringWait starts a function while another goroutine waits for the first one. Wait must
// return only after both have ended, and a further round must work too.
func TestTasksStartedDuringWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all tasks
		all.Wait() // nothing is running
		for range 2 {
			var ended atomic.Int32
			all.Go(func() {
				time.Sleep(time.Second)
				all.Go(func() {
					time.Sleep(time.Second)
					ended.Add(1)
				})
				ended.Add(1)
			})
			waited := make(chan int32)
			go func() {
				all.Wait()
				waited <- ended.Load()
			}()
			if n := <-waited; n != 2 {
				t.Errorf("Wait returned after %d of 2 functions", n)
			}
		}
	})
}

// TestTasksRestartedDuringWait starts functions all the time while goroutines wait. A sync.WaitGroup
// would panic.
func TestTasksRestartedDuringWait(t *testing.T) {
	var all, waiters tasks
	for range 4 {
		waiters.Go(func() {
			for range 1000 {
				all.Wait()
			}
		})
	}
	for range 1000 {
		all.Go(func() {})
	}
	waiters.Wait()
	all.Wait()
	if all.running != 0 {
		t.Errorf("%d functions are still counted as running", all.running)
	}
}
