package conformtest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/tap/redishook"
	"grablab/internal/testbed/proc"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Nodes contains the addresses of a test's Redis servers. Locks that need a single server use the
// first one, and Redlock uses the others.
type Nodes []string

// RedisServer starts a redis-server without persistence and returns its address. If the program is
// not installed, it skips the test, or fails it if GRABLAB_REQUIRE_SERVERS is 1.
func RedisServer(tb testing.TB, args ...string) (addr string) {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("GRABLAB_REQUIRE_SERVERS") == "1" {
			tb.Fatalf("conformtest: %v", err)
		}
		tb.Skip("conformtest: no redis-server on PATH (Debian: apt-get install redis-server)")
	}
	for range 5 {
		addr, err := proc.FreeAddr()
		if err != nil {
			tb.Fatalf("conformtest: %v", err)
		}
		_, port, _ := net.SplitHostPort(addr)
		cmd := exec.Command(path, append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", tb.TempDir(), "--save", "", "--appendonly", "no"}, args...)...)
		if err := cmd.Start(); err != nil {
			tb.Fatalf("conformtest: %v", err)
		}
		if answers(addr, cmd.Process.Pid) {
			tb.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
			return addr
		}
		_, _ = cmd.Process.Kill(), cmd.Wait()
	}
	tb.Fatal("conformtest: redis-server does not start")
	return ""
}

// answers reports whether the server at addr is the process with this pid. Otherwise, another
// process has taken the port.
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

// options returns client options for locks. Clients with these options respect deadlines and never
// retry a command.
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

// NewClient returns a Redis client with the same options as OpenRedis.
func NewClient(addr string) *redis.Client {
	client := redis.NewClient(options(addr))
	client.AddHook(redisReplies)
	return client
}

var (
	tokens atomic.Int64
	run    = rand.Uint64()
)

// OpenRedis opens clients for the Redis servers in spec, which are separated by commas. It
// implements Opener.
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

// EnvOf returns an Env in which Redlock uses the redlock clients, and other locks use single. The
// caller sets TTL and Wait.
func EnvOf(single redis.UniversalClient, redlock ...redis.UniversalClient) lock.Env {
	return lock.Env{
		Redis:       single,
		Redlock:     redlock,
		AroundRedis: aroundRedis,
		Now:         time.Now,
		Token:       Token,
		Rand:        rand.Float64,
	}
}

// aroundRedis calls Redis and then Replied, which may replace the reply with an error.
func aroundRedis(ctx context.Context, _ string, call func() error) error {
	err := call()
	return cmp.Or(Replied(ctx), err)
}

// redisReplies makes a go-redis client call Replied after every command.
var redisReplies = redishook.Hook(func(ctx context.Context, _ []redis.Cmder, send func(context.Context) error) error {
	return aroundRedis(ctx, "", func() error { return send(ctx) })
})

// Token returns a new unique token, for the Token field of an Env.
func Token() string { return fmt.Sprintf("%x-%d", run, tokens.Add(1)) }

// Subject returns a Subject that tests the strategy on these nodes.
func (n Nodes) Subject(st lock.Strategy) Subject {
	s := Subject{Strategy: st, Spec: strings.Join(n, ","), Open: OpenRedis, Left: n.left}
	if st.Needs&(lock.Redis|lock.RedisQuorum) != 0 {
		s.Drop = func(ctx context.Context, key string) error {
			return n.each(func(c *redis.Client) error {
				keys := []string{key}
				for i := range 3 { // rueidislock gives its keys these names
					keys = append(keys, fmt.Sprintf("rueidislock:%d:%s", i, key))
				}
				return c.Del(ctx, keys...).Err()
			})
		}
	}
	return s
}

func (n Nodes) left(ctx context.Context, key string) (keys []string, err error) {
	err = n.each(func(c *redis.Client) error {
		found, err := c.Keys(ctx, "*").Result()
		for _, k := range found {
			// Ignore the fencing token counter, because it may outlive the lock.
			if strings.Contains(k, key) && !strings.HasSuffix(k, ":fence") {
				keys = append(keys, k)
			}
		}
		return err
	})
	return keys, err
}

func (n Nodes) each(do func(*redis.Client) error) error {
	for _, addr := range n {
		client := redis.NewClient(options(addr))
		err := do(client)
		_ = client.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
