package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/grab/lock/conformtest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     addr,
		Protocol:                 2,
		MaxRetries:               -1,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// newUniversal is newClient, or for several addresses a client of their Cluster.
func newUniversal(addr string) redis.UniversalClient {
	if !strings.Contains(addr, ",") {
		return newClient(addr)
	}
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                    strings.Split(addr, ","),
		Protocol:                 2,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

var (
	handoffTokens atomic.Int64
	handoffRun    = rand.Uint64()
)

// openHandoff is one process's side of the lock, with a client of its own.
func openHandoff(tb testing.TB, addr string, ttl, wait time.Duration) lock.Locker {
	tb.Helper()
	client := newUniversal(addr)
	l := newHandoffOn(tb, client, ttl, wait)
	tb.Cleanup(func() {
		_ = l.Close()
		_ = client.Close()
	})
	return l
}

func newHandoffOn(tb testing.TB, client redis.UniversalClient, ttl, wait time.Duration) lock.Locker {
	tb.Helper()
	st, err := lock.Find("handoff")
	if err != nil {
		tb.Fatal(err)
	}
	l, err := st.New(lock.Env{
		Node: "test", Redis: client, TTL: ttl, Wait: wait,
		Now: time.Now, Rand: rand.Float64,
		Token: func() string { return fmt.Sprintf("%x-%d", handoffRun, handoffTokens.Add(1)) },
	})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// onBoth runs a test on an embedded and on a real server.
func onBoth(t *testing.T, test func(t *testing.T, addr string)) {
	t.Run("embedded", func(t *testing.T) {
		node := miniredis.RunT(t)
		node.ClockTTL(true)
		test(t, node.Addr())
	})
	t.Run("redis-server", func(t *testing.T) { test(t, conformtest.RedisServer(t)) })
}

// onBothAtOnce is onBoth for tests that mostly wait, and count no goroutines.
func onBothAtOnce(t *testing.T, test func(t *testing.T, addr string)) {
	onBoth(t, func(t *testing.T, addr string) {
		t.Parallel()
		test(t, addr)
	})
}

// must is for what cannot go wrong in a test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

type outcome struct {
	lease lock.Lease
	err   error
}

// acquireAsync starts an acquire in the background.
func acquireAsync(ctx context.Context, l lock.Locker, key string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		lease, err := l.Acquire(ctx, key)
		done <- outcome{lease, err}
	}()
	return done
}

// soon waits for an outcome that must be a lease.
func soon(t *testing.T, within time.Duration, done <-chan outcome) lock.Lease {
	t.Helper()
	select {
	case o := <-done:
		if o.err != nil {
			t.Fatal(o.err)
		}
		return o.lease
	case <-time.After(within):
		t.Fatalf("no lease after %v", within)
		return nil
	}
}

// untilQueued waits until n names are in the queue of key.
func untilQueued(t *testing.T, client *redis.Client, key string, n int64) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 20*time.Second; {
		if client.ZCard(t.Context(), key+":queue").Val() == n {
			return
		}
		if time.Since(began) > 5*time.Millisecond { // a sleep is long for who waits ten thousand times
			time.Sleep(time.Millisecond)
		}
	}
	t.Fatalf("never %d in the queue", n)
}

// nothingLeft checks that the server holds nothing but fencing counters, and
// those not for ever.
func nothingLeft(t *testing.T, client *redis.Client) {
	t.Helper()
	for _, key := range must(client.Keys(t.Context(), "*").Result()) {
		if !strings.HasSuffix(key, ":fence") {
			t.Errorf("left behind: %s", key)
		} else if ttl := client.TTL(t.Context(), key).Val(); ttl <= 0 {
			t.Errorf("%s has no expiry", key)
		}
	}
}

const handoffKey = "grab:handoff:{1}"

// traffic counts the commands that a client sends, and its round trips.
type traffic struct{ commands, trips atomic.Int64 }

