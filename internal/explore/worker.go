package explore

import (
	"context"
	"maps"
	"slices"

	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
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

// newLocal makes a worker for one strategy and the actors that are given; nil: as many
// as cfg says. It ends executions at visited states, which it may share with the search.
func newLocal(bubble sim.Bubble, cfg Config, set sim.Setting, given []schedule.Actor, visited search.Visited) (*local, error) {
	cluster, err := sim.New(bubble, set)
	if err != nil {
		return nil, &unexplorableError{nil, err.Error()}
	}
	switch {
	case given != nil:
		cluster.Actors = given
	case cluster.TokenIsDriver && cfg.Actors > 2 && cfg.Stock <= 1: // of several units, the one who tries once more gets none
		cluster.Actors = doubleTap(cluster.Actors)
	}
	limits := &sim.Limits{Bounds: cfg.bounds(), Faults: cfg.Faults, Properties: cfg.Properties, Reduce: !cfg.NoReduce}
	if !cfg.NoMerge {
		limits.Visited = visited.Covers
	}
	return &local{cluster, limits, visited}, nil
}

func (l *local) Execute(ctx context.Context, tasks []search.Task, done func(int, *search.Trace)) error {
	for i, t := range tasks {
		if ctx.Err() != nil {
			break
		}
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
