package explore

import (
	"fmt"
	"maps"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
	"grablab/internal/schedule"
)

// worker executes schedules: in this process, or in a child of it.
type worker interface {
	search.Worker
	// replay executes steps, with all there is to see.
	replay(steps []schedule.Step) (*replayed, error)
	close() error
}

// replayed is a schedule as it went.
type replayed struct {
	Moments []Moment
	Broken  []search.Violation
}

// local executes in this process.
type local struct {
	cluster *sim.Cluster
	limits  *sim.Limits
	visited search.Visited
}

// newLocal makes a worker for one strategy. It ends executions at visited states,
// which it may share with the search.
func newLocal(bubble sim.Bubble, cfg Config, set sim.Setting, visited search.Visited) (*local, error) {
	cluster, err := sim.New(bubble, set)
	if err != nil {
		return nil, err
	}
	if cluster.TokenIsDriver && cfg.Actors > 2 {
		cluster.Actors = doubleTap(cluster.Actors)
	}
	limits := &sim.Limits{Bounds: cfg.bounds(), Faults: cfg.Faults, Properties: cfg.Properties, Reduce: !cfg.NoReduce}
	if !cfg.NoMerge {
		limits.Visited = visited.Covers
	}
	return &local{cluster, limits, visited}, nil
}

func (l *local) Execute(tasks []search.Task, done func(int, *search.Trace)) error {
	for i, t := range tasks {
		trace, err := l.cluster.Execute(l.limits, t)
		if err != nil {
			return err
		}
		done(i, trace)
	}
	return nil
}

func (l *local) Update(news search.Visited) error {
	maps.Copy(l.visited, news)
	return nil
}

func (l *local) replay(steps []schedule.Step) (*replayed, error) {
	moments, broken, err := l.cluster.Replay(steps)
	return &replayed{moments, broken}, err
}

func (l *local) close() error {
	l.cluster.Close()
	return nil
}

// doubleTap has the driver of the first actor try once more as the second: with a
// lock whose token is the driver's, the two are one to it.
func doubleTap(actors []schedule.Actor) []schedule.Actor {
	actors = slices.Clone(actors)
	actors[1].As = actors[0].Name
	return actors
}

// crashed is the trace of a task whose process has ended or does not get on.
func crashed(t search.Task, hung bool, stack string) *search.Trace {
	why := "the process ended"
	if hung {
		why = fmt.Sprintf("nothing happened for %s of real time", patience)
	}
	return &search.Trace{
		Steps: t.Steps, Impossible: -1, Stack: stack,
		Broken: []search.Violation{{Property: catalog.Survives, Step: len(t.Steps), Why: why}},
	}
}
