package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/grab/lock/conformtest"

	"github.com/redis/go-redis/v9"
)

const crowdTTL = 30 * time.Second

// meddler is a hook that does with the next scripts of its client what it was
// told, and lets pass what comes after.
type meddler struct {
	mu   sync.Mutex
	told []meddling
}

// meddling is what is done with a script, or with the two commands that do for
// one. send carries it out.
type meddling func(send func() error) error

var errMeddled = errors.New("meddled with")

// fails loses a request, unanswered loses the reply to it.
func fails(func() error) error           { return errMeddled }
func unanswered(send func() error) error { _ = send(); return errMeddled }
func passes(send func() error) error     { return send() }

// held holds a request back until it is let go.
func held() (m meddling, letGo func()) {
	gate := make(chan struct{})
	return func(send func() error) error { <-gate; return send() }, func() { close(gate) }
}

func (m *meddler) next(told ...meddling) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = told
}

func (m *meddler) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *meddler) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "set" {
			return next(ctx, cmds)
		}
		err := m.meddle(func() error { return next(ctx, cmds) })
		if errors.Is(err, errMeddled) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

func (m *meddler) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		err := m.meddle(func() error { return next(ctx, cmd) })
		if err != nil {
			cmd.SetErr(err)
		}
		return err
	}
}

func (m *meddler) meddle(send func() error) error {
	do := passes
	m.mu.Lock()
	if len(m.told) > 0 {
		do, m.told = m.told[0], m.told[1:]
	}
	m.mu.Unlock()
	return do(send)
}

// crowding is a process in a bubble: its side of the lock, and what it sends.
type crowding struct {
	lock.Locker
	key  string // of queue
	sent traffic
	meddler
}

// newCrowding opens a process that knows all scripts, and whose line is up. It
// ends with the test. The bubble is to be given time to settle in: synctest.Wait is called.
func newCrowding(t *testing.T, b *bubble) *crowding {
	t.Helper()
	c := &crowding{key: "grab:handoff:{warm}"}
	var end func()
	c.Locker, end = b.open(t, crowdTTL, time.Hour, &c.sent, &c.meddler)
	t.Cleanup(end)
	for _, n := range []int{1, 3} { // the first opens the line, the others cross together
		lease := must(c.Acquire(t.Context(), c.key))
		for _, w := range c.queue(t.Context(), n) {
			must(0, lease.Release(t.Context()))
			lease = now(t, w)
		}
		must(0, lease.Release(t.Context()))
	}
	c.key = handoffKey
	return c
}

// queue has so many acquires wait for the lock, in the order of the channels. The
// first's request is held up until all the others stand ashore.
func (c *crowding) queue(ctx context.Context, n int) (waiting []<-chan outcome) {
	hold, letGo := held()
	c.next(hold)
	for range n {
		waiting = append(waiting, acquireAsync(ctx, c, c.key))
		synctest.Wait()
	}
	letGo()
	synctest.Wait()
	return waiting
}

// now waits for a lease that must be there without anybody having to wait.
func now(t *testing.T, done <-chan outcome) lock.Lease {
	t.Helper()
	synctest.Wait()
	select {
	case o := <-done:
		if o.err != nil {
			t.Fatal(o.err)
		}
		return o.lease
	default:
		t.Fatal("no lease")
		return nil
	}
}

// nothing checks that neither the server nor a process knows of anything.
func (b *bubble) nothing(t *testing.T, all ...*crowding) {
	t.Helper()
	synctest.Wait()
	for _, key := range b.node.Keys() {
		if !strings.HasSuffix(key, ":fence") {
			t.Errorf("left behind: %s", key)
		}
	}
	for i, c := range all {
		if places, crowds := lock.Remembered(c.Locker); places+crowds > 0 {
			t.Errorf("process %d remembers %d places and %d crowds", i, places, crowds)
		}
	}
}

