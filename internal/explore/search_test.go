package explore_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

func bubbleOf(t *testing.T) explore.Bubble {
	return func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
}

// modes lists the failure modes that the explorer can find, each with a search of a strategy that has it.
var modes = []struct {
	id, strategy, property string
	actors, preemptions    int
	faults                 []catalog.Fault
	count                  int
	wait                   time.Duration
}{
	{"F1", "none", catalog.OneWinner, 2, 1, nil, 0, 0},
	{"F2", "mutex", catalog.OneWinner, 2, 1, nil, 0, 0},
	{"F3", "setnx-nottl", catalog.StuckOrder, 2, 1, []catalog.Fault{catalog.Crash}, 1, 0},
	{"F4", "setnx-expire", catalog.StuckOrder, 2, 1, []catalog.Fault{catalog.Crash}, 1, 0},
	{"F5", "setnx-del", catalog.LeaseExclusive, 3, 2, []catalog.Fault{catalog.Slow}, 1, 0},
	{"F6", "setnx-getdel", catalog.LeaseExclusive, 3, 2, []catalog.Fault{catalog.Pause}, 1, 0},
	{"F7", "getset-blind-takeover", catalog.LeaseExclusive, 3, 2, []catalog.Fault{catalog.Crash}, 1, 0},
	{"F8", "getset-nil-busy", catalog.NoResidue, 3, 2, []catalog.Fault{catalog.Crash, catalog.Slow}, 1, 0},
	{"F9", "setnx-getset", catalog.LeaseExclusive, 2, 1, []catalog.Fault{catalog.ClientClock}, 1, 0},
	{"F10", "setnx-getset", catalog.ReleaseEffective, 3, 3, []catalog.Fault{catalog.Crash}, 1, 0},
	{"F11", "setnx", catalog.OneWinner, 2, 1, []catalog.Fault{catalog.Pause}, 1, 0},
	{"F12", "setnx-del", catalog.OneWinner, 2, 1, []catalog.Fault{catalog.Latency}, 1, 0},
	{"F14", "watchdog-stray-renewal", catalog.StuckOrder, 2, 1, []catalog.Fault{catalog.Latency}, 1, 0},
	{"F16", "watchdog-late-subscribe", catalog.NoLostWakeup, 2, 2, nil, 0, 10 * time.Second},
	{"F18", "redlock", catalog.OneWinner, 2, 1, []catalog.Fault{catalog.RedisRestart}, 1, 0},
	{"F19", "redlock", catalog.OneWinner, 2, 1, []catalog.Fault{catalog.NodeClock}, 1, 0},
	{"F20", "redlock-miswired", catalog.LeaseExclusive, 2, 0, []catalog.Fault{catalog.RedisRestart}, 1, 0},
	{"F21", "redlock", catalog.LeaseExclusive, 2, 0, []catalog.Fault{catalog.RedisRestart}, 2, 0},
	{"F22", "setnx-cancelled-cleanup", catalog.NoResidue, 2, 1, []catalog.Fault{catalog.Cancel}, 1, 0},
	{"F24", "redlock-set-on-extend", catalog.LossNotified, 2, 0, []catalog.Fault{catalog.RedisRestart}, 2, 0},
	{"F25", "setnx-blind-retry", catalog.NoResidue, 2, 1, []catalog.Fault{catalog.ReplyLost}, 1, 0},
	{"F26", "setnx-late-fence", catalog.FenceMonotone, 2, 1, []catalog.Fault{catalog.Slow}, 1, 0},
	{"F29", "etcd", catalog.OneWinner, 2, 1, []catalog.Fault{catalog.Pause}, 1, 0},
	{"F34", "setnx-fence-write", catalog.OneWinner, 2, 2, []catalog.Fault{catalog.Pause}, 1, 0},
	{"F35", "setnx-getset", catalog.LeaseExclusive, 3, 2, []catalog.Fault{catalog.Slow}, 1, 0},
	{"F36", "setnx-driverid", catalog.LeaseExclusive, 3, 2, []catalog.Fault{catalog.Slow}, 1, 0},
	{"F37", "setnx-check", catalog.OneWinner, 2, 2, []catalog.Fault{catalog.Pause}, 1, 0},
}

