package lock_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/grab/lock/conformtest"

	"github.com/redis/go-redis/v9"
)

// startCluster starts a Cluster of two masters, each with half of the slots.
func startCluster(t *testing.T) (addrs []string) {
	t.Helper()
	var buses []string
	for range 2 {
		bus, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(bus.Addr().String())
		_ = bus.Close()
		buses = append(buses, port)
		addrs = append(addrs, conformtest.RedisServer(t, "--cluster-enabled", "yes", "--cluster-port", port))
	}
	ctx := t.Context()
	for i, addr := range addrs {
		node := newClient(addr)
		defer node.Close()
		must(0, node.ClusterAddSlotsRange(ctx, i*8192, i*8192+8191).Err())
		host, port, _ := net.SplitHostPort(addrs[0])
		must(0, node.Do(ctx, "cluster", "meet", host, port, buses[0]).Err())
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		ready := 0
		for _, addr := range addrs {
			node := newClient(addr)
			info := node.ClusterInfo(ctx).Val()
			_ = node.Close()
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2") {
				ready++
			}
		}
		if ready == 2 {
			return addrs
		}
	}
	t.Fatal("the Cluster does not come up")
	return nil
}

// On a Cluster every lock has its slot, and PUBLISH counts who listens on the
// node of that slot alone. Handing over and passing over the dead work on each.
func TestHandoffOnACluster(t *testing.T) {
	addrs := startCluster(t)
	ctx := t.Context()
	setup := childSetup{Addr: strings.Join(addrs, ","), TTL: time.Minute, Wait: time.Minute}
	client := newUniversal(setup.Addr)
	defer client.Close()
	a, b := openHandoff(t, setup.Addr, setup.TTL, setup.Wait), openHandoff(t, setup.Addr, setup.TTL, setup.Wait)
	queued := func(key string, n int64) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); client.ZCard(ctx, key+":queue").Val() != n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never %d in the queue", n)
			}
		}
	}
	doomed := startChild(t, setup)
	var leases []lock.Lease
	var last []<-chan outcome
	for i := range 8 { // on both nodes
		key := fmt.Sprintf("grab:handoff:{%d}", i)
		lease := must(a.Acquire(ctx, key))
		second := acquireAsync(ctx, b, key)
		queued(key, 1)
		must(0, lease.Release(ctx))
		leases = append(leases, soon(t, 10*time.Second, second))

		doomed.tell(t, childOrder{Do: "wait", Key: key, Workers: 10})
		queued(key, 10)
		last = append(last, acquireAsync(ctx, a, key))
		queued(key, 11)
	}
	doomed.kill(t)
	_ = doomed.cmd.Wait()
	for i, lease := range leases {
		must(0, lease.Release(ctx))
		must(0, soon(t, 10*time.Second, last[i]).Release(ctx))
	}
}

// A slot moves from one node to the other, with the counter still here and the
// lock already there. The two commands of a take are not torn apart: a number that
// was drawn before the lease would be no fence.
func TestHandoffTakeOnAMovingSlot(t *testing.T) {
	addrs := startCluster(t)
	ctx := t.Context()
	from, to := newClient(addrs[0]), newClient(addrs[1])
	defer from.Close()
	defer to.Close()
	key, slot := "", int64(0)
	for i := 0; key == "" || slot >= 8192; i++ {
		key = fmt.Sprintf("grab:handoff:{%d}", i)
		slot = must(from.ClusterKeySlot(ctx, key).Result())
	}
	l := openHandoff(t, strings.Join(addrs, ","), time.Minute, 0)
	must(0, must(l.Acquire(ctx, key)).Release(ctx))
	must(0, to.Do(ctx, "cluster", "setslot", slot, "importing", must(from.Do(ctx, "cluster", "myid").Text())).Err())
	must(0, from.Do(ctx, "cluster", "setslot", slot, "migrating", must(to.Do(ctx, "cluster", "myid").Text())).Err())
	if lease, err := l.Acquire(ctx, key); !redis.HasErrorPrefix(err, "TRYAGAIN") {
		t.Errorf("%v, %v; want it to be tried again", lease, err)
	}
}
