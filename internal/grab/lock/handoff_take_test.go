package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab/lock"

	"github.com/redis/go-redis/v9"
)

// leaves has a process take the lock and leave it free: next time it takes it
// with two commands.
func (c *crowding) leaves(t *testing.T) (fence uint64) {
	t.Helper()
	lease := must(c.Acquire(t.Context(), handoffKey))
	must(0, lease.Release(t.Context()))
	c.sent.reset()
	return lease.Fence()
}

// takes is what there is of a process that took the lock in so many commands and
// round trips.
func (c *crowding) takes(t *testing.T, commands, trips int64) lock.Lease {
	t.Helper()
	lease := must(c.Acquire(t.Context(), handoffKey))
	if n, m := c.sent.commands.Load(), c.sent.trips.Load(); n != commands || m != trips {
		t.Errorf("%d commands in %d round trips; want %d in %d", n, m, commands, trips)
	}
	return lease
}

// A lock that a process left free is taken in two commands, at once, and nobody
// else's is.
func TestHandoffTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c, other := newCrowding(t, b), newCrowding(t, b)
		c.sent.reset()
		must(0, c.takes(t, 1, 1).Release(t.Context())) // a script: it is its first time
		for range 3 {
			last := c.leaves(t)
			lease := c.takes(t, 2, 1)
			if lease.Fence() <= last {
				t.Errorf("fence %d after %d", lease.Fence(), last)
			}
			must(0, lease.Release(t.Context()))
		}
		other.sent.reset()
		must(0, other.takes(t, 1, 1).Release(t.Context()))
		b.nothing(t, c, other)
	})
}

// Somebody else has the lock by then: who would have taken it stands in line, and
// is asked in one request from then on until it leaves it free again.
func TestHandoffTakeTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c, other := newCrowding(t, b), newCrowding(t, b)
		c.leaves(t)
		held := must(other.Acquire(t.Context(), handoffKey))
		for range 2 {
			if _, err := c.Acquire(lock.TryOnce(t.Context()), handoffKey); !errors.Is(err, lock.ErrBusy) {
				t.Error(err)
			}
		}
		if n := c.sent.commands.Load(); n != 4 {
			t.Errorf("%d commands to be refused twice; want two and a script, and then a script", n)
		}
		first := acquireAsync(t.Context(), c, handoffKey)
		synctest.Wait()
		second := acquireAsync(t.Context(), other, handoffKey)
		synctest.Wait()
		must(0, held.Release(t.Context()))
		lease := now(t, first)
		if lease.Fence() <= held.Fence() {
			t.Errorf("fence %d after %d", lease.Fence(), held.Fence())
		}
		must(0, lease.Release(t.Context()))
		must(0, now(t, second).Release(t.Context()))
		b.nothing(t, c, other)
	})
}

// The request is lost, or its reply; the counter is forgotten; the scripts are. It
// takes the lock all the same, with a fence above the last, and leaves nothing.
func TestHandoffTakeInTrouble(t *testing.T) {
	for _, c := range []struct {
		name            string
		trouble         func(*bubble, *crowding)
		commands, trips int64 // 0: nothing was heard of the server, and it gives up
	}{
		{"request lost", func(_ *bubble, c *crowding) { c.next(fails) }, 2 + 1, 2},
		{"reply lost", func(_ *bubble, c *crowding) { c.next(unanswered) }, 2 + 1, 2},
		{"two replies lost", func(_ *bubble, c *crowding) { c.next(unanswered, unanswered) }, 0, 0},
		{"counter forgotten", func(b *bubble, _ *crowding) { b.node.Del(handoffKey + ":fence") }, 2 + 1, 2},
		{"everything forgotten", func(b *bubble, _ *crowding) { b.node.FlushAll() }, 2 + 1, 2},
		{"scripts forgotten", func(b *bubble, _ *crowding) { b.forgetScripts() }, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				p, other := newCrowding(t, b), newCrowding(t, b)
				last := p.leaves(t)
				time.Sleep(time.Second)
				c.trouble(b, p)
				if c.commands == 0 {
					if lease, err := p.Acquire(t.Context(), handoffKey); err == nil {
						t.Errorf("%v, and nothing was heard of the server", lease)
					}
				} else {
					lease := p.takes(t, c.commands, c.trips)
					if lease.Fence() <= last {
						t.Errorf("fence %d after %d", lease.Fence(), last)
					}
					must(0, lease.Release(t.Context()))
				}
				must(0, now(t, acquireAsync(t.Context(), other, handoffKey)).Release(t.Context()))
				b.nothing(t, p, other)
			})
		})
	}
}

// between does something between the two commands.
type between func()

func (between) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (between) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (do between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "set" {
			return next(ctx, cmds)
		}
		first := next(ctx, cmds[:1])
		do()
		return errors.Join(first, next(ctx, cmds[1:]))
	}
}

