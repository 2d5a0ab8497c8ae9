package lock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab/lock"
)

const keyDir = lock.ZooKeeperRoot + "/" + theKey

// withNodes runs play with two processes. Afterwards, both must be able to use the lock, and the
// server may keep only containers that it removes by itself.
func withNodes(t *testing.T, play func(s *simulation, a, b *actor)) {
	withTwo(t, "zookeeper", func(s *simulation, a, b *actor) {
		play(s, a, b)
		s.zookeeper.RemoveContainers()
		if got := s.zookeeper.Contents(); strings.Contains(got, keyDir) {
			s.Errorf("the server keeps\n%s", got)
		}
	})
}

// TestParentIsCreatedOnce checks that the first client of a lock creates its parent node, and the root
// node if it is missing. Later clients must need no additional requests.
func TestParentIsCreatedOnce(t *testing.T) {
	for name, want := range map[string]int{
		"no parent": 3, // create the node, the parent, the node
		"no root":   5, // create the node, the parent, the root; once more the node, the parent
	} {
		t.Run(name, func(t *testing.T) {
			withNodes(t, func(s *simulation, a, b *actor) {
				s.release(b.acquired("other:{1}")) // sets up the connection
				known := b.sent(func() { s.release(b.acquired("other:{1}")) })
				s.zookeeper.RemoveContainers()
				if name == "no root" {
					s.zookeeper.Delete(lock.ZooKeeperRoot)
				}
				if n := a.sent(func() { s.release(a.lock()) }); n > known+want {
					s.Errorf("the first grab sent %d requests, and later grabs %d", n, known)
				}
				if n := b.sent(func() { s.release(b.lock()) }); n != known {
					s.Errorf("the second grab sent %d requests, want %d", n, known)
				}
			})
		})
	}
}

// acquired acquires the lock for the given key. It ends the test if that fails.
func (a *actor) acquired(key string) lock.Lease {
	a.s.Helper()
	lease, err := a.Acquire(a.s.Context(), key)
	if err != nil {
		a.s.Fatalf("acquire %s: %v", key, err)
	}
	return lease
}

// TestParentIsRemoved makes the server remove the parent node just before a request of an acquire,
// once or twice. The acquire must succeed anyway.
func TestParentIsRemoved(t *testing.T) {
	for _, times := range []int{1, 2} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprint(times, " times from request ", n), func(t *testing.T) {
				withNodes(t, func(s *simulation, a, b *actor) {
					for i := range times {
						a.before(n+2*i, func() { s.zookeeper.Delete(keyDir) })
					}
					s.release(a.lock(lock.TryOnce))
				})
			})
		}
	}
}

// TestParentIsCreatedByTwo makes another client create the parent node, or the root too, just before
// each request of an acquire in turn. Only one of the two clients may get the lock immediately, and
// the other client must get it after the release.
func TestParentIsCreatedByTwo(t *testing.T) {
	for _, root := range []bool{false, true} {
		for n := 1; n <= 5; n++ {
			t.Run(fmt.Sprint("root ", root, " before request ", n), func(t *testing.T) {
				withNodes(t, func(s *simulation, a, b *actor) {
					if root {
						s.zookeeper.RemoveContainers()
						s.zookeeper.Delete(lock.ZooKeeperRoot)
					}
					var first lock.Lease
					a.before(n, func() { first, _ = b.Acquire(lock.TryOnce(s.Context()), theKey) })
					got := a.locks()
					synctest.Wait()
					if first != nil {
						if len(got) > 0 {
							s.Fatal("both have the lock")
						}
						s.release(first)
					}
					s.release(<-got)
				})
			})
		}
	}
}

// TestTroubleWithParent injects each kind of trouble into each request of a lock's first acquire. The
// client must soon stop sending requests and leave nothing behind, even if the server removes the
// parent node during the cleanup.
func TestTroubleWithParent(t *testing.T) {
	for _, tr := range troubles {
		t.Run(tr.name, func(t *testing.T) {
			withNodes(t, func(s *simulation, a, b *actor) {
				for n := 1; n <= 5; n++ {
					for removed := n; removed <= n+3; removed++ {
						ctx, hangUp := context.WithCancel(s.Context())
						if removed > n {
							a.before(removed, func() { s.zookeeper.Delete(keyDir) })
						}
						var struck atomic.Bool
						do := tr.step(a, hangUp)
						a.at(n, func(ctx context.Context, send func(context.Context) error) error {
							struck.Store(true)
							return do(ctx, send)
						})
						lease, err := a.Acquire(ctx, theKey)
						hangUp()
						if err == nil {
							s.release(lease)
						}
						time.Sleep(tr.lasts)
						if struck.Load() && err == nil && tr.name == "refused" && n < 4 {
							s.Errorf("request %d was refused, but the client has the lock", n)
						}
						if sent := a.sent(func() { time.Sleep(simulatedTTL) }); sent > 0 {
							s.Errorf("trouble with request %d, parent removed before %d: %d more requests", n, removed, sent)
						}
						a.forgetSteps()
						s.zookeeper.RemoveContainers()
						if got := s.zookeeper.Contents(); strings.Contains(got, keyDir) {
							s.Fatalf("trouble with request %d: the server keeps\n%s", n, got)
						}
					}
				}
			})
		})
	}
}

