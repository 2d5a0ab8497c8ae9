package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/tap/redishook"
	"grablab/internal/testbed/conformtest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// silentNode starts a server that accepts connections but never replies.
func silentNode(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String() // the listener's backlog accepts all connections
}

// deadNode returns an address that refuses connections.
func deadNode(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func liveNode(t *testing.T) string { return miniredis.RunT(t).Addr() }

type node func(*testing.T) string

func redlockOver(t *testing.T, wait time.Duration, nodes ...node) lock.Locker {
	t.Helper()
	var clients []redis.UniversalClient
	for _, n := range nodes {
		client := conformtest.NewClient(n(t))
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	env := conformtest.EnvOf(nil, clients...)
	env.TTL, env.Wait = 30*time.Second, wait
	return start(t, "redlock", env)
}

// TestSilentNode checks that a node that is silent or down delays an acquire and a release by at most
// a second. If all nodes had a single timeout, a silent node would delay them by 1.5 s.
func TestSilentNode(t *testing.T) {
	for _, c := range []struct {
		name string
		one  node
	}{{"silent", silentNode}, {"dead", deadNode}} {
		t.Run(c.name, func(t *testing.T) {
			l := redlockOver(t, 0, liveNode, liveNode, liveNode, liveNode, c.one)
			began := time.Now()
			lease := mustAcquire(t, t.Context(), l, "k")
			acquired := time.Since(began)
			mustRelease(t, lease)
			released := time.Since(began) - acquired
			if most := time.Second; acquired > most || released > most {
				t.Errorf("acquire took %v, release %v", acquired, released)
			}
			t.Logf("acquire took %v, release %v", acquired, released)
		})
	}
}

// TestNoQuorum checks that an acquire without a quorum returns the cause and not ErrBusy, because no
// node has reported another holder. This also applies to clients that wait in the local queue.
func TestNoQuorum(t *testing.T) {
	for wait, waiters := range map[time.Duration]int{0: 1, 300 * time.Millisecond: 3} {
		l := redlockOver(t, wait, liveNode, liveNode, deadNode, deadNode, deadNode)
		errs := make(chan error)
		for range waiters {
			go func() {
				_, err := l.Acquire(context.Background(), "k")
				errs <- err
			}()
		}
		for range waiters {
			err := <-errs
			if err == nil || errors.Is(err, lock.ErrBusy) || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("wait %v: %v; want the cause", wait, err)
			}
		}
	}
}

// TestBusyWithoutQuorum checks that an acquire returns ErrBusy if another client holds the lock on
// the nodes that respond.
func TestBusyWithoutQuorum(t *testing.T) {
	a, b := miniredis.RunT(t), miniredis.RunT(t)
	for _, m := range []*miniredis.Miniredis{a, b} {
		if err := m.Set("k", "another's"); err != nil {
			t.Fatal(err)
		}
	}
	at := func(m *miniredis.Miniredis) node { return func(*testing.T) string { return m.Addr() } }
	l := redlockOver(t, 0, at(a), at(b), liveNode, deadNode, deadNode)
	if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, lock.ErrBusy) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v; want busy, and the cause", err)
	}
}

// TestTooFewNodes checks that two nodes are refused, because they cannot survive the loss of one.
func TestTooFewNodes(t *testing.T) {
	st, err := lock.Find("redlock")
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	env := conformtest.EnvOf(nil, client, client)
	env.TTL = time.Second
	if _, err := st.New(env); err == nil || !strings.Contains(err.Error(), "3 independent nodes") {
		t.Errorf("New: %v", err)
	}
}

// TestMinorityLost checks that a lease survives if two of five nodes lose their data, but not if three
// do (F21).
func TestMinorityLost(t *testing.T) {
	var servers []*miniredis.Miniredis
	var nodes []node
	for range 5 {
		m := miniredis.RunT(t)
		servers = append(servers, m)
		nodes = append(nodes, func(*testing.T) string { return m.Addr() })
	}
	l := redlockOver(t, 0, nodes...)
	lease := mustAcquire(t, t.Context(), l, "k")
	servers[0].FlushAll()
	servers[1].FlushAll()
	mustRelease(t, lease)

	lease = mustAcquire(t, t.Context(), l, "k")
	for _, m := range servers[:3] {
		m.FlushAll()
	}
	if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release of a lost lease: %v", err)
	}
}

