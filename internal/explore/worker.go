package explore

import (
	"maps"
	"slices"

	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
)

// A worker executes schedules, either in this process or in a child process.
type worker interface {
	search.Worker
	// replay executes the steps and records the state after each step.
	replay(steps []schedule.Step) (sim.Record, error)
	actors() []schedule.Actor
	// knownMistake returns what is wrong with the lock without any schedule, or "".
	knownMistake() string
	close() error
}

// local is a worker that runs in the current process.
type local struct {
	cluster *sim.Cluster
	limits  *sim.Limits
	visited search.Visited
}

// newLocal creates a worker in this process. It uses the actors in given; if given is nil, cfg sets
// their number. The worker may share the map visited with the search.
func newLocal(bubble sim.Bubble, cfg Config, set sim.Setting, given []schedule.Actor, visited search.Visited) (*local, error) {
	cluster, err := sim.New(bubble, set)
	if err != nil {
		return nil, &unexplorableError{nil, err.Error()}
	}
	switch {
	case given != nil:
		cluster.Actors = given
	// If the lock uses the driver ID as its token, let one driver send its request twice, so that
	// two requests share a token. This test needs a one-unit order, and any second try needs two instances.
	case cfg.Instances > 1 && (cfg.SecondTry || cluster.TokenIsDriver && cfg.Actors > 2 && cfg.Stock <= 1):
		cluster.Actors = slices.Clone(cluster.Actors)
		cluster.Actors[1].As = cluster.Actors[0].Name
	}
	limits := &sim.Limits{Bounds: cfg.bounds(), Faults: cfg.Faults, Reduce: !cfg.NoReduce}
	if !cfg.NoMerge {
		limits.Visited = visited.Covers
	}
	return &local{cluster, limits, visited}, nil
}

func (l *local) Execute(task search.Task) (*search.Trace, error) {
	return l.cluster.Execute(l.limits, task)
}

func (l *local) Update(news search.Visited) { maps.Copy(l.visited, news) }

func (l *local) replay(steps []schedule.Step) (sim.Record, error) { return l.cluster.Replay(steps) }

func (l *local) actors() []schedule.Actor { return l.cluster.Actors }

func (l *local) knownMistake() string { return l.cluster.KnownMistake() }

func (l *local) close() error {
	l.cluster.Close()
	return nil
}