// Those of a process who wait for a lock join its queue with few requests, and
// hand the lease on among themselves with hardly any, in the order in which they came.
func TestHandoffCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c := newCrowding(t, b)
		lease := must(c.Acquire(t.Context(), handoffKey))
		c.sent.commands.Store(0)
		waiting := c.queue(t.Context(), 300)
		if n := c.sent.commands.Load(); n != 3 {
			t.Errorf("%d requests to queue 300; want the first's, one for 256 and one for the others", n)
		}
		c.sent.commands.Store(0)
		for i, w := range waiting {
			last := lease.Fence()
			must(0, lease.Release(t.Context()))
			if lease = now(t, w); lease.Fence() <= last {
				t.Errorf("fence %d after %d", lease.Fence(), last)
			}
			want := int64(0)
			if i >= 256 {
				want = 1 // now and then it is the server's turn
			}
			if n := c.sent.commands.Load(); n != want {
				t.Fatalf("%d commands to hand it to number %d; want %d", n, i, want)
			}
		}
		must(0, lease.Release(t.Context()))
		if n := c.sent.commands.Load(); n != 2 {
			t.Errorf("%d commands until it was given back; want 2", n)
		}
		b.nothing(t, c)
	})
}

// A process hands a lease on among its own only while nobody of another stands
// between them.
func TestHandoffCrowdsTakeTurns(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string) {
		ctx := t.Context()
		client := newClient(addr)
		defer client.Close()
		processes := []lock.Locker{openHandoff(t, addr, crowdTTL, time.Minute), openHandoff(t, addr, crowdTTL, time.Minute)}
		lease := must(processes[0].Acquire(ctx, handoffKey))
		const waiters = 90
		served := make(chan lock.Lease)
		for i := range waiters {
			go func() {
				lease, err := processes[i/3%2].Acquire(ctx, handoffKey)
				if err != nil {
					t.Error(err)
				}
				served <- lease
			}()
			if i < waiters/2 { // the others come in a crowd
				untilQueued(t, client, handoffKey, int64(i+1))
			}
		}
		untilQueued(t, client, handoffKey, waiters)
		queue := client.ZRange(ctx, handoffKey+":queue", 0, -1).Val()
		for i, name := range queue {
			last := lease.Fence()
			must(0, lease.Release(ctx))
			select {
			case lease = <-served:
			case <-time.After(10 * time.Second):
				t.Fatalf("nobody came in place %d", i)
			}
			if lease == nil || lease.Token() != name {
				t.Fatalf("not number %d of the queue was served", i)
			}
			if lease.Fence() <= last {
				t.Errorf("fence %d after %d", lease.Fence(), last)
			}
			select {
			case <-served:
				t.Fatalf("another was served with number %d", i)
			default:
			}
		}
		must(0, lease.Release(ctx))
		nothingLeft(t, client)
	})
}

// Whoever gives up delays nobody, wherever it stands, and leaves nothing.
func TestHandoffCrowdGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c, other := newCrowding(t, b), newCrowding(t, b)
		lease := must(c.Acquire(t.Context(), handoffKey))

		crossing, letCross := held()
		joining, letJoin := held()
		c.next(crossing, joining)
		var waiting []<-chan outcome
		var giveUp []func()
		for range 9 {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			waiting, giveUp = append(waiting, acquireAsync(ctx, c, handoffKey)), append(giveUp, cancel)
			synctest.Wait()
		}
		gone := func(i int) {
			t.Helper()
			giveUp[i]()
			synctest.Wait()
			select {
			case o := <-waiting[i]:
				if !errors.Is(o.err, context.Canceled) {
					t.Errorf("number %d: %v", i, o.err)
				}
			default:
				t.Errorf("number %d does not give up", i)
			}
		}
		gone(2) // ashore
		letCross()
		synctest.Wait()
		giveUp[3]() // while it crosses with the others
		letJoin()
		gone(3)
		gone(5) // in the queue
		after := acquireAsync(t.Context(), other, handoffKey)
		synctest.Wait()
		release := func() { must(0, lease.Release(t.Context())) }
		handed := func(i int) { // and gives up, as a rule before it has seen that
			t.Helper()
			release()
			giveUp[i]()
			synctest.Wait()
			if o := <-waiting[i]; o.err == nil {
				must(0, o.lease.Release(t.Context()))
			} else if !errors.Is(o.err, context.Canceled) {
				t.Errorf("number %d: %v", i, o.err)
			}
		}
		handed(0) // in the middle of one
		lease = now(t, waiting[1])
		for _, i := range []int{4, 6, 7} {
			release()
			lease = now(t, waiting[i])
		}
		handed(8) // the last of a run
		lease = now(t, after)
		release()
		b.nothing(t, c, other)
	})
}

