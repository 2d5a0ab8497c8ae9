package lock_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/redishook"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// bubble is a server in virtual time.
type bubble struct {
	node *miniredis.Miniredis
	down atomic.Bool
}

func newBubble(t *testing.T) *bubble {
	b := &bubble{node: miniredis.NewMiniRedis()}
	b.node.ClockTTL(true)
	t.Cleanup(b.node.Close)
	return b
}

var errDown = errors.New("down")

// client returns a client, with hooks.
func (b *bubble) client(hooks ...redis.Hook) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", Protocol: 2, MaxRetries: -1, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if b.down.Load() {
				return nil, errDown
			}
			return b.node.Dial()
		},
	})
	client.AddHook(redishook.Hook(func(ctx context.Context, _ []redis.Cmder, send func(context.Context) error) error {
		if b.down.Load() {
			return errDown
		}
		return send(ctx)
	}))
	for _, hook := range hooks {
		client.AddHook(hook)
	}
	return client
}

// open returns a locker and what ends it, as a process ends: no lease is released.
func (b *bubble) open(t *testing.T, ttl, wait time.Duration, hooks ...redis.Hook) (l lock.Locker, end func()) {
	client := b.client(hooks...)
	l = newHandoffOn(t, client, ttl, wait)
	return l, func() { _, _ = l.Close(), client.Close() }
}

func TestHandoffKeptForAsLongAsItIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, end := newBubble(t).open(t, 30*time.Second, 0)
		defer end()
		lease := must(l.Acquire(t.Context(), handoffKey))
		select {
		case <-lease.Lost():
			t.Fatal("lost")
		case <-time.After(time.Hour):
		}
		must(0, lease.Release(t.Context()))
	})
}

// Whoever holds a lease knows that it is lost before the server can have given
// it to somebody else.
func TestHandoffLostBeforeItRanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		b := newBubble(t)
		l, end := b.open(t, ttl, 0)
		defer end()
		lease := must(l.Acquire(t.Context(), handoffKey))
		time.Sleep(ttl / 2) // renewed once, at a third
		b.down.Store(true)
		down := time.Now()
		<-lease.Lost()
		left := b.node.TTL(handoffKey)
		if left <= 0 || left > ttl/50 {
			t.Errorf("lost %v before its end", left)
		}
		if took := time.Since(down); took < ttl/2 {
			t.Errorf("given up after %v", took)
		}
		b.down.Store(false)
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("it was still there to be given back: %v", err)
		}
	})
}

// A holder that is gone costs the waiters its TTL and one poll interval.
func TestHandoffDeadHolderInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		b := newBubble(t)
		dead, end := b.open(t, ttl, 0)
		must(dead.Acquire(t.Context(), handoffKey))
		died := time.Now()
		end()
		l, end := b.open(t, ttl, time.Hour)
		defer end()
		time.Sleep(time.Millisecond)
		lease := must(l.Acquire(t.Context(), handoffKey))
		if took := time.Since(died); took < ttl || took > ttl+time.Second {
			t.Errorf("it took %v", took)
		}
		must(0, lease.Release(t.Context()))
	})
}

// Nobody waits longer than it was told to, and a client that hangs up is told
// at once.
func TestHandoffWaitsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		l, end := b.open(t, 30*time.Second, 2*time.Second)
		defer end()
		lease := must(l.Acquire(t.Context(), handoffKey))
		began := time.Now()
		if _, err := l.Acquire(t.Context(), handoffKey); !errors.Is(err, lock.ErrBusy) {
			t.Errorf("%v; want ErrBusy", err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("ErrBusy after %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		began = time.Now()
		if _, err := l.Acquire(ctx, handoffKey); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v; want the deadline", err)
		}
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("the deadline after %v", took)
		}
		must(0, lease.Release(t.Context()))
		if keys := b.node.Keys(); len(keys) != 1 {
			t.Errorf("left: %v", keys)
		}
	})
}

// A counter is a day old at the most, and the next one begins above it.
func TestHandoffCounterIsBornAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		l, end := b.open(t, 30*time.Second, 0)
		defer end()
		var last uint64
		for day := range 4 {
			for range 3 {
				lease := must(l.Acquire(t.Context(), handoffKey))
				if lease.Fence() <= last {
					t.Errorf("day %d: fence %d after %d", day, lease.Fence(), last)
				}
				last = lease.Fence()
				must(0, lease.Release(t.Context()))
			}
			time.Sleep(25 * time.Hour)
			if keys := b.node.Keys(); len(keys) != 0 {
				t.Errorf("after a day: %v", keys)
			}
		}
	})
}
