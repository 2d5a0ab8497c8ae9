package handoff_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/handoff"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const leaseEnd = ttl - ttl/100 // the age at which an unrenewed lease counts as lost

// TestGivesUpWhenServed makes a waiter give up at the same moment at which it gets the lock. The acquire
// must return either the lease or the expected error, and the lock must be free afterwards.
func TestGivesUpWhenServed(t *testing.T) {
	for _, where := range []string{"in the same process", "in another process"} {
		for _, why := range []string{"its wait is over", "its client has gone"} {
			t.Run(where+", "+why, func(t *testing.T) {
				inBubble(t, func(b *bubble) {
					holder := b.process()
					waiter := holder
					if where == "in another process" {
						waiter = b.process()
					}
					for range 30 { // the two events occur in either order
						lease := holder.take()
						ctx, cancel, wait := b.Context(), func() {}, time.Second
						if why == "its client has gone" {
							ctx, cancel = context.WithTimeout(ctx, wait)
							wait = time.Hour
						}
						done := make(chan struct{})
						go func() {
							defer close(done)
							got, err := waiter.AcquireWithin(ctx, key, wait)
							switch {
							case err == nil:
								b.release(got)
							case !errors.Is(err, handoff.ErrBusy) && !errors.Is(err, context.DeadlineExceeded):
								b.Error(err)
							}
						}()
						time.Sleep(time.Second)
						b.release(lease)
						<-done
						cancel()
						b.nothingLeft()
					}
				})
			})
		}
	}
}

// TestEndOfALease checks a lease without renewals shortly before its end and exactly at its end. It must
// be valid before the end and lost at the end, even if no timer has fired yet.
func TestEndOfALease(t *testing.T) {
	for before, held := range map[time.Duration]bool{time.Millisecond: true, 0: false} {
		for _, look := range []string{"Release", "Lost"} {
			t.Run(fmt.Sprintf("%s %v before the end", look, before), func(t *testing.T) {
				inBubble(t, func(b *bubble) {
					p := b.process()
					for range 20 { // the timer may fire before or after the call
						lease := p.take()
						free := make(chan struct{})
						p.meet(func(func() error) error { <-free; return errDown }) // the renewal
						time.Sleep(leaseEnd - before)
						if look == "Lost" && isLost(lease) == held {
							b.Errorf("lost is %v", !held)
						}
						if err := lease.Release(b.Context()); (err == nil) != held || !held && !errors.Is(err, handoff.ErrLost) {
							b.Errorf("the release returned %v", err)
						}
						close(free)
						b.nothingLeft()
					}
				})
			})
		}
	}
}

// TestLateReply delays the reply that grants the lock, for each kind of request and by up to two TTLs.
// When the caller gets the lock, the server must still store the lease.
func TestLateReply(t *testing.T) {
	for name, request := range map[string]func(b *bubble, p *process, late func(func() error) error) <-chan *handoff.Lease{
		"script": func(b *bubble, p *process, late func(func() error) error) <-chan *handoff.Lease {
			p.meet(late)
			return p.wait()
		},
		"plain commands": func(b *bubble, p *process, late func(func() error) error) <-chan *handoff.Lease {
			b.release(p.take())
			p.meet(late)
			return p.wait()
		},
		"next turn": func(b *bubble, p *process, late func(func() error) error) <-chan *handoff.Lease {
			other := b.process()
			b.release(b.served(p.subscribed(other)))
			lease := p.take()
			waits := other.wait()
			got := p.wait()
			p.meet(func(send func() error) error { // the release queues the process again, and then its turn comes
				err := send()
				b.release(b.served(waits))
				return late(func() error { return err })
			})
			b.release(lease)
			return got
		},
	} {
		for _, delay := range []time.Duration{ttl / 2, leaseEnd - time.Millisecond, leaseEnd, ttl, 2 * ttl} {
			t.Run(fmt.Sprintf("%s, %v", name, delay), func(t *testing.T) {
				inBubble(t, func(b *bubble) {
					got := request(b, b.process(), func(send func() error) error {
						err := send()
						time.Sleep(delay)
						return err
					})
					lease, ok := <-got
					if !ok {
						b.Fatal("the acquire failed")
					}
					if left := b.node.TTL(key); left < ttl/100 || isLost(lease) {
						b.Errorf("the caller has the lock, but the server keeps the lease only for %v", left)
					}
					b.release(lease)
					b.nothingLeft()
				})
			})
		}
	}
}

// TestWaiterLosesInTime gives a waiter the lease while it checks its place in the queue, and then cuts
// it off. The waiter must report the loss before the server ends the lease, even if the reply to the
// check and the message arrive late.
func TestWaiterLosesInTime(t *testing.T) {
	const never = time.Duration(-1)
	for _, grant := range []string{"before the check", "after the check"} {
		for _, late := range []time.Duration{0, time.Second, ttl / 3, 2 * ttl / 3} { // the reply to the check
			for _, message := range []time.Duration{never, 0, time.Second, ttl / 3} { // after that reply
				arrives := fmt.Sprintf("message after %v", message)
				if message == never {
					arrives = "message lost"
				}
				t.Run(fmt.Sprintf("granted %s, reply after %v, %s", grant, late, arrives), func(t *testing.T) {
					inBubble(t, func(b *bubble) {
						other, p := b.process(), b.process()
						b.release(b.served(p.subscribed(other)))
						other.take()
						got := p.wait()
						other.end()
						var name, told string
						pass := func() {
							names, _ := b.node.ZMembers(key + ":queue")
							name = names[0]
							_, _ = b.node.ZRem(key+":queue", name)
							_ = b.node.Set(key, name)
							b.node.SetTTL(key, ttl)
							token, _ := b.node.Incr(key+":fence", 32)
							told = fmt.Sprintf("%s %d %s", name, token, key)
						}
						replied := make(chan struct{})
						if grant == "before the check" {
							pass()
						}
						p.meet(func(send func() error) error {
							defer close(replied)
							err := send()
							if grant == "after the check" {
								pass()
							}
							time.Sleep(late)
							return err
						})
						<-replied
						if message != never {
							time.Sleep(message)
							channel, _, _ := strings.Cut(name, "/")
							b.node.Publish(channel, told)
						}
						lease, ok := <-got
						if !ok {
							b.Fatal("the acquire failed")
						}
						p.down.Store(true)
						<-lease.Lost()
						if !b.node.Exists(key) {
							b.Error("the server ended the lease before its holder reported the loss")
						}
					})
				})
			}
		}
	}
}

