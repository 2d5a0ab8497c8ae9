package explore

import (
	"fmt"

	"grablab/internal/schedule"
)

// player plays schedules: in this process, or in a child of it.
type player interface {
	// play calls done with what became of each task, in their order. A strategy
	// that ends or hangs the process costs the task that was under way.
	play(tasks []task, done func(int, *played)) error
	// replay plays steps, with all there is to see.
	replay(steps []schedule.Step) (*retold, error)
	// know takes in the states that have been looked at since the last time.
	know([]sighting) error
	close() error
}

// task is a schedule to be played, and what it costs.
type task struct {
	steps []schedule.Step
	cost  cost
}

// retold is a schedule as it went.
type retold struct {
	Moments []Moment
	Broken  []violation
}

// sighting is a state that has been looked at.
type sighting struct {
	State sum
	Visit visit
}

// local plays in this process.
type local struct {
	bubble Bubble
	stage  *stage
	set    setting
	limits *limits
	seen   sightings
}

// openLocal makes a player of one strategy. known are the states that have been
// looked at, which it may share.
func openLocal(bubble Bubble, cfg Config, set setting, known sightings) (*local, error) {
	st, err := newStage(set.strategy.Needs, instances)
	l := &local{bubble: bubble, stage: st, set: set, limits: cfg.limits(), seen: known}
	if err == nil {
		bubble(func() { err = st.learn(set) })
	}
	if err != nil {
		st.shut()
		return nil, err
	}
	if st.borrowed && cfg.Actors > 2 {
		l.set = set.withDoubleTap()
	}
	return l, nil
}

func (c Config) limits() *limits {
	l := &limits{properties: c.Properties, preemptions: int8(c.Preemptions), faults: int8(c.FaultCount), kinds: map[string]bool{}, reduce: !c.NoReduce, merge: !c.NoMerge}
	for _, kind := range c.Faults {
		l.kinds[kind] = true
	}
	return l
}

func (l *local) play(tasks []task, done func(int, *played)) (err error) {
	for i, t := range tasks {
		var p *played
		l.bubble(func() { p, err = l.stage.play(l.set, l.limits, t.steps, t.cost, l.known) })
		if err != nil {
			return err
		}
		done(i, p)
	}
	return nil
}

func (l *local) known(state sum, c cost, steps int) bool {
	return l.limits.merge && l.seen.known(state, c, steps)
}

func (l *local) replay(steps []schedule.Step) (*retold, error) {
	moments, broken, err := l.stage.replay(l.set, l.bubble, steps)
	return &retold{moments, broken}, err
}

func (l *local) know(news []sighting) error {
	for _, s := range news {
		l.seen[s.State] = s.Visit
	}
	return nil
}

func (l *local) close() error {
	l.stage.shut()
	return nil
}

// sightings are the states that have been looked at.
type sightings map[sum]visit

// visit is at what prices a state has been looked at, and after how many steps
// at the least.
type visit struct {
	Prices uint32 // a bit for each price that need not look again
	Steps  uint16
}

// known says whether a state need not be looked at again: it was, for no more,
// and after no more steps.
func (s sightings) known(state sum, c cost, steps int) bool {
	v, ok := s[state]
	return ok && v.Prices&bit(c) != 0 && steps >= int(v.Steps)
}

func bit(c cost) uint32 { return 1 << (int(c.preemptions)*(MaxFaultCount+1) + int(c.faults)) }

// add marks a state, at that price and all that are no cheaper.
func (s sightings) add(state sum, c cost, steps int) sighting {
	v, ok := s[state]
	if !ok || steps < int(v.Steps) {
		v.Steps = uint16(steps)
	}
	for p := c.preemptions; p <= MaxPreemptions; p++ {
		for f := c.faults; f <= MaxFaultCount; f++ {
			v.Prices |= bit(cost{p, f})
		}
	}
	s[state] = v
	return sighting{state, v}
}

// withDoubleTap has the driver of the first actor try once more as the second:
// with a lock whose token is the driver's, the two are one to it.
func (set setting) withDoubleTap() setting {
	actors := append([]schedule.Actor(nil), set.actors...)
	actors[1].As = actors[0].Name
	set.actors = actors
	return set
}

// crashed is what becomes of a task whose process has ended or does not get on.
func crashed(t task, hung bool, stack string) *played {
	why := "the process ended"
	if hung {
		why = fmt.Sprintf("nothing happened for %s of real time", patience)
	}
	return &played{
		steps: t.steps, wrong: -1, stack: stack,
		broken: []violation{{Property: Survives, Step: len(t.steps), Why: why}},
	}
}