// Whoever gives up in the moment in which it is told what it got is forgotten.
func TestHandoffCrowdForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c := newCrowding(t, b)
		for range 20 { // the one or the other is noticed first
			crossing, letCross := held()
			joining, letJoin := held()
			ctx, cancel := context.WithCancel(t.Context())
			c.next(crossing, func(send func() error) error {
				defer cancel()
				return joining(send)
			})
			first := acquireAsync(t.Context(), c, handoffKey)
			synctest.Wait()
			second := acquireAsync(ctx, c, handoffKey)
			synctest.Wait()
			letCross()
			must(0, now(t, first).Release(t.Context()))
			letJoin()
			if o := <-second; o.err == nil {
				must(0, o.lease.Release(t.Context()))
			}
			b.nothing(t, c)
		}
	})
}

// A request for many fails, or is carried out and its reply lost: all are served.
func TestHandoffCrowdFailsTogether(t *testing.T) {
	for name, do := range map[string]meddling{"the request": fails, "the reply": unanswered} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				c := newCrowding(t, b)
				for _, free := range []bool{false, true} { // the first who crosses gets the lease, or a place
					lease := must(c.Acquire(t.Context(), handoffKey))
					crossing, letCross := held()
					joining, letJoin := held()
					c.next(crossing, func(send func() error) error {
						return joining(func() error { return do(send) })
					})
					waiting := make(chan outcome)
					for range 10 {
						go func() {
							lease, err := c.Acquire(t.Context(), handoffKey)
							waiting <- outcome{lease, err}
						}()
						synctest.Wait()
					}
					letCross()
					synctest.Wait()
					had := 0
					if free {
						must(0, lease.Release(t.Context()))
						must(0, now(t, waiting).Release(t.Context()))
						had++
						letJoin()
					} else {
						letJoin()
						synctest.Wait()
						must(0, lease.Release(t.Context()))
					}
					for ; had < 10; had++ {
						lease := now(t, waiting)
						synctest.Wait()
						select {
						case <-waiting:
							t.Fatal("two have it")
						default:
						}
						must(0, lease.Release(t.Context()))
					}
					b.nothing(t, c)
				}
			})
		})
	}
}

// An acquire whose first reply was lost holds the lease under a number that was
// drawn later: others may have joined the queue in between.
func TestHandoffCrowdAsksTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c, other := newCrowding(t, b), newCrowding(t, b)
		var between <-chan outcome
		c.next(func(send func() error) error {
			_ = send()
			between = acquireAsync(t.Context(), other, handoffKey)
			time.Sleep(time.Millisecond)
			return errMeddled
		})
		lease := must(c.Acquire(t.Context(), handoffKey))
		after := acquireAsync(t.Context(), c, handoffKey)
		synctest.Wait()
		for _, w := range []<-chan outcome{between, after} {
			must(0, lease.Release(t.Context()))
			lease = now(t, w)
		}
		must(0, lease.Release(t.Context()))
		b.nothing(t, c, other)
	})
}

// The lease is handed on for far longer than it lives: it is renewed under the
// name that it has.
func TestHandoffCrowdRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c, other := newCrowding(t, b), newCrowding(t, b)
		lease := must(c.Acquire(t.Context(), handoffKey))
		waiting := c.queue(t.Context(), 20)
		waiting = append(waiting, acquireAsync(t.Context(), other, handoffKey))
		for i, w := range waiting {
			select {
			case <-lease.Lost():
				t.Fatalf("lost by the one before number %d", i)
			case <-time.After(crowdTTL/4 + time.Duration(i%5)*crowdTTL/2):
			}
			must(0, lease.Release(t.Context()))
			lease = now(t, w)
		}
		must(0, lease.Release(t.Context()))
		b.nothing(t, c, other)
	})
}

func (b *bubble) forgetScripts() {
	client := b.client()
	defer client.Close()
	must(0, client.ScriptFlush(context.Background()).Err())
}

