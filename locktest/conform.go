package locktest

import (
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/conformtest"
)

// Claims are the servers of a lock, and what it claims beside its contract.
type Claims struct {
	// Redis are the addresses of redis-servers that are the test's own: all the keys
	// there that have the name of a lock in them, but for those that end in ":fence",
	// are taken for that lock. One or, for a lock on independent servers, all of them.
	Redis []string
	// Renews: a lease is renewed until its release, and its holder is told of its loss.
	Renews bool
}

// RedisServer starts a redis-server that is the test's own, and returns its address.
// Without redis-server on PATH the test is skipped. In a child it starts none: Conform
// tells its children where the servers are.
func RedisServer(tb testing.TB) (addr string) {
	tb.Helper()
	if child, _ := role(""); child {
		return ""
	}
	return conformtest.RedisServer(tb)
}

// Conform holds the lock to its contract, as subtests: one for each check.
func Conform(t *testing.T, claims Claims, newLock New) {
	t.Helper()
	id := callID(t)
	nodes := len(claims.Redis)
	if nodes == 1 {
		nodes = 0
	}
	own := newLock.strategy(t, nodes)
	if !claims.Renews {
		own.Claims = catalog.Claims{catalog.NoFault: catalog.Holds}
	}
	if child, mine := role(id); mine {
		conformtest.BeChild(conformtest.OpenRedis, func(string) (lock.Strategy, error) { return own, nil })
	} else if child {
		return
	}
	if len(claims.Redis) == 0 {
		t.Fatal("locktest: Claims.Redis names no server; RedisServer starts one")
	}
	own.Name = "lock"
	subject := conformtest.Nodes(append([]string{claims.Redis[0]}, claims.Redis...)).Subject(own)
	subject.Child = childCommand(t, id)[1:]
	conformtest.Conform(t, subject)
}
