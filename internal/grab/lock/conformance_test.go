package lock_test

import (
	"os"
	"slices"
	"testing"

	"grablab/internal/grab/lock"
	"grablab/internal/grab/lock/locktest"
)

func TestMain(m *testing.M) { locktest.Main(m, locktest.OpenRedis, lock.Find) }

// TestConformance holds every strategy that needs no more than Redis to its
// contract: on a real server all of them; on the embedded one those that the
// first minute shows, and all of them when GRABLAB_PROVE is 1.
func TestConformance(t *testing.T) {
	core := []string{"none", "mutex", "setnx", "watchdog", "redlock"}
	prove := os.Getenv("GRABLAB_PROVE") == "1"
	for _, stack := range []struct {
		name  string
		start func(testing.TB) locktest.Nodes
		all   bool
	}{
		{"embedded", locktest.Embedded, prove},
		{"redis-server", locktest.Servers, true},
	} {
		t.Run(stack.name, func(t *testing.T) {
			nodes := stack.start(t)
			for _, st := range lock.Strategies {
				if st.Needs&^(lock.Redis|lock.RedisQuorum) == 0 && (stack.all || slices.Contains(core, st.Name)) {
					t.Run(st.Name, func(t *testing.T) { locktest.Run(t, nodes.Subject(st)) })
				}
			}
		})
	}
}
