package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"
)

// TestTrailsAreTheExplorers checks that a dry run records the same calls of a grab as the explorer. If it
// missed a call, a run would never inject a fault there.
func TestTrailsAreTheExplorers(t *testing.T) {
	t.Parallel()
	kind, strategies := stack.Embedded, []string{"setnx-expire", "watchdog", "redlock", "redsync", "redislock"}
	if os.Getenv("GRABLAB_PROVE") == "1" {
		kind, strategies = stack.Local, nil
		for _, s := range slices.Concat(lock.Strategies, lock.Peers) {
			if s.Unexplorable == "" {
				strategies = append(strategies, s.Name)
			}
		}
	}
	cfg := small(t, kind, strategies...)
	for _, s := range cfg.Strategies {
		cfg.Stack.Needs |= s.Needs
	}
	w, err := openWorker(t.Context(), cfg, 0, newProgress(cfg), &journal{dir: cfg.Out})
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	stacktest.Check(t, err)
	recorded := map[string]trail{}
	for _, s := range cfg.Strategies {
		if recorded[s.Name], err = w.recorder().record(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range cfg.Strategies {
		t.Run(s.Name, func(t *testing.T) {
			bubble := func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
			known, err := exploredTrail(bubble, s)
			if err != nil {
				t.Fatal(err)
			}
			for role, steps := range map[fault.Role][]schedule.Step{
				fault.Alone: known.Alone, fault.Waiting: known.Waiting, fault.HandingOver: known.HandingOver,
			} {
				if slices.Contains(partings[s.Name], role) {
					continue
				}
				if got, want := recordedTrail(recorded[s.Name].calls[role]), knownTrail(steps); !slices.Equal(got, want) {
					t.Errorf("%s: the dry run has the calls\n\t%s\nand the explorer has\n\t%s", cmp.Or(role, "alone"),
						strings.Join(got, ", "), strings.Join(want, ", "))
				}
			}
		})
	}
}

// partings lists the trails that may differ between a dry run and the explorer. With handoff, an
// instance of the dry run has already waited before, but an instance of the explorer has not. The
// explorer's instance therefore subscribes before it queues, and its release sends one more call to
// find out how to hand over. With redislock and redis-stock, a second driver is refused immediately
// instead of waiting.
var partings = map[string][]fault.Role{
	"handoff":              {fault.Waiting, fault.HandingOver},
	"redislock":            {fault.Waiting, fault.HandingOver},
	"redis-stock":          {fault.Waiting, fault.HandingOver},
	"redis-stock-returned": {fault.Waiting, fault.HandingOver},
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

// callText describes a call without the details that may differ between a dry run and the explorer:
//   - The number of renewals depends on the timing.
//   - The explorer has three Redlock nodes, and a stack has five.
//   - Redlock repeats an attempt if a node does not answer within 50 ms, as in a dry run that holds a call.
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

// normalise removes repeated calls and keeps the first of them.
func normalise(trail []string) []string {
	var once []string
	for _, c := range trail {
		if !slices.Contains(once, c) {
			once = append(once, c)
		}
	}
	return once
}

// explorerTrail lists the calls of grabs without faults in the explorer, in order. Each step is of kind
// schedule.Call.
type explorerTrail struct {
	Alone       []schedule.Step // the calls of a driver that renews its lease once, if the strategy renews
	Waiting     []schedule.Step // the calls of a driver that waits for a holder; the holder gives up at its read
	HandingOver []schedule.Step // the release calls of a holder that gives up at its claim while a driver waits
}

// exploredTrail executes the grabs of a strategy in the explorer. Their schedules leave no choice: a driver
// continues until it has to wait.
func exploredTrail(bubble sim.Bubble, s lock.Strategy) (t explorerTrail, err error) {
	set := sim.Setting{
		Strategy: s, Guard: s.Guard, OnLost: grab.Abort, TTL: explore.DefaultTTL, Wait: 2 * time.Minute, Nodes: explore.DefaultNodes,
		Actors: []schedule.Actor{{Name: "A", Instance: 1}, {Name: "B", Instance: 2}},
	}
	cluster, err := sim.New(bubble, set)
	if err != nil {
		return t, err
	}
	defer cluster.Close()
	w := &walk{cluster: cluster}
	a, b := set.Actors[0].Name, set.Actors[1].Name
	read := func(s schedule.Step) bool { return s.Phase == string(tap.Read) }
	claim := func(s schedule.Step) bool { return s.Phase == string(tap.Claim) }
	renew := func(s schedule.Step) bool { return s.Phase == string(tap.Renew) }
	never := func(schedule.Step) bool { return false }

	// The lease is renewed while the driver works.
	w.start(a, claim)
	working := w.steps
	if w.try(schedule.Step{Kind: schedule.NextTimer}) {
		w.goOn(a, func(s schedule.Step) bool { return !renew(s) })
	}
	if !slices.ContainsFunc(w.steps, renew) { // no timer was due, or it was not for a renewal
		w.steps = working
	}
	w.goOn(a, never)
	t.Alone = w.callsOf(a)

	w.steps = nil
	w.start(a, read)
	w.start(b, never)
	if !slices.ContainsFunc(w.steps, claim) { // the second driver has to wait
		w.try(schedule.Step{Kind: schedule.Cancelled, Actor: a})
		w.goOn(a, never)
		t.Waiting = w.callsOf(b)

		w.steps = nil
		w.start(a, claim)
		w.start(b, never)
		w.try(schedule.Step{Kind: schedule.Cancelled, Actor: a})
		w.goOn(a, never)
		t.HandingOver = slices.DeleteFunc(w.callsOf(a), func(s schedule.Step) bool { return s.Phase != string(tap.Release) })
	}
	if w.err != nil {
		return t, fmt.Errorf("the explorer's trail of %s: %w", s.Name, w.err)
	}
	return t, nil
}

// walk builds one schedule step by step.
type walk struct {
	cluster *sim.Cluster
	steps   []schedule.Step
	err     error // the first error
}

var errTrail = errors.New("a step cannot be made")

// trace executes the steps so far, followed by steps of the cluster's choice.
func (w *walk) trace() *search.Trace {
	t, err := w.cluster.Execute(&sim.Limits{Bounds: search.Cost{Preemptions: explore.MaxPreemptions}}, search.Task{Steps: w.steps})
	if err != nil && w.err == nil {
		w.err = err
	}
	if err != nil {
		return &search.Trace{}
	}
	return t
}

// try adds a step, and reports whether the step can be made.
func (w *walk) try(s schedule.Step) bool {
	w.steps = append(slices.Clip(w.steps), s)
	t := w.trace()
	return len(t.Steps) >= len(w.steps) && len(t.Points) > 0
}

// start makes an actor begin and continue until it waits or reaches a call for which until returns true.
func (w *walk) start(actor string, until func(schedule.Step) bool) {
	if !w.try(schedule.Step{Kind: schedule.Begins, Actor: actor}) && w.err == nil {
		w.err = errTrail
	}
	w.goOn(actor, until)
}

// goOn makes the calls of an actor. It stops when the actor waits, or when until returns
// true for all calls that are left.
func (w *walk) goOn(actor string, until func(schedule.Step) bool) {
	for w.err == nil {
		t := w.trace()
		if len(t.Points) == 0 {
			return
		}
		i := slices.IndexFunc(t.Points[0].Transitions, func(tr search.Transition) bool {
			return tr.Step.Kind == schedule.Call && tr.Step.Actor == actor && !until(tr.Step)
		})
		if i < 0 {
			return
		}
		w.steps = append(slices.Clip(w.steps), t.Points[0].Transitions[i].Step)
	}
}

// callsOf returns the calls of an actor in the complete schedule. It omits subscriptions,
// because a dry run does not see them, and numbers the remaining calls anew.
func (w *walk) callsOf(actor string) []schedule.Step {
	record, err := w.cluster.Replay(w.steps)
	if err != nil && w.err == nil {
		w.err = err
	}
	var calls []schedule.Step
	count := map[schedule.Step]int{} // the number of calls per phase and target
	for _, m := range record.Moments {
		if m.Step.Kind != schedule.Call || m.Step.Actor != actor || strings.Contains(strings.ToLower(m.Did), ": subscribe ") {
			continue
		}
		name := schedule.Step{Phase: m.Step.Phase, Target: m.Step.Target}
		count[name]++
		m.Step.N = count[name]
		calls = append(calls, m.Step)
	}
	return calls
}
