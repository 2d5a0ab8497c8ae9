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

// silentNode accepts connections and never answers.
func silentNode(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String() // the backlog of the listener takes them all
}

// deadNode refuses connections.
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

// TestSilentNode: a node that does not answer costs its grace at each step. One
// time-out for all nodes would be all of redlockTimeout, a second and a half.
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

// TestNoQuorum: when no other client was found to have the lock, busy would hide
// the cause, also from those that wait behind another.
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

// TestBusyWithoutQuorum: another client has it, as far as can be seen.
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

// TestTooFewNodes: two nodes bear no loss.
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
		t.Errorf("%v", err)
	}
}

// TestMinorityLost: a lease outlives the loss of two nodes of five, and ends
// with the third: an extension sets no key again (F21).
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

// meets has something stand around the commands of one name to one node.
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

// onTheWire returns a request that arrives late, although its caller has given it up.
func onTheWire(d time.Duration) step {
	return func(ctx context.Context, send func(context.Context) error) error {
		time.Sleep(d)
		return send(context.WithoutCancel(ctx))
	}
}

// A node grants when it is not waited for any more: that stays if the lock is held,
// and not if it was released meanwhile.
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
				t.Errorf("held: %v; the key is there: %v", held, got)
			}
			if held {
				s.release(lease)
			}
		})
	}
}

// A try that fails takes back what a node may have granted without saying so.
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
			t.Fatal("it has got a minority, and the lock")
		}
		if s.nodes[2].Exists(theKey) {
			t.Error("the node that granted without an answer keeps the key")
		}
	})
}

// A release goes to all nodes, also to one that is slower than a quorum.
func TestReleaseReachesTheSlowest(t *testing.T) {
	simulate(t, func(s *simulation) {
		a := s.actor("redlock", meets(2, "evalsha", func(ctx context.Context, send func(context.Context) error) error {
			time.Sleep(4 * lock.RedlockGrace)
			return send(ctx)
		}))
		s.release(a.lock())
		time.Sleep(8 * lock.RedlockGrace)
		if s.nodes[2].Exists(theKey) {
			t.Error("the slowest node has the key yet")
		}
	})
}

// Each try has a token of its own: the clean-up of an earlier one may be late.
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
