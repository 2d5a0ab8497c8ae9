package handoff_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"grablab/handoff"
	"grablab/internal/grab/lock"
	"grablab/internal/tap/redishook"
	"grablab/internal/testbed/conformtest"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) {
	conformtest.BeChild(openCluster, lock.Find)
	os.Exit(m.Run())
}

// openCluster connects to a Redis Cluster. It is the Opener for the conformance suite.
func openCluster(spec string) (lock.Env, func(), error) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(spec, ","), ContextTimeoutEnabled: true})
	client.AddHook(redishook.Hook(func(ctx context.Context, _ []redis.Cmder, send func(context.Context) error) error {
		err := send(ctx)
		if lost := conformtest.Replied(ctx); lost != nil {
			return lost
		}
		return err
	}))
	return conformtest.EnvOf(client), func() { _ = client.Close() }, nil
}

// cluster contains clients of six servers: three masters, and then a replica of each.
type cluster []*redis.Client

func startCluster(t *testing.T) (c cluster) {
	t.Helper()
	var addrs, buses []string
	for range 6 {
		bus := must(net.Listen("tcp", "127.0.0.1:0"))
		_, port, _ := net.SplitHostPort(bus.Addr().String())
		_ = bus.Close()
		buses = append(buses, port)
		addrs = append(addrs, conformtest.RedisServer(t, "--cluster-enabled", "yes", "--cluster-port", port, "--cluster-node-timeout", "1000",
			"--cluster-require-full-coverage", "no"))
	}
	ctx := t.Context()
	for i, addr := range addrs {
		node := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = node.Close() })
		c = append(c, node)
		if i < 3 {
			must(0, node.ClusterAddSlotsRange(ctx, i*16384/3, (i+1)*16384/3-1).Err())
		}
		must(0, node.Do(ctx, "cluster", "set-config-epoch", i+1).Err())
		if i > 0 { // a Valkey node that meets itself would keep itself in its list of nodes
			host, port, _ := net.SplitHostPort(addrs[0])
			must(0, node.Do(ctx, "cluster", "meet", host, port, buses[0]).Err())
		}
	}
	c.until(t, "the nodes of the Cluster do not know each other", func(node *redis.Client) bool {
		return strings.Contains(node.ClusterInfo(ctx).Val(), "cluster_known_nodes:6")
	})
	for i, replica := range c[3:] {
		must(0, replica.ClusterReplicate(ctx, must(c[i].Do(ctx, "cluster", "myid").Text())).Err())
	}
	c.untilReady(t)
	return c
}