func (c *traffic) reset() {
	c.commands.Store(0)
	c.trips.Store(0)
}

func (c *traffic) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *traffic) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name != "hello" && name != "client" {
			c.commands.Add(1)
			c.trips.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c *traffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if name := cmds[0].Name(); name != "hello" && name != "client" {
			c.commands.Add(int64(len(cmds)))
			c.trips.Add(1)
		}
		return next(ctx, cmds)
	}
}

func TestHandoffOneRoundTripEach(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string) {
		client := newClient(addr)
		defer client.Close()
		l := newHandoffOn(t, client, 30*time.Second, time.Second)
		defer l.Close()
		if err := must(l.Acquire(t.Context(), handoffKey)).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		var count traffic
		client.AddHook(&count)
		for i := range int64(10) {
			lease := must(l.Acquire(t.Context(), handoffKey))
			if got := count.trips.Load(); got != 2*i+1 {
				t.Fatalf("acquire %d: %d round trips so far", i, got)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := count.trips.Load(); got != 2*i+2 {
				t.Fatalf("release %d: %d round trips so far", i, got)
			}
		}
		if n := len(client.PubSubChannels(t.Context(), "*").Val()); n != 0 {
			t.Errorf("%d subscriptions, and nobody ever waited", n)
		}
		nothingLeft(t, client)
	})
}

// Two commands for each contended acquisition, whoever hands it to whom.
func TestHandoffTwoCommandsContended(t *testing.T) {
	addr := conformtest.RedisServer(t)
	var count traffic
	var lockers []lock.Locker
	for range 2 {
		client := newClient(addr)
		defer client.Close()
		client.AddHook(&count)
		l := newHandoffOn(t, client, 30*time.Second, 30*time.Second)
		defer l.Close()
		lockers = append(lockers, l)
	}
	wave := func() {
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				lease, err := lockers[i%2].Acquire(t.Context(), handoffKey)
				if err != nil {
					t.Error(err)
					return
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	wave()
	count.commands.Store(0)
	const waves = 50
	for range waves {
		wave()
	}
	if got := float64(count.commands.Load()) / (16 * waves); got > 2.1 {
		t.Errorf("%.2f commands for each acquisition; want at most 2.1", got)
	}
}

func TestHandoffFencesGrow(t *testing.T) {
	onBothAtOnce(t, func(t *testing.T, addr string) {
		ctx := t.Context()
		client := newClient(addr)
		defer client.Close()
		a, b := openHandoff(t, addr, time.Second, 10*time.Second), openHandoff(t, addr, time.Second, 10*time.Second)
		last := uint64(0)
		grows := func(when string, lease lock.Lease) {
			t.Helper()
			if lease.Fence() <= last {
				t.Errorf("%s: fence %d after %d", when, lease.Fence(), last)
			}
			last = lease.Fence()
		}
		first := must(a.Acquire(ctx, handoffKey))
		grows("first", first)
		waiting := acquireAsync(ctx, b, handoffKey)
		untilQueued(t, client, handoffKey, 1)
		must(0, first.Release(ctx))
		second := soon(t, 5*time.Second, waiting)
		grows("handed over", second)
		must(0, second.Release(ctx))
		grows("free again", must(a.Acquire(ctx, handoffKey)))
		must(0, a.Close()) // and nobody renews it
		grows("run out", soon(t, 5*time.Second, acquireAsync(ctx, b, handoffKey)))
		must(0, client.Del(ctx, handoffKey, handoffKey+":lease", handoffKey+":fence").Err())
		forgotten := must(b.Acquire(ctx, handoffKey))
		grows("counter forgotten", forgotten)
		must(0, forgotten.Release(ctx))
	})
}

func TestHandoffRaise(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string) {
		ctx := t.Context()
		l := openHandoff(t, addr, time.Second, time.Second)
		raiser := l.(lock.FenceRaiser)
		take := func() uint64 {
			lease := must(l.Acquire(ctx, handoffKey))
			must(0, lease.Release(ctx))
			return lease.Fence()
		}
		before := take()
		must(0, raiser.Raise(ctx, handoffKey, before+1_000_000_000))
		raised := take()
		if raised <= before+1_000_000_000 {
			t.Errorf("raised to %d, and then handed out %d", before+1_000_000_000, raised)
		}
		must(0, raiser.Raise(ctx, handoffKey, 5))
		if after := take(); after <= raised {
			t.Errorf("raising to 5 lowered the fence from %d to %d", raised, after)
		}
	})
}

