package archtest

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	_ "grablab/internal/grab/lock/peers" // as lock.Peers
	"grablab/internal/measure/experiment"
	"grablab/internal/service/control"
	"grablab/internal/service/instance"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"
)

func TestMain(m *testing.M) {
	stacktest.Main(m, stacktest.Command{Name: fleet.Command, Run: instance.Main})
}

func bubbleOf(t *testing.T) explore.Bubble {
	return func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
}

// The trail that a sweep strikes along is the one whose steps the explorer goes
// through: a call that the dry runs missed would be struck by no fault.
func TestTrailsAreTheExplorers(t *testing.T) {
	t.Parallel()
	kind, strategies := stack.Embedded, []string{"setnx-expire", "watchdog", "redlock", "redsync", "redislock"}
	if os.Getenv("GRABLAB_PROVE") == "1" {
		kind, strategies = stack.Local, nil
		for _, s := range slices.Concat(lock.Strategies, explorablePeers()) {
			strategies = append(strategies, s.Name)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := experiment.Scenarios[0].Config
	cfg.Instances, cfg.OnLost, cfg.Exe, cfg.Out, cfg.Log = 2, grab.Abort, exe, t.TempDir(), t.Output()
	cfg.Stack.Kind = kind
	for _, name := range strategies {
		s, err := lock.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Strategies = append(cfg.Strategies, s)
	}
	recorded, err := experiment.Trails(t.Context(), cfg)
	stacktest.Check(t, err)
	for _, name := range strategies {
		t.Run(name, func(t *testing.T) {
			known, err := explore.TrailOf(bubbleOf(t), name)
			if err != nil {
				t.Fatal(err)
			}
			for role, steps := range map[fault.Role][]schedule.Step{
				fault.Alone: known.Alone, fault.Waiting: known.Waiting, fault.HandingOver: known.HandingOver,
			} {
				if slices.Contains(partings[name], role) {
					continue
				}
				if got, want := recordedTrail(recorded[name][role]), knownTrail(steps); !slices.Equal(got, want) {
					t.Errorf("%s: the dry run has\n\t%s\nthe explorer\n\t%s", cmp.Or(role, "alone"),
						strings.Join(got, ", "), strings.Join(want, ", "))
				}
			}
		})
	}
}

// partings are trails that differ with what an instance has met before. The explorer's
// handoff has never waited: its first call does not queue before it has subscribed, and
// the release asks once more how to hand over. The dry run's has waited before. redislock
// does not wait, so that a dry run has no driver who does.
var partings = map[string][]fault.Role{
	"handoff":   {fault.Waiting, fault.HandingOver},
	"redislock": {fault.Waiting, fault.HandingOver},
}

func recordedTrail(calls []control.Call) []string {
	var trail []string
	for _, c := range calls {
		trail = append(trail, callText(string(c.Phase), c.N, c.Target))
	}
	return normalise(trail)
}

func knownTrail(steps []schedule.Step) []string {
	var trail []string
	for _, s := range steps {
		trail = append(trail, callText(s.Phase, s.N, s.Target))
	}
	return normalise(trail)
}

// callText leaves out in what the two may differ. The explorer has three nodes of
// Redlock, a stack has five, and they are called at once; a try that the dry run holds
// is given up by its node's 50 ms, and made again. How many renewals there are is a
// matter of time.
func callText(phase string, n int, target string) string {
	quorum := strings.HasPrefix(target, "redlock-")
	switch {
	case phase == string(tap.Renew):
		n = 1
	case quorum && phase == string(tap.Acquire):
		n = min(n, 2)
	}
	if quorum {
		target = "redlock"
	}
	return fmt.Sprintf("%s %d %s", phase, n, target)
}

// normalise keeps the first of equal calls.
func normalise(trail []string) []string {
	var once []string
	for _, c := range trail {
		if !slices.Contains(once, c) {
			once = append(once, c)
		}
	}
	return once
}
