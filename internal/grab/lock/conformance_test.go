package lock_test

import (
	"testing"

	"grablab/internal/grab/lock"
	"grablab/internal/grab/lock/locktest"
)

func TestMain(m *testing.M) { locktest.Main(m, locktest.OpenRedis, lock.Find) }

// TestConformance holds every strategy that needs no more than Redis to its
// contract, on both kinds of server.
func TestConformance(t *testing.T) {
	for _, stack := range []struct {
		name  string
		start func(testing.TB) locktest.Nodes
	}{
		{"embedded", locktest.Embedded},
		{"redis-server", locktest.Servers},
	} {
		t.Run(stack.name, func(t *testing.T) {
			nodes := stack.start(t)
			for _, st := range lock.Strategies {
				if st.Needs&^(lock.Redis|lock.RedisQuorum) == 0 {
					t.Run(st.Name, func(t *testing.T) { locktest.Run(t, nodes.Subject(st)) })
				}
			}
		})
	}
}
