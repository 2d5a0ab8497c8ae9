package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/tap/redishook"
	"grablab/internal/testbed/conformtest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// onMiniredis starts a watchdog on a new Redis server whose clock stands still.
func onMiniredis(t *testing.T, wait time.Duration) (*miniredis.Miniredis, lock.Locker) {
	t.Helper()
	server := miniredis.RunT(t)
	return server, watchdogAt(t, server, wait)
}

func watchdogAt(t *testing.T, server *miniredis.Miniredis, wait time.Duration) lock.Locker {
	t.Helper()
	client := conformtest.NewClient(server.Addr())
	t.Cleanup(func() { _ = client.Close() })
	env := conformtest.EnvOf(client)
	env.TTL, env.Wait = time.Hour, wait
	return start(t, "watchdog", env)
}

func mustAcquire(t *testing.T, ctx context.Context, l lock.Locker, key string) lock.Lease {
	t.Helper()
	lease, err := l.Acquire(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func mustRelease(t *testing.T, lease lock.Lease) {
	t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10s", what)
		}
	}
}

// TestSameTokenAgain checks that a repeated request with the same token changes nothing (F25).
func TestSameTokenAgain(t *testing.T) {
	server := miniredis.RunT(t)
	client := conformtest.NewClient(server.Addr())
	defer client.Close()
	client.AddHook(twice)
	env := conformtest.EnvOf(client)
	env.TTL = time.Minute
	lease := mustAcquire(t, t.Context(), start(t, "watchdog", env), "k")
	if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the second of two releases: %v", err)
	}
	if keys := server.Keys(); len(keys) != 0 {
		t.Errorf("keys are left: %v", keys)
	}
}

// twice sends every command twice and returns the second reply, like a client that retries after a
// lost reply.
var twice = redishook.Hook(func(ctx context.Context, _ []redis.Cmder, send func(context.Context) error) error {
	if err := send(ctx); err != nil {
		return err
	}
	return send(ctx)
})

// subscribers returns how many subscribers a lock's channel has.
func subscribers(server *miniredis.Miniredis, key string) int {
	return server.PubSubNumSub(key + ":free")[key+":free"]
}

// TestOneMessageWakesOne checks that a release makes only one of a process's waiters check the
// lock.
func TestOneMessageWakesOne(t *testing.T) {
	const waiters = 8
	server, holder := onMiniredis(t, 0)
	client := conformtest.NewClient(server.Addr())
	defer client.Close()
	var looks atomic.Int32
	client.AddHook(counting(&looks))
	env := conformtest.EnvOf(client)
	env.TTL, env.Wait = time.Minute, time.Minute
	contender := start(t, "watchdog", env)
	mustRelease(t, mustAcquire(t, t.Context(), contender, "another")) // loads the scripts
	looks.Store(0)

	held := mustAcquire(t, t.Context(), holder, "k")
	leases := make(chan lock.Lease)
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() { leases <- mustAcquire(t, t.Context(), contender, "k") })
	}
	// Each waiter checks the lock before it subscribes, and again once the subscription is
	// confirmed.
	eventually(t, "waiting", func() bool { return looks.Load() == 2*waiters })
	for range waiters {
		mustRelease(t, held)
		held = <-leases
	}
	mustRelease(t, held)
	all.Wait()
	// After that, each waiter has checked the lock once more and released it.
	if got := looks.Load(); got != 4*waiters {
		t.Errorf("%d calls, want %d", got, 4*waiters)
	}
	eventually(t, "unsubscribed", func() bool { return subscribers(server, "k") == 0 })
}

// counting returns a hook that counts script calls.
func counting(calls *atomic.Int32) redis.Hook {
	return redishook.Hook(func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
		err := send(ctx)
		if cmds[0].Name() == "evalsha" {
			calls.Add(1)
		}
		return err
	})
}

