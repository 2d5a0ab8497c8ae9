package lock_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"grablab/internal/testbed/conformtest"
	"grablab/internal/testbed/proc"

	"github.com/redis/go-redis/v9"
)

// redisCluster starts a Cluster of two masters, each with half of the slots, and returns their
// addresses.
func redisCluster(tb testing.TB) (addrs []string) {
	tb.Helper()
	check := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatalf("Redis Cluster: %v", err)
		}
	}
	var nodes []*redis.Client
	var buses []string
	for range 2 {
		bus, err := proc.FreeAddr()
		check(err)
		_, port, _ := net.SplitHostPort(bus)
		addr := conformtest.RedisServer(tb, "--cluster-enabled", "yes", "--cluster-port", port)
		addrs, buses, nodes = append(addrs, addr), append(buses, port), append(nodes, conformtest.NewClient(addr))
		defer nodes[len(nodes)-1].Close()
	}
	ctx := tb.Context()
	host, port, _ := net.SplitHostPort(addrs[0])
	for i, node := range nodes {
		check(node.ClusterAddSlotsRange(ctx, i*8192, i*8192+8191).Err())
		check(node.Do(ctx, "cluster", "meet", host, port, buses[0]).Err())
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		ready := 0
		for _, node := range nodes {
			info := node.ClusterInfo(ctx).Val()
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2") {
				ready++
			}
		}
		if ready == len(nodes) {
			return addrs
		}
	}
	tb.Fatal("the Cluster does not start")
	return nil
}
