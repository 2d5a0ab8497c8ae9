package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab/lock"
)

// sessionLocks are the locks whose leases end with a session of ZooKeeper or a lease of etcd.
var sessionLocks = []string{"zookeeper", "etcd"}

// newest returns the queue entry that was created last, or "" if the queue is empty.
func (s *simulation) newest() (entry string) {
	number := func(e string) string { return e[strings.LastIndexByte(e, '-')+1:] }
	for _, e := range s.queued() {
		if entry == "" || number(e) > number(entry) {
			entry = e
		}
	}
	return entry
}

// expire ends the session or lease to which a queue entry belongs.
func (s *simulation) expire(entry string) {
	s.zookeeper.Expire(entry)
	s.etcd.Expire(entry)
}

// learnsOfLoss checks that the holder learns within a TTL that it has lost its lease, and that its
// release returns ErrLost. It allows a millisecond more, because a renewal may have started at the
// same instant.
func (s *simulation) learnsOfLoss(lease lock.Lease) {
	s.Helper()
	select {
	case <-lease.Lost():
	case <-time.After(simulatedTTL + time.Millisecond):
		s.Error("the holder does not learn of the loss")
	}
	if err := lease.Release(s.Context()); !errors.Is(err, lock.ErrLost) {
		s.Errorf("release of a lost lease: %v", err)
	}
}

// works checks that client a gets the lock without waiting and keeps it for several TTLs. Client b must
// get the lock only after the release. All fencing tokens must be higher than fence. works returns the
// highest token.
func (s *simulation) works(a, b *actor, fence uint64) uint64 {
	s.Helper()
	for _, who := range []*actor{a, b} {
		lease := who.lock(lock.TryOnce)
		if lease.Fence() <= fence {
			s.Errorf("fencing token %d after %d", lease.Fence(), fence)
		}
		fence = lease.Fence()
		if who == a {
			time.Sleep(3 * simulatedTTL)
			if lock.IsClosed(lease.Lost()) {
				s.Error("the holder lost its lease although it renews it")
			}
			if b.tries() {
				s.Error("two clients have the lock")
			}
		}
		if err := lease.Release(s.Context()); err != nil {
			s.Errorf("release: %v", err)
		}
	}
	return fence
}

// withTwo runs play with two processes that wait for up to an hour. Afterwards, both must be able
// to use the lock, and nothing may stay on the servers.
func withTwo(t *testing.T, strategy string, play func(s *simulation, a, b *actor)) {
	simulate(t, func(s *simulation) {
		long := func(e *lock.Env) { e.Wait = time.Hour }
		a, b := s.actor(strategy, long), s.actor(strategy, long)
		play(s, a, b)
		if s.Failed() {
			return
		}
		s.works(b, a, s.works(a, b, 0))
		s.leavesNothing(a, b)
	})
}

// leavesNothing closes the lockers, and checks that no queue entry, session, lease or watch remains on
// the servers.
func (s *simulation) leavesNothing(all ...*actor) {
	s.Helper()
	for _, a := range all {
		if err := a.Close(); err != nil {
			s.Error(err)
		}
	}
	synctest.Wait()
	if q := s.queued(); len(q) > 0 {
		s.Errorf("the queue keeps %q", q)
	}
	if n := s.zookeeper.Sessions(); n > 0 {
		s.Errorf("%d sessions stay open", n)
	}
	if n, w := s.etcd.Leases(), s.etcd.Watches(); n > 0 || w > 0 {
		s.Errorf("%d leases and %d watches of etcd are left", n, w)
	}
}