// TestGrantedLease checks that the end of a lease, its renewals and its loss are based on the TTL that
// the server grants. This TTL may differ from the configured one.
func TestGrantedLease(t *testing.T) {
	for _, c := range []struct {
		strategy  string
		ttl, want time.Duration
	}{
		{"zookeeper", simulatedTTL, simulatedTTL},
		{"zookeeper", 50 * time.Millisecond, 200 * time.Millisecond},
		{"zookeeper", time.Hour, 10 * time.Minute},
		{"zookeeper", 30 * 24 * time.Hour, 10 * time.Minute}, // more ms than the protocol can express
		{"etcd", simulatedTTL, simulatedTTL},
		{"etcd", 300 * time.Millisecond, time.Second},
		{"etcd", 2500 * time.Millisecond, 3 * time.Second},
	} {
		t.Run(fmt.Sprint(c.strategy, " ", c.ttl), func(t *testing.T) {
			simulate(t, func(s *simulation) {
				ttl := func(e *lock.Env) { e.TTL = c.ttl }
				a, b := s.actor(c.strategy, ttl), s.actor(c.strategy, ttl)
				if got := lock.LeaseOf(a.Locker, c.ttl); got != c.want {
					s.Fatalf("a lease lasts %v, want %v", got, c.want)
				}
				// sent is the time of the latest request, and decisive is the time from which the TTL counts.
				var sent, decisive atomic.Int64 // in ns since the epoch
				delay := c.want / 8
				a.every = func(ctx context.Context, send func(context.Context) error) error {
					sent.Store(time.Now().UnixNano())
					if c.strategy == "zookeeper" { // each request renews the session, and the last one counts
						decisive.Store(sent.Load())
					} else { // the lease was granted first
						decisive.CompareAndSwap(0, sent.Load())
					}
					err := send(ctx)
					time.Sleep(delay)
					return err
				}
				latest := func() time.Time { return time.Unix(0, sent.Load()).Add(c.want) }
				var renewals atomic.Int64
				lease := a.lock(func(ctx context.Context) context.Context {
					return lock.OnRenewal(ctx, func(until time.Time) {
						if n, want := renewals.Add(1), latest(); !until.Equal(want) {
							s.Errorf("renewal %d: the lease ends at %v, want %v", n, until, want)
						}
					})
				})
				bounded := lease.(lock.Bounded)
				if until, want := bounded.Until(), time.Unix(0, decisive.Load()).Add(c.want); !until.Equal(want) {
					s.Errorf("the lease ends at %v, want %v", until, want)
				}
				time.Sleep(3 * c.want)
				if n := renewals.Load(); lock.IsClosed(lease.Lost()) || n < 6 || n > 10 {
					s.Errorf("lost: %v, %d renewals in 3 leases", lock.IsClosed(lease.Lost()), n)
				}
				if b.tries() {
					s.Error("two clients have the lock")
				}
				a.refuse(true)
				time.Sleep(delay) // a renewal may have been sent before
				end := bounded.Until()
				<-lease.Lost()
				if late := time.Since(end); late != 0 {
					s.Errorf("lost %v after the end of the lease", late)
				}
			})
		})
	}
}

// TestEndedContext checks that an acquire with a cancelled context sends no request.
func TestEndedContext(t *testing.T) {
	for _, strategy := range append([]string{"handoff"}, sessionLocks...) {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				a := s.actor(strategy)
				ctx, cancel := context.WithCancel(s.Context())
				cancel()
				n := a.sent(func() {
					if _, err := a.Acquire(ctx, theKey); !errors.Is(err, context.Canceled) {
						s.Errorf("acquire: %v", err)
					}
				})
				if n > 0 {
					s.Errorf("the client sent %d requests, want none", n)
				}
			})
		})
	}
}

// statusServer starts a server that answers a ZooKeeper status request with the given status. If
// status is empty, the server calls hangs instead of answering. It sends to closed when a client has
// closed its connection.
func statusServer(t *testing.T, status string, hangs func()) (addr string, closed <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	end := make(chan struct{}, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			request := make([]byte, 4)
			if _, err := io.ReadFull(conn, request); err == nil && string(request) == "srvr" {
				if status == "" {
					hangs()
				} else {
					_, _ = io.WriteString(conn, status)
					_ = conn.(*net.TCPConn).CloseWrite()
				}
			}
			_, _ = io.Copy(io.Discard, conn) // until the client closes the connection
			_ = conn.Close()
			end <- struct{}{}
		}
	}()
	return listener.Addr().String(), end
}

// TestPing checks that Ping succeeds only if at least one server answers and is part of a quorum. An
// error must name every server.
func TestPing(t *testing.T) {
	const (
		works    = "Zookeeper version: 3.9\nMode: follower\nNode count: 7\n"
		noQuorum = "This ZooKeeper instance is not currently serving requests\n"
		refuses  = "refuses"
		hangs    = ""
	)
	for _, c := range []struct {
		name    string
		servers []string
		works   bool
	}{
		{"one works", []string{works}, true},
		{"the second works", []string{noQuorum, works}, true},
		{"the third works", []string{refuses, noQuorum, works}, true},
		{"no quorum", []string{noQuorum}, false},
		{"refuses", []string{refuses}, false},
		{"hangs", []string{hangs}, false},
		{"none works", []string{refuses, noQuorum}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var e lock.Ensemble
			var ends []<-chan struct{}
			for _, status := range c.servers {
				addr, closed := statusServer(t, status, cancel)
				if status == refuses {
					addr = "127.0.0.1:1"
				} else {
					ends = append(ends, closed)
				}
				e.Servers = append(e.Servers, addr)
			}
			err := e.Ping(ctx)
			if (err == nil) != c.works {
				t.Errorf("ping: %v", err)
			}
			for i, addr := range e.Servers {
				if err != nil && !strings.Contains(err.Error(), addr) {
					t.Errorf("the error does not name server %d: %v", i, err)
				}
			}
			for _, closed := range ends {
				<-closed
			}
		})
	}
}
