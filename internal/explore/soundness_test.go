package explore_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// randomLock is a lock that a seed has put together from commands to several servers. It is most
// likely wrong. The search must find the same failures of it with and without the reductions.
type randomLock struct {
	env     lock.Env
	rounds  [][]command // the commands of one round are sent at once
	release []command
	enough  int  // Acquire succeeds if so many commands said yes
	undo    bool // Acquire sends the release if it fails
}

// command is one command to a server. It works on a register, or on a counter beside it.
type command struct {
	server int
	name   string
}

var commandNames = []string{"set-nx", "set", "get", "del", "del-own", "incr", "look"}

func newRandomLock(env lock.Env, seed uint64) *randomLock {
	r := rand.New(rand.NewPCG(seed, 33))
	draw := func(from []string) command { return command{r.IntN(len(env.Redlock)), from[r.IntN(len(from))]} }
	l := &randomLock{env: env, undo: r.IntN(2) == 0}
	commands := 0
	for range 1 + r.IntN(2) {
		var round []command
		for range 1 + r.IntN(3) {
			round = append(round, draw(commandNames))
			commands++
		}
		l.rounds = append(l.rounds, round)
	}
	l.rounds[0][0].name = "set-nx" // so that a lock is often taken and sometimes busy
	for range 1 + r.IntN(2) {
		l.release = append(l.release, draw([]string{"del", "del-own"}))
	}
	l.enough = 1 + r.IntN(commands)
	return l
}

// send sends a command, and reports whether its reply says that the lock is free.
func (l *randomLock) send(ctx context.Context, c command, key, token string) bool {
	server, register, counter := l.env.Redlock[c.server], key, key+":counter"
	switch c.name {
	case "set-nx":
		yes, err := server.SetNX(ctx, register, token, l.env.TTL).Result()
		return err == nil && yes
	case "set":
		return server.Set(ctx, register, token, l.env.TTL).Err() == nil
	case "get":
		return server.Get(ctx, register).Err() == redis.Nil
	case "incr":
		n, err := server.Incr(ctx, counter).Result()
		return err == nil && n%2 == 1
	case "look":
		text, err := server.Get(ctx, counter).Result()
		n, _ := strconv.Atoi(text)
		return err == redis.Nil || n%2 == 0
	case "del":
		return server.Del(ctx, register).Err() == nil
	default: // del-own asks first, which is a mistake of its own
		if text, _ := server.Get(ctx, register).Result(); text != token {
			return false
		}
		return server.Del(ctx, register).Err() == nil
	}
}

func (l *randomLock) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	lease := &randomLease{l, key, l.env.Token()}
	yes := 0
	for _, round := range l.rounds {
		answers := make([]bool, len(round))
		var all sync.WaitGroup
		for i, c := range round {
			all.Go(func() { answers[i] = l.send(ctx, c, key, lease.token) })
		}
		all.Wait()
		for _, a := range answers {
			if a {
				yes++
			}
		}
	}
	if yes >= l.enough {
		return lease, nil
	}
	if l.undo {
		_ = lease.Release(ctx)
	}
	return nil, lock.ErrBusy
}

func (l *randomLock) Close() error { return nil }

type randomLease struct {
	l          *randomLock
	key, token string
}

func (r *randomLease) Token() string         { return r.token }
func (r *randomLease) Fence() uint64         { return 0 }
func (r *randomLease) Lost() <-chan struct{} { return nil }

func (r *randomLease) Release(ctx context.Context) error {
	for _, c := range r.l.release {
		r.l.send(ctx, c, r.key, r.token)
	}
	return ctx.Err()
}

// TestReductionsOnRandomLocks compares the reduced search with the full one for random locks, each
// under one random fault. Both must find the same verdict, and the same properties broken in the same
// number of steps. Locks whose full search is too long are left out.
func TestReductionsOnRandomLocks(t *testing.T) {
	seeds, want := uint64(18), 8
	switch {
	case os.Getenv("GRABLAB_PROVE") == "1":
		seeds, want = 400, 150
	case raced:
		seeds, want = 3, 1
	}
	faults := []catalog.Fault{
		catalog.Slow, catalog.Pause, catalog.Crash, catalog.RedisRestart, catalog.RedisDown, catalog.NodeClock, catalog.ReplyLost, catalog.Latency, catalog.Cancel,
	}
	compared, broken, saved := 0, 0, 0
	for seed := range seeds {
		fault := faults[seed%uint64(len(faults))]
		own := lock.Strategy{
			Name: "random", Needs: lock.RedisQuorum, Guard: order.Naive, Excludes: catalog.Global,
			New: func(env lock.Env) (lock.Locker, error) { return newRandomLock(env, seed), nil },
		}
		cfg := explore.Config{
			Strategies: []string{own.Name}, Own: []lock.Strategy{own}, Preemptions: 1, Faults: []catalog.Fault{fault}, FaultCount: 1,
			Nodes: 3, TTL: time.Second, Schedules: 6000,
		}
		reduced, ok := searched(t, cfg)
		if !ok {
			continue
		}
		cfg.NoReduce = true
		full, ok := searched(t, cfg)
		if !ok {
			continue
		}
		compared++
		saved += full.Schedules - reduced.Schedules
		if len(full.Failures) > 0 {
			broken++
		}
		if got, want := foundBy(reduced), foundBy(full); got != want {
			t.Errorf("seed %d under %s: the reduced search found %s\nand the full search %s", seed, fault, got, want)
		}
	}
	t.Logf("%d locks compared, %d of them broken; the reductions saved %d schedules", compared, broken, saved)
	if compared < want || broken == 0 {
		t.Errorf("only %d locks were compared, %d of them broken; want %d and some", compared, broken, want)
	}
}

// searched returns the result of a search, and false if it is not complete or the lock cannot even
// be taken by one driver.
func searched(t *testing.T, cfg explore.Config) (explore.Result, bool) {
	t.Helper()
	results, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil)
	if err != nil {
		return explore.Result{}, false
	}
	return results[0], results[0].Complete
}
