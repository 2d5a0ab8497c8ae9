package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"grablab/handoff"
	"grablab/internal/testbed/conformtest"

	"github.com/redis/go-redis/v9"
)

func TestOptions(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for name, tt := range map[string]struct {
		client redis.UniversalClient
		opt    handoff.Options
		ok     bool
	}{
		"defaults":               {client, handoff.Options{}, true},
		"no client":              {nil, handoff.Options{}, false},
		"a Ring":                 {ring, handoff.Options{}, false},
		"a fraction of a ms":     {client, handoff.Options{TTL: time.Second + time.Microsecond}, false},
		"a TTL of nothing":       {client, handoff.Options{TTL: time.Millisecond}, false},
		"a negative TTL":         {client, handoff.Options{TTL: -time.Second}, false},
		"an ID that is no word":  {client, handoff.Options{ID: "a b"}, false},
		"an ID that is no name/": {client, handoff.Options{ID: "a/b"}, false},
	} {
		l, err := handoff.New(tt.client, tt.opt)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, handoff.ErrOptions) {
			t.Errorf("%s: New: %v", name, err)
		}
		if err == nil {
			_ = l.Close()
		}
	}
}

// TestUncontended checks that an acquire and a release without contention send one request each, and
// open no subscription.
func TestUncontended(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p := b.process()
		for range 10 {
			var lease *handoff.Lease
			if n := p.sent(func() { lease = p.take() }); n != 1 {
				b.Errorf("an acquire took %d requests", n)
			}
			if n := p.sent(func() { b.release(lease) }); n != 1 {
				b.Errorf("a release took %d requests", n)
			}
		}
		if n := len(b.node.PubSubChannels("*")); n != 0 {
			b.Errorf("%d subscriptions, although no client waited", n)
		}
		b.nothingLeft()
	})
}

// TestCalmAfterwards lets two processes compete or run into trouble, and then waits until that is over. A
// process must then use the same commands to acquire and release the lock as a process that was always
// alone, and ignore another copy of its last message.
func TestCalmAfterwards(t *testing.T) {
	var alone []string
	for _, history := range []struct {
		name string
		run  func(p, q *process)
	}{
		{"always alone", func(p, q *process) {}},
		{"another process waited", func(p, q *process) { p.release(q.served(q.subscribed(p))) }},
		{"it waited for another process", func(p, q *process) { p.release(p.served(p.subscribed(q))) }},
		{"another process waited, and this one was told", func(p, q *process) {
			p.release(p.served(p.subscribed(q)))
			p.release(q.served(q.subscribed(p)))
		}},
		{"another process gave up", func(p, q *process) {
			lease := p.take()
			_, _ = q.AcquireWithin(q.Context(), key, time.Second)
			p.release(lease)
		}},
		{"it gave up", func(p, q *process) {
			lease := q.take()
			_, _ = p.AcquireWithin(p.Context(), key, time.Second)
			q.release(lease)
		}},
		{"the reply to an acquire was lost", func(p, q *process) {
			p.meet(unanswered)
			p.release(p.take())
		}},
		{"no reply to an acquire arrived", func(p, q *process) {
			p.meet(unanswered, unanswered)
			_, _ = p.Acquire(p.Context(), key)
		}},
		{"the reply to a release was lost", func(p, q *process) {
			lease := p.take()
			p.meet(unanswered)
			p.release(lease)
		}},
		{"another process died", func(p, q *process) {
			q.take()
			q.end()
			p.release(p.take())
		}},
		{"the server forgot the lease", func(p, q *process) {
			lease := p.take()
			p.node.Del(key)
			time.Sleep(ttl)
			_ = lease.Release(p.Context())
		}},
		{"its subscription broke", func(p, q *process) {
			p.release(p.served(p.subscribed(q)))
			p.silence()
			time.Sleep(ttl)
		}},
		{"late messages about other keys arrived", func(p, q *process) {
			p.release(p.served(p.subscribed(q)))
			for i := range 20 {
				p.node.Publish(p.channel(), fmt.Sprintf("%s/%d 1000032 order:{%d}", p.channel(), 1000+i, 1000+i))
			}
		}},
	} {
		t.Run(history.name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				p, q := b.process(), b.process()
				history.run(p, q)
				time.Sleep(2 * ttl)
				var last *handoff.Lease
				var got []string
				for range 2 { // the first one may use a script, which extends the TTL of the counter
					got = p.commandsOf(func() {
						last = p.take()
						b.release(last)
						synctest.Wait()
					})
				}
				if alone == nil {
					alone = got
				}
				if !slices.Equal(got, alone) {
					b.Errorf("afterwards, a process sends %q, want %q", got, alone)
				}
				turn, _, _ := strings.Cut(last.Token(), ".")
				if n := p.sent(func() { b.node.Publish(p.channel(), turn+" 1000032 "+key); synctest.Wait() }); n > 0 {
					b.Errorf("a copy of an old message makes a process send %d requests, want none", n)
				}
			})
		})
	}
}

// channel returns the Redis channel on which the process gets its messages.
func (p *process) channel() string { return fmt.Sprintf("handoff:%s:%d", p.id, ttl.Milliseconds()) }