// TestFailureModes checks that a search with two child processes finds each failure mode, with a schedule
// as short as the stored one. With the race detector, it skips the longest searches. TestGoldenSchedules
// still replays their schedules.
func TestFailureModes(t *testing.T) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "id\tstrategy\tproperty\tsteps\tschedules\ttime")
	for _, m := range modes {
		t.Run(m.id, func(t *testing.T) {
			if raced && slices.Contains([]string{"F7", "F8", "F10", "F18", "F19", "F35"}, m.id) {
				t.Skip("this search is too slow with the race detector")
			}
			cfg := explore.Config{
				Strategies: []string{m.strategy}, Properties: []string{m.property}, Seconds: 30,
				Actors: m.actors, Preemptions: m.preemptions, Faults: m.faults, FaultCount: m.count, Wait: m.wait,
				Command: explore.ChildCommand(t), Workers: 2,
			}
			results, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			r := results[0]
			if len(r.Failures) == 0 {
				t.Fatalf("%s is not broken: %s %+v", m.strategy, r.Verdict, r)
			}
			f := r.Failures[0]
			if f.Mode != m.id {
				t.Errorf("%s by %s, want %s", f.Mode, f.Property, m.id)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%s\n", m.id, m.strategy, m.property, len(f.Schedule.Steps), r.Schedules, r.Elapsed.Round(time.Millisecond))
			t.Log(f.Why, f.Schedule.Steps)
			golden(t, m.id, f)
		})
	}
	table.Flush()
}

// TestLockThatLocksNothing checks that a search finds the failure of a lock that stores nothing on any
// server. Such a lock has no leases that could overlap.
func TestLockThatLocksNothing(t *testing.T) {
	for _, tt := range []struct {
		excludes catalog.Exclusion
		broken   []string
	}{
		{catalog.Global, []string{catalog.LeaseExclusive}},
		{catalog.NoExclusion, nil},
	} {
		st := lock.Strategy{
			Name: "locks-nothing", Needs: lock.Redis, Guard: order.Guarded, Excludes: tt.excludes,
			New: func(lock.Env) (lock.Locker, error) { return rough{}, nil },
		}
		cfg := explore.Config{Strategies: []string{st.Name}, Own: []lock.Strategy{st}, Preemptions: 1, Properties: []string{catalog.OneWinner, catalog.LeaseExclusive}}
		results, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil)
		if err != nil || !results[0].Complete {
			t.Fatalf("Search: %+v, %v", results, err)
		}
		var broken []string
		for _, f := range results[0].Failures {
			broken = append(broken, f.Property)
		}
		if !slices.Equal(broken, tt.broken) {
			t.Errorf("excludes %s: it breaks %v, want %v", tt.excludes, broken, tt.broken)
		}
	}
}

// releasedTwice wraps a lock. When a lease is released for the second time, releasedTwice calls the
// function again instead of the lock's Release.
type releasedTwice struct {
	lock.Locker
	again func(lock.Lease) error
}

type leaseReleasedTwice struct {
	lock.Lease
	again func(lock.Lease) error
	ended bool
}

func (l releasedTwice) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	lease, err := l.Locker.Acquire(ctx, key)
	return &leaseReleasedTwice{lease, l.again, false}, err
}

func (l *leaseReleasedTwice) Release(ctx context.Context) error {
	if l.ended {
		return l.again(l.Lease)
	}
	l.ended = true
	return l.Lease.Release(ctx)
}

// TestSecondRelease checks that a search finds a lock whose second release succeeds or frees the next
// driver's lock. Drivers themselves never release a lock twice, so the search must test this separately.
func TestSecondRelease(t *testing.T) {
	setnx, err := lock.Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		again func(lock.Env, lock.Lease) error
		why   string
	}{
		"correct":  {func(_ lock.Env, l lock.Lease) error { return l.Release(context.Background()) }, ""},
		"succeeds": {func(lock.Env, lock.Lease) error { return nil }, "returns <nil>"},
		"frees":    {func(env lock.Env, l lock.Lease) error { env.Redis.FlushAll(context.Background()); return lock.ErrLost }, "changes the next driver's lock"},
	} {
		own := setnx
		own.Name, own.New = "own", func(env lock.Env) (lock.Locker, error) {
			l, err := setnx.New(env)
			return releasedTwice{l, func(l lock.Lease) error { return tt.again(env, l) }}, err
		}
		cfg := explore.Config{Strategies: []string{"own"}, Own: []lock.Strategy{own}, Actors: 1}
		results, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		f := results[0].Failures
		if found := len(f) > 0; found != (tt.why != "") || found && (f[0].Property != catalog.AnswersAgree || !strings.Contains(f[0].Why, tt.why)) {
			t.Errorf("%s: failures %+v", name, f)
		}
	}
}

// TestModeOfOwnLock checks that a search finds the right failure mode for user-written locks, whose modes
// the registry does not know. F5 is a release that does not check the owner. F6 is a release that checks
// the owner in a separate step.
func TestModeOfOwnLock(t *testing.T) {
	for name, mode := range map[string]string{"setnx-del": "F5", "setnx-getdel": "F6"} {
		own, err := lock.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		own.Name, own.Breaks = "own", nil
		cfg := explore.Config{
			Strategies: []string{"own"}, Own: []lock.Strategy{own}, Properties: []string{catalog.LeaseExclusive},
			Actors: 3, Preemptions: 2, Faults: []catalog.Fault{catalog.Pause}, FaultCount: 1,
		}
		results, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		if f := results[0].Failures; len(f) == 0 || f[0].Mode != mode {
			t.Errorf("%s: %+v, want one failure by %s", name, f, mode)
		}
	}
}
