package sim

import (
	"slices"
	"strings"
	"time"

	"grablab/internal/explore/search"
	"grablab/internal/schedule"
)

// Moment is one step of a replay, as it went.
type Moment struct {
	Step     schedule.Step
	At       time.Duration // virtual time after the step
	Did      string        // the command and its reply, in words
	Store    []string      // what the servers now hold
	Believes []string      // the actors who believe to hold the lock
	Holds    []string      // and those whose lease still runs
	Skipped  bool          // the step could not be made
	Broken   bool          // the property is broken from here on
	Made     int           // steps that were made by then
}

// Replay runs steps, leaving out what cannot be made, and then what costs
// nothing until everything has ended.
func (s *Cluster) Replay(steps []schedule.Step) (moments []Moment, broken []search.Violation, err error) {
	s.bubble(func() {
		x, problem := newExecution(s)
		defer x.stop()
		if err = problem; err != nil {
			return
		}
		x.telling = true
		for _, step := range steps {
			ok := x.step(step)
			moments = append(moments, x.moment(step, !ok))
		}
		for len(moments) < search.MaxSteps {
			next, _ := x.transitions(&Limits{}, search.Free)
			if len(next) == 0 {
				break
			}
			ok := x.step(next[0].Step)
			moments = append(moments, x.moment(next[0].Step, !ok))
			if !ok {
				break
			}
		}
		x.finish()
		broken = x.broken
	})
	return moments, broken, err
}

// moment is what there is to see after a step.
func (x *execution) moment(s schedule.Step, skipped bool) Moment {
	x.mu.Lock()
	defer x.mu.Unlock()
	slices.Sort(x.did) // what happens in one instant happens in any order
	m := Moment{Step: s, At: x.elapsed().Round(time.Millisecond), Did: strings.Join(x.did, ""), Skipped: skipped, Made: x.steps}
	x.did = nil
	for _, n := range x.nodes {
		for line := range strings.Lines(string(n.contents())) {
			m.Store = append(m.Store, n.name+": "+strings.TrimSpace(line))
		}
	}
	m.Store = append(m.Store, "db: "+x.wonBy())
	for _, a := range x.actors {
		if a.granted && !a.leaving && !a.lostIt && !a.dead {
			m.Believes = append(m.Believes, a.name)
		}
		if a.granted && !a.leaving && (!x.leased() || x.leaseLeft(a) > 0) {
			m.Holds = append(m.Holds, a.name)
		}
	}
	return m
}

// wonBy says who is in the ledger.
func (x *execution) wonBy() string {
	if ledger := x.ledger(); len(ledger) > 0 {
		return "won by " + strings.Join(x.winners(ledger), " and by ")
	}
	return "open"
}