// TestCohort checks that a release hands the lease to the next caller of the same process without a
// request to Redis, in order of arrival.
func TestCohort(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p := b.process()
		lease := p.take()
		var all []<-chan *handoff.Lease
		for range 20 {
			all = append(all, p.wait())
		}
		if n := b.queued(); n != 0 {
			b.Errorf("%d turns in the queue, although only callers of the holder's process wait", n)
		}
		for i, got := range all {
			fence := lease.Fence()
			if n := p.sent(func() { b.release(lease); lease = b.served(got) }); n != 0 {
				b.Errorf("hand-over %d took %d requests", i, n)
			}
			if lease.Fence() != fence+1 {
				b.Errorf("token %d after %d", lease.Fence(), fence)
			}
			b.unserved(all[i+1:]...)
		}
		b.release(lease)
		b.nothingLeft()
	})
}

// TestCohortGoesOn checks that a process keeps the lock for its callers while no other process waits.
// It must send only about one request per block of tokens.
func TestCohortGoesOn(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p := b.process()
		lease := p.take()
		last := lease.Fence()
		n := p.sent(func() {
			for range 320 {
				next := p.wait()
				b.release(lease)
				lease = b.served(next)
				if lease.Fence() <= last {
					b.Fatalf("token %d after %d", lease.Fence(), last)
				}
				last = lease.Fence()
			}
		})
		if n < 10 || n > 13 { // up to three more requests, to subscribe and to load scripts
			b.Errorf("%d requests for 320 hand-overs", n)
		}
		b.release(lease)
		b.nothingLeft()
	})
}

// TestTurns checks the order in which two processes are served. The holder's process first serves the
// callers that were waiting when the other process joined the queue. Then the other process gets its
// turn, and only after that the later callers of the first process.
func TestTurns(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		lease := p.take()
		order := []<-chan *handoff.Lease{p.wait(), p.wait()}
		other, also := q.wait(), q.wait()
		if n := b.queued(); n != 1 {
			b.Errorf("%d turns in the queue, want one for the other process", n)
		}
		late := p.wait()
		order = append(order, other, also, late)
		for i, got := range order {
			fence := lease.Fence()
			b.release(lease)
			lease = b.served(got)
			b.unserved(order[i+1:]...)
			if lease.Fence() <= fence {
				b.Errorf("turn %d: token %d after %d", i, lease.Fence(), fence)
			}
		}
		b.release(lease)
		b.nothingLeft()
	})
}

// TestTurnIsNotProlonged makes callers of two processes wait during several checks of the queue. Each
// check tells the holder's process again that others wait. Its turn must still serve only the callers
// that were waiting before.
func TestTurnIsNotProlonged(t *testing.T) {
	for checks := range 4 {
		for callers := 1; callers <= 3; callers++ {
			t.Run(fmt.Sprintf("%d checks, %d callers", checks, callers), func(t *testing.T) {
				inBubble(t, func(b *bubble) {
					p, q := b.process(), b.process()
					b.release(b.served(q.subscribed(p)))
					b.release(b.served(p.subscribed(q)))
					lease := p.take()
					var order []<-chan *handoff.Lease
					for range callers {
						order = append(order, p.wait())
					}
					order = append(order, q.wait(), p.wait())
					for i, got := range order {
						time.Sleep(time.Duration(checks) * time.Second) // two checks are at most a second apart
						b.unserved(order[i:]...)
						b.release(lease)
						lease = b.served(got)
						b.unserved(order[i+1:]...)
					}
					b.release(lease)
					b.nothingLeft()
				})
			})
		}
	}
}

// TestOthersWait checks that a process learns that other processes wait, even if the message arrives
// before the reply to its acquire, or not at all. Without a message, the next renewal must tell it.
func TestOthersWait(t *testing.T) {
	for name, lost := range map[string]bool{"early": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				p, q := b.process(), b.process()
				b.release(b.served(q.subscribed(p)))
				if p.deaf.Store(lost); !lost {
					b.release(b.served(p.subscribed(q)))
				}
				reply := make(chan struct{})
				p.meet(func(send func() error) error {
					err := send()
					if !lost {
						<-reply
					}
					return err
				})
				first := p.wait()
				other := q.wait()
				second, third := p.wait(), p.wait()
				close(reply)
				lease := b.served(first)
				if lost {
					time.Sleep(ttl / 2) // until a renewal has told the process
				}
				fourth := p.wait()
				for _, got := range []<-chan *handoff.Lease{second, third, other} {
					b.release(lease)
					lease = b.served(got)
				}
				b.release(lease)
				b.release(<-fourth)
				b.nothingLeft()
			})
		})
	}
}

// subscribed makes p wait once for a lock that other holds and then releases. After that, p has a
// subscription.
func (p *process) subscribed(other *process) <-chan *handoff.Lease {
	lease := other.take()
	got := p.wait()
	p.release(lease)
	return got
}

func TestTryAcquire(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		lease := p.take()
		for _, who := range []*process{p, q} {
			if _, err := who.TryAcquire(b.Context(), key); !errors.Is(err, handoff.ErrBusy) {
				b.Errorf("%s: %v, want ErrBusy", who.id, err)
			}
		}
		b.release(lease)
		b.nothingLeft()
		got, err := q.TryAcquire(b.Context(), key)
		if err != nil {
			b.Fatal(err)
		}
		b.release(got)
	})
}

