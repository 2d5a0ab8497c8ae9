// Package explore finds the shortest schedule that breaks a lock, or says how far
// it has searched.
//
// It runs the real strategies and clients in virtual time; every remote call waits
// at a gate until a step lets it through. A schedule is a list of such steps. The
// search goes through them by cost: how often an actor is preempted, and how many
// faults strike.
//
// In goes a Config, out comes a Result for each strategy. Begin with Search, and
// with Replay for one schedule that is known. Package search decides which schedule
// comes next, package sim executes it; here are the workers that do so, one a
// process, since a strategy may end or hang its own.
package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"

	"golang.org/x/sync/errgroup"
)

// Config says what to search, and how far. The zero value of a field is its
// default, unless it says otherwise.
type Config struct {
	Strategies  []string
	Own         []lock.Strategy // that are not in the registry
	Actors      int             // 2
	Preemptions int             // 0 is none
	Faults      []catalog.Fault // the kinds, of Faults
	FaultCount  int             // how many of them strike in one schedule; 0 is none
	Properties  []string        // all

	Guard  order.Guard // each strategy's own
	OnLost grab.OnLost // grab.Abort
	TTL    time.Duration
	Work   time.Duration // none
	Wait   time.Duration // none: each actor tries once

	Nodes     int // 3: how many a Redlock has
	Stock     int // 1: units of the order
	Instances int // 2: on how many the actors are

	Seconds   float64 // how long the search may take for each strategy; 0: as long as it takes
	Schedules int     // how many may be executed for each strategy; 0: as many as there are
	// Command starts a child process that calls Work; there are so many Workers. nil:
	// all is executed in this process, which a strategy may take down.
	Command []string
	Workers int // 1
	// Patience is how long one schedule may take in real time: 5 s. One that takes
	// longer hangs.
	Patience time.Duration
	// First: stop at the first failure of any property.
	First bool
	// Everything: go on where nothing shorter is left to find, and keep the shortest
	// failure of a property for each combination of faults that breaks it.
	Everything bool

	// The reductions can be switched off, to show that they change no verdict.
	NoMerge  bool // equal states are not merged
	NoReduce bool // independent calls are made in every order
}

// What a zero Config means.
const (
	DefaultActors = 2
	DefaultTTL    = 3 * time.Second
	DefaultNodes  = 3
)

// Bounds of a search, beyond which its tables would not reach.
const (
	MaxActors      = 4
	MaxNodes       = 7
	MaxInstances   = sim.Instances
	MaxPreemptions = search.MaxPreemptions
	MaxFaultCount  = search.MaxFaults
)

// ErrConfig says that a search makes no sense.
var ErrConfig = errors.New("explore: bad search")

func (c Config) withDefaults() (Config, error) {
	if c.Actors == 0 {
		c.Actors = DefaultActors
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.Nodes == 0 {
		c.Nodes = DefaultNodes
	}
	if c.Instances == 0 {
		c.Instances = sim.Instances
	}
	if c.OnLost == "" {
		c.OnLost = grab.Abort
	}
	if len(c.Properties) == 0 {
		c.Properties = Properties
	}
	c.Workers = max(c.Workers, 1)
	switch {
	case c.Actors < 1 || c.Actors > MaxActors:
		return c, fmt.Errorf("%w: %d actors, there can be 1 to %d", ErrConfig, c.Actors, MaxActors)
	case c.Nodes < DefaultNodes || c.Nodes > MaxNodes:
		return c, fmt.Errorf("%w: %d nodes, there can be %d to %d", ErrConfig, c.Nodes, DefaultNodes, MaxNodes)
	case c.Stock < 0 || c.Stock > MaxActors:
		return c, fmt.Errorf("%w: %d units, there can be 1 to %d", ErrConfig, c.Stock, MaxActors)
	case c.Instances < 1 || c.Instances > sim.Instances:
		return c, fmt.Errorf("%w: %d instances, there can be 1 to %d", ErrConfig, c.Instances, sim.Instances)
	case c.Preemptions < 0 || c.Preemptions > MaxPreemptions:
		return c, fmt.Errorf("%w: %d preemptions, there can be 0 to %d", ErrConfig, c.Preemptions, MaxPreemptions)
	case c.FaultCount < 0 || c.FaultCount > MaxFaultCount:
		return c, fmt.Errorf("%w: %d faults in one schedule, there can be 0 to %d", ErrConfig, c.FaultCount, MaxFaultCount)
	}
	return c, errors.Join(known("fault", c.Faults, Faults), known("property", c.Properties, Properties))
}

// What a search can be asked for: the kinds of faults and the properties, the one
// that matters first.
var (
	Faults     = catalog.FaultsBy(catalog.Explore)
	Properties = catalog.PropertiesBy(catalog.Explore)
)

func known[S ~string](what string, names, all []S) error {
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("%w: no %s %q; there are %v", ErrConfig, what, name, all)
		}
	}
	return nil
}