// TestReconnectWakes checks that a waiter gets a lock that was released while its subscription was
// broken. It must check the lock again after the reconnect (F16).
func TestReconnectWakes(t *testing.T) {
	server := miniredis.RunT(t)
	proxy := newCutter(t, server.Addr())
	waiting, looks := listeningAt(t, server, proxy.addr())

	held := mustAcquire(t, t.Context(), watchdogAt(t, server, 0), "k")
	got := make(chan error, 1)
	go func() {
		lease, err := waiting.Acquire(t.Context(), "k")
		if err == nil {
			err = lease.Release(t.Context())
		}
		got <- err
	}()
	eventually(t, "waiting", func() bool { return looks.Load() == 2 })
	proxy.cut()
	eventually(t, "cut off", func() bool { return subscribers(server, "k") == 0 })
	mustRelease(t, held)
	proxy.mend()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestNoSubscriptionNoHang checks that a waiter without a subscription still checks the lock
// again.
func TestNoSubscriptionNoHang(t *testing.T) {
	server, holder := onMiniredis(t, 0)
	deaf, _ := listeningAt(t, server, "127.0.0.1:1")
	held := mustAcquire(t, t.Context(), holder, "k")
	got := make(chan error, 1)
	go func() {
		_, err := deaf.Acquire(t.Context(), "k")
		got <- err
	}()
	time.Sleep(50 * time.Millisecond)
	mustRelease(t, held)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// listeningAt starts a watchdog that subscribes at one address and sends its commands to another.
// It also counts the watchdog's calls.
func listeningAt(t *testing.T, server *miniredis.Miniredis, addr string) (lock.Locker, *atomic.Int32) {
	t.Helper()
	calls := new(atomic.Int32)
	client, listener := conformtest.NewClient(server.Addr()), conformtest.NewClient(addr)
	t.Cleanup(func() { _, _ = client.Close(), listener.Close() })
	client.AddHook(counting(calls))
	env := conformtest.EnvOf(listening{client, listener})
	env.TTL, env.Wait = time.Hour, time.Minute
	l := start(t, "watchdog", env)
	mustRelease(t, mustAcquire(t, t.Context(), l, "another")) // loads the scripts
	calls.Store(0)
	return l, calls
}

type listening struct {
	*redis.Client
	at *redis.Client
}

func (l listening) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return l.at.Subscribe(ctx, channels...)
}

// TestLateCleanup checks that a token is not reused after its attempt was undone.
func TestLateCleanup(t *testing.T) {
	for _, strategy := range []string{"setnx", "watchdog"} {
		t.Run(strategy, func(t *testing.T) {
			server := miniredis.RunT(t)
			client := conformtest.NewClient(server.Addr())
			defer client.Close()
			var first sync.Once // the first reply arrives after the lease has expired
			client.AddHook(redishook.Hook(func(ctx context.Context, _ []redis.Cmder, send func(context.Context) error) error {
				err := send(ctx)
				first.Do(func() { time.Sleep(60 * time.Millisecond) })
				return err
			}))
			env := conformtest.EnvOf(client)
			env.TTL, env.Wait = 50*time.Millisecond, 10*time.Second
			var tokens []string
			name := env.Token
			env.Token = func() string {
				tokens = append(tokens, name())
				return tokens[len(tokens)-1]
			}
			lease := mustAcquire(t, t.Context(), start(t, strategy, env), "k")
			if i := slices.Index(tokens, lease.Token()); i < 1 {
				t.Errorf("the lease has token %d of %d", i+1, len(tokens))
			}
		})
	}
}

// TestFailedCheckWakesTheNext checks that a woken waiter whose check of the lock fails wakes the next
// waiter.
func TestFailedCheckWakesTheNext(t *testing.T) {
	simulate(t, func(s *simulation) {
		a, b := s.actor("watchdog"), s.actor("watchdog", func(e *lock.Env) { e.Wait = time.Hour })
		held := a.lock()
		got := make(chan lock.Lease, 2)
		for range 2 {
			go func() {
				lease, err := b.Acquire(s.Context(), theKey)
				if err != nil {
					lease = nil
				}
				got <- lease
			}()
		}
		time.Sleep(time.Millisecond) // both have checked the lock, and wait to be woken
		b.at(1, func(context.Context, func(context.Context) error) error { return errLostReply })
		released := time.Now()
		s.release(held)
		for range 2 {
			if lease := <-got; lease != nil {
				if took := time.Since(released); took > time.Second {
					t.Errorf("the next waiter got the lock after %v", took)
				}
				s.release(lease)
			}
		}
	})
}
