package explore_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
)

// TestReplayOfAnyStep replays every kind of step on the server that the strategy uses, on one that it does
// not use, and on the database. A replay must skip an impossible step, and must not report it as an error or an ended process.
func TestReplayOfAnyStep(t *testing.T) {
	made := map[schedule.Kind]bool{}
	for strategy, server := range map[string]string{"watchdog": "redis", "redlock": "redlock-2", "zookeeper": "zookeeper", "etcd": "etcd", "mysql-getlock": "none"} {
		for kind := schedule.Begins; kind <= schedule.NodeClock; kind++ {
			others := slices.DeleteFunc([]string{"redis", "redlock-2", "zookeeper", "etcd"}, func(s string) bool { return s == server })
			other := others[int(kind)%len(others)]
			for _, target := range []string{server, other, schedule.DB, schedule.Locks} {
				step := schedule.Step{Kind: kind, Actor: "A", Phase: "acquire", N: 1, Target: target, Instance: 1, Duration: time.Second}
				if target != server && target != schedule.DB && !strings.Contains(step.String(), target) {
					continue // the step has no target
				}
				isServer := target != schedule.DB && target != schedule.Locks
				// replay returns whether the replay executed the step the first time.
				replay := func(steps ...schedule.Step) (executed bool) {
					r, err := explore.Replay(t.Context(), bubbleOf(t), schedule.Schedule{
						Strategy: strategy, TTL: explore.DefaultTTL, Work: time.Second, Wait: time.Second,
						Actors: []schedule.Actor{{Name: "A", Instance: 1}, {Name: "B", Instance: 2}}, Steps: steps,
					}, "")
					if err != nil {
						t.Fatalf("replay of %s, %q: %v", strategy, steps, err)
					}
					for i, s := range steps {
						if s == step && !r.Moments[i].Skipped {
							made[kind] = true
							if isServer && target != server && strings.Contains(step.String(), target) {
								t.Errorf("%s does not use %s, but the step %q was executed", strategy, target, step)
							}
						}
					}
					return !r.Moments[slices.Index(steps, step)].Skipped
				}
				begins := schedule.Step{Kind: schedule.Begins, Actor: "A"}
				if replay(step, begins, step) { // otherwise, the last two steps were replayed as if they were the only ones
					replay(begins, step)
				}
			}
		}
	}
	for _, kind := range []schedule.Kind{schedule.Call, schedule.GivenUp, schedule.SentTwice, schedule.Restarts, schedule.Down, schedule.NodeClock, schedule.CutOff, schedule.Cancelled} {
		if !made[kind] {
			t.Errorf("no strategy executed a step such as %q", schedule.Step{Kind: kind, Actor: "A", Phase: "acquire", N: 1, Target: "redis", Instance: 1})
		}
	}
}
