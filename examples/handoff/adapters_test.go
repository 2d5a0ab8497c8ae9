package adapters_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	adapters "example.com/handoff-adapters"
	"grablab/handoff"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// open returns a Locker for one process. The environment variable REDIS can contain the address of a
// Redis server.
func open(t *testing.T) *handoff.Locker {
	client := redis.NewClient(&redis.Options{Addr: cmp.Or(os.Getenv("REDIS"), "127.0.0.1:6379")})
	locks, err := handoff.New(client, handoff.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(locks.Close(), client.Close()) })
	return locks
}

// TestGocron starts the same job in two schedulers. While the first one runs the job, the second one
// must skip it.
func TestGocron(t *testing.T) {
	running, runs := make(chan struct{}), atomic.Int32{}
	finish := make(chan struct{})
	skipped := make(chan struct{}, 1)
	schedule := func(job func(), listener ...gocron.EventListener) {
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(adapters.Gocron{Locks: open(t)}))
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(job),
			gocron.WithName("report"), gocron.WithEventListeners(listener...))
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	schedule(func() { runs.Add(1); close(running); <-finish })
	<-running
	schedule(func() { runs.Add(1); skipped <- struct{}{} }, gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
		if !errors.Is(err, handoff.ErrBusy) {
			t.Errorf("the second scheduler got %v, want %v", err, handoff.ErrBusy)
		}
		skipped <- struct{}{}
	}))
	<-skipped
	close(finish)
	if n := runs.Load(); n != 1 {
		t.Errorf("the job ran %d times, want once", n)
	}
}

// TestGoose checks that a second instance gets the migration lock only after the first one has
// released it.
func TestGoose(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	first, second := adapters.NewGoose(open(t)), adapters.NewGoose(open(t))
	if err := first.Lock(ctx, nil); err != nil {
		t.Fatal(err)
	}
	brief, end := context.WithTimeout(ctx, 50*time.Millisecond)
	defer end()
	if err := second.Lock(brief, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second instance got %v while the first had the lock", err)
	}
	if err := first.Unlock(ctx, nil); err != nil {
		t.Error(err)
	}
	if err := errors.Join(second.Lock(ctx, nil), second.Unlock(ctx, nil)); err != nil {
		t.Error(err)
	}
}
