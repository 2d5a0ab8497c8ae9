package lock_test

import (
	"os"
	"slices"
	"testing"

	"grablab/internal/grab/lock"
	_ "grablab/internal/grab/lock/peers" // fills lock.Peers
	"grablab/internal/testbed/conformtest"

	"github.com/alicebob/miniredis/v2"
)

func TestMain(m *testing.M) {
	conformtest.BeChild(conformtest.OpenRedis, lock.Find)
	os.Exit(m.Run())
}

// redisNodes is the number of servers that a test starts: one for locks on a single server, and five
// for Redlock.
const redisNodes = 1 + 5

// embedded starts miniredis servers in this process.
func embedded(tb testing.TB) (nodes conformtest.Nodes) {
	tb.Helper()
	for range redisNodes {
		node := miniredis.RunT(tb)
		node.ClockTTL(true)
		nodes = append(nodes, node.Addr())
	}
	return nodes
}

// servers starts redis-server processes.
func servers(tb testing.TB) (nodes conformtest.Nodes) {
	tb.Helper()
	for range redisNodes {
		nodes = append(nodes, conformtest.RedisServer(tb))
	}
	return nodes
}

// TestConformance runs the conformance tests for strategies that need only Redis. To save time, it
// tests only setnx on embedded servers, and a selection of strategies on real servers. The setnx
// variants have their own tests, because each variant has a known mistake. If GRABLAB_PROVE is 1, it
// tests all strategies on both kinds of servers.
func TestConformance(t *testing.T) {
	few := []string{"setnx"}
	most := []string{"none", "mutex", "setnx", "watchdog", "redlock", "setnx-fenced", "handoff"}
	if os.Getenv("GRABLAB_PROVE") == "1" {
		few, most = lock.Names(), lock.Names()
	}
	for _, st := range lock.Peers {
		most = append(most, st.Name)
	}
	for _, stack := range []struct {
		name  string
		start func(testing.TB) conformtest.Nodes
		names []string
	}{
		{"embedded", embedded, few},
		{"redis-server", servers, most},
	} {
		t.Run(stack.name, func(t *testing.T) {
			nodes := stack.start(t)
			var subjects []conformtest.Subject
			for _, st := range slices.Concat(lock.Strategies, lock.Peers) {
				if st.Needs&^(lock.Redis|lock.RedisQuorum|lock.RedisTracking) == 0 && slices.Contains(stack.names, st.Name) {
					subjects = append(subjects, nodes.Subject(st))
				}
			}
			conformtest.Conform(t, subjects...)
		})
	}
}
