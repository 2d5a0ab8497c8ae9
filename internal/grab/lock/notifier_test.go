package lock

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// waitersOf returns a notifier without a connection, and k waiters of its channel "c".
func waitersOf(k int) (*notifier, []*waiter) {
	n := newNotifier(nil)
	n.started = true
	var all []*waiter
	for range k {
		all = append(all, n.join("c"))
	}
	return n, all
}

// wantAwake checks which waiters have a pending wake-up.
func wantAwake(t *testing.T, when string, all []*waiter, want ...int) {
	t.Helper()
	var awake []int
	for i, w := range all {
		if len(w.signal) > 0 {
			awake = append(awake, i)
		}
	}
	if !slices.Equal(awake, want) {
		t.Fatalf("%s: the waiters %v are awake, want %v", when, awake, want)
	}
}

// mustWait consumes the pending wake-up of w. It ends the test if there is none.
func mustWait(t *testing.T, w *waiter) {
	t.Helper()
	if len(w.signal) == 0 {
		t.Fatal("the waiter has no pending wake-up")
	}
	if err := w.wait(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
}

// TestWakeAll checks that each confirmed subscription wakes all waiters, and that a waiter who
// joins later starts awake.
func TestWakeAll(t *testing.T) {
	n, all := waitersOf(2)
	wantAwake(t, "before the subscription is confirmed", all)
	for _, when := range []string{"the subscription is confirmed", "it is confirmed again, after a reconnect"} {
		n.deliver(&redis.Subscription{Kind: "subscribe", Channel: "c"})
		wantAwake(t, when, all, 0, 1)
		mustWait(t, all[0])
		mustWait(t, all[1])
	}
	all = append(all, n.join("c"))
	wantAwake(t, "another waiter joins", all, 2)
}

// TestWakeOne checks that each message wakes one more waiter.
func TestWakeOne(t *testing.T) {
	n, all := waitersOf(3)
	n.deliver(&redis.Message{Channel: "c"})
	wantAwake(t, "one message", all, 0)
	n.deliver(&redis.Message{Channel: "c"})
	wantAwake(t, "two messages", all, 0, 1)
	n.deliver(&redis.Message{Channel: "another"})
	wantAwake(t, "a message of another lock", all, 0, 1)
}

// TestDeliver checks what each reply on the subscribed connection does to the waiters of a channel.
func TestDeliver(t *testing.T) {
	for _, c := range []struct {
		name       string
		msg        any
		awake      []int
		subscribed bool
	}{
		{"a message", &redis.Message{Channel: "c"}, []int{0}, false},
		{"a message of another channel", &redis.Message{Channel: "d"}, nil, false},
		{"the subscription stands", &redis.Subscription{Kind: "subscribe", Channel: "c"}, []int{0, 1}, true},
		{"the subscription of another channel", &redis.Subscription{Kind: "subscribe", Channel: "d"}, nil, false},
		// The channel lost its last waiter, then got a new one before this message arrived.
		{"the earlier subscription has ended", &redis.Subscription{Kind: "unsubscribe", Channel: "c"}, nil, false},
		{"a pong", &redis.Pong{}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, all := waitersOf(2)
			n.deliver(c.msg)
			wantAwake(t, c.name, all, c.awake...)
			if got := all[0].subscribed(); got != c.subscribed {
				t.Errorf("subscribed: %v, want %v", got, c.subscribed)
			}
		})
	}
}

// TestUnusedWakeUpIsPassedOn checks that a waiter passes an unused wake-up on to the next one.
func TestUnusedWakeUpIsPassedOn(t *testing.T) {
	for _, c := range []struct {
		name  string
		does  func(*testing.T, *waiter)
		after []int
	}{
		{"left before it noticed", func(t *testing.T, w *waiter) {}, []int{1}},
		{"left without having looked", mustWait, []int{1}},
		{"left after it looked", func(t *testing.T, w *waiter) { mustWait(t, w); w.noteChecked() }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, all := waitersOf(3)
			n.deliver(&redis.Message{Channel: "c"})
			c.does(t, all[0])
			all[0].leave()
			all[0] = &waiter{}
			wantAwake(t, c.name, all, c.after...)
			all[1].leave()
			all[2].leave()
			if len(n.channels) != 0 {
				t.Error("the channel still exists although it has no waiter")
			}
		})
	}
}

// TestWait checks that a wait ends with whichever event comes first.
func TestWait(t *testing.T) {
	for _, c := range []struct {
		name       string
		subscribed bool
		most       time.Duration
		wake       time.Duration // 0 means never
		cancel     time.Duration // 0 means never
		took       time.Duration
		err        error
	}{
		{"woken", true, time.Minute, time.Second, 0, time.Second, nil},
		{"the other's lease ends", true, time.Minute, 0, 0, time.Minute, nil},
		{"the client hangs up", true, time.Minute, 0, time.Second, time.Second, context.Canceled},
		{"not subscribed: look again soon", false, time.Minute, 0, 0, unsubscribedWait, nil},
		{"not subscribed, and a short wait", false, time.Millisecond, 0, 0, time.Millisecond, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, all := waitersOf(1)
				w := all[0]
				w.channel.subscribed = c.subscribed
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.wake > 0 {
					time.AfterFunc(c.wake, func() { w.wake() })
				}
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				began := time.Now()
				if err := w.wait(ctx, c.most); !errors.Is(err, c.err) || time.Since(began) != c.took {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(began), c.err, c.took)
				}
			})
		})
	}
}

// TestChanges checks which channels the connection subscribes to and leaves when waiters come and go.
func TestChanges(t *testing.T) {
	n, all := waitersOf(2)
	for _, c := range []struct {
		name       string
		does       func()
		come, gone []string
	}{
		{"two joined", func() {}, []string{"c"}, nil},
		{"nothing", func() {}, nil, nil},
		{"one left", func() { all[0].leave() }, nil, nil},
		{"the last left", func() { all[1].leave() }, nil, []string{"c"}},
		{"one came back, and another channel", func() { all = []*waiter{n.join("c"), n.join("d")} }, []string{"c", "d"}, nil},
		{"came and left", func() { n.join("e").leave() }, nil, []string{"e"}},
	} {
		c.does()
		if come, gone := n.changes(); !slices.Equal(come, c.come) || !slices.Equal(gone, c.gone) {
			t.Errorf("%s: subscribes to %q and leaves %q, want %q and %q", c.name, come, gone, c.come, c.gone)
		}
	}
}

// TestListenPauses checks that a notifier that cannot connect keeps trying with pauses in between, and
// that it stops as soon as it is closed.
func TestListenPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = 10 * time.Second
		var dials atomic.Int64
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1,
			PoolSize: 1 << 14, // after this many errors, the client would stop calling Dialer each time
			Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				if dials.Add(1) > 1000 {
					<-ctx.Done() // block, so that the simulated time advances and the test ends
				}
				return nil, errors.New("refused")
			},
		})
		defer client.Close()
		n := newNotifier(client)
		w := n.join("c")
		time.Sleep(long)
		if got, want := dials.Load(), int64(long/reconnectPause); got < want/2 || got > 2*want {
			t.Errorf("%d attempts to connect in %v, want about %d", got, long, want)
		}
		w.leave()
		synctest.Wait()
		before := dials.Load()
		n.close()
		if more := dials.Load() - before; more > 5 {
			t.Errorf("%d attempts to connect during the close", more)
		}
	})
}