// Redis forgets something in the middle of a run. All are served in the end, and
// nobody waits for a TTL; what was handed on meanwhile is known by its fence.
func TestHandoffCrowdForgotten(t *testing.T) {
	const hold, waiters, late = 300 * time.Millisecond, 40, 4
	for _, c := range []struct {
		name   string
		forget func(*bubble)
		lost   bool // somebody may lose it by that
		two    bool // may hold it at a time: the server knows neither holder nor queue
	}{
		{"the lock", func(b *bubble) { b.node.Del(handoffKey) }, false, false},
		{"the lease", func(b *bubble) { b.node.Del(handoffKey + ":lease") }, true, false},
		{"lock and lease", func(b *bubble) { b.node.Del(handoffKey); b.node.Del(handoffKey + ":lease") }, true, false},
		{"the queue", func(b *bubble) { b.node.Del(handoffKey + ":queue") }, false, false},
		{"the scripts", (*bubble).forgetScripts, false, false},
		{"everything", func(b *bubble) { b.node.FlushAll() }, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				processes := []*crowding{newCrowding(t, b), newCrowding(t, b)}
				var mu sync.Mutex
				var inside int
				var last [2]uint64 // fence in each process
				var all sync.WaitGroup
				once := func(which int) {
					lease, err := processes[which].Acquire(t.Context(), handoffKey)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if inside++; inside > 1 && !c.two {
						t.Errorf("%d have it", inside)
					}
					if lease.Fence() <= last[which] {
						t.Errorf("fence %d after %d", lease.Fence(), last[which])
					}
					last[which] = lease.Fence()
					mu.Unlock()
					time.Sleep(hold)
					mu.Lock()
					inside--
					mu.Unlock()
					if err := lease.Release(t.Context()); err != nil && !(c.lost && errors.Is(err, lock.ErrLost)) {
						t.Error(err)
					}
				}
				lease := must(processes[0].Acquire(t.Context(), handoffKey))
				for i := range waiters {
					all.Go(func() { once(i / 10 % 2) })
					synctest.Wait()
				}
				began := time.Now()
				must(0, lease.Release(t.Context()))
				time.Sleep(5*hold + hold/3)
				c.forget(b)
				for i := range late {
					all.Go(func() { once(i % 2) })
				}
				all.Wait()
				if more := time.Since(began) - (waiters+late)*hold; more > 2*time.Second {
					t.Errorf("it took %v more than they held it", more)
				}
				b.nothing(t, processes...)
			})
		})
	}
}

// The server was away, and comes back without a memory: a run ends then, and
// not when it is renewed next.
func TestHandoffCrowdReconnects(t *testing.T) {
	addr := conformtest.RedisServer(t)
	ctx := t.Context()
	client := newClient(addr)
	defer client.Close()
	l := openHandoff(t, addr, crowdTTL, time.Minute)
	lease := must(l.Acquire(ctx, handoffKey))
	var waiting []<-chan outcome
	for i := range int64(2) {
		waiting = append(waiting, acquireAsync(ctx, l, handoffKey))
		untilQueued(t, client, handoffKey, i+1)
	}
	must(0, lease.Release(ctx))
	lease = soon(t, leeway, waiting[0])
	must(0, client.FlushAll(ctx).Err())
	must(0, client.ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
	next := soon(t, poll+leeway, waiting[1])
	select {
	case <-lease.Lost():
	default:
		t.Error("another has it, and it is not known to be lost")
	}
	if err := lease.Release(ctx); !errors.Is(err, lock.ErrLost) {
		t.Error(err)
	}
	must(0, next.Release(ctx))
	nothingLeft(t, client)
}

// Wake-ups come late, for names that had the lease in a run, or under which it
// stands: it is nobody's to take or to hand on but the holder's.
func TestHandoffCrowdLateWakeups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c, other := newCrowding(t, b), newCrowding(t, b)
		lease := must(c.Acquire(t.Context(), handoffKey))
		waiting := c.queue(t.Context(), 6)
		waiting = append(waiting, acquireAsync(t.Context(), other, handoffKey))
		synctest.Wait()
		var had []lock.Lease
		for i, w := range waiting {
			had = append(had, lease)
			must(0, lease.Release(t.Context()))
			lease = now(t, w)
			for _, h := range had {
				channel, _, _ := strings.Cut(h.Token(), "/")
				b.node.Publish(channel, fmt.Sprintf("%s %d %s", h.Token(), h.Fence(), handoffKey))
			}
			synctest.Wait()
			for _, w := range waiting[i+1:] {
				if len(w) > 0 {
					t.Fatalf("while number %d has it, another has it too", i)
				}
			}
		}
		must(0, lease.Release(t.Context()))
		b.nothing(t, c, other)
	})
}

