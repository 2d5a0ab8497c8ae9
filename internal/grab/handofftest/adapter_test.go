package handoff_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"grablab/handoff"
	"grablab/handoff/adapter"
	"grablab/internal/testbed/conformtest"

	"github.com/go-redsync/redsync/v4"
)

// redsyncMutex lists the methods of redsync's Mutex that programs use. The first assignment fails to
// compile if redsync changes, and the second one fails if the adapter lacks a method.
type redsyncMutex interface {
	Name() string
	Value() string
	Lock() error
	TryLock() error
	Unlock() (bool, error)
	Extend() (bool, error)
}

var (
	_ redsyncMutex = (*redsync.Mutex)(nil)
	_ redsyncMutex = (*adapter.Mutex)(nil)
	_ sync.Locker  = (*adapter.Locker)(nil)
)

func TestAdapterMutex(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		m := &adapter.Mutex{Locks: p.Locker, Key: key}
		other := &adapter.Mutex{Locks: q.Locker, Key: key, Wait: time.Second}
		if _, err := m.Unlock(); !errors.Is(err, adapter.ErrNotHeld) || m.Value() != "" {
			b.Errorf("an unlock without a lock returned %v", err)
		}
		if err := m.Lock(); err != nil || m.Value() == "" || m.Name() != key {
			b.Fatal(err)
		}
		start := time.Now()
		if err := other.TryLock(); !errors.Is(err, handoff.ErrBusy) || time.Since(start) > 0 {
			b.Errorf("TryLock returned %v after %v", err, time.Since(start))
		}
		if err := other.Lock(); !errors.Is(err, handoff.ErrBusy) || time.Since(start) != time.Second {
			b.Errorf("Lock returned %v after %v", err, time.Since(start))
		}
		if ok, err := m.Extend(); !ok || err != nil {
			b.Errorf("Extend returned %t, %v", ok, err)
		}
		b.node.Del(key)
		time.Sleep(ttl)
		synctest.Wait()
		if ok, err := m.Extend(); ok || !errors.Is(err, handoff.ErrLost) {
			b.Errorf("Extend of a lost lock returned %t, %v", ok, err)
		}
		if ok, err := m.Unlock(); ok || !errors.Is(err, handoff.ErrLost) {
			b.Errorf("Unlock of a lost lock returned %t, %v", ok, err)
		}
		if err := other.Lock(); err != nil {
			b.Fatal(err)
		}
		if ok, err := other.Unlock(); !ok || err != nil {
			b.Errorf("Unlock returned %t, %v", ok, err)
		}
		b.nothingLeft()
	})
}

func TestAdapterNames(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		names, others := adapter.NewNames(p.Locker), adapter.NewNames(q.Locker)
		for _, name := range []string{"a", "b"} {
			if err := names.Lock(b.Context(), name); err != nil {
				b.Fatal(err)
			}
		}
		if err := others.Unlock(b.Context(), "a"); !errors.Is(err, adapter.ErrNotHeld) {
			b.Errorf("another process unlocked: %v", err)
		}
		got := make(chan error, 1)
		go func() { got <- others.Lock(b.Context(), "a") }()
		synctest.Wait()
		if len(got) > 0 {
			b.Fatal("two processes hold the lock of a")
		}
		if err := names.Unlock(b.Context(), "a"); err != nil {
			b.Error(err)
		}
		if err := <-got; err != nil {
			b.Error(err)
		}
		if err := errors.Join(others.Unlock(b.Context(), "a"), names.Unlock(b.Context(), "b")); err != nil {
			b.Error(err)
		}
		b.nothingLeft()
	})
}

func TestAdapterLocker(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		l, other := &adapter.Locker{Locks: p.Locker, Key: key}, &adapter.Locker{Locks: q.Locker, Key: key}
		l.Lock()
		got := make(chan struct{})
		go func() { other.Lock(); close(got) }()
		synctest.Wait()
		select {
		case <-got:
			b.Fatal("two processes hold the lock")
		default:
		}
		l.Unlock()
		<-got
		other.Unlock()
		b.nothingLeft()
	})
}

// TestAdapterAfterLoss checks an unlock after one caller has lost its lease and another caller of the
// same process has got the next one. The adapter does not know which of the two has called it, so it
// must release the older lease.
func TestAdapterAfterLoss(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		locker, names := &adapter.Locker{Locks: p.Locker, Key: key}, adapter.NewNames(p.Locker)
		for name, tt := range map[string]struct{ lock, unlock func() }{
			"Locker": {locker.Lock, locker.Unlock},
			"Names":  {func() { must(0, names.Lock(b.Context(), key)) }, func() { _ = names.Unlock(b.Context(), key) }},
		} {
			tt.lock()
			b.node.Del(key)
			time.Sleep(ttl) // until the holder knows of the loss
			tt.lock()
			tt.unlock() // by the first caller
			if lease, err := q.TryAcquire(b.Context(), key); !errors.Is(err, handoff.ErrBusy) {
				b.Errorf("%s: the unlock released the lease of the second caller: %v", name, err)
				b.release(lease)
				continue
			}
			tt.unlock()
			b.nothingLeft()
		}
	})
}

func TestAdapterUnlockTwice(t *testing.T) {
	inBubble(t, func(b *bubble) {
		l := &adapter.Locker{Locks: b.process().Locker, Key: key}
		l.Lock()
		l.Unlock() //lint:ignore SA2001 the section is empty, because the test is about the second Unlock
		defer func() {
			if err, ok := recover().(error); !ok || !errors.Is(err, adapter.ErrNotHeld) {
				b.Errorf("a second unlock panicked with %v", err)
			}
		}()
		l.Unlock()
	})
}

// TestAdapterExamples runs the tests of the module with the adapters that need other libraries.
func TestAdapterExamples(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "./...")
	cmd.Dir = filepath.Join("..", "..", "..", "examples", "handoff")
	cmd.Env = append(os.Environ(), "REDIS="+conformtest.RedisServer(t), "GOWORK=off")
	// The output may begin with the modules that go downloads.
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "ok  \texample.com/handoff-adapters") {
		t.Errorf("go test in examples/handoff: %v\n%s", err, out)
	}
}
