package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeyedMutex checks that a key has one holder at a time, serves waiters in order of arrival,
// and is deleted once it is unused.
func TestKeyedMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m keyedMutex
		var order []int
		unlock, err := m.lock(t.Context(), "a", 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			go func() {
				unlock, err := m.lock(t.Context(), "a", time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				unlock()
			}()
			synctest.Wait()
		}
		if _, err := m.lock(t.Context(), "a", time.Second); !errors.Is(err, ErrBusy) {
			t.Errorf("%v, want busy", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.lock(ctx, "a", time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the context's error", err)
		}
		other, err := m.lock(t.Context(), "b", 0)
		if err != nil {
			t.Errorf("another key: %v", err)
		}
		other()
		unlock()
		synctest.Wait()
		if fmt.Sprint(order) != "[0 1 2 3 4]" {
			t.Errorf("locked in the order %v", order)
		}
		if len(m.byKey) != 0 {
			t.Errorf("%d keys are still stored", len(m.byKey))
		}
	})
}

// TestKeyedMutexKeepsItsWaiters checks that a key with a waiter survives its holder's unlock.
// Otherwise, the next client would get a second mutex for the same key.
func TestKeyedMutexKeepsItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m keyedMutex
		unlock, err := m.lock(t.Context(), "a", 0)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			unlock, err := m.lock(t.Context(), "a", time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Second)
			unlock()
		}()
		synctest.Wait()
		unlock()
		synctest.Wait()
		if _, err := m.lock(t.Context(), "a", 0); !errors.Is(err, ErrBusy) {
			t.Errorf("while the waiter holds the mutex: %v, want busy", err)
		}
		time.Sleep(2 * time.Second)
	})
}

// TestLockToWait checks that time in the local queue counts towards the wait, and that a client
// that tries only once skips the queue.
func TestLockToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m keyedMutex
		unlock, err := m.lock(t.Context(), "a", 0)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(10*time.Second, unlock)
		if left, _, err := m.lockToWait(t.Context(), "a", 0); left != 0 || err != nil {
			t.Errorf("trying only once: %v left, %v", left, err)
		}
		left, unlock, err := m.lockToWait(t.Context(), "a", time.Minute)
		if left != 50*time.Second || err != nil {
			t.Errorf("after 10s, %v of a minute is left, %v", left, err)
		}
		unlock()
	})
}

// TestMutexIsPerLocker checks that two lockers behave like two processes (F2).
func TestMutexIsPerLocker(t *testing.T) {
	env := Env{Token: func() string { return "t" }}
	for range 2 {
		locker, err := mutex.New(env)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locker.Acquire(t.Context(), "a"); err != nil {
			t.Errorf("a separate locker: %v", err)
		}
		if _, err := locker.Acquire(t.Context(), "a"); !errors.Is(err, ErrBusy) {
			t.Errorf("the same locker again: %v, want busy", err)
		}
	}
}
