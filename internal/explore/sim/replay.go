package sim

import (
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
)

// A Moment is one step of a replayed schedule, with the state after it.
type Moment struct {
	Step     schedule.Step
	At       time.Duration // the virtual time after the step
	Did      string        // the command and its reply as text
	Store    []string      // the contents of the servers after the step
	Believes []string      // the actors that believe they hold the lock
	Holds    []string      // the actors whose leases are still valid by the servers' clocks
	Kept     []string      // the dead actors whose leases a server still stores
	Winners  []string      // the actors that wrote a ledger row, in row order
	Skipped  bool          // whether the replay skipped the step because it was impossible
	Broken   bool          // whether the property is broken after the step
	Made     int           // the number of steps made so far
}

// A Record contains the steps of a replay and the violations that it found.
type Record struct {
	Moments []Moment
	Broken  []search.Violation
}

// Replay executes the given steps, and skips impossible ones. It then chooses further steps until
// every actor has ended.
func (c *Cluster) Replay(steps []schedule.Step) (r Record, err error) {
	err = c.execute(func(x *execution) error {
		x.gate.recording = true
		x.observe = func(s schedule.Step, made bool) { r.Moments = append(r.Moments, x.moment(s, made)) }
		r.Broken = x.run(&Limits{}, search.Task{Steps: steps}).Broken
		return nil
	})
	return r, err
}

// moment describes the state after a step of the replay. made is false if the step was impossible
// and had no effect.
func (x *execution) moment(s schedule.Step, made bool) Moment {
	slices.Sort(x.gate.did) // an instance's simultaneous calls have no defined order
	m := Moment{Step: s, At: x.world.elapsed().Round(time.Millisecond), Did: strings.Join(x.gate.did, ""), Skipped: !made, Made: x.oracle.findings.steps}
	x.gate.did = nil
	m.Store = catalog.Map(x.world.entries(), func(e entry) string { return e.node + ": " + e.line })
	won := "open"
	if ledger := x.world.ledger(); len(ledger) > 0 {
		m.Winners = x.world.winners(ledger)
		won = "won by " + strings.Join(m.Winners, " and by ")
	}
	m.Store = append(m.Store, "db: "+won)
	for _, a := range x.world.actors {
		if a.dead && slices.ContainsFunc(x.cluster.nodes, func(n *node) bool { _, ok := n.leaseOf(a.value); return ok }) {
			m.Kept = append(m.Kept, a.name)
		}
		if !a.granted || !x.cluster.locks() {
			continue
		}
		if !a.releasing && !a.knowsLoss && !a.dead {
			m.Believes = append(m.Believes, a.name)
		}
		if x.leases.holds(a) {
			m.Holds = append(m.Holds, a.name)
		}
	}
	return m
}
