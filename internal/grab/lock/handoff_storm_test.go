package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/grab/lock/conformtest"

	"go.uber.org/goleak"
)

// First come, first served, over several processes.
func TestHandoffFIFO(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string) {
		t.Run("60 waiters", func(t *testing.T) { fifo(t, addr, 60) })
	})
}

// Ten thousand wait for one lock, and all get it in turn.
func TestHandoffTenThousandWaiters(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	fifo(t, conformtest.RedisServer(t), 10_000)
}

func fifo(t *testing.T, addr string, waiters int) {
	ctx := t.Context()
	client := newClient(addr)
	defer client.Close()
	var lockers []lock.Locker
	for range 3 {
		lockers = append(lockers, openHandoff(t, addr, 10*time.Second, 2*time.Minute))
	}
	first := must(lockers[0].Acquire(ctx, handoffKey))
	var all sync.WaitGroup
	var served, wrong, overlaps, inside atomic.Int64
	for i := range waiters {
		all.Go(func() {
			lease, err := lockers[i%3].Acquire(ctx, handoffKey)
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			if inside.Add(1) != 1 {
				overlaps.Add(1)
			}
			if served.Add(1)-1 != int64(i) {
				wrong.Add(1)
			}
			inside.Add(-1)
			if err := lease.Release(ctx); err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
		untilQueued(t, client, handoffKey, int64(i+1))
	}
	began := time.Now()
	must(0, first.Release(ctx))
	all.Wait()
	t.Logf("%d hand-offs in %v", waiters, time.Since(began))
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d of %d were served out of turn", n, waiters)
	}
	if n := overlaps.Load(); n > 0 {
		t.Errorf("%d overlaps", n)
	}
	nothingLeft(t, client)
}

// Most give up after a few milliseconds, some in the very moment in which the
// lock is handed to them. Nobody else may suffer from that, and nothing may be
// left of them.
func TestHandoffStormOfGiveUps(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string) {
		attempts := 3_000
		if t.Name() == "TestHandoffStormOfGiveUps/redis-server" && !testing.Short() {
			attempts = 30_000
		}
		before := goleak.IgnoreCurrent()
		client := newClient(addr)
		var lockers []lock.Locker
		var stop []func()
		for range 3 {
			c := newClient(addr)
			l := newHandoffOn(t, c, 10*time.Second, 20*time.Second)
			lockers, stop = append(lockers, l), append(stop, func() { _, _ = l.Close(), c.Close() })
		}
		var inside [2]atomic.Int64
		var overlaps, had, gaveUp, done atomic.Int64
		var storm, patient sync.WaitGroup
		once := func(ctx context.Context, l lock.Locker, which int) error {
			lease, err := l.Acquire(ctx, []string{handoffKey, "grab:handoff:{2}"}[which])
			if err != nil {
				return err
			}
			had.Add(1)
			if inside[which].Add(1) != 1 {
				overlaps.Add(1)
			}
			time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
			inside[which].Add(-1)
			return lease.Release(context.WithoutCancel(ctx))
		}
		const workers = 100
		for w := range workers {
			storm.Go(func() {
				for range attempts / workers {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(4000))*time.Microsecond)
					err := once(ctx, lockers[w%3], w%2)
					cancel()
					if errors.Is(err, context.DeadlineExceeded) {
						gaveUp.Add(1)
					} else if err != nil {
						t.Error(err)
					}
				}
			})
		}
		// The patient must never lose a wake-up: each is served, one after the other.
		var longest atomic.Int64
		for w := range 6 {
			patient.Go(func() {
				for done.Load() == 0 {
					began := time.Now()
					if err := once(t.Context(), lockers[w%3], w%2); err != nil {
						t.Error(err)
						return
					}
					took := int64(time.Since(began))
					for old := longest.Load(); took > old && !longest.CompareAndSwap(old, took); old = longest.Load() {
					}
				}
			})
		}
		storm.Wait()
		done.Store(1)
		patient.Wait()
		t.Logf("%d gave up, %d had the lock, the longest wait of the patient was %v", gaveUp.Load(), had.Load(), time.Duration(longest.Load()))
		if gaveUp.Load() < int64(attempts/10) {
			t.Errorf("only %d of %d gave up: that is no storm", gaveUp.Load(), attempts)
		}
		if n := overlaps.Load(); n > 0 {
			t.Errorf("%d overlaps", n)
		}
		nothingLeft(t, client)
		for _, s := range stop {
			s()
		}
		if left := client.PubSubChannels(t.Context(), "*").Val(); len(left) > 0 {
			t.Errorf("subscriptions left: %v", left)
		}
		_ = client.Close()
		if err := goleak.Find(before); err != nil {
			t.Error(err)
		}
	})
}

// A waiter gives up in the moment in which the lock is handed to it: then it
// hands it on. The next one must not wait for a TTL, nor as a rule for a check.
func TestHandoffGiveUpRacesHandOver(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string) {
		ctx := t.Context()
		client := newClient(addr)
		defer client.Close()
		a, b, c := openHandoff(t, addr, time.Minute, time.Minute), openHandoff(t, addr, time.Minute, time.Minute), openHandoff(t, addr, time.Minute, time.Minute)
		rounds, raced, slow := 300, 0, 0
		for range rounds {
			lease := must(a.Acquire(ctx, handoffKey))
			fickle, giveUp := context.WithCancel(ctx)
			second := acquireAsync(fickle, b, handoffKey)
			untilQueued(t, client, handoffKey, 1)
			third := acquireAsync(ctx, c, handoffKey)
			untilQueued(t, client, handoffKey, 2)
			time.AfterFunc(time.Duration(rand.IntN(300))*time.Microsecond, giveUp)
			must(0, lease.Release(ctx))
			if o := <-second; o.err == nil {
				must(0, o.lease.Release(ctx))
			} else {
				raced++
			}
			began := time.Now()
			must(0, soon(t, 10*time.Second, third).Release(ctx))
			if time.Since(began) > 500*time.Millisecond {
				slow++
			}
			giveUp()
		}
		t.Logf("in %d of %d the waiter had given up", raced, rounds)
		if slow > rounds/20 {
			t.Errorf("in %d of %d the next one had to wait", slow, rounds)
		}
		nothingLeft(t, client)
	})
}