// TestTokens checks the tokens of callers in one process. The number in a token must start at 0 for each
// turn and each block of fencing tokens, and no token may occur twice.
func TestTokens(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p := b.process()
		seen := map[string]bool{}
		for range 2 {
			lease := p.take()
			for n := range 40 { // one block of fencing tokens and a part of the next one
				turn, number, _ := strings.Cut(lease.Token(), ".")
				if want := fmt.Sprint(n % 32); number != want || !strings.HasPrefix(turn, "handoff:"+p.id) || seen[lease.Token()] {
					b.Errorf("caller %d has the token %s, want number %s", n, lease.Token(), want)
				}
				seen[lease.Token()] = true
				next := p.wait()
				b.release(lease)
				lease = b.served(next)
			}
			b.release(lease)
		}
	})
}

// slowConn delays each write, and counts the writes as round trips.
type slowConn struct {
	net.Conn
	trips *atomic.Int64
}

func (c slowConn) Write(data []byte) (int, error) {
	c.trips.Add(1)
	time.Sleep(5 * time.Millisecond)
	return c.Conn.Write(data)
}

// TestCombine checks that a burst of requests with Combine needs at most half as many round trips as it
// has requests. All callers must get their locks.
func TestCombine(t *testing.T) {
	node := miniredis.RunT(t)
	var trips atomic.Int64
	client := redis.NewClient(&redis.Options{
		Addr: node.Addr(), MaxRetries: -1, DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return slowConn{conn, &trips}, err
		},
	})
	defer client.Close()
	handoff.Combine(client)
	l := must(handoff.New(client, handoff.Options{}))
	defer l.Close()
	const keys = 40
	for burst := range 4 {
		var leases [keys]*handoff.Lease
		var errs [keys]error
		for step, do := range []func(i int){
			func(i int) { leases[i], errs[i] = l.Acquire(t.Context(), fmt.Sprintf("burst:{%d}", i)) },
			func(i int) { errs[i] = leases[i].Release(t.Context()) },
		} {
			before := trips.Load()
			var all sync.WaitGroup
			for i := range keys {
				all.Go(func() { do(i) })
			}
			all.Wait()
			if err := errors.Join(errs[:]...); err != nil {
				t.Fatal(err)
			}
			if n := trips.Load() - before; burst > 0 && n > keys/2 { // the first burst opens the connections
				t.Errorf("burst %d, step %d: %d round trips for %d requests", burst, step, n, keys)
			}
		}
	}
	nothingLeftOn(t, client)
}

// timedConn takes 10 ms for each write, and counts the writes that contain scripts.
type timedConn struct {
	net.Conn
	trips *atomic.Int64
}

func (c timedConn) Write(data []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(data), []byte("\r\nevalsha\r\n")) {
		c.trips.Add(1)
	}
	time.Sleep(10 * time.Millisecond)
	return c.Conn.Write(data)
}

// TestCombineSharesRoundTrips sends requests in three bursts. The second burst comes while the first four
// requests are in flight. The third comes while the requests of the second share a round trip. The requests of
// each of these two bursts must share one round trip.
func TestCombineSharesRoundTrips(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var trips atomic.Int64
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", Protocol: 2, MaxRetries: -1, DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				conn, err := b.node.Dial()
				return timedConn{conn, &trips}, err
			},
		})
		defer client.Close()
		handoff.Combine(client)
		l := must(handoff.New(client, handoff.Options{}))
		defer l.Close()
		var all sync.WaitGroup
		burst := func(n int) {
			for range n {
				all.Go(func() {
					if err := l.RaiseFence(b.Context(), key, 1); err != nil {
						b.Error(err)
					}
				})
			}
			synctest.Wait()
		}
		burst(1)
		all.Wait() // the script is loaded
		burst(4)   // each has a round trip of its own
		all.Wait() // and opens a connection
		trips.Store(0)
		burst(4)
		burst(7)
		for deadline := time.Now().Add(time.Second); trips.Load() < 5 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		burst(5)
		all.Wait()
		if n := trips.Load(); n != 4+1+1 {
			b.Errorf("%d round trips, want one for each of the first four requests and one for each later burst", n)
		}
	})
}

// TestCombinedRequestEnds checks that a request that waits for its round trip ends with its context.
func TestCombinedRequestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				<-hangs
				return nil, errDown
			},
		})
		defer client.Close()
		handoff.Combine(client)
		l := must(handoff.New(client, handoff.Options{}))
		defer l.Close()
		var others sync.WaitGroup
		for range 8 { // more than get a round trip of their own
			others.Go(func() { _ = l.RaiseFence(t.Context(), key, 1) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := l.RaiseFence(ctx, key, 1)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("the request ended after %v: %v", took, err)
		}
		close(hangs)
		others.Wait()
	})
}