// TestTryAcquireInProcess checks that TryAcquire sends no request and opens no subscription if a
// caller of the same process holds the lock.
func TestTryAcquireInProcess(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p := b.process()
		lease := p.take()
		sent := p.sent(func() {
			if _, err := p.TryAcquire(b.Context(), key); !errors.Is(err, handoff.ErrBusy) {
				b.Errorf("%v, want ErrBusy", err)
			}
			synctest.Wait()
		})
		if n := len(b.node.PubSubChannels("*")); sent != 0 || n != 0 {
			b.Errorf("%d requests and %d subscriptions", sent, n)
		}
		b.release(lease)
	})
}

// TestReleaseOfForgotten checks that a release returns ErrLost if the server has forgotten the lease.
// Afterwards, all processes must be able to use the lock.
func TestReleaseOfForgotten(t *testing.T) {
	for _, fast := range []bool{false, true} {
		for _, others := range []string{"none", "one has it", "one waits"} {
			t.Run(fmt.Sprintf("fast path %t, others: %s", fast, others), func(t *testing.T) {
				inBubble(t, func(b *bubble) {
					p, q := b.process(), b.process()
					lease := p.take()
					if fast {
						b.release(lease)
						lease = p.take()
					}
					var next <-chan *handoff.Lease
					if others == "one waits" {
						next = q.wait()
					}
					b.node.Del(key)
					if others == "one has it" {
						next = q.wait()
					}
					if err := lease.Release(b.Context()); !errors.Is(err, handoff.ErrLost) {
						b.Errorf("the release returned %v", err)
					}
					if next != nil {
						b.release(<-next)
					}
					b.release(p.take())
					b.release(q.take())
				})
			})
		}
	}
}

// TestReleaseRepeats checks that a release repeats a failed request until its context is done or the
// lease has expired. It must send one request even if its context is already done.
func TestReleaseRepeats(t *testing.T) {
	end := ttl - ttl/100
	for name, tt := range map[string]struct {
		timeout, least, most time.Duration
	}{
		"done":    {0, 0, 0},
		"timeout": {2 * time.Second, 2 * time.Second, 2 * time.Second},
		"expired": {time.Hour, end, end + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				p := b.process()
				lease := p.take()
				ctx, cancel := context.WithTimeout(b.Context(), tt.timeout)
				defer cancel()
				p.down.Store(true)
				began := time.Now()
				if err := lease.Release(ctx); !errors.Is(err, errDown) {
					b.Errorf("the release returned %v", err)
				}
				if took := time.Since(began); took < tt.least || took > tt.most {
					b.Errorf("the release took %v, want %v to %v", took, tt.least, tt.most)
				}
			})
		})
	}
	inBubble(t, func(b *bubble) {
		p := b.process()
		ctx, cancel := context.WithCancel(b.Context())
		lease := p.take()
		cancel()
		must(0, lease.Release(ctx))
		b.nothingLeft()
	})
}

// TestReleaseAnsweredTooLate checks the release of a lease that another client has already taken over.
// The first reply is lost, and the second one arrives only after the end of the lease. The release must
// return ErrLost, and not assume that its first request has passed the lock on.
func TestReleaseAnsweredTooLate(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		lease := p.take()
		b.node.Del(key)
		other := q.take()
		p.meet(unanswered, func(send func() error) error {
			time.Sleep(ttl)
			return send()
		})
		if err := lease.Release(b.Context()); !errors.Is(err, handoff.ErrLost) {
			b.Errorf("the release returned %v, want %v", err, handoff.ErrLost)
		}
		b.release(other)
		b.nothingLeft()
	})
}

// TestAttemptAfterPass checks that a process that has passed the lock on knows that the lock is not
// free, even if the reply was lost. It must not try the fast path, so its next attempt sends only one
// request.
func TestAttemptAfterPass(t *testing.T) {
	for name, reply := range map[string]func(func() error) error{"answered": func(send func() error) error { return send() }, "lost reply": unanswered} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				p, q := b.process(), b.process()
				b.release(b.served(q.subscribed(p)))
				b.release(b.served(p.subscribed(q)))
				lease := p.take()
				waits := q.wait()
				p.meet(reply)
				b.release(lease)
				lease = b.served(waits)
				if n := p.sent(func() { _, _ = p.TryAcquire(b.Context(), key) }); n != 1 {
					b.Errorf("the attempt sent %d requests, want 1", n)
				}
				b.release(lease)
				b.nothingLeft()
			})
		})
	}
}

// TestGivesUp checks that a client waits no longer than it is allowed to, and leaves no entry in the
// queue.
func TestGivesUp(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		lease := p.take()
		ctx, cancel := context.WithTimeout(b.Context(), 500*time.Millisecond)
		defer cancel()
		for _, who := range []*process{p, q} {
			for _, tt := range []struct {
				acquire func() (*handoff.Lease, error)
				want    error
				after   time.Duration
			}{
				{func() (*handoff.Lease, error) { return who.AcquireWithin(b.Context(), key, 2*time.Second) }, handoff.ErrBusy, 2 * time.Second},
				{func() (*handoff.Lease, error) { return who.Acquire(ctx, key) }, context.DeadlineExceeded, 0},
			} {
				began := time.Now()
				_, err := tt.acquire()
				if took := time.Since(began); !errors.Is(err, tt.want) || tt.after > 0 && took != tt.after {
					b.Errorf("%s: %v after %v", who.id, err, took)
				}
			}
			if n := b.queued(); n != 0 {
				b.Errorf("%d turns are left in the queue", n)
			}
		}
		waits := q.wait()
		b.release(lease)
		b.release(b.served(waits))
		b.nothingLeft()
	})
}

