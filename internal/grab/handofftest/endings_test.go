package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/handoff"
)

// TestEndedContext checks that an acquire sends no request if its context has ended or its Locker is
// closed.
func TestEndedContext(t *testing.T) {
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprint("closed ", closed), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				p := b.process()
				ctx, cancel := context.WithCancel(b.Context())
				want := context.Canceled
				if closed {
					must(0, p.Close())
					want = handoff.ErrClosed
				} else {
					cancel()
				}
				n := p.sent(func() {
					if _, err := p.Acquire(ctx, key); !errors.Is(err, want) {
						b.Errorf("acquire: %v, want %v", err, want)
					}
				})
				cancel()
				if n > 0 {
					b.Errorf("the process sent %d requests, want none", n)
				}
			})
		})
	}
}

// TestHangsUpDuringTheRequest ends the context of an acquire while a reply is on its way. The acquire
// must fail, and its effect on the server must be undone soon, even if the first attempt to undo it
// fails.
func TestHangsUpDuringTheRequest(t *testing.T) {
	for _, fails := range []int{0, 1} { // the number of cleanup requests that fail
		for _, answer := range []error{nil, errDown} {
			t.Run(fmt.Sprint(answer, ", cleanup fails ", fails), func(t *testing.T) {
				inBubble(t, func(b *bubble) {
					p, q := b.process(), b.process()
					ctx, cancel := context.WithCancel(b.Context())
					defer cancel()
					meets := []func(func() error) error{func(send func() error) error {
						_ = send()
						cancel()
						return answer
					}}
					refused := func(func() error) error { return errDown }
					if answer != nil {
						meets = append(meets, refused) // the second request of the acquire
					}
					for range fails {
						meets = append(meets, refused)
					}
					p.meet(meets...)
					if _, err := p.Acquire(ctx, key); err == nil || answer == nil && !errors.Is(err, context.Canceled) {
						b.Errorf("acquire: %v", err)
					}
					time.Sleep(time.Second)
					b.release(must(q.TryAcquire(b.Context(), key)))
					b.release(must(p.TryAcquire(b.Context(), key)))
					b.nothingLeft()
				})
			})
		}
	}
}

// TestContextAfterTheEnd checks that Context returns a cancelled context if the lease has already
// ended. If the lease was lost, the cause must be ErrLost.
func TestContextAfterTheEnd(t *testing.T) {
	for _, loses := range []bool{false, true} {
		t.Run(fmt.Sprint("lost ", loses), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				p := b.process()
				lease := p.take()
				if loses {
					b.node.FlushAll()
					<-lease.Lost()
				} else {
					b.release(lease)
				}
				work := lease.Context()
				if work.Err() == nil || errors.Is(context.Cause(work), handoff.ErrLost) != loses {
					b.Errorf("the context ended with %v", context.Cause(work))
				}
			})
		})
	}
}

// TestReleaseFailsForALease makes all requests of a release fail. The release must return an error soon
// after the lease has expired, and both processes must then be able to use the lock.
func TestReleaseFailsForALease(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("another caller waits ", waits), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				p, q := b.process(), b.process()
				for range 2 {
					lease := p.take()
					p.down.Store(true)
					began := time.Now()
					if err := lease.Release(b.Context()); err == nil {
						b.Error("a release that did not arrive succeeded")
					}
					if took := time.Since(began); took > ttl+time.Second {
						b.Errorf("the release took %v", took)
					}
					p.down.Store(false)
					time.Sleep(time.Second)
					if waits {
						b.release(must(p.AcquireWithin(b.Context(), key, ttl)))
					}
					b.release(must(q.AcquireWithin(b.Context(), key, ttl)))
				}
				b.release(must(p.AcquireWithin(b.Context(), key, ttl)))
				b.nothingLeft()
			})
		})
	}
}

// TestRenewalHasTrouble disturbs one renewal. If the holder then stays connected, it must keep the
// lease, unless the reply arrives only after the end of the lease. If the holder is then cut off, it
// must report the loss before the server ends the lease.
func TestRenewalHasTrouble(t *testing.T) {
	late := func(d time.Duration) func(func() error) error {
		return func(send func() error) error {
			err := send()
			time.Sleep(d)
			return err
		}
	}
	for _, c := range []struct {
		name    string
		renewal func(send func() error) error
		kept    bool
	}{
		{"refused", func(func() error) error { return errDown }, true},
		{"lost reply", unanswered, true},
		{"reply after a while", late(ttl / 4), true},
		{"reply near the end", late(ttl/2 + time.Second), true},
		{"reply after the end", late(ttl), false},
		{"sent twice", twice, true},
	} {
		for _, cut := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, ", cut off ", cut), func(t *testing.T) {
				inBubble(t, func(b *bubble) {
					p := b.process()
					lease := p.take()
					time.Sleep(ttl / 2) // until a renewal has loaded its script
					b.release(lease)
					lease = p.take()
					p.meet(func(send func() error) error {
						err := c.renewal(send)
						if cut {
							p.down.Store(true)
						}
						return err
					})
					if cut {
						<-lease.Lost()
						if left := b.node.TTL(key); left <= 0 {
							b.Error("the server ended the lease before its holder reported the loss")
						}
						return
					}
					time.Sleep(3 * ttl)
					if isLost(lease) == c.kept {
						b.Errorf("lost: %v, want %v", c.kept, !c.kept)
					}
					if err := lease.Release(b.Context()); (err == nil) != c.kept {
						b.Errorf("release: %v", err)
					}
					b.nothingLeft()
				})
			})
		}
	}
}