// TestSessionExpiresWhileHeld makes a holder's session expire twice. The holder must learn of the loss
// when its ZooKeeper client has reconnected, or at its next etcd renewal. Another client must get the
// lock immediately, and the first client must be able to use the lock again.
func TestSessionExpiresWhileHeld(t *testing.T) {
	for _, strategy := range sessionLocks {
		for _, held := range []time.Duration{0, time.Millisecond, simulatedTTL / 2, 2 * simulatedTTL} {
			t.Run(fmt.Sprint(strategy, " after ", held), func(t *testing.T) {
				withTwo(t, strategy, func(s *simulation, a, b *actor) {
					fence := uint64(0)
					for range 2 {
						lease := a.lock()
						time.Sleep(held)
						s.expire(s.newest())
						s.release(b.lock(lock.TryOnce))
						if strategy == "zookeeper" {
							time.Sleep(2 * time.Second)
							if !lock.IsClosed(lease.Lost()) {
								s.Error("the holder has a new session, but does not know that it lost its lease")
							}
						}
						s.learnsOfLoss(lease)
						if lease.Fence() <= fence {
							s.Errorf("fencing token %d after %d", lease.Fence(), fence)
						}
						fence = s.works(a, b, lease.Fence())
					}
				})
			})
		}
	}
}

// TestSessionExpiresWhileWaiting checks that an acquire fails if its session expires while it waits
// for the lock. The holder must not be affected, and a new acquire must get the lock after the
// release.
func TestSessionExpiresWhileWaiting(t *testing.T) {
	for _, strategy := range sessionLocks {
		t.Run(strategy, func(t *testing.T) {
			withTwo(t, strategy, func(s *simulation, a, b *actor) {
				lease := a.lock()
				for range 2 {
					failed := make(chan error, 1)
					go func() {
						_, err := b.Acquire(s.Context(), theKey)
						failed <- err
					}()
					time.Sleep(simulatedTTL + time.Second)
					s.expire(s.newest())
					select {
					case err := <-failed:
						if kindOf(err) != "error" {
							s.Errorf("the acquire returned %v", err)
						}
					case <-time.After(simulatedTTL):
						s.Fatal("the waiter does not notice that its session has expired")
					}
					if lock.IsClosed(lease.Lost()) {
						s.Error("the holder lost its lease")
					}
				}
				got := b.locks()
				time.Sleep(time.Second)
				s.release(lease)
				s.release(<-got)
			})
		})
	}
}

// TestSessionExpiresDuringAcquire makes the session expire after each reply of an acquire in turn. The
// acquire must fail, or the client must soon learn that its lease is lost. If a ZooKeeper client
// learns of the expiry before it gets the reply, the acquire must fail.
func TestSessionExpiresDuringAcquire(t *testing.T) {
	for _, strategy := range sessionLocks {
		for _, pause := range []time.Duration{0, 3 * time.Second} {
			t.Run(fmt.Sprint(strategy, " ", pause), func(t *testing.T) {
				withTwo(t, strategy, func(s *simulation, a, b *actor) {
					var expired atomic.Int64
					for n := 1; n <= 3; n++ {
						a.after(n, func() error {
							if entry := s.newest(); entry != "" {
								expired.Add(1)
								s.expire(entry)
								time.Sleep(pause)
							}
							return nil
						})
						before := expired.Load()
						lease, err := a.Acquire(lock.TryOnce(s.Context()), theKey)
						a.forgetSteps()
						if err == nil && expired.Load() > before && pause > 0 && strategy == "zookeeper" {
							s.Errorf("request %d: the acquire succeeded although the client knew that its session had expired", n)
						}
						time.Sleep(3 * time.Second) // until the client has a new session
						switch {
						case err == nil && s.newest() == "":
							s.learnsOfLoss(lease)
						case err == nil:
							s.release(lease)
						case kindOf(err) != "error":
							s.Errorf("request %d: %v", n, err)
						}
						s.works(a, b, 0)
					}
					if expired.Load() == 0 {
						s.Error("no session expired")
					}
				})
			})
		}
	}
}

