package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// waitersOf joins n waiters to one channel, without any connection.
func waitersOf(n int) (*wakeups, []*waiter) {
	w := newWakeups(nil)
	w.started = true
	var all []*waiter
	for range n {
		all = append(all, w.join("c"))
	}
	return w, all
}

// awake says which of the waiters have a wake-up to make use of.
func awake(all []*waiter) (who []int) {
	for i, one := range all {
		if len(one.signal) > 0 {
			who = append(who, i)
		}
	}
	return who
}

func wantAwake(t *testing.T, when string, all []*waiter, want ...int) {
	t.Helper()
	got := awake(all)
	if len(got) != len(want) {
		t.Fatalf("%s: awake are %v, want %v", when, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: awake are %v, want %v", when, got, want)
		}
	}
}

// mustWait consumes a wake-up.
func mustWait(t *testing.T, one *waiter) {
	t.Helper()
	if len(one.signal) == 0 {
		t.Fatal("not awake")
	}
	if err := one.wait(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
}

// TestWakeAll: each acknowledgement of a subscription wakes all who wait, and
// who comes later is awake at once.
func TestWakeAll(t *testing.T) {
	w, all := waitersOf(2)
	wantAwake(t, "before the subscription stands", all)
	for _, when := range []string{"it stands", "it stands again, after a reconnect"} {
		w.wakeAll("c")
		wantAwake(t, when, all, 0, 1)
		mustWait(t, all[0])
		mustWait(t, all[1])
	}
	all = append(all, w.join("c"))
	wantAwake(t, "one came later", all, 2)
}

// TestWakeOne: a message wakes one, another message another.
func TestWakeOne(t *testing.T) {
	w, all := waitersOf(3)
	w.wakeOne("c")
	wantAwake(t, "one message", all, 0)
	w.wakeOne("c")
	wantAwake(t, "two messages", all, 0, 1)
	w.wakeOne("another")
	wantAwake(t, "a message of another lock", all, 0, 1)
}

// TestPassOn: a wake-up that its waiter makes no use of goes to the next.
func TestPassOn(t *testing.T) {
	for _, c := range []struct {
		name  string
		does  func(*testing.T, *waiter)
		after []int
	}{
		{"left before it noticed", func(t *testing.T, one *waiter) {}, []int{1}},
		{"left without having looked", mustWait, []int{1}},
		{"left after it looked", func(t *testing.T, one *waiter) { mustWait(t, one); one.looked() }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, all := waitersOf(3)
			w.wakeOne("c")
			c.does(t, all[0])
			all[0].leave()
			all[0] = &waiter{}
			wantAwake(t, c.name, all, c.after...)
			all[1].leave()
			all[2].leave()
			if len(w.topics) != 0 {
				t.Error("the channel is kept although nobody waits")
			}
		})
	}
}

// TestWait: a wait ends with what comes first.
func TestWait(t *testing.T) {
	for _, c := range []struct {
		name   string
		stands bool
		most   time.Duration
		wake   time.Duration // 0: never
		cancel time.Duration // 0: never
		took   time.Duration
		err    error
	}{
		{"woken", true, time.Minute, time.Second, 0, time.Second, nil},
		{"the other's lease ends", true, time.Minute, 0, 0, time.Minute, nil},
		{"the client hangs up", true, time.Minute, 0, time.Second, time.Second, context.Canceled},
		{"not subscribed: look again soon", false, time.Minute, 0, 0, unsubscribedWait, nil},
		{"not subscribed, and little patience", false, time.Millisecond, 0, 0, time.Millisecond, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, all := waitersOf(1)
				one := all[0]
				one.topic.stands = c.stands
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.wake > 0 {
					time.AfterFunc(c.wake, func() { one.wake() })
				}
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				began := time.Now()
				if err := one.wait(ctx, c.most); !errors.Is(err, c.err) || time.Since(began) != c.took {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(began), c.err, c.took)
				}
			})
		})
	}
}