func TestKeptWhileHeld(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p := b.process()
		lease := p.take()
		work := lease.Context()
		time.Sleep(time.Hour)
		if isLost(lease) || work.Err() != nil {
			b.Error("the lease was lost although its process renews it")
		}
		b.release(lease)
		if isLost(lease) || !errors.Is(work.Err(), context.Canceled) || errors.Is(context.Cause(work), handoff.ErrLost) {
			b.Errorf("after the release: lost %v, %v", isLost(lease), context.Cause(work))
		}
		if err := lease.Release(b.Context()); !errors.Is(err, handoff.ErrLost) {
			b.Errorf("a second release: %v", err)
		}
	})
}

// TestLostInTime checks that a holder without a connection reports the loss just before the server
// ends the lease. A release that arrives before that end must still free the lock.
func TestLostInTime(t *testing.T) {
	inBubble(t, func(b *bubble) {
		lost := make(chan string, 1)
		p := b.process(func(o *handoff.Options) { o.Hooks.Lost = func(key string) { lost <- key } })
		lease := p.take()
		work := lease.Context()
		time.Sleep(ttl / 2) // renewed once
		p.down.Store(true)
		<-work.Done()
		if left := b.node.TTL(key); left <= 0 || left > ttl/50 {
			b.Errorf("the loss was reported %v before the end of the lease", left)
		}
		if cause := context.Cause(work); cause != handoff.ErrLost || !isLost(lease) || <-lost != key {
			b.Errorf("the cause is %v", cause)
		}
		p.down.Store(false)
		if err := lease.Release(b.Context()); !errors.Is(err, handoff.ErrLost) {
			b.Error(err)
		}
		b.nothingLeft() // the release has freed the lock anyway
	})
}

// TestForgotten checks that a holder learns at its next renewal that the server has forgotten its
// lease. Its release must not free the lease that another client has got meanwhile.
func TestForgotten(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		lease := p.take()
		b.node.FlushAll()
		time.Sleep(time.Millisecond)
		other := q.take()
		if other.Fence() <= lease.Fence() {
			b.Errorf("token %d after %d", other.Fence(), lease.Fence())
		}
		time.Sleep(ttl/3 + time.Millisecond)
		if !isLost(lease) {
			b.Error("the holder does not know of the loss")
		}
		if err := lease.Release(b.Context()); !errors.Is(err, handoff.ErrLost) {
			b.Error(err)
		}
		if isLost(other) {
			b.Error("the other client lost its lease")
		}
		b.release(other)
		b.nothingLeft()
	})
}

// TestDeadHolder checks that a waiter gets the lock of a dead holder after about a TTL. This must be so
// even if many callers of the holder's process were waiting too.
func TestDeadHolder(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		p.take()
		for range 10 {
			p.wait()
		}
		began := time.Now()
		waits := q.wait()
		p.end()
		lease := <-waits
		if took := time.Since(began); took < ttl-time.Second || took > ttl+time.Second {
			b.Errorf("the waiter got the lock after %v, want about %v", took, ttl)
		}
		b.release(lease)
	})
}

// TestNoOvertaking checks that a late process does not overtake the queue, even if the lock is free
// because the holder's lease has expired.
func TestNoOvertaking(t *testing.T) {
	for _, tries := range []bool{false, true} {
		t.Run(fmt.Sprintf("tries once %t", tries), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				p, q, late := b.process(), b.process(), b.process()
				p.take()
				first := q.wait()
				if queued, err := b.node.ZMembers(key + ":queue"); err != nil || len(queued) != 1 {
					b.Fatalf("the queue contains %q, %v", queued, err)
				}
				b.node.Del(key) // as if the lease had expired
				var second <-chan *handoff.Lease
				if !tries {
					second = late.wait()
				} else if _, err := late.TryAcquire(b.Context(), key); !errors.Is(err, handoff.ErrBusy) {
					b.Errorf("the attempt returned %v, want ErrBusy", err)
				}
				b.unserved(second)
				b.release(b.served(first))
				if !tries {
					b.release(b.served(second))
				}
				b.nothingLeft()
			})
		})
	}
}

// TestDeadWaiter checks that a process that died while it waited does not delay the others. The server
// reports that the dead process no longer listens, so the lock is passed to the next one.
func TestDeadWaiter(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, dead, q := b.process(), b.process(), b.process()
		lease := p.take()
		dead.wait()
		waits := q.wait()
		dead.down.Store(true)
		dead.end()
		synctest.Wait() // the server has noticed
		b.release(lease)
		b.release(b.served(waits))
		b.nothingLeft()
	})
}

// TestRepeated checks that any request can be executed twice without harm, because a Redis client may
// repeat a request by itself.
func TestRepeated(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		for range 3 { // with a script first, and then on the fast path
			p.meet(twice, twice)
			lease := p.take()
			if b.queued() != 0 {
				b.Error("the holder is queued behind itself")
			}
			b.release(lease)
			b.nothingLeft()
		}
		b.release(b.served(p.subscribed(q)))
		lease := p.take()
		q.meet(twice, twice, twice)
		waits := q.wait()
		if n := b.queued(); n != 1 {
			b.Errorf("%d turns in the queue, want 1", n)
		}
		again := p.wait()
		p.meet(twice) // the release passes the lock on and joins the queue again
		b.release(lease)
		lease = b.served(waits)
		q.meet(twice)
		b.release(lease)
		b.release(b.served(again))
		b.nothingLeft()
	})
}