// A lease that its holder lost is not given back, whoever has it now.
func TestHandoffReleaseOfAStranger(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string) {
		ctx := t.Context()
		client := newClient(addr)
		defer client.Close()
		a, b := openHandoff(t, addr, 10*time.Second, time.Second), openHandoff(t, addr, 10*time.Second, time.Second)
		lost := must(a.Acquire(ctx, handoffKey))
		must(0, client.Del(ctx, handoffKey).Err())
		held := must(b.Acquire(ctx, handoffKey))
		if err := lost.Release(ctx); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release of a lost lease: %v", err)
		}
		if client.Get(ctx, handoffKey).Val() != held.Token() {
			t.Error("it was not the holder's to give back")
		}
		must(0, held.Release(ctx))
		nothingLeft(t, client)
	})
}

// All leases of an instance are renewed together, and cost it no goroutine.
func TestHandoffRenewsInBatches(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string) {
		ctx := t.Context()
		client := newClient(addr)
		defer client.Close()
		const ttl, leases = 1500 * time.Millisecond, 100
		l := newHandoffOn(t, client, ttl, time.Second)
		defer l.Close()
		held := make([]lock.Lease, leases)
		before := runtime.NumGoroutine()
		for i := range held {
			held[i] = must(l.Acquire(ctx, fmt.Sprintf("grab:handoff:{%d}", i)))
		}
		if more := runtime.NumGoroutine() - before; more > 5 {
			t.Errorf("%d more goroutines for %d leases", more, leases)
		}
		var count traffic
		client.AddHook(&count)
		time.Sleep(2 * ttl)
		if trips := count.trips.Load(); trips > leases/4 {
			t.Errorf("%d round trips to renew %d leases for two TTLs", trips, leases)
		}
		for i, lease := range held {
			select {
			case <-lease.Lost():
				t.Fatalf("lease %d was lost", i)
			default:
			}
			if err := lease.Release(ctx); err != nil {
				t.Fatalf("lease %d: %v", i, err)
			}
		}
		nothingLeft(t, client)
	})
}

// A server that was restarted knows neither scripts nor queue. Those who wait
// take their places again, in their old order.
func TestHandoffServerForgets(t *testing.T) {
	onBothAtOnce(t, func(t *testing.T, addr string) {
		ctx := t.Context()
		client := newClient(addr)
		defer client.Close()
		holder := openHandoff(t, addr, 2*time.Second, 20*time.Second)
		lease := must(holder.Acquire(ctx, handoffKey))
		const waiters = 6
		order := make(chan int, waiters)
		for i := range waiters {
			l := openHandoff(t, addr, 2*time.Second, 20*time.Second)
			go func() {
				lease, err := l.Acquire(ctx, handoffKey)
				if err != nil {
					t.Error(err)
				} else {
					order <- i
					time.Sleep(50 * time.Millisecond)
					_ = lease.Release(ctx)
				}
			}()
			untilQueued(t, client, handoffKey, int64(i+1))
		}
		must(0, client.Del(ctx, handoffKey+":queue", handoffKey+":fence").Err())
		must(0, client.ScriptFlush(ctx).Err())
		untilQueued(t, client, handoffKey, waiters)
		must(0, lease.Release(ctx))
		for i := range waiters {
			select {
			case got := <-order:
				if got != i {
					t.Errorf("number %d came in place %d", got, i)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%d of %d were served", i, waiters)
			}
		}
	})
}