// TestNoSessionForAWhile checks a ZooKeeper client whose session has expired and that cannot start a
// new one yet. The client must still report the correct duration of its leases, and work normally
// once it can connect again.
func TestNoSessionForAWhile(t *testing.T) {
	simulate(t, func(s *simulation) {
		var dials atomic.Int64 // how many more connections can be opened; 0 means any number
		var a *actor
		a = s.actor("zookeeper", func(e *lock.Env) {
			dial := e.ZooKeeper.Dial
			e.ZooKeeper.Dial = func(network, addr string, timeout time.Duration) (conn net.Conn, err error) {
				if dials.Add(-1) == 0 {
					a.unplug(true)
				}
				return dial(network, addr, timeout)
			}
		})
		lease := a.lock()
		dials.Store(2) // the first connection tells the client that its session has expired
		s.expire(s.newest())
		s.learnsOfLoss(lease)
		if got := lock.LeaseOf(a.Locker, 0); got != simulatedTTL {
			s.Errorf("a lease lasts %v, want %v", got, simulatedTTL)
		}
		a.unplug(false)
		time.Sleep(3 * time.Second)
		s.works(a, s.actor("zookeeper"), lease.Fence())
	})
}

// TestSessionOutlivesLease makes a holder's requests fail for two TTLs, during which a ZooKeeper
// session stays alive. The holder must still lose its lease after one TTL. Another client must get
// the lock soon after the requests succeed again.
func TestSessionOutlivesLease(t *testing.T) {
	for _, strategy := range sessionLocks {
		t.Run(strategy, func(t *testing.T) {
			withTwo(t, strategy, func(s *simulation, a, b *actor) {
				lease := a.lock()
				a.refuse(true)
				time.Sleep(simulatedTTL)
				if !lock.IsClosed(lease.Lost()) {
					s.Error("the holder does not learn of the loss")
				}
				time.Sleep(simulatedTTL)
				a.refuse(false)
				time.Sleep(time.Second)
				s.release(b.lock(lock.TryOnce))
				if err := lease.Release(s.Context()); !errors.Is(err, lock.ErrLost) {
					s.Errorf("release: %v", err)
				}
			})
		})
	}
}

// TestWaiterIsRefused makes a waiter's requests fail for longer than a TTL. With ZooKeeper, the
// waiter must keep waiting and get the lock, because its session is still alive. With etcd, its lease
// has expired, so the acquire must fail.
func TestWaiterIsRefused(t *testing.T) {
	for strategy, kept := range map[string]bool{"zookeeper": true, "etcd": false} {
		t.Run(strategy, func(t *testing.T) {
			withTwo(t, strategy, func(s *simulation, a, b *actor) {
				lease := a.lock()
				done := make(chan error, 1)
				go func() {
					waited, err := b.Acquire(s.Context(), theKey)
					if err == nil {
						err = waited.Release(s.Context())
					}
					done <- err
				}()
				time.Sleep(time.Second)
				b.refuse(true)
				time.Sleep(simulatedTTL + time.Second)
				b.refuse(false)
				synctest.Wait()
				if len(done) > 0 == kept {
					s.Errorf("still waiting: %v, want %v", !kept, kept)
				}
				s.release(lease)
				if err := <-done; (err == nil) != kept {
					s.Errorf("the acquire returned %v", err)
				}
			})
		})
	}
}

// TestWaiterIsUnplugged checks that a waiter that loses its connection still gets the lock, because
// its ZooKeeper session has not expired.
func TestWaiterIsUnplugged(t *testing.T) {
	withTwo(t, "zookeeper", func(s *simulation, a, b *actor) {
		lease := a.lock()
		got := b.locks()
		time.Sleep(time.Second)
		b.unplug(true)
		time.Sleep(simulatedTTL / 2)
		b.unplug(false)
		time.Sleep(2 * time.Second)
		s.release(lease)
		s.release(<-got)
	})
}

// TestOutageDuringWait cuts a waiter off from ZooKeeper for a while, before each of its requests in
// turn. The waiter must still get the lock, because its session has not expired.
func TestOutageDuringWait(t *testing.T) {
	for n := 2; n <= 5; n++ {
		t.Run(fmt.Sprint("before request ", n), func(t *testing.T) {
			withTwo(t, "zookeeper", func(s *simulation, a, b *actor) {
				lease := a.lock()
				b.before(n, func() {
					b.unplug(true)
					time.AfterFunc(simulatedTTL/3, func() { b.unplug(false) })
				})
				time.AfterFunc(simulatedTTL, func() { s.release(lease) })
				s.release(b.lock())
			})
		})
	}
}