// TestUnanswered checks that a process repeats each kind of request whose reply was lost, and that the
// repetition has no second effect.
func TestUnanswered(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		p.meet(unanswered)
		lease := p.take()
		waits := q.wait()
		p.meet(unanswered)
		b.release(lease)
		lease = b.served(waits)
		waits = p.wait()
		p.meet(unanswered) // the next check of the queue
		time.Sleep(2 * time.Second)
		b.release(lease)
		b.release(b.served(waits))
		b.nothingLeft()
	})
}

// TestLateAcquire delays the request of an acquire. Meanwhile, its caller gives up, or it gets the lock
// with a second request and then releases or loses it. When the late request takes effect, no caller
// uses the resulting lease or place in the queue. The process must give it back as soon as another
// client waits.
func TestLateAcquire(t *testing.T) {
	for _, caller := range []string{"gave up", "released the lock", "lost the lock"} {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("the caller %s, held by another: %v", caller, held), func(t *testing.T) {
				inBubble(t, func(b *bubble) {
					p, q := b.process(), b.process()
					var late func() error
					delayed := func(send func() error) error { late = send; return errDown }
					switch caller {
					case "gave up":
						p.meet(delayed, unanswered)
						if _, err := p.Acquire(b.Context(), key); !errors.Is(err, errDown) {
							b.Fatal(err)
						}
					case "released the lock":
						p.meet(delayed)
						b.release(p.take())
					case "lost the lock":
						p.meet(delayed)
						lease := p.take()
						b.node.Del(key)
						time.Sleep(ttl)
						if err := lease.Release(b.Context()); !errors.Is(err, handoff.ErrLost) {
							b.Fatal(err)
						}
					}
					b.nothingLeft()
					release := func() {}
					if held {
						lease := q.take()
						release = func() { b.release(lease) }
					}
					if err := late(); err != nil {
						b.Fatal(err)
					}
					release()
					began := time.Now()
					lease := <-q.wait()
					if took := time.Since(began); took > 2*time.Second {
						b.Errorf("the other client got the lock after %v, want at most 2s", took)
					}
					b.release(lease)
					b.nothingLeft()
				})
			})
		}
	}
}

// TestLateGrantOfAWaiter delays the request of an acquire until its process waits in the queue and the
// lock is free. The late request then takes the lock, so the process must get it and leave the queue.
func TestLateGrantOfAWaiter(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		b.release(b.served(p.subscribed(q)))
		b.release(p.take()) // so that the next request is on the fast path, which does not look at the queue
		lost := q.take()
		var late func() error
		p.meet(func(send func() error) error { late = send; return errDown })
		got := p.wait()
		if n := b.queued(); n != 1 {
			b.Fatalf("%d turns in the queue, want 1", n)
		}
		b.node.Del(key)
		if err := late(); err != nil {
			b.Fatal(err)
		}
		lease := <-got
		if n := b.queued(); n != 0 {
			b.Errorf("%d turns in the queue, although the only waiter has the lock", n)
		}
		b.release(lease)
		if err := lost.Release(b.Context()); !errors.Is(err, handoff.ErrLost) {
			b.Errorf("release of the lost lease: %v", err)
		}
		b.nothingLeft()
	})
}

// TestNoSubscription checks that a waiter that cannot open a subscription gets the lock anyway, because
// it polls.
func TestNoSubscription(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		lease := p.take()
		q.deaf.Store(true)
		waits := q.wait()
		time.Sleep(time.Minute)
		b.release(lease)
		began := time.Now()
		lease = <-waits
		if took := time.Since(began); lease == nil || took > time.Second {
			b.Fatalf("the waiter without a subscription got the lease %v after %v", lease, took)
		}
		b.release(lease)
		b.nothingLeft()
	})
}

// TestQuietSubscription checks that a process replaces its subscription each time that its connection
// has died without being closed. It must keep a subscription that merely receives no messages.
func TestQuietSubscription(t *testing.T) {
	for name, dead := range map[string]bool{"dead": true, "alive": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				p, q := b.process(), b.process()
				b.release(b.served(q.subscribed(p)))
				for round := range int64(3) {
					lease := p.take()
					waits := q.wait()
					want := int64(1)
					if dead {
						q.silence()
						want = 2 + round
					}
					time.Sleep(time.Minute)
					if n := q.subscriptions.Load(); n != want {
						b.Fatalf("round %d: %d subscriptions, want %d", round, n, want)
					}
					b.release(lease)
					b.release(b.served(waits))
				}
				b.nothingLeft()
			})
		})
	}
}

