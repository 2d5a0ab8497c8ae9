package peers

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/conformtest"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// mended is the message for a library that no longer shows a problem described in
// docs/libraries.md.
const mended = "this no longer happens: remove it from docs/libraries.md and from the entry"

// TestRueidislockExtendsWithoutPause checks that rueidislock still does not wait for its interval
// between extensions. The script that extends a lease changes a tracked key, so Redis notifies the
// client of its own change, and the client extends again.
func TestRueidislockExtendsWithoutPause(t *testing.T) {
	for _, tt := range []struct {
		noLoop   bool
		majority int32
	}{{false, 0}, {false, 1}, {true, 0}, {true, 1}} {
		addr := conformtest.RedisServer(t)
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			KeyMajority: tt.majority, KeyValidity: time.Second, NoLoopTracking: tt.noLoop,
			ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, release, err := l.WithContext(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // four ExtendIntervals
		scripts := scriptsOf(t, addr)
		release()
		l.Close()
		t.Logf("%+v: %d scripts for a lock held for four intervals", tt, scripts)
		if !tt.noLoop && scripts < 1000 {
			t.Errorf("%+v: %d scripts: %s", tt, scripts, mended)
		}
		if tt.noLoop && scripts > 100 {
			t.Errorf("%+v: %d scripts, even with NoLoopTracking", tt, scripts)
		}
	}
}

// scriptsOf returns the number of scripts that a server has run.
func scriptsOf(t *testing.T, addr string) (n int) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	stats := client.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_evalsha"]
	calls, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
	n, err := strconv.Atoi(calls)
	if err != nil {
		t.Fatalf("cannot read the number of scripts in %q: %v", stats, err)
	}
	return n
}

// TestRueidislockExtendsALateGrantTooLate checks that a slow grant still makes a holder lose its lease.
// The TTL counts from the acquire request, but the time until the first extension counts from the
// reply. If the reply takes more than half the TTL, the extension is too late.
func TestRueidislockExtendsALateGrantTooLate(t *testing.T) {
	for _, s := range []lock.Strategy{rueidislockThree, rueidislockOne} {
		var slow sync.Once
		env, disconnect, err := conformtest.OpenRedis(conformtest.RedisServer(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(disconnect)
		env.TTL = time.Second
		env.AroundRedis = func(_ context.Context, key string, call func() error) error {
			err := call()
			if err == nil && strings.HasSuffix(key, ":late") {
				slow.Do(func() { time.Sleep(env.TTL * 7 / 10) })
			}
			return err
		}
		l, err := s.New(env)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		early, err := l.Acquire(t.Context(), "early") // loads the scripts
		if err == nil {
			err = early.Release(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		lease, err := l.Acquire(t.Context(), "late")
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-lease.Lost():
		case <-time.After(env.TTL):
			t.Errorf("%s: the holder keeps its lease although the grant took 0.7 TTLs: %s", s.Name, mended)
		}
	}
}

// TestRedislockGrantsAnExpiredLock checks that redislock still grants a lock whose TTL has already
// passed, if the caller's context lasts longer.
func TestRedislockGrantsAnExpiredLock(t *testing.T) {
	addr := conformtest.RedisServer(t)
	env, disconnect, err := conformtest.OpenRedis(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(disconnect)
	env.TTL = 200 * time.Millisecond
	env.Redis.(*redis.Client).AddHook(lateReply{env.TTL * 2})
	l, err := redislockOnce.New(env)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		deadline time.Duration // of the caller's context; 0 means none
		granted  bool
	}{{0, false}, {time.Minute, true}} {
		ctx := context.Background()
		if tt.deadline > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, tt.deadline)
			defer cancel()
		}
		lease, err := l.Acquire(ctx, "key")
		if granted := err == nil; granted != tt.granted {
			t.Errorf("a caller with a deadline of %v: %v; %s", tt.deadline, err, mended)
		}
		if err != nil {
			continue
		}
		if err := lease.Release(context.Background()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release of an expired lock: %v, want %v", err, lock.ErrLost)
		}
	}
}

// lateReply delays replies, like a slow network.
type lateReply struct{ by time.Duration }

func (lateReply) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h lateReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		select {
		case <-time.After(h.by):
			return err
		case <-ctx.Done():
			cmd.SetErr(ctx.Err())
			return ctx.Err()
		}
	}
}

func (lateReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