// TestRenewalIsRetried checks that a failed renewal is repeated after a tenth of the TTL. It also checks
// that a late reply to a renewal of an earlier lease has no effect on the current lease.
func TestRenewalIsRetried(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p := b.process()
		lease := p.take()
		refused := func(func() error) error { return errDown }
		p.meet(refused, refused, refused, refused)
		if n := p.sent(func() { time.Sleep(ttl * 7 / 10) }); n != 4 {
			b.Errorf("%d renewals in two thirds of the TTL, want 4", n)
		}
		time.Sleep(ttl)
		if isLost(lease) {
			b.Error("the lease was lost although the fifth renewal arrived in time")
		}
		b.release(lease)

		lease = p.take()
		release := make(chan struct{})
		p.meet(func(func() error) error { <-release; return errDown })
		time.Sleep(ttl/3 + time.Second)
		b.release(lease)
		next := p.take()
		close(release)
		n := p.sent(synctest.Wait)
		if isLost(next) || n > 0 {
			b.Errorf("after a late reply to an old renewal, the new lease is lost: %v, %d requests", isLost(next), n)
		}
		b.release(next)
		b.nothingLeft()
	})
}

// TestFailedCheckIsRepeated kills the holder and makes the first two checks of a waiter fail. The waiter
// must check again and get the lock.
func TestFailedCheckIsRepeated(t *testing.T) {
	inBubble(t, func(b *bubble) {
		other, p := b.process(), b.process()
		b.release(b.served(p.subscribed(other)))
		other.take()
		got := p.wait()
		other.end()
		p.meet(func(func() error) error { return errDown }, unanswered)
		select {
		case lease, ok := <-got:
			if !ok {
				b.Fatal("the acquire failed")
			}
			b.release(lease)
		case <-time.After(ttl + 3*time.Second):
			b.Fatal("the waiter does not get the lock")
		}
		b.nothingLeft()
	})
}

// TestOneCheckAtATime checks that a waiter whose check of the queue hangs sends no other check, even after
// it has opened a new subscription.
func TestOneCheckAtATime(t *testing.T) {
	inBubble(t, func(b *bubble) {
		other, p := b.process(), b.process()
		b.release(b.served(p.subscribed(other)))
		lease := other.take()
		got := p.wait()
		goOn := make(chan struct{})
		p.meet(func(send func() error) error { <-goOn; return send() })
		opened := p.subscriptions.Load()
		p.silence()
		if n := p.sent(func() { time.Sleep(ttl / 3) }); n != 1 || p.subscriptions.Load() == opened {
			b.Errorf("%d checks and %d new subscriptions, want 1 check", n, p.subscriptions.Load()-opened)
		}
		close(goOn)
		b.release(lease)
		b.release(b.served(got))
		b.nothingLeft()
	})
}

// TestCloseWaitsForRequests checks that Close waits for pending requests.
func TestCloseWaitsForRequests(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p := b.process()
		p.take()
		var pending atomic.Bool
		p.meet(func(send func() error) error {
			pending.Store(true)
			defer pending.Store(false)
			err := send()
			time.Sleep(time.Second)
			return err
		})
		time.Sleep(ttl/3 + time.Millisecond)
		if !pending.Load() {
			b.Fatal("no renewal was sent")
		}
		must(0, p.Close())
		if pending.Load() {
			b.Error("a renewal is pending after Close")
		}
	})
}

// TestCloseWithdrawsRequests checks that Close removes the requests of its waiting callers from Redis
// before it returns. The program can then close the Redis client immediately.
func TestCloseWithdrawsRequests(t *testing.T) {
	for _, listens := range []bool{true, false} { // without a subscription, the process polls instead of joining the queue
		inBubble(t, func(b *bubble) {
			p, q := b.process(), b.process()
			p.deaf.Store(!listens)
			lease := q.take()
			waits := p.wait()
			if queued := b.queued() > 0; queued != listens {
				b.Fatalf("the process has a subscription: %v, and is in the queue: %v", listens, queued)
			}
			if listens {
				p.meet(func(send func() error) error { time.Sleep(time.Second / 2); return send() }) // delays leaving the queue
			} else {
				p.meet(func(send func() error) error {
					b.release(lease)
					err := send()
					time.Sleep(time.Second / 2)
					return err
				})
				time.Sleep(time.Second)
			}
			must(0, p.Close())
			must(0, p.client.Close())
			if _, ok := <-waits; ok {
				b.Error("a waiter got a lease from a closed Locker")
			}
			if listens {
				b.release(lease)
			}
			b.nothingLeft()
		})
	}
}
