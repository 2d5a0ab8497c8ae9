package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab/lock"

	"google.golang.org/grpc"
)

// closes calls Close on the locker of a. It checks that Close returns within the given time, and that
// no command is pending afterwards.
func (s *simulation) closes(a *actor, within time.Duration) {
	s.Helper()
	began := time.Now()
	if err := a.Close(); err != nil {
		s.Error(err)
	}
	if took := time.Since(began); took > within {
		s.Errorf("Close took %v, want at most %v", took, within)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending > 0 {
		s.Errorf("%d commands are pending after Close", a.pending)
	}
}

// TestCloseUnused checks that Close leaves nothing on the servers and ends all requests if no client
// holds a lock. Earlier releases, losses and waits must make no difference. A second Close must have
// no effect.
func TestCloseUnused(t *testing.T) {
	for _, strategy := range sessionLocks {
		for _, used := range []string{"never", "released", "lost", "waited"} {
			t.Run(fmt.Sprint(strategy, " ", used), func(t *testing.T) {
				simulate(t, func(s *simulation) {
					a := s.actor(strategy)
					switch used {
					case "released":
						s.release(a.lock())
					case "lost":
						lease := a.lock()
						s.expire(s.newest())
						s.learnsOfLoss(lease)
						time.Sleep(3 * time.Second)
					case "waited":
						b := s.actor(strategy)
						lease := b.lock()
						if _, err := a.Acquire(lock.WaitAtMost(s.Context(), time.Second), theKey); !errors.Is(err, lock.ErrBusy) {
							s.Error(err)
						}
						s.release(lease)
						s.closes(b, 0)
					}
					s.closes(a, 0)
					s.leavesNothing(a)
					if n := a.sent(func() { time.Sleep(3 * simulatedTTL) }); n > 0 {
						s.Errorf("%d requests after Close", n)
					}
				})
			})
		}
	}
}

// TestCloseWhileHeld checks that Close ends the renewals of a lease without releasing it. The lock
// becomes free when the lease expires, and by then the holder must know that it has lost the lease.
func TestCloseWhileHeld(t *testing.T) {
	for _, strategy := range []string{"setnx", "watchdog", "redlock", "handoff", "zookeeper", "etcd"} {
		for _, held := range []time.Duration{0, 2*simulatedTTL + time.Second} {
			if strategy == "setnx" && held > 0 {
				continue // setnx does not renew its leases
			}
			t.Run(fmt.Sprint(strategy, " after ", held), func(t *testing.T) {
				simulate(t, func(s *simulation) {
					a, b := s.actor(strategy), s.actor(strategy)
					lease := a.lock()
					time.Sleep(held)
					s.closes(a, 2*time.Second)
					s.closes(a, 0)
					sent := a.count()
					if lock.IsClosed(lease.Lost()) {
						s.Error("Close ended the lease")
					}
					began := time.Now()
					var next lock.Lease
					for next == nil && time.Since(began) < 2*simulatedTTL {
						time.Sleep(simulatedTTL / 20)
						next, _ = b.Acquire(lock.TryOnce(s.Context()), theKey)
					}
					if lost := lease.Lost(); lost != nil && !lock.IsClosed(lost) {
						s.Error("another client has the lock, but the holder does not know of the loss")
					}
					if took := time.Since(began); next == nil || took < simulatedTTL/2 || took > simulatedTTL*3/2 {
						s.Errorf("the lock was free after %v, want about %v", took, simulatedTTL)
					}
					if n := a.count() - sent; n > 0 {
						s.Errorf("%d requests after Close", n)
					}
				})
			})
		}
	}
}

// TestCloseWhileCleaningUp closes a locker while it is still cleaning up after a failed acquire. Close
// must end the cleanup even if the server refuses the requests or does not answer.
func TestCloseWhileCleaningUp(t *testing.T) {
	for _, c := range []struct {
		name string
		stop func(a *actor)
	}{
		{"refused", func(a *actor) { a.refuse(true) }},
		{"cut", func(a *actor) { a.cut(true) }},
		{"unplugged", func(a *actor) { a.unplug(true) }},
		{"not answered", func(a *actor) { a.mute(true) }},
		{"slow", func(a *actor) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.every = func(ctx context.Context, send func(context.Context) error) error {
				time.Sleep(1500 * time.Millisecond)
				return send(ctx)
			}
		}},
	} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprint(c.name, " from request ", n), func(t *testing.T) {
				simulate(t, func(s *simulation) {
					a, b := s.actor("zookeeper"), s.actor("zookeeper")
					ctx, hangUp := context.WithCancel(s.Context())
					defer hangUp()
					a.before(n, func() {
						c.stop(a)
						hangUp()
					})
					lease, err := a.Acquire(ctx, theKey)
					if err == nil {
						s.release(lease)
					}
					s.closes(a, simulatedTTL)
					if n := a.sent(func() { time.Sleep(2 * simulatedTTL) }); n > 0 {
						s.Errorf("%d requests after Close", n)
					}
					s.release(b.lock(lock.TryOnce))
				})
			})
		}
	}
}

// TestCloseWhileWaiting closes a locker while one of its clients is waiting for the lock. The acquire
// must fail, and its place in the queue must become free within a TTL. The holder must keep its lease.
func TestCloseWhileWaiting(t *testing.T) {
	for _, strategy := range []string{"handoff", "etcd"} {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				long := func(e *lock.Env) { e.Wait = time.Hour }
				a, b, c := s.actor(strategy, long), s.actor(strategy, long), s.actor(strategy, long)
				lease := a.lock()
				failed := make(chan error, 1)
				go func() {
					_, err := b.Acquire(s.Context(), theKey)
					failed <- err
				}()
				time.Sleep(time.Second)
				if err := b.Close(); err != nil { // the acquire may still be cleaning up when Close returns
					s.Error(err)
				}
				select {
				case err := <-failed:
					if kindOf(err) != "error" {
						s.Errorf("the acquire returned %v", err)
					}
				case <-time.After(2 * simulatedTTL):
					s.Error("the acquire does not end")
				}
				if lock.IsClosed(lease.Lost()) {
					s.Error("the holder lost its lease")
				}
				s.release(lease)
				lease = c.lock(func(ctx context.Context) context.Context { return lock.WaitAtMost(ctx, simulatedTTL) })
				s.release(lease)
			})
		})
	}
}

// TestUnreachable checks that New returns ErrUnreachable within a few seconds if the server cannot be
// reached, and that it leaves no goroutine running.
func TestUnreachable(t *testing.T) {
	for _, strategy := range sessionLocks {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				began := time.Now()
				st, err := lock.Find(strategy)
				if err != nil {
					s.Fatal(err)
				}
				client, err := s.etcd.Client(grpc.WithChainUnaryInterceptor(
					func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
						return errDead
					}))
				if err != nil {
					s.Fatal(err)
				}
				defer client.Close()
				env := lock.Env{TTL: simulatedTTL, Etcd: client, ZooKeeper: &lock.Ensemble{
					Servers: []string{"127.0.0.1:2181"},
					Dial:    func(string, string, time.Duration) (net.Conn, error) { return nil, errDead },
				}}
				if _, err := st.New(env); !errors.Is(err, lock.ErrUnreachable) || time.Since(began) > 7*time.Second {
					s.Errorf("New returned %v after %v, want ErrUnreachable within 7s", err, time.Since(began))
				}
				synctest.Wait()
			})
		})
	}
}
