package lock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/grab/lock/conformtest"

	"github.com/redis/go-redis/v9"
)

// On a Cluster every lock has its slot, and PUBLISH counts who listens on the
// node of that slot alone. Handing over and passing over the dead work on each.
func TestHandoffOnACluster(t *testing.T) {
	addrs := conformtest.RedisCluster(t)
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
	addrs := conformtest.RedisCluster(t)
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