// TestQueuesOnlyWhileItListens checks that a process joins the queue only if it has a subscription, and
// polls otherwise. Without a subscription, it would not receive the message that its turn has come, and
// would delay the processes behind it.
func TestQueuesOnlyWhileItListens(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		b.release(b.served(q.subscribed(p)))
		for range 2 {
			for _, listens := range []bool{false, true} {
				q.deaf.Store(!listens)
				if !listens {
					q.silence()
				}
				time.Sleep(10 * time.Second) // until the process has noticed the change
				lease := p.take()
				waits := q.wait()
				if queued := b.queued() > 0; queued != listens {
					b.Errorf("the process has a subscription: %v, and is in the queue: %v", listens, queued)
				}
				time.Sleep(100 * time.Millisecond)
				b.release(lease)
				if listens {
					lease = b.served(waits)
				} else {
					lease = <-waits
				}
				b.release(lease)
			}
		}
		b.nothingLeft()
	})
}

// TestManyKeys checks that a process still renews its leases, and gets the lease for which it waits, if
// it uses many other keys meanwhile.
func TestManyKeys(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		use := func(key string) { b.release(p.acquire(b.Context(), key)) }
		var held []*handoff.Lease
		for i := range 3 {
			key := fmt.Sprintf("held:{%d}", i)
			for range i { // use the second key once before, and the third key twice
				use(key)
			}
			held = append(held, p.acquire(b.Context(), key))
		}
		q.take()
		waits := p.wait()
		for i := range 300 { // more than a process keeps for reuse
			use(fmt.Sprintf("order:{%d}", 100+i))
		}
		for _, i := range []int{100, 399} { // the first and the last of these keys
			held = append(held, p.acquire(b.Context(), fmt.Sprintf("order:{%d}", i)))
		}
		time.Sleep(2 * ttl)
		b.unserved(waits)
		q.end()
		began := time.Now()
		b.release(<-waits)
		if took := time.Since(began); took > ttl+2*time.Second {
			b.Errorf("the waiter got the lock %v after its holder had died", took)
		}
		for _, lease := range held {
			if isLost(lease) {
				b.Errorf("the lease of %s is lost", lease.Key())
			}
			if err := lease.Release(b.Context()); err != nil {
				b.Errorf("release of %s: %v", lease.Key(), err)
			}
		}
		b.nothingLeft()
	})
}

// TestRequestOutlivesItsTurn checks a request that is still pending when its turn ends. The time at
// which its reply arrives must not affect the next turn. The process must still check the queue if a
// message is lost, and renew its lease.
func TestRequestOutlivesItsTurn(t *testing.T) {
	for _, hung := range []string{"look", "renewal"} {
		for _, answered := range []string{"between the turns", "while it waits", "while it holds", "at the end"} {
			t.Run(fmt.Sprintf("%s, answered %s", hung, answered), func(t *testing.T) {
				inBubble(t, func(b *bubble) {
					p, q := b.process(), b.process()
					b.release(b.served(q.subscribed(p)))
					reply := make(chan struct{})
					answer := sync.OnceFunc(func() { close(reply) })
					defer answer()
					now := func(moment string) {
						if moment == answered {
							answer()
							synctest.Wait()
						}
					}
					hangs := func(send func() error) error {
						<-reply
						return send()
					}
					lease := p.take()
					waits := q.wait()
					if hung == "look" {
						q.meet(hangs)
						time.Sleep(2 * time.Second)
					}
					b.release(lease)
					lease = b.served(waits)
					if hung == "renewal" {
						q.meet(hangs)
						time.Sleep(ttl / 2)
					}
					b.release(lease)
					now("between the turns")

					lease = p.take()
					waits = q.wait()
					now("while it waits")
					q.silence() // the message is lost
					time.Sleep(100 * time.Millisecond)
					b.release(lease)
					select {
					case lease = <-waits:
					case <-time.After(time.Second):
						b.Fatal("the process does not check whether its turn has come")
					}
					now("while it holds")
					time.Sleep(2 * ttl)
					if isLost(lease) {
						b.Error("the process does not renew its lease")
					}
					b.release(lease)
					now("at the end")
					b.nothingLeft()
				})
			})
		}
	}
}

// TestHungRenewal checks that a hung renewal does not delay the renewal of another lease.
func TestHungRenewal(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p := b.process()
		hung := p.take()
		time.Sleep(time.Second)
		other := p.acquire(b.Context(), "another:{2}")
		free := make(chan struct{})
		p.meet(func(func() error) error { <-free; return errDown })
		time.Sleep(2 * ttl)
		if !isLost(hung) || isLost(other) {
			b.Errorf("the lease with the hung renewal is lost: %v, the other lease is lost: %v; want true, false", isLost(hung), isLost(other))
		}
		close(free)
		b.release(other)
	})
}

// TestCounter checks that the fencing tokens grow even if the counter is lost, deleted or raised. The
// counter must expire after a day without use, but not while the lock is in use.
func TestCounter(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p := b.process()
		var last uint64
		grows := func(when string) {
			b.Helper()
			lease := p.take()
			if lease.Fence() <= last {
				b.Errorf("%s: token %d after %d", when, lease.Fence(), last)
			}
			last = lease.Fence()
			b.release(lease)
		}
		for _, step := range []struct {
			when string
			do   func() error
		}{
			{"first", func() error { return nil }},
			{"again", func() error { return nil }},
			{"after half a day", func() error { time.Sleep(12 * time.Hour); return nil }},
			{"forgotten", func() error { b.node.FlushAll(); time.Sleep(time.Millisecond); return nil }},
			{"told to forget", func() error { return p.Forget(b.Context(), key) }},
			{"raised", func() error { last += 1e9; return p.RaiseFence(b.Context(), key, last) }},
			{"raised to less", func() error { return p.RaiseFence(b.Context(), key, 5) }},
		} {
			time.Sleep(time.Millisecond)
			if err := step.do(); err != nil {
				b.Fatal(err)
			}
			grows(step.when)
		}
		for range 23 { // the fast path does not extend the counter's TTL, so a script must do it in time
			time.Sleep(time.Hour - time.Minute)
			grows("every hour")
			if left := b.node.TTL(key + ":fence"); left < 24*time.Hour {
				b.Fatalf("the counter expires in %v", left)
			}
		}
		time.Sleep(26 * time.Hour)
		if keys := b.node.Keys(); len(keys) != 0 {
			b.Errorf("after a day: %v", keys)
		}
		grows("after a day")
	})
}

