package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// randomLock is a random lock that consists of commands to several servers. It is most likely wrong. A
// search must find the same failures of it with and without the reductions.
type randomLock struct {
	env     lock.Env
	rounds  [][]command // Acquire sends the commands of each round at the same time
	release []command
	enough  int  // the number of commands that must succeed, so that Acquire does
	undo    bool // whether a failed Acquire sends the commands in release
}

// command is one command to a server. It reads or changes a register, or a counter next to it.
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
	l.rounds[0][0].name = "set-nx" // this makes Acquire often succeed and sometimes find the lock taken
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
	default: // del-own checks the owner in a separate step, which is a mistake
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

// A smallWorld is a random lock with two drivers that want it, and a fault that the search can inject.
type smallWorld struct {
	seed   uint64
	fault  catalog.Fault // empty if there is none
	bounds search.Cost
}

// worldFaults lists the faults of the small worlds.
var worldFaults = []catalog.Fault{
	catalog.Slow, catalog.Pause, catalog.Crash, catalog.RedisRestart, catalog.RedisDown, catalog.NodeClock, catalog.ReplyLost, catalog.Latency, catalog.Cancel,
}

// searched holds the result of a search of a small world.
type searched struct {
	findings string
	visited  search.Visited
	ended    map[search.Fingerprint]bool // whether a state is final: no step can follow at no cost
	run      int
	complete bool
}

// open starts the servers and the drivers of a world. It returns nil if not even a single driver can
// acquire the lock. All searches of a world must share the cluster, because its start is not deterministic.
func (w smallWorld) open(t *testing.T) *Cluster {
	cluster, err := New(func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }, Setting{
		Strategy: lock.Strategy{
			Name: "random", Needs: lock.RedisQuorum, Guard: order.Naive, Excludes: catalog.Global,
			New: func(env lock.Env) (lock.Locker, error) { return newRandomLock(env, w.seed), nil },
		},
		Guard: order.Naive, OnLost: grab.Abort, TTL: time.Second, Nodes: 3,
		Actors: []schedule.Actor{{Name: "A", Instance: 1}, {Name: "B", Instance: 2}},
	})
	if err != nil {
		return nil
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// search searches the world, with or without the reductions. It executes at most the given number of
// schedules.
func (w smallWorld) search(t *testing.T, cluster *Cluster, reduce bool, most int) searched {
	t.Helper()
	s := searched{visited: search.Visited{}, ended: map[search.Fingerprint]bool{}}
	limits := &Limits{Bounds: w.bounds, Reduce: reduce, Visited: s.visited.Covers}
	if w.fault != "" {
		limits.Faults = []catalog.Fault{w.fault}
	}
	cfg := search.Config{Bounds: w.bounds, Properties: catalog.PropertiesBy(catalog.Explore), Schedules: most}
	summary, err := search.New(cfg, s.visited).Run(t.Context(), []search.Worker{smallWorker{cluster, limits, s.ended}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range summary.Findings {
		s.findings += fmt.Sprintf(" %s in %d steps", f.Property, f.Step)
	}
	s.run, s.complete = summary.Schedules, summary.Complete
	return s
}

// smallWorker executes schedules and collects the final states.
type smallWorker struct {
	cluster *Cluster
	limits  *Limits
	ended   map[search.Fingerprint]bool
}

func (w smallWorker) Execute(task search.Task) (*search.Trace, error) {
	trace, err := w.cluster.Execute(w.limits, task)
	if err != nil {
		return nil, err
	}
	if n := len(trace.Points); n > 0 {
		last := trace.Points[n-1]
		free := func(tr search.Transition) bool { return tr.Cost == search.Free }
		w.ended[last.State] = !trace.Cut && !slices.ContainsFunc(last.Transitions, free)
	}
	return trace, nil
}

func (w smallWorker) Update(search.Visited) {} // does nothing, because the worker shares the map with the search

// differsFrom returns how a reduced search differs from the full one, or "" if they agree. Both must have
// the same findings and reach the same final states at the same costs.
func (s searched) differsFrom(full searched) string {
	if s.findings != full.findings {
		return fmt.Sprintf("it found%s, but the full search found%s", cmp.Or(s.findings, " nothing"), cmp.Or(full.findings, " nothing"))
	}
	missing, ends := 0, 0
	for state, ended := range full.ended {
		if ended {
			ends++
			if s.visited[state].Costs != full.visited[state].Costs {
				missing++
			}
		}
	}
	if missing > 0 {
		return fmt.Sprintf("it misses %d of %d final states", missing, ends)
	}
	return ""
}

// TestReductionsOnRandomLocks checks that the reduced search of small worlds agrees with the full search. It
// leaves out worlds whose full search takes too long.
func TestReductionsOnRandomLocks(t *testing.T) {
	seeds, most, want := uint64(18), 1500, 8
	switch {
	case os.Getenv("GRABLAB_PROVE") == "1":
		seeds, most, want = 400, 6000, 150
	case raced:
		seeds, want = 3, 1
	}
	compared, broken, saved := 0, 0, 0
	for seed := range seeds {
		w := smallWorld{seed, worldFaults[seed%uint64(len(worldFaults))], search.Cost{Preemptions: 1, Faults: 1}}
		cluster := w.open(t)
		if cluster == nil {
			continue
		}
		full := w.search(t, cluster, false, most)
		if !full.complete {
			continue
		}
		reduced := w.search(t, cluster, true, 2*most)
		if how := reduced.differsFrom(full); how != "" || !reduced.complete {
			t.Errorf("seed %d under %s: %s (%d schedules instead of %d)", seed, w.fault, how, reduced.run, full.run)
		}
		compared++
		saved += full.run - reduced.run
		if full.findings != "" {
			broken++
		}
	}
	t.Logf("%d worlds compared, %d of them broken; the reductions saved %d schedules", compared, broken, saved)
	if compared < want || broken == 0 || saved <= 0 {
		t.Errorf("%d worlds were compared, %d of them broken, and %d schedules saved; want at least %d worlds, and some broken and saved", compared, broken, saved, want)
	}
}

// TestWrongReductions checks that the comparison with the full search notices a wrong reduction, which
// assumes that two drivers' calls to the same server commute. At least 19 of 20 worlds must show it.
// Worlds with very few schedules do not count, because their drivers never use the same server.
func TestWrongReductions(t *testing.T) {
	if raced {
		t.Skip("this test is too slow with the race detector, and starts no goroutines itself")
	}
	worlds, noticed := 0, 0
	for seed := uint64(100); worlds < 20; seed++ {
		w := smallWorld{seed: seed, bounds: search.Cost{Preemptions: 2}}
		cluster := w.open(t)
		if cluster == nil {
			continue
		}
		full := w.search(t, cluster, false, 800)
		if !full.complete || full.run < 40 {
			continue
		}
		worlds++
		cluster.alsoCommutes = func(last, next *call) bool {
			return last.actor != next.actor && last.node != nil && last.node == next.node
		}
		reduced := w.search(t, cluster, true, 800)
		how := reduced.differsFrom(full)
		if how != "" {
			noticed++
		}
		t.Logf("seed %d, %d schedules instead of %d: %s", seed, reduced.run, full.run, cmp.Or(how, "not noticed"))
	}
	if noticed < 19 {
		t.Errorf("the wrong rule was noticed in %d of %d worlds, want at least 19", noticed, worlds)
	}
}