func (c Config) bounds() search.Cost {
	return search.Cost{Preemptions: int8(c.Preemptions), Faults: int8(c.FaultCount)}
}

// TimeOver is the Reason of a Result that would be another the next time.
const TimeOver = search.TimeOver

// Level is how much was searched of one cost.
type Level = search.Level

// Moment is one step of a replay, as it went.
type Moment = sim.Moment

// Bubble runs a function in a bubble of testing/synctest.
type Bubble = sim.Bubble

// Result is what a search of one strategy has come to.
type Result struct {
	Strategy  string
	Guard     order.Guard
	Verdict   catalog.Verdict
	Expected  catalog.Verdict // by the registry; "": it claims nothing
	Complete  bool            // everything within the bounds was looked at
	Reason    string          // why it is not, or why the verdict is unknown; "": neither
	Levels    []Level
	Schedules int
	States    int
	Elapsed   time.Duration
	Failures  []Failure // the shortest of each property, the one that matters first; of a search under way, those known to be

	// Of a replay, whatever it came to.
	Replay  bool
	Actors  []schedule.Actor
	Moments []Moment
}

// Failure is a schedule that breaks a property.
type Failure struct {
	Property string
	Mode     string // of the failure modes, "F11"; "": none of them
	Why      string
	Schedule schedule.Schedule // Steps end with the one that breaks it
	Moments  []Moment
	Stack    string // of what ended the process; "": there is none
	Kind     string // with Everything: which faults it takes; "": none
	Shortest bool   // no schedule that costs no more breaks the property in fewer steps
}

// Watch is called with how far a search has come.
type Watch func(Result)

// Search searches each of the strategies, in children by cfg.Command or, without
// one, in bubbles. Once ctx is done, it returns the results so far with the error of
// ctx. ErrConfig says that cfg makes no sense. One of several strategies that cannot be
// explored has a Result that says why; what is wrong with a single one is an error.
func Search(ctx context.Context, bubble Bubble, cfg Config, progress Watch) ([]Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, name := range cfg.Strategies {
		set, err := newSetting(cfg, name)
		var r Result
		if err == nil {
			r, err = searchOne(ctx, bubble, cfg, set, progress)
		}
		var why *unexplorableError
		if errors.As(err, &why) && len(cfg.Strategies) > 1 {
			r, err = Result{Strategy: name, Guard: set.Guard, Verdict: catalog.Unknown, Reason: why.reason}, nil
		}
		if err != nil {
			return results, err
		}
		results = append(results, r)
		if ctx.Err() != nil {
			break
		}
	}
	return results, ctx.Err()
}

// unexplorableError says why one strategy cannot be explored. It wraps ErrConfig where
// that is asked for by mistake.
type unexplorableError struct {
	of     error // ErrConfig, or nil
	reason string
}

func (e *unexplorableError) Error() string {
	if e.of != nil {
		return e.of.Error() + ": " + e.reason
	}
	return "explore: " + e.reason
}

func (e *unexplorableError) Unwrap() error { return e.of }

// searchOne searches one strategy.
func searchOne(ctx context.Context, bubble Bubble, cfg Config, set sim.Setting, progress Watch) (Result, error) {
	began := time.Now()
	visited := search.Visited{}
	workers, actors, err := startWorkers(bubble, cfg, set, nil, visited)
	defer closeAll(workers)
	result := func(s search.Summary) Result { return resultOf(cfg, set, s, time.Since(began)) }
	var ended *endedError
	if errors.As(err, &ended) {
		return endedAlone(result(search.Summary{}), set, ended), nil
	}
	if err != nil {
		return Result{}, err
	}
	set.Actors = actors
	if cfg.Seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(cfg.Seconds*float64(time.Second)))
		defer cancel()
	}
	searchers := make([]search.Worker, len(workers))
	for i, w := range workers {
		searchers[i] = w
	}
	confirmed := confirmer{set: set, worker: workers[0], known: map[findingID]confirmation{}}
	summary, err := search.New(cfg.search(), visited).Run(ctx, searchers, func(s search.Summary) {
		if r := result(s); progress != nil {
			r.Failures, _ = confirmed.failures(s, true) // an error is there again at the end
			progress(r)
		}
	})
	if err != nil {
		return Result{}, err
	}
	return confirmed.conclude(result(summary), summary)
}