// until waits until ok returns true for every node. After 30 s, it ends the test with the message what.
func (c cluster) until(t *testing.T, what string, ok func(*redis.Client) bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		ready := 0
		for _, node := range c {
			if ok(node) {
				ready++
			}
		}
		if ready == len(c) {
			return
		}
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// untilReady waits until all nodes serve all slots, and all replicas are connected to their masters.
func (c cluster) untilReady(t *testing.T) {
	t.Helper()
	c.until(t, "the Cluster does not come up", func(node *redis.Client) bool {
		info, replication := node.ClusterInfo(t.Context()).Val(), node.Info(t.Context(), "replication").Val()
		return strings.Contains(info, "cluster_state:ok") && !strings.Contains(replication, "master_link_status:down")
	})
}

func (c cluster) addrs() string {
	var addrs []string
	for _, node := range c {
		addrs = append(addrs, node.Options().Addr)
	}
	return strings.Join(addrs, ",")
}

func (c cluster) conform(t *testing.T) {
	st := must(lock.Find("handoff"))
	subject := conformtest.Nodes(strings.Split(c.addrs(), ",")).Subject(st)
	subject.Open = openCluster
	client := clientOf(t, c.addrs())
	subject.Drop = func(ctx context.Context, key string) error { return client.Del(ctx, key).Err() }
	conformtest.Conform(t, subject)
}

// TestCluster runs the conformance tests on a Cluster, both before a master dies and after its replica
// has been promoted. Meanwhile, the locks on the other masters must keep working.
func TestCluster(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil && os.Getenv("GRABLAB_REQUIRE_SERVERS") != "1" {
		t.Skip(err)
	}
	c := startCluster(t)
	t.Run("whole", c.conform)

	ctx := t.Context()
	a, b := open(t, c.addrs(), faultTTL), open(t, c.addrs(), faultTTL)
	leases := map[int]*handoff.Lease{} // one lease for each master
	keys := map[int]string{}
	for i := 0; len(leases) < 3; i++ {
		key := fmt.Sprintf("order:{%d}", i)
		if m := int(must(c[0].ClusterKeySlot(ctx, key).Result()) * 3 / 16384); leases[m] == nil {
			leases[m], keys[m] = must(a.Acquire(ctx, key)), key
		}
	}
	must(0, c[0].Do(ctx, "wait", 1, 1000).Err()) // until the replica has the lease
	_ = c[0].ShutdownNoSave(ctx)
	left := c[1:]
	promoted := make(chan struct{})
	go func() {
		defer close(promoted)
		cluster{c[3]}.until(t, "the replica is not promoted", func(node *redis.Client) bool {
			return strings.Contains(node.Info(ctx, "replication").Val(), "role:master")
		})
		left.untilReady(t)
	}()
	for m := 1; m < 3; m++ {
		waits := acquireAsync(ctx, b, keys[m])
		time.Sleep(poll)
		if isLost(leases[m]) {
			t.Errorf("the lease on master %d was lost when another master died", m)
		}
		must(0, leases[m].Release(ctx))
		must(0, soon(t, poll+leeway, waits).Release(ctx))
	}
	<-promoted
	_ = leases[0].Release(ctx) // the lease may be lost, depending on how long the promotion took
	end := time.Now().Add(30 * time.Second)
	b = open(t, left.addrs(), faultTTL) // a new client, which can find the new master
	lease, err := b.Acquire(ctx, keys[0])
	for ; err != nil && time.Now().Before(end); lease, err = b.Acquire(ctx, keys[0]) {
		time.Sleep(10 * time.Millisecond) // the client updates its list of masters only every ten seconds
	}
	if err != nil {
		t.Fatal(err)
	}
	if lease.Fence() <= leases[0].Fence() {
		t.Errorf("token %d after %d, although the replica had received the higher token", lease.Fence(), leases[0].Fence())
	}
	must(0, lease.Release(ctx))
	t.Run("promoted", left.conform)
}

// cutConn closes the connection instead of returning every nth reply.
type cutConn struct {
	net.Conn
	every *atomic.Int64 // n; 0 means that all replies arrive
	reads *atomic.Int64
	cuts  *atomic.Int64
}

func (c cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if every := c.every.Load(); every > 0 && c.reads.Add(1)%every == 0 {
		c.cuts.Add(1)
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// TestRepeatedByTheClient cuts connections after a request was executed but before its reply arrives,
// so that the Redis client repeats the request. No acquire or release may fail, no two callers may hold
// a lock at the same time, and no lock may remain.
func TestRepeatedByTheClient(t *testing.T) {
	for name, start := range map[string]func(*testing.T) string{
		"one server": func(t *testing.T) string { return conformtest.RedisServer(t) },
		"Cluster":    func(t *testing.T) string { return startCluster(t).addrs() },
	} {
		t.Run(name, func(t *testing.T) {
			addrs := start(t)
			var every, reads, cuts, had atomic.Int64
			var lockers []*handoff.Locker
			for range 2 {
				client := redis.NewUniversalClient(&redis.UniversalOptions{
					Addrs: strings.Split(addrs, ","), MaxRetries: 5, MaxRedirects: 8, MinRetryBackoff: time.Millisecond,
					Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
						conn, err := new(net.Dialer).DialContext(ctx, network, addr)
						return cutConn{conn, &every, &reads, &cuts}, err
					},
				})
				t.Cleanup(func() { _ = client.Close() })
				l := must(handoff.New(client, handoff.Options{TTL: 10 * time.Second}))
				t.Cleanup(func() { _ = l.Close() })
				lockers = append(lockers, l)
			}
			const keys = 4
			var inside [keys]atomic.Int64
			var all sync.WaitGroup
			every.Store(7)
			end := time.Now().Add(2 * time.Second)
			for w := range 16 {
				all.Go(func() {
					for time.Now().Before(end) {
						k := w / 2 % keys
						lease, err := lockers[w%2].Acquire(t.Context(), fmt.Sprintf("order:{%d}", k))
						if err != nil {
							t.Error(err)
							return
						}
						if inside[k].Add(1) != 1 {
							t.Error("two callers hold the same lock")
						}
						had.Add(1)
						time.Sleep(100 * time.Microsecond)
						inside[k].Add(-1)
						if err := lease.Release(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			every.Store(0)
			t.Logf("%d leases, %d replies lost", had.Load(), cuts.Load())
			if had.Load() < 50 || cuts.Load() < 10 {
				t.Errorf("%d leases and %d lost replies, want at least 50 and 10", had.Load(), cuts.Load())
			}
			for _, addr := range strings.Split(addrs, ",") {
				nothingLeftOn(t, clientOf(t, addr))
			}
		})
	}
}
