package lock_test

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

// startRedis starts a redis-server of the test's own.
func startRedis(tb testing.TB, args ...string) (addr string) {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("GRABLAB_REQUIRE_SERVERS") == "1" {
			tb.Fatal(err)
		}
		tb.Skip("no redis-server on PATH (Debian: apt-get install redis-server)")
	}
	for range 5 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		addr = l.Addr().String()
		_ = l.Close()
		_, port, _ := net.SplitHostPort(addr)
		cmd := exec.Command(path, append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", tb.TempDir(), "--save", ""}, args...)...)
		if err := cmd.Start(); err != nil {
			tb.Fatal(err)
		}
		if answersAs(addr, cmd.Process.Pid) {
			tb.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
			return addr
		}
		_, _ = cmd.Process.Kill(), cmd.Wait()
	}
	tb.Fatal("redis-server does not start")
	return ""
}

func answersAs(addr string, pid int) bool {
	client := newClient(addr)
	defer client.Close()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if info, err := client.Info(context.Background(), "server").Result(); err == nil {
			return strings.Contains(info, "process_id:"+strconv.Itoa(pid)+"\r\n")
		}
	}
	return false
}

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     addr,
		Protocol:                 2,
		MaxRetries:               -1,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

var (
	handoffTokens atomic.Int64
	handoffRun    = rand.Uint64()
)

// openHandoff is one process's side of the lock, with a client of its own.
func openHandoff(tb testing.TB, addr string, ttl, wait time.Duration) lock.Locker {
	tb.Helper()
	client := newClient(addr)
	l := newHandoffOn(tb, client, ttl, wait)
	tb.Cleanup(func() {
		_ = l.Close()
		_ = client.Close()
	})
	return l
}

func newHandoffOn(tb testing.TB, client redis.UniversalClient, ttl, wait time.Duration) lock.Locker {
	tb.Helper()
	st, err := lock.Find("handoff")
	if err != nil {
		tb.Fatal(err)
	}
	l, err := st.New(lock.Env{
		Node: "test", Redis: client, TTL: ttl, Wait: wait,
		Now: time.Now, Rand: rand.Float64,
		Token: func() string { return fmt.Sprintf("%x-%d", handoffRun, handoffTokens.Add(1)) },
	})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// onBoth runs a test on an embedded and on a real server.
func onBoth(t *testing.T, test func(t *testing.T, addr string)) {
	t.Run("embedded", func(t *testing.T) {
		node := miniredis.RunT(t)
		node.ClockTTL(true)
		test(t, node.Addr())
	})
	t.Run("redis-server", func(t *testing.T) { test(t, startRedis(t)) })
}

func TestHandoffFirstSteps(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string) {
		ctx := t.Context()
		a, b := openHandoff(t, addr, 10*time.Second, 5*time.Second), openHandoff(t, addr, 10*time.Second, 5*time.Second)
		first, err := a.Acquire(ctx, "grab:handoff:{1}")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan lock.Lease, 1)
		go func() {
			lease, err := b.Acquire(ctx, "grab:handoff:{1}")
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		time.Sleep(50 * time.Millisecond)
		if err := first.Release(ctx); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		second := <-got
		t.Log("hand-off", time.Since(began), first.Fence(), second.Fence(), first.Token(), second.Token())
		if second.Fence() <= first.Fence() {
			t.Errorf("fence fell: %d then %d", first.Fence(), second.Fence())
		}
		if err := second.Release(ctx); err != nil {
			t.Fatal(err)
		}
	})
}
