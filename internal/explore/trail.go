package explore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
	"grablab/internal/tap"
)

// Trail is the calls of grabs that no fault disturbs, in their order, as package
// experiment records them on real servers. Each is a step of kind schedule.Call.
type Trail struct {
	Alone       []schedule.Step // of a driver whose lease is renewed once, if any is
	Waiting     []schedule.Step // of one that waits for another, who gives up at the read
	HandingOver []schedule.Step // of the release of one who gives up at the claim while another waits
}

// TrailOf executes the grabs of a strategy, in whose schedules no choice is left open:
// a driver goes on until it waits.
func TrailOf(bubble Bubble, strategy string) (t Trail, err error) {
	cfg, err := Config{Actors: 2, Wait: 2 * time.Minute}.withDefaults()
	if err != nil {
		return t, err
	}
	set, err := newSetting(cfg, strategy)
	if err != nil {
		return t, err
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

	// The renewal comes while the driver works.
	w.start(a, claim)
	working := w.steps
	if w.try(schedule.Step{Kind: schedule.NextTimer}) {
		w.goOn(a, func(s schedule.Step) bool { return !renew(s) })
	}
	if !slices.ContainsFunc(w.steps, renew) { // there is no such timer, or it is another
		w.steps = working
	}
	w.goOn(a, never)
	t.Alone = w.callsOf(a)

	w.steps = nil
	w.start(a, read)
	w.start(b, never)
	if !slices.ContainsFunc(w.steps, claim) { // it waits
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
		return t, fmt.Errorf("explore: the trail of %s: %w", strategy, w.err)
	}
	return t, nil
}

// walk is one schedule that is made step by step.
type walk struct {
	cluster *sim.Cluster
	steps   []schedule.Step
	err     error // the first
}

var errTrail = errors.New("a step cannot be made")

// trace executes what there is of the schedule, and what is free behind it.
func (w *walk) trace() *search.Trace {
	t, err := w.cluster.Execute(&sim.Limits{Bounds: search.Cost{Preemptions: MaxPreemptions}}, search.Task{Steps: w.steps})
	if err != nil && w.err == nil {
		w.err = err
	}
	if err != nil {
		return &search.Trace{}
	}
	return t
}

// try makes a step, if it can be made.
func (w *walk) try(s schedule.Step) bool {
	w.steps = append(slices.Clip(w.steps), s)
	t := w.trace()
	return len(t.Steps) >= len(w.steps) && len(t.Points) > 0
}

// start has an actor begin, and go on until it waits or comes to a call.
func (w *walk) start(actor string, until func(schedule.Step) bool) {
	if !w.try(schedule.Step{Kind: schedule.Begins, Actor: actor}) && w.err == nil {
		w.err = errTrail
	}
	w.goOn(actor, until)
}

// goOn makes the calls of an actor until it waits, or only such are left as fit.
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

// callsOf an actor, until every actor has ended. A subscription is none: package
// experiment does not see it. The others are numbered without it.
func (w *walk) callsOf(actor string) []schedule.Step {
	moments, _, err := w.cluster.Replay(w.steps)
	if err != nil && w.err == nil {
		w.err = err
	}
	var calls []schedule.Step
	count := map[schedule.Step]int{} // by what they are numbered by
	for _, m := range moments {
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