// TestReleaseFails makes a release fail, and all further requests for the given time. The lease must
// then be neither renewed nor reported as lost. The lock must be free within a TTL after the requests
// succeed again.
func TestReleaseFails(t *testing.T) {
	for _, strategy := range sessionLocks {
		for _, fails := range []time.Duration{0, time.Second, 5 * time.Second} {
			t.Run(fmt.Sprint(strategy, " for ", fails), func(t *testing.T) {
				withTwo(t, strategy, func(s *simulation, a, b *actor) {
					for range 2 {
						lease := a.lock()
						if fails > 0 {
							a.refuse(true)
						} else {
							a.at(1, func(context.Context, func(context.Context) error) error { return a.lost })
						}
						err := lease.Release(s.Context())
						if retried := strategy == "etcd" && fails == 0 && err == nil; !retried && kindOf(err) != "error" {
							s.Errorf("the release returned %v, want the error of its request", err)
						}
						if err := lease.Release(s.Context()); !errors.Is(err, lock.ErrLost) {
							s.Errorf("a second release: %v", err)
						}
						time.Sleep(fails)
						a.refuse(false)
						time.Sleep(simulatedTTL)
						if lock.IsClosed(lease.Lost()) {
							s.Error("a released lease is reported as lost")
						}
						s.works(b, a, lease.Fence())
					}
				})
			})
		}
	}
}

// TestReleaseAfterUnseenLoss checks a release just after the session has expired, when the client
// does not know this yet. The release must fail, and another client must get the lock.
func TestReleaseAfterUnseenLoss(t *testing.T) {
	for _, strategy := range sessionLocks {
		t.Run(strategy, func(t *testing.T) {
			withTwo(t, strategy, func(s *simulation, a, b *actor) {
				lease, entry := a.lock(), s.newest()
				a.before(1, func() { s.expire(entry) })
				err := lease.Release(s.Context())
				time.Sleep(2 * time.Second)
				if strategy == "etcd" && !errors.Is(err, lock.ErrLost) || err == nil {
					s.Errorf("release: %v", err)
				}
				s.release(b.lock(lock.TryOnce))
			})
		})
	}
}

// TestEntryIsDeleted deletes a holder's queue entry, although its ZooKeeper session is still alive.
// The holder must learn of the loss within a TTL, or at the latest from its release.
func TestEntryIsDeleted(t *testing.T) {
	for _, release := range []bool{false, true} {
		t.Run(fmt.Sprint("released ", release), func(t *testing.T) {
			withTwo(t, "zookeeper", func(s *simulation, a, b *actor) {
				lease := a.lock()
				s.zookeeper.Delete(s.newest())
				if !release {
					select {
					case <-lease.Lost():
					case <-time.After(simulatedTTL):
						s.Error("the holder does not learn of the loss")
					}
				}
				if err := lease.Release(s.Context()); !errors.Is(err, lock.ErrLost) {
					s.Errorf("release: %v", err)
				}
				s.works(b, a, lease.Fence())
			})
		})
	}
}

// TestPredecessorGoesBeforeTheWatch releases the lock after each of a waiter's first three replies.
// Even if the entry ahead disappears before the waiter watches it, the waiter must get the lock
// without a delay.
func TestPredecessorGoesBeforeTheWatch(t *testing.T) {
	for _, strategy := range sessionLocks {
		t.Run(strategy, func(t *testing.T) {
			withTwo(t, strategy, func(s *simulation, a, b *actor) {
				for n := 1; n <= 3; n++ {
					lease := a.lock()
					b.after(n, func() error { s.release(lease); return nil })
					began := time.Now()
					mine := b.lock()
					if took := time.Since(began); took > 0 && n < 3 {
						s.Errorf("request %d: waited %v for a free lock", n, took)
					}
					b.forgetSteps()
					s.release(mine)
				}
			})
		})
	}
}
