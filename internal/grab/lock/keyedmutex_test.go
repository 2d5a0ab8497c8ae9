package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeyedMutex: one holder at a time, waiters in the order of arrival, and a key
// is forgotten when no client uses it.
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
			t.Errorf("%d keys are remembered", len(m.byKey))
		}
	})
}

// A key that a client still waits for is not forgotten when its holder goes: who comes
// then would get a mutex of its own.
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
			t.Errorf("beside the waiter that has it now: %v, want busy", err)
		}
		time.Sleep(2 * time.Second)
	})
}

// The time in the queue is part of the wait; a client that tries once does not queue.
func TestLockToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m keyedMutex
		unlock, err := m.lock(t.Context(), "a", 0)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(10*time.Second, unlock)
		if left, _, err := m.lockToWait(t.Context(), "a", 0); left != 0 || err != nil {
			t.Errorf("trying once: %v left, %v", left, err)
		}
		left, unlock, err := m.lockToWait(t.Context(), "a", time.Minute)
		if left != 50*time.Second || err != nil {
			t.Errorf("%v left of a minute after 10s, %v", left, err)
		}
		unlock()
	})
}

// TestMutexIsPerLocker: two lockers behave as two processes (F2).
func TestMutexIsPerLocker(t *testing.T) {
	env := Env{Token: func() string { return "t" }}
	for range 2 {
		locker, err := mutex.New(env)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locker.Acquire(t.Context(), "a"); err != nil {
			t.Errorf("a locker of its own: %v", err)
		}
		if _, err := locker.Acquire(t.Context(), "a"); !errors.Is(err, ErrBusy) {
			t.Errorf("the same locker again: %v, want busy", err)
		}
	}
}