// Who is about to ask again is not handed the lease: it would not look.
func TestHandoffCrowdAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c := newCrowding(t, b)
		lease := must(c.Acquire(t.Context(), handoffKey))
		waiting := c.queue(t.Context(), 3)
		asking, letAsk := held()
		c.next(asking, asking, asking)
		b.node.Del(handoffKey + ":queue")
		time.Sleep(2 * time.Second) // all three find that they are not in the queue
		began := time.Now()
		go func() { must(0, lease.Release(t.Context())) }()
		synctest.Wait()
		letAsk()
		for range waiting {
			synctest.Wait()
			i := slices.IndexFunc(waiting, func(w <-chan outcome) bool { return len(w) > 0 })
			if i < 0 {
				t.Fatal("nobody has it")
			}
			must(0, now(t, waiting[i]).Release(t.Context()))
			if slices.ContainsFunc(waiting[:i], func(w <-chan outcome) bool { return len(w) > 0 }) {
				t.Fatal("two had it")
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		b.nothing(t, c)
	})
}

// A request that failed is carried out late, and puts the holder behind itself:
// what it then hands to itself is handed on.
func TestHandoffCrowdLateRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c := newCrowding(t, b)
		var late func() error
		c.next(func(send func() error) error { late = send; return errMeddled })
		lease := must(c.Acquire(t.Context(), handoffKey))
		must(0, late())
		must(0, lease.Release(t.Context()))
		b.nothing(t, c)
	})
}

// A process closes in the middle of a run. Those who wait are told, and the
// lease goes to others as soon as its holder gives it back.
func TestHandoffCrowdCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c, other := newCrowding(t, b), newCrowding(t, b)
		lease := must(c.Acquire(t.Context(), handoffKey))
		waiting := c.queue(t.Context(), 6)
		after := acquireAsync(t.Context(), other, handoffKey)
		synctest.Wait()
		for range 2 {
			must(0, lease.Release(t.Context()))
			lease, waiting = now(t, waiting[0]), waiting[1:]
		}
		crossing, letCross := held()
		c.next(crossing)
		for range 3 { // one crosses, two stand ashore
			waiting = append(waiting, acquireAsync(t.Context(), c, handoffKey))
			synctest.Wait()
		}
		began := time.Now()
		closed := make(chan struct{})
		go func() { must(0, c.Close()); close(closed) }()
		synctest.Wait()
		letCross()
		<-closed
		for i, w := range waiting {
			if o := <-w; o.err == nil {
				t.Errorf("number %d has it", i)
			}
		}
		if len(after) > 0 {
			t.Error("another has it, and it was not given back")
		}
		must(0, lease.Release(t.Context()))
		must(0, now(t, after).Release(t.Context()))
		b.nothing(t, other)
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// The lease was given to one who had had it in a run already: it is lost, and
// goes to others as soon as its holder finds that out.
func TestHandoffCrowdAbandons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c, other := newCrowding(t, b), newCrowding(t, b)
		lease := must(c.Acquire(t.Context(), handoffKey))
		waiting := c.queue(t.Context(), 2)
		after := acquireAsync(t.Context(), other, handoffKey)
		synctest.Wait()
		for _, w := range waiting {
			must(0, lease.Release(t.Context()))
			lease = now(t, w)
		}
		b.node.Del(handoffKey + ":lease")
		time.Sleep(2 * time.Second) // a check of the other passes it on to the first in the queue
		if holder, _ := b.node.Get(handoffKey + ":lease"); holder != lease.Token() {
			t.Errorf("%q has it; want the last of the run", holder)
		}
		if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		must(0, now(t, after).Release(t.Context()))
		b.nothing(t, c, other)
	})
}