// The lease runs out between the two commands, and another has it: a number that
// was drawn after the other's is no fence.
func TestHandoffTakeCutInTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		other := newCrowding(t, b)
		got := make(chan lock.Lease, 1)
		l, end := b.open(t, crowdTTL, 2*crowdTTL, between(func() {
			time.Sleep(crowdTTL + time.Second)
			got <- must(other.Acquire(t.Context(), handoffKey))
		}))
		defer end()
		must(0, must(l.Acquire(t.Context(), handoffKey)).Release(t.Context()))
		mine := acquireAsync(t.Context(), l, handoffKey)
		theirs := <-got
		synctest.Wait()
		if len(mine) > 0 {
			t.Fatal("two have it")
		}
		must(0, theirs.Release(t.Context()))
		lease := soon(t, crowdTTL, mine)
		if lease.Fence() <= theirs.Fence() {
			t.Errorf("fence %d after %d", lease.Fence(), theirs.Fence())
		}
		must(0, lease.Release(t.Context()))
		b.nothing(t, other)
	})
}

// Another queues between the two commands: it is before all who come after, even
// before the neighbours of the holder.
func TestHandoffTakeKnowsNoNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		other := newCrowding(t, b)
		queued := make(chan (<-chan outcome), 1)
		process := new(crowding)
		var end func()
		process.Locker, end = b.open(t, crowdTTL, time.Hour, &process.meddler, between(func() {
			queued <- acquireAsync(t.Context(), other, handoffKey)
			time.Sleep(time.Millisecond) // it is in the queue
		}))
		defer end()
		waits := must(process.Acquire(t.Context(), "grab:handoff:{open}"))
		opened := acquireAsync(t.Context(), process, "grab:handoff:{open}")
		synctest.Wait()
		must(0, waits.Release(t.Context()))
		must(0, now(t, opened).Release(t.Context()))

		must(0, must(process.Acquire(t.Context(), handoffKey)).Release(t.Context()))
		lease := must(process.Acquire(t.Context(), handoffKey))
		after := acquireAsync(t.Context(), process, handoffKey)
		synctest.Wait()
		must(0, lease.Release(t.Context()))
		must(0, now(t, <-queued).Release(t.Context()))
		must(0, now(t, after).Release(t.Context()))
		b.nothing(t, process, other)
	})
}

// slowChecks holds up every check, once it is on, for half a minute.
type slowChecks struct{ on atomic.Bool }

func (*slowChecks) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*slowChecks) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s *slowChecks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if s.on.Load() && cmds[0].Name() == "evalsha" {
			time.Sleep(time.Minute / 2)
		}
		return next(ctx, cmds)
	}
}

// A holder dies with others waiting. Until one of them has noticed, nobody takes
// the lock past them, though its lease is over.
func TestHandoffTakePassesNobody(t *testing.T) {
	for _, c := range []struct {
		name  string
		had   time.Duration // before it died
		lives time.Duration // its lease, after that
	}{
		{"handed over", 0, crowdTTL},
		{"renewed", crowdTTL / 2, crowdTTL * 5 / 6}, // after a third
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				p, giver := newCrowding(t, b), newCrowding(t, b)
				p.leaves(t)
				var slow slowChecks
				other, end := b.open(t, crowdTTL, time.Hour, &slow)
				defer end()
				doomed, die := b.open(t, crowdTTL, time.Hour)
				given := must(giver.Acquire(t.Context(), handoffKey))
				held := acquireAsync(t.Context(), doomed, handoffKey)
				synctest.Wait()
				must(0, given.Release(t.Context()))
				now(t, held)
				time.Sleep(50 * time.Millisecond) // so that who waits looks a little after the end
				first := acquireAsync(t.Context(), other, handoffKey)
				synctest.Wait()
				time.Sleep(c.had)
				die()
				time.Sleep(c.lives - 200*time.Millisecond)
				slow.on.Store(true)
				time.Sleep(30 * time.Second)
				if len(first) > 0 {
					t.Fatal("who waits has noticed")
				}
				second := acquireAsync(t.Context(), p, handoffKey)
				synctest.Wait()
				if p.sent.commands.Load() < 2 {
					t.Error("it was not tried with two commands")
				}
				if len(second) > 0 {
					t.Fatal("it was taken past who waits")
				}
				must(0, soon(t, crowdTTL, first).Release(t.Context()))
				must(0, soon(t, crowdTTL, second).Release(t.Context()))
				b.nothing(t, p, giver)
			})
		})
	}
}

