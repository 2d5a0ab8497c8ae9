package locktest

import (
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/conformtest"
)

// Claims describes the servers of a lock, and what the lock promises beyond its contract.
type Claims struct {
	// Redis lists the addresses of redis-servers that only this test uses. Conform treats
	// every key with the name of a lock in it as that lock, except keys that end in
	// ":fence". For a lock on independent servers, list all of them.
	Redis []string
	// Renews is true if the lock renews a lease until its release and tells the holder about
	// its loss.
	Renews bool
}

// RedisServer starts a redis-server for this test and returns its address. It skips the test
// if redis-server is not on PATH. In a child process it starts nothing, because Conform
// tells its children where the servers are.
func RedisServer(tb testing.TB) (addr string) {
	tb.Helper()
	if child, _ := role(""); child {
		return ""
	}
	return conformtest.RedisServer(tb)
}

// Conform checks that the lock keeps its contract, with one subtest per check.
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
