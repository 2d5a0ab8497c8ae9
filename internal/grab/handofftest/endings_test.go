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

// TestEndedContext checks that an acquire whose context has ended sends nothing, and that a closed
// Locker sends nothing either.
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
					b.Errorf("%d requests", n)
				}
			})
		})
	}
}

// The context of an acquire ends while a reply is on its way. The acquire fails, and what it did on the
// server is undone at once, even if the first attempt to undo it fails.
func TestHangsUpDuringTheRequest(t *testing.T) {
	for _, fails := range []int{0, 1} { // how many requests of the cleanup get no reply
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
						meets = append(meets, refused) // the second attempt
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

// A context of the work that is asked for after the end of the lease has ended too, with its cause.
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

// A release fails until the lease has expired. It says so in time, and the Locker can be used again.
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

// TestRenewalHasTrouble lets one renewal have trouble, and cuts the holder off after the next one or
// at once. The holder loses the lease only if no renewal succeeded, and always before the server ends it.
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
					time.Sleep(ttl / 2) // the server knows the script that renews a lease
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
						if left := b.node.TTL(key); left <= 0 && c.name != "refused" {
							b.Error("the server had ended the lease before its holder knew")
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

// A renewal that fails is sent again after a tenth of the TTL, and one that gets no reply is given up
// after a third. A late reply to it changes no later lease.
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
			b.Error("lost although the fifth renewal arrived in time")
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
			b.Errorf("a late reply to an old renewal: lost %v, %d requests", isLost(next), n)
		}
		b.release(next)
		b.nothingLeft()
	})
}

// The holder dies, and the first check of a waiter fails. The waiter checks again and gets the lock.
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

// Close waits for the requests that are being sent.
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
			b.Fatal("no renewal")
		}
		must(0, p.Close())
		if pending.Load() {
			b.Error("a renewal is pending after Close")
		}
	})
}

// Close returns only when Redis no longer knows the requests of the callers that were waiting, so that
// the client can be closed next.
func TestCloseWithdrawsRequests(t *testing.T) {
	for _, listens := range []bool{true, false} { // without a subscription, the process is not in the queue, but asks once a second
		inBubble(t, func(b *bubble) {
			p, q := b.process(), b.process()
			p.deaf.Store(!listens)
			lease := q.take()
			waits := p.wait()
			if queued := b.queued() > 0; queued != listens {
				b.Fatalf("it listens: %v, it is queued: %v", listens, queued)
			}
			if listens {
				p.meet(func(send func() error) error { time.Sleep(time.Second / 2); return send() }) // it gives up slowly
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
				b.Error("a closed Locker serves")
			}
			if listens {
				b.release(lease)
			}
			b.nothingLeft()
		})
	}
}
