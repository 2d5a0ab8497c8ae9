package locktest

import (
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/conformtest"
)

// Claims describes which servers a lock uses, and what the lock promises.
type Claims struct {
	// Redis lists the addresses of Redis servers that nothing else uses: either a single server, or
	// all servers of a lock that uses independent servers. The tests treat every key that contains
	// Acquire's argument as part of the lock, except counters whose names end with ":fence".
	Redis []string
	// Renews means that the lock renews its lease, and reports the loss of the lease.
	Renews bool
}

// RedisServer starts a Redis server for this test and returns the server's address. If redis-server
// is not installed, it skips the test.
func RedisServer(tb testing.TB) (addr string) {
	tb.Helper()
	if child, _ := role(""); child {
		return ""
	}
	return conformtest.RedisServer(tb)
}

// Conform checks that the lock meets the requirements of Locker and Lease. Each check is a subtest.
func Conform(t *testing.T, claims Claims, newLock New) {
	t.Helper()
	id := callID(t)
	nodes := len(claims.Redis)
	if nodes == 1 {
		nodes = 0 // the lock uses a single server
	}
	own := newLock.strategy(t, nodes)
	if !claims.Renews { // without renewals, the lock is exclusive only without faults
		own.Claims = catalog.Claims{catalog.NoFault: catalog.Holds}
	}
	if child, mine := role(id); mine {
		conformtest.BeChild(conformtest.OpenRedis, func(string) (lock.Strategy, error) { return own, nil })
	} else if child {
		return
	}
	if len(claims.Redis) == 0 {
		t.Fatal("locktest: Claims.Redis names no server: call RedisServer to start one")
	}
	own.Name = "lock"
	// In Nodes, the single server comes first, and then the independent servers.
	subject := conformtest.Nodes(append([]string{claims.Redis[0]}, claims.Redis...)).Subject(own)
	subject.Child = childCommand(t, id)[1:]
	conformtest.Conform(t, subject)
}
