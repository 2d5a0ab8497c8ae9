package lock_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/grab/lock/locktest"

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
		client := locktest.NewClient(n(t))
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	env := locktest.EnvOf(nil, clients...)
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
	env := locktest.EnvOf(nil, client, client)
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