func TestClose(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		lease := p.take()
		local, remote := p.wait(), q.wait()
		for _, who := range []*process{p, q} {
			if err := who.Close(); err != nil {
				b.Error(err)
			}
		}
		synctest.Wait()
		if _, ok := <-local; ok {
			b.Error("a waiter in the holder's process got a lease from a closed Locker")
		}
		if _, ok := <-remote; ok {
			b.Error("a waiter in another process got a lease from a closed Locker")
		}
		if _, err := p.Acquire(b.Context(), key); !errors.Is(err, handoff.ErrClosed) {
			b.Error(err)
		}
		b.release(lease)
		b.nothingLeft()
	})
}

// TestClosedHolder checks that a closed Locker, which no longer renews its lease, reports the lease as
// lost just before its end.
func TestClosedHolder(t *testing.T) {
	for name, held := range map[string]time.Duration{"before a renewal": time.Second, "after a renewal": ttl} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				p := b.process()
				lease := p.take()
				work, lost := lease.Context(), lease.Lost()
				time.Sleep(held)
				must(0, p.Close())
				select {
				case <-work.Done():
				case <-time.After(2 * ttl):
					b.Fatal("the holder does not know of the loss")
				}
				if left := b.node.TTL(key); left <= 0 || left > ttl/50 {
					b.Errorf("the loss was reported %v before the end of the lease", left)
				}
				<-lost
				if cause := context.Cause(work); cause != handoff.ErrLost {
					b.Errorf("the cause is %v", cause)
				}
			})
		})
	}
}

// TestOtherTypes checks that an acquire returns ErrProtocol and changes nothing if the key contains
// other data.
func TestOtherTypes(t *testing.T) {
	addr := conformtest.RedisServer(t)
	l, client := open(t, addr, ttl), clientOf(t, addr)
	for name, write := range map[string][]any{
		"string": {"set", "string", "data"}, "empty": {"set", "empty", ""}, "hash": {"hset", "hash", "a", "b"},
		"list": {"rpush", "list", "a"}, "set": {"sadd", "set", "a"},
	} {
		must(client.Do(t.Context(), write...).Result())
		was := must(client.Dump(t.Context(), name).Result())
		for _, acquire := range []func(context.Context, string) (*handoff.Lease, error){l.TryAcquire, l.Acquire} {
			if _, err := acquire(t.Context(), name); !errors.Is(err, handoff.ErrProtocol) {
				t.Errorf("acquire(%s): %v", name, err)
			}
		}
		if is := must(client.Dump(t.Context(), name).Result()); is != was {
			t.Errorf("the %s was changed", name)
		}
	}
}

// TestSharedStem checks the keys a and {a}, which share a queue. If the release of a grants that lock to
// a process that waits for {a}, the process must give it back. It must still get {a} soon after the
// release of {a}.
func TestSharedStem(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q, r := b.process(), b.process(), b.process()
		bare, braced := p.acquire(b.Context(), "a"), r.acquire(b.Context(), "{a}")
		got := make(chan *handoff.Lease, 1)
		go func() { got <- must(q.Acquire(b.Context(), "{a}")) }()
		time.Sleep(time.Second / 2)
		b.release(bare)
		synctest.Wait()
		b.unserved(got)
		b.release(p.acquire(b.Context(), "a"))
		began := time.Now()
		b.release(braced)
		lease := <-got
		if took := time.Since(began); took > time.Second {
			b.Errorf("the waiter got its lock after %v", took)
		}
		b.release(lease)
		b.nothingLeft()
	})
}

// TestKeyNames checks the names of the Redis keys, which all clients must derive in the same way.
func TestKeyNames(t *testing.T) {
	for name, stem := range map[string]string{
		"a": "{a}", "{a}": "{a}", "a{b}c": "a{b}c", "{a}{b}": "{a}{b}", // without and with a hash tag
		"a{}b": "{a{}b}", "{}{a}": "{{}{a}}", "{a": "{{a}", "a}b": "{a}b}", "a}{b": "{a}{b}", // no hash tag either
	} {
		inBubble(t, func(b *bubble) {
			p := b.process()
			b.node.FlushAll()
			lease := p.acquire(b.Context(), name)
			want := []string{name, stem + ":fence"}
			slices.Sort(want)
			if got := b.node.Keys(); !slices.Equal(got, want) {
				b.Errorf("the lock %s has the keys %q, want %q", name, got, want)
			}
			b.release(lease)
		})
	}
}