// All who wait die, and the holder goes on: so does the lock.
func TestHandoffLockOutlivesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c, other := newCrowding(t, b), newCrowding(t, b)
		other.leaves(t)
		lease := must(c.Acquire(t.Context(), handoffKey))
		client := b.client()
		doomed := newHandoffOn(t, client, crowdTTL, time.Hour)
		gone := acquireAsync(t.Context(), doomed, handoffKey)
		synctest.Wait()
		_, _ = client.Close(), doomed.Close() // it cannot leave any more
		<-gone
		time.Sleep(10 * crowdTTL)
		b.node.Del(handoffKey) // the next renewal sees to that
		time.Sleep(10 * crowdTTL)
		if _, err := other.Acquire(lock.TryOnce(t.Context()), handoffKey); !errors.Is(err, lock.ErrBusy) {
			t.Errorf("another took it: %v", err)
		}
		must(0, lease.Release(t.Context()))
		b.nothing(t, c, other)
	})
}

// Where a process does much at a time, scripts that share a request serve it better.
func TestHandoffTakeIsForTheFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c := newCrowding(t, b)
		var held []lock.Lease
		for i := range 4 {
			held = append(held, must(c.Acquire(t.Context(), fmt.Sprint("grab:handoff:", i))))
		}
		c.leaves(t)
		must(0, c.takes(t, 1, 1).Release(t.Context()))
		must(0, held[0].Release(t.Context()))
		c.leaves(t)
		must(0, c.takes(t, 2, 1).Release(t.Context()))
		for _, lease := range held[1:] {
			must(0, lease.Release(t.Context()))
		}
		b.nothing(t, c)
	})
}

// The server loses the lock, and knows the lease and the queue: whoever has it
// gives it to the next.
func TestHandoffLockLost(t *testing.T) {
	for name, lease := range map[string]func(*testing.T, *crowding) lock.Lease{
		"waited for": func(t *testing.T, c *crowding) lock.Lease { return must(c.Acquire(t.Context(), handoffKey)) },
		"handed over": func(t *testing.T, c *crowding) lock.Lease {
			first := must(c.Acquire(t.Context(), handoffKey))
			second := acquireAsync(t.Context(), c, handoffKey)
			synctest.Wait()
			must(0, first.Release(t.Context()))
			return (<-second).lease
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				c, other := newCrowding(t, b), newCrowding(t, b)
				held := lease(t, c)
				next := acquireAsync(t.Context(), other, handoffKey)
				synctest.Wait()
				b.node.Del(handoffKey)
				must(0, held.Release(t.Context()))
				must(0, now(t, next).Release(t.Context()))
				b.nothing(t, c, other)
			})
		})
	}
}

// It is forgotten that there was a counter, when it is tried for a lock that
// another has: the new one does not stay for ever.
func TestHandoffTakeBeginsACounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c, other := newCrowding(t, b), newCrowding(t, b)
		c.leaves(t)
		held := must(other.Acquire(t.Context(), handoffKey))
		b.node.Del(handoffKey + ":fence")
		if _, err := c.Acquire(lock.TryOnce(t.Context()), handoffKey); !errors.Is(err, lock.ErrBusy) {
			t.Error(err)
		}
		must(0, held.Release(t.Context()))
		b.nothing(t, c, other)
		time.Sleep(25 * time.Hour)
		if keys := b.node.Keys(); len(keys) > 0 {
			t.Errorf("after a day: %v", keys)
		}
	})
}

// What is no lock of ours is not taken for one, whatever it is.
func TestHandoffForeignLock(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string) {
		client := newClient(addr)
		defer client.Close()
		must(0, client.HSet(t.Context(), handoffKey, "owner", "somebody else").Err())
		l := openHandoff(t, addr, time.Minute, 0)
		if _, err := l.Acquire(t.Context(), handoffKey); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%v; want the server's complaint", err)
		}
	})
}

// The lock says that others wait only for as long as there is something to wait
// for: whoever leaves as the last takes that back.
func TestHandoffLockAfterTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c, other := newCrowding(t, b), newCrowding(t, b)
		lease := must(c.Acquire(t.Context(), handoffKey))
		ctx, cancel := context.WithCancel(t.Context())
		gone := acquireAsync(ctx, other, handoffKey)
		synctest.Wait()
		for range 2 {
			if who, _ := b.node.Get(handoffKey); who != "queue" {
				t.Errorf("%q, and somebody waits", who)
			}
			time.Sleep(10 * crowdTTL) // renewals keep both
		}
		cancel()
		if o := <-gone; o.err == nil {
			t.Error("it has the lease, and so has another")
		}
		if who, _ := b.node.Get(handoffKey); who != lease.Token() || b.node.Exists(handoffKey+":lease") {
			t.Errorf("%q, and nobody waits", who)
		}
		time.Sleep(10 * crowdTTL)
		select {
		case <-lease.Lost():
			t.Error("lost")
		default:
		}
		must(0, lease.Release(t.Context()))
		b.nothing(t, c, other)
	})
}