func (c Config) search() search.Config {
	cfg := search.Config{Bounds: c.bounds(), Properties: c.Properties, First: c.First, NoMerge: c.NoMerge, Schedules: c.Schedules}
	if c.Everything {
		cfg.Kind = kindOf
	}
	return cfg
}

func closeAll(workers []worker) {
	for _, w := range workers {
		_ = w.close() // it is not needed any more, however it ends
	}
}

// startWorkers starts children, or makes one worker in this process. They say which
// actors take part: those that are given or, with nil, as many as cfg says.
func startWorkers(bubble Bubble, cfg Config, set sim.Setting, given []schedule.Actor, visited search.Visited) (workers []worker, actors []schedule.Actor, err error) {
	if len(cfg.Command) == 0 {
		l, err := newLocal(bubble, cfg, set, given, visited)
		if err != nil {
			return nil, nil, err
		}
		return []worker{l}, l.cluster.Actors, nil
	}
	children := make([]*child, cfg.Workers)
	var starting errgroup.Group
	for i := range children {
		starting.Go(func() (err error) {
			children[i], err = startChild(cfg.Command, opening{Config: cfg, Strategy: set.Strategy.Name, Actors: given}, visited)
			return err
		})
	}
	err = starting.Wait()
	for _, c := range children {
		workers = append(workers, c)
	}
	if err != nil {
		return workers, nil, err
	}
	return workers, children[0].ready.Actors, nil
}

// resultOf a search, but for its failures.
func resultOf(cfg Config, set sim.Setting, s search.Summary, elapsed time.Duration) Result {
	return Result{
		Strategy: set.Strategy.Name, Guard: set.Guard, Expected: claimed(cfg, set),
		Verdict: verdict(s), Complete: s.Complete, Reason: s.Reason,
		Levels: s.Levels, Schedules: s.Schedules, States: s.States, Elapsed: elapsed,
	}
}

func verdict(s search.Summary) catalog.Verdict {
	v := verdictOf(func(p string) bool {
		return slices.ContainsFunc(s.Findings, func(f search.Finding) bool { return f.Property == p })
	})
	if v == catalog.Safe && !s.Complete {
		return catalog.Unknown
	}
	return v
}

// verdictOf is what the broken properties come to: stuck, if nothing worse.
func verdictOf(broken func(property string) bool) catalog.Verdict {
	for _, p := range append([]string{catalog.Survives}, Properties...) {
		if p != catalog.StuckOrder && broken(p) {
			return catalog.Unsafe
		}
	}
	if broken(catalog.StuckOrder) {
		return catalog.Stuck
	}
	return catalog.Safe
}

// find looks a strategy up, among one's own first.
func (c Config) find(name string) (lock.Strategy, error) {
	if i := slices.IndexFunc(c.Own, func(s lock.Strategy) bool { return s.Name == name }); i >= 0 {
		return c.Own[i], nil
	}
	return lock.Find(name)
}

// newSetting is what the schedules of one strategy have in common.
func newSetting(cfg Config, name string) (sim.Setting, error) {
	var set sim.Setting
	st, err := cfg.find(name)
	if err != nil {
		return set, err
	}
	set = sim.Setting{Strategy: st, Guard: st.GuardedBy(cfg.Guard), OnLost: cfg.OnLost, TTL: cfg.TTL, Work: cfg.Work, Wait: cfg.Wait, Nodes: cfg.Nodes, Stock: cfg.Stock}
	if set.Guard.NeedsFence() && !st.Fences {
		return set, &unexplorableError{ErrConfig, fmt.Sprintf("guard %s needs fencing tokens, and %s has none", set.Guard, name)}
	}
	if st.Unexplorable != "" {
		return set, &unexplorableError{ErrConfig, name + " cannot be explored: " + st.Unexplorable}
	}
	for i := range cfg.Actors {
		set.Actors = append(set.Actors, schedule.Actor{Name: string(rune('A' + i)), Instance: i%cfg.Instances + 1})
	}
	return set, nil
}