// TestConcurrentUse checks that all methods of a Lease can run concurrently, and that exactly one of
// several concurrent releases succeeds.
func TestConcurrentUse(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p := b.process()
		for range 20 {
			lease := p.take()
			released := make(chan error, 4)
			for range cap(released) {
				go func() {
					_, _, _, _, _ = lease.Key(), lease.Token(), lease.Fence(), lease.Lost(), lease.Context()
					released <- lease.Release(b.Context())
				}()
			}
			lost := 0
			for range cap(released) {
				if err := <-released; errors.Is(err, handoff.ErrLost) {
					lost++
				} else if err != nil {
					b.Error(err)
				}
			}
			if lost != cap(released)-1 {
				b.Errorf("%d of %d releases returned ErrLost", lost, cap(released))
			}
		}
		b.nothingLeft()
	})
}

// TestRaiseTooFar checks that RaiseFence rejects tokens that the scripts cannot represent exactly,
// because Lua numbers are doubles. A rejected call must not affect later tokens.
func TestRaiseTooFar(t *testing.T) {
	addr := conformtest.RedisServer(t)
	l := open(t, addr, ttl)
	var last uint64
	for _, fence := range []uint64{1, 999_999, 1 << 51, 1<<52 - 1, 1 << 52, 1<<53 + 1, 1 << 58, math.MaxInt64, math.MaxUint64} {
		err := l.RaiseFence(t.Context(), key, fence)
		if (err == nil) != (fence <= 1<<52) || err != nil && !errors.Is(err, handoff.ErrOptions) {
			t.Errorf("raising to %d returned %v", fence, err)
		}
		for range 3 {
			lease := must(l.Acquire(t.Context(), key))
			if lease.Fence() <= last || err == nil && lease.Fence() <= fence {
				t.Errorf("token %d after %d, raised to %d", lease.Fence(), last, fence)
			}
			last = lease.Fence()
			must(0, lease.Release(t.Context()))
		}
	}
}

func TestHooks(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var mu sync.Mutex
		var calls []string
		note := func(what, key string, long time.Duration, local string) {
			mu.Lock()
			defer mu.Unlock()
			if key != "warm:{up}" {
				calls = append(calls, fmt.Sprint(what, " ", long, local))
			}
		}
		p := b.process(func(o *handoff.Options) {
			o.Hooks.Acquired = func(key string, waited time.Duration, local bool) {
				note("acquired", key, waited, map[bool]string{true: " local"}[local])
			}
			o.Hooks.Released = func(key string, held time.Duration) { note("released", key, held, "") }
		})
		lease := p.take()
		next := p.wait()
		time.Sleep(3 * time.Second)
		b.release(lease)
		b.release(b.served(next))
		want := []string{"acquired 0s", "acquired 3s local", "released 0s", "released 3s"}
		mu.Lock()
		defer mu.Unlock()
		if slices.Sort(calls); !slices.Equal(calls, want) {
			b.Errorf("hooks called: %q, want %q", calls, want)
		}
	})
}

// TestGivesUpForItselfOnly checks that a caller that gives up does not cost the other callers of its
// process their place in the queue.
func TestGivesUpForItselfOnly(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q, r := b.process(), b.process(), b.process()
		lease := p.take()
		gaveUp := make(chan error, 1)
		go func() {
			_, err := q.AcquireWithin(b.Context(), key, time.Second/2)
			gaveUp <- err
		}()
		synctest.Wait()
		stays, behind := q.wait(), r.wait()
		if err := <-gaveUp; !errors.Is(err, handoff.ErrBusy) {
			b.Fatal(err)
		}
		b.release(lease)
		lease = b.served(stays)
		b.unserved(behind)
		b.release(lease)
		b.release(b.served(behind))
		b.nothingLeft()
	})
}

// TestLostLeaseIsNotGivenBack checks that a process that has lost its lease does not delete it from
// Redis, although a waiting process still sends it messages. The lease must expire by itself, so that
// the holder has time to notice the loss.
func TestLostLeaseIsNotGivenBack(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, q := b.process(), b.process()
		b.release(b.served(p.subscribed(q)))
		began := time.Now()
		lease := p.take()
		waits := q.wait()
		p.down.Store(true)
		time.Sleep(ttl - ttl/100 + time.Millisecond)
		if !isLost(lease) {
			b.Fatal("the lease is not lost")
		}
		p.down.Store(false)
		next := <-waits
		if took := time.Since(began); took < ttl {
			b.Errorf("another process has the lease after %v", took)
		}
		b.release(next)
		b.nothingLeft()
	})
}

// TestCheckTellsThatOthersWait checks a process that gets the lease by a check of the queue. This
// happens if the holder has died or the message to the process is lost. The check must tell it that
// others wait, so that its later callers do not overtake them.
func TestCheckTellsThatOthersWait(t *testing.T) {
	for _, why := range []string{"the holder has died", "the message is lost"} {
		t.Run(why, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				holder, p, r := b.process(), b.process(), b.process()
				lease := holder.take()
				first := p.wait()
				time.Sleep(20 * time.Millisecond) // so that p checks the queue before r
				behind := r.wait()
				if why == "the holder has died" {
					holder.end()
				} else {
					p.silence()
					b.release(lease)
					b.unserved(first, behind)
				}
				lease = <-first
				late := p.wait()
				b.release(lease)
				lease = b.served(behind)
				b.unserved(late)
				b.release(lease)
				b.release(<-late)
				b.nothingLeft()
			})
		})
	}
}