// meets runs do in place of each command with the given name on one node.
func meets(node int, name string, do step) func(*lock.Env) {
	return func(e *lock.Env) {
		e.Redlock[node].AddHook(redishook.Hook(func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
			if cmds[0].Name() == name && strings.Contains(fmt.Sprint(cmds[0].Args()), theKey) {
				return do(ctx, send)
			}
			return send(ctx)
		}))
	}
}

// onTheWire returns a step that delays a request. The request still arrives after its caller has
// given up.
func onTheWire(d time.Duration) step {
	return func(ctx context.Context, send func(context.Context) error) error {
		time.Sleep(d)
		return send(context.WithoutCancel(ctx))
	}
}

// TestLateGrantOfANode checks a grant that arrives after the caller has stopped waiting for the
// node. The key stays while the lock is held, but is deleted if the lock was released in the
// meantime.
func TestLateGrantOfANode(t *testing.T) {
	for _, held := range []bool{true, false} {
		simulate(t, func(s *simulation) {
			a := s.actor("redlock", meets(2, "set", onTheWire(4*lock.RedlockGrace)))
			lease := a.lock()
			if !held {
				s.release(lease)
			}
			time.Sleep(8 * lock.RedlockGrace)
			if got := s.nodes[2].Exists(theKey); got != held {
				t.Errorf("held: %v; the key exists: %v", held, got)
			}
			if held {
				s.release(lease)
			}
		})
	}
}

// TestCloseWaitsForSlowNodes checks that Close waits for requests to a slow node, although the acquire or
// the release has not waited for them.
func TestCloseWaitsForSlowNodes(t *testing.T) {
	for _, command := range []string{"set", "evalsha"} {
		simulate(t, func(s *simulation) {
			a := s.actor("redlock", meets(2, command, onTheWire(4*lock.RedlockGrace)))
			s.release(a.lock())
			s.closes(a, 8*lock.RedlockGrace)
		})
	}
}

// TestSilentGrantIsTakenBack checks that a failed attempt also deletes keys on nodes whose grants
// got lost.
func TestSilentGrantIsTakenBack(t *testing.T) {
	simulate(t, func(s *simulation) {
		a := s.actor("redlock", meets(2, "set", func(ctx context.Context, send func(context.Context) error) error {
			_ = send(ctx)
			return errLostReply
		}))
		for _, n := range s.nodes[:2] {
			s.set(n, "another's")
		}
		if a.tries() {
			t.Fatal("the client has the lock with only a minority")
		}
		if s.nodes[2].Exists(theKey) {
			t.Error("the node whose grant got lost still has the key")
		}
	})
}

// TestReleaseReachesTheSlowest checks that a release reaches all nodes, even one that is slower
// than the quorum.
func TestReleaseReachesTheSlowest(t *testing.T) {
	simulate(t, func(s *simulation) {
		a := s.actor("redlock", meets(2, "evalsha", func(ctx context.Context, send func(context.Context) error) error {
			time.Sleep(4 * lock.RedlockGrace)
			return send(ctx)
		}))
		s.release(a.lock())
		time.Sleep(8 * lock.RedlockGrace)
		if s.nodes[2].Exists(theKey) {
			t.Error("the slowest node still has the key")
		}
	})
}

// TestEachTryHasItsToken checks that each attempt uses a new token. Otherwise, the delayed cleanup of
// an earlier attempt could delete the key of a later one.
func TestEachTryHasItsToken(t *testing.T) {
	simulate(t, func(s *simulation) {
		var values []string
		wait := func(e *lock.Env) {
			e.Wait = time.Second
			e.Redlock[2].AddHook(redishook.Hook(func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
				if args := cmds[0].Args(); cmds[0].Name() == "set" && args[1] == theKey {
					values = append(values, fmt.Sprint(args[2]))
				}
				return send(ctx)
			}))
		}
		a := s.actor("redlock", wait)
		for _, n := range s.nodes[:2] {
			s.set(n, "another's")
		}
		if _, err := a.Acquire(s.Context(), theKey); !errors.Is(err, lock.ErrBusy) {
			t.Errorf("%v, want busy", err)
		}
		tries := len(values)
		slices.Sort(values)
		if tries < 2 || len(slices.Compact(values)) != tries {
			t.Errorf("%d tries with %v", tries, values)
		}
	})
}
