package locktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/grab/lock"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Nodes are the Redis servers of a test: one, and five for Redlock.
type Nodes struct{ spec string }

const redlockNodes = 5

// Embedded starts nodes inside the test. Real time drives theirs.
func Embedded(tb testing.TB) Nodes {
	tb.Helper()
	var addrs []string
	var nodes []*miniredis.Miniredis
	for range 1 + redlockNodes {
		node := miniredis.RunT(tb)
		nodes = append(nodes, node)
		addrs = append(addrs, node.Addr())
	}
	tb.Cleanup(passTime(nodes))
	return Nodes{strings.Join(addrs, ",")}
}

// passTime lets the nodes' time pass with ours, and returns what stops it.
func passTime(nodes []*miniredis.Miniredis) (stop func()) {
	quit, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			now := time.Now()
			for _, node := range nodes {
				node.FastForward(now.Sub(last))
			}
			last = now
		}
	}()
	return func() { close(quit); <-stopped }
}

// Servers starts redis-server processes that are the test's own. Without
// redis-server on PATH the test is skipped, or fails if
// GRABLAB_REQUIRE_SERVERS=1.
func Servers(tb testing.TB) Nodes {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("GRABLAB_REQUIRE_SERVERS") == "1" {
			tb.Fatalf("locktest: %v", err)
		}
		tb.Skip("locktest: no redis-server on PATH (Debian: apt-get install redis-server)")
	}
	addrs := make([]string, 1+redlockNodes)
	for i := range addrs {
		addrs[i] = startServer(tb, path)
	}
	return Nodes{strings.Join(addrs, ",")}
}

// startServer returns the address of a redis-server that answers and is the
// process started here: another may have taken the port first.
func startServer(tb testing.TB, path string) string {
	tb.Helper()
	for range 5 {
		port := freePort(tb)
		cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--dir", tb.TempDir(), "--save", "", "--appendonly", "no")
		if err := cmd.Start(); err != nil {
			tb.Fatalf("locktest: %v", err)
		}
		addr := net.JoinHostPort("127.0.0.1", port)
		if answers(addr, cmd.Process.Pid) {
			tb.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
			return addr
		}
		_, _ = cmd.Process.Kill(), cmd.Wait()
	}
	tb.Fatal("locktest: redis-server does not start")
	return ""
}

func freePort(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("locktest: %v", err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func answers(addr string, pid int) bool {
	client := redis.NewClient(options(addr))
	defer client.Close()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		info, err := client.Info(context.Background(), "server").Result()
		if err == nil {
			return strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", pid))
		}
	}
	return false
}

// options are what the locks ask of a client: nothing is sent twice behind
// their back, and a deadline is heeded.
func options(addr string) *redis.Options {
	return &redis.Options{
		Addr:                     addr,
		Protocol:                 2,
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              time.Second,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Single is the address of the single Redis.
func (n Nodes) Single() string { return strings.Split(n.spec, ",")[0] }

// NewClient opens a client as OpenRedis does.
func NewClient(addr string) *redis.Client {
	client := redis.NewClient(options(addr))
	client.AddHook(redisReplies)
	return client
}

var (
	tokens atomic.Int64
	run    = rand.Uint64()
)

// OpenRedis is the Opener of a strategy over Nodes.
func OpenRedis(spec string) (lock.Env, func(), error) {
	var clients []redis.UniversalClient
	for addr := range strings.SplitSeq(spec, ",") {
		clients = append(clients, NewClient(addr))
	}
	disconnect := func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}
	return EnvOf(clients[0], clients[1:]...), disconnect, nil
}

// EnvOf is an Env over the clients; TTL and Wait are still to be set.
func EnvOf(single redis.UniversalClient, redlock ...redis.UniversalClient) lock.Env {
	return lock.Env{
		Redis:   single,
		Redlock: redlock,
		Now:     time.Now,
		Token:   func() string { return fmt.Sprintf("%x-%d", run, tokens.Add(1)) },
		Rand:    rand.Float64,
	}
}

// Subject is the strategy over these nodes.
func (n Nodes) Subject(st lock.Strategy) Subject {
	return Subject{
		Strategy: st,
		Spec:     n.spec,
		Open:     OpenRedis,
		Drop:     n.drop(st),
		Left:     n.left,
	}
}

func (n Nodes) drop(st lock.Strategy) func(context.Context, string) error {
	if st.Needs&(lock.Redis|lock.RedisQuorum) == 0 {
		return nil
	}
	return func(ctx context.Context, key string) error {
		return n.each(func(c *redis.Client) error { return c.Del(ctx, key).Err() })
	}
}

func (n Nodes) left(ctx context.Context, key string) (keys []string, err error) {
	err = n.each(func(c *redis.Client) error {
		found, err := c.Keys(ctx, "*").Result()
		for _, k := range found {
			// A counter of fencing tokens outlives its lock.
			if strings.Contains(k, key) && !strings.HasSuffix(k, ":fence") {
				keys = append(keys, k)
			}
		}
		return err
	})
	return keys, err
}

func (n Nodes) each(do func(*redis.Client) error) error {
	for addr := range strings.SplitSeq(n.spec, ",") {
		client := redis.NewClient(options(addr))
		err := do(client)
		_ = client.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
