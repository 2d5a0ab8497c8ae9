package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
)

// A brokenAcquire gets a lock and makes another request, but then reports an error.
type brokenAcquire struct {
	lock.Locker
	env lock.Env
}

func (b brokenAcquire) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	_, err := b.Locker.Acquire(ctx, key)
	return nil, errors.Join(err, b.env.Redis.Incr(ctx, "requests").Err(), errors.New("broken acquire"))
}

// TestFaultExcusesItsInstance checks which faults excuse a driver whose acquire failed. A fault excuses only the
// drivers of the instance whose calls it affects.
func TestFaultExcusesItsInstance(t *testing.T) {
	setnx, err := lock.Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	own := setnx
	own.Name, own.New = "own", func(env lock.Env) (lock.Locker, error) {
		l, err := setnx.New(env)
		if env.Node == "0" { // Setting up a cluster requires a lock that works.
			return l, err
		}
		return brokenAcquire{l, env}, err
	}
	for name, tt := range map[string]struct {
		steps   string
		excused bool
	}{
		"no fault":                {"A acquire 2 redis", false},
		"an outage that passes":   {"redis down\nredis up\nA acquire 2 redis", false},
		"an outage of the call":   {"redis down\nA acquire 2 redis", true},
		"an outage for another":   {"redis down\nB begins\nB acquire 1 redis\nredis up\nA acquire 2 redis", false},
		"another's lost reply":    {"B begins\nB acquire 1 redis reply lost\nA acquire 2 redis", false},
		"its own lost reply":      {"A acquire 2 redis reply lost", true},
		"another's network":       {"B begins\ninstance 2 cut off from locks\nA acquire 2 redis", false},
		"its own network":         {"instance 1 cut off from locks\ninstance 1 reaches locks\nA acquire 2 redis", true},
		"a server that restarted": {"redis restarts\nA acquire 2 redis", true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, err := New(func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }, Setting{
				Strategy: own, Guard: own.GuardedBy(""), OnLost: grab.Abort, TTL: 3 * time.Second,
				Actors: []schedule.Actor{{Name: "A", Instance: 1}, {Name: "B", Instance: 2}},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			s, err := schedule.Parse(cluster.Schedule().String() + "A begins\nA acquire 1 redis\n" + tt.steps + "\n")
			if err != nil {
				t.Fatal(err)
			}
			record, err := cluster.Replay(s.Steps)
			if err != nil {
				t.Fatal(err)
			}
			found := ""
			for _, v := range record.Broken {
				if strings.HasPrefix(v.Why, "A's acquire failed") {
					found = v.Why
				}
			}
			skipped := slices.ContainsFunc(record.Moments, func(m Moment) bool { return m.Skipped })
			if skipped || (found == "") != tt.excused {
				t.Errorf("a step was skipped: %v; found %q, want it excused: %v", skipped, found, tt.excused)
			}
		})
	}
}
