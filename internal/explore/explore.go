// Package explore finds the shortest schedule that breaks a lock. If it finds none, it reports how
// many schedules it has covered.
//
// The package runs the real strategies and clients in virtual time. It pauses every remote call
// until a step of the schedule lets the call continue. The search tries schedules with few
// preemptions and faults first.
//
// An actor is one attempt by one driver to grab the order. It reads the order, works for a while,
// and then writes the winner.
//
// Start reading at Search, or at ReplayBy for a single schedule. Package search chooses the
// schedules, and package sim executes them. A strategy may crash or hang, so each worker runs in
// its own process.
package explore

import (
	"cmp"
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

// Config configures a search. The zero value of each field selects its default.
type Config struct {
	Strategies  []string
	Own         []lock.Strategy // additional strategies that are not in the registry, without claims
	Added       []lock.Strategy // additional strategies with claims, which only the program in Command can run
	Actors      int             // default: 2
	Preemptions int             // the maximum number of preemptions in one schedule; default: 0
	Faults      []catalog.Fault // the kinds of faults that the search may inject; default: none
	FaultCount  int             // the maximum number of faults in one schedule; default: 0
	Properties  []string        // the properties to check; default: all

	Guard  order.Guard // default: the strategy's own guard
	OnLost grab.OnLost // default: grab.Abort
	TTL    time.Duration
	Work   time.Duration // how long an actor works; default: 0
	Wait   time.Duration // how long an actor waits for the lock; by default, each actor tries once

	Nodes     int // the number of Redis servers of a Redlock; default: 3
	Stock     int // the order's number of units; default: 1
	Instances int // the number of instances that share the actors; default: 2
	// SecondTry tests a driver that tries twice, by giving the first two actors the same driver. It has
	// no effect with one instance.
	SecondTry bool

	Seconds   float64 // the timeout for each strategy; default: none
	Schedules int     // the maximum number of schedules for each strategy; default: no limit
	// Command is the command line of a child process that calls Work. If Command is nil, all
	// schedules run in this process, so a strategy may crash it.
	Command []string
	Workers int // default: 1
	// Patience is the real-time timeout of one schedule, after which the search reports a hang. The
	// default is 5 s.
	Patience time.Duration
	// Everything makes the search look for one failure per combination of a property and a set of
	// faults. Otherwise, one failure per property is enough.
	Everything bool

	// Mistake describes a mistake of the strategy that was found without a schedule. Every schedule
	// then breaks answers-agree. It is usually empty.
	Mistake string

	// NoMerge and NoReduce turn off optimizations. With them, tests check that the search finds the
	// same failures either way.
	NoMerge  bool // do not merge equal states
	NoReduce bool // try independent calls in every order

	// byClaim makes the search look for expected and unexpected failures separately. Otherwise, a
	// short expected failure could hide a longer unexpected one.
	byClaim bool
}

// These are the defaults of a Config.
const (
	DefaultActors = 2
	DefaultTTL    = 3 * time.Second
	DefaultNodes  = 3
)

// These are the limits of a Config. A Config with higher values is invalid.
const (
	MaxActors      = 4
	MaxNodes       = 7
	MaxInstances   = sim.Instances
	MaxPreemptions = search.MaxPreemptions
	MaxFaultCount  = search.MaxFaults
)

// ErrConfig means that a Config is invalid.
var ErrConfig = errors.New("explore: bad search")

// withDefaults fills in empty settings. It returns an error if a number is out of range or a name
// is unknown.
func (c Config) withDefaults() (Config, error) {
	c.Actors = cmp.Or(c.Actors, DefaultActors)
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	c.Nodes = cmp.Or(c.Nodes, DefaultNodes)
	c.Instances = cmp.Or(c.Instances, sim.Instances)
	c.OnLost = cmp.Or(c.OnLost, grab.Abort)
	if len(c.Properties) == 0 {
		c.Properties = Properties
	}
	c.Workers = max(c.Workers, 1)
	for _, l := range []struct {
		what           string
		n, least, most int
	}{
		{"actors", c.Actors, 1, MaxActors},
		{"nodes", c.Nodes, DefaultNodes, MaxNodes},
		{"units", cmp.Or(c.Stock, 1), 1, MaxActors},
		{"instances", c.Instances, 1, MaxInstances},
		{"preemptions", c.Preemptions, 0, MaxPreemptions},
		{"faults in one schedule", c.FaultCount, 0, MaxFaultCount},
	} {
		if l.n < l.least || l.n > l.most {
			return c, fmt.Errorf("%w: the number of %s is %d: use %d to %d", ErrConfig, l.what, l.n, l.least, l.most)
		}
	}
	return c, errors.Join(knownNames("fault", c.Faults, Faults), knownNames("property", c.Properties, Properties))
}

// Faults and Properties list what a search supports, most important first.
var (
	Faults     = catalog.FaultsBy(catalog.Explore)
	Properties = catalog.PropertiesBy(catalog.Explore)
)

func knownNames[S ~string](what string, names, all []S) error {
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("%w: there is no %s %q: use one of %v", ErrConfig, what, name, all)
		}
	}
	return nil
}

func (c Config) bounds() search.Cost {
	return search.Cost{Preemptions: int8(c.Preemptions), Faults: int8(c.FaultCount)}
}

// TimeOver is the Reason of a search that timed out. The result of a timed-out search may differ
// between runs.
const TimeOver = search.TimeOver

// Level counts the schedules with a certain number of preemptions and faults.
type Level = search.Level

// Moment is one step of a replay and the state after it.
type Moment = sim.Moment

// Bubble runs a function in virtual time, with the help of testing/synctest.
type Bubble = sim.Bubble

// Result is the result of a search for one strategy.
type Result struct {
	Strategy  string
	Guard     order.Guard
	Verdict   catalog.Verdict
	Expected  catalog.Verdict // the verdict that the registry predicts, or empty
	Complete  bool            // whether every schedule within the limits was executed
	Reason    string          // why the search is incomplete or the verdict is unknown; otherwise empty
	Levels    []Level
	Schedules int
	States    int
	Elapsed   time.Duration
	Part      string    // this search's name in a portfolio; empty for the first search
	Parts     []Result  // the results of the further searches of a portfolio
	Failures  []Failure // the shortest failure of each property; while the search runs, only failures that can no longer change

	// These fields are set only in the result of a replay.
	Replay  bool
	Actors  []schedule.Actor
	Moments []Moment
}

// Failure is a schedule that violates a property.
type Failure struct {
	Property string
	Mode     string // the id of the failure mode, such as "F11", or empty
	Why      string
	Schedule schedule.Schedule // its last step breaks the property
	Moments  []Moment
	Stack    string // the stack with which the process ended; otherwise empty
	Kind     string // the faults in the schedule, if failures are grouped by faults; otherwise empty
	Shortest bool   // whether no schedule with the same or a lower cost breaks the property in fewer steps

	// Unexpected is true if the registry does not predict this failure for the strategy under the
	// faults in its schedule. It is false in a replay, and where the registry makes no prediction.
	Unexpected bool
}

// Watch receives the results so far while a search runs.
type Watch func(Result)

// Search looks for failures of each strategy. When ctx ends, it returns the results so far and
// ctx's error.
//
// Search returns ErrConfig if cfg is invalid. If there are several strategies and one cannot be
// explored, its Result contains the reason.
func Search(ctx context.Context, bubble Bubble, cfg Config, progress Watch) ([]Result, error) {
	return searchEach(ctx, bubble, cfg, progress, searchOne)
}

// A searcher looks for failures of one strategy. When ctx ends, it returns the results so far.
type searcher func(ctx context.Context, bubble Bubble, cfg Config, set sim.Setting, progress Watch) (Result, error)

// searchEach calls search for each strategy in turn. If it got several strategies, it gives those
// that cannot be explored the verdict unknown.
func searchEach(ctx context.Context, bubble Bubble, cfg Config, progress Watch, search searcher) ([]Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(Result) {}
	}
	var results []Result
	for _, name := range cfg.Strategies {
		set, err := newSetting(cfg, name)
		var r Result
		if err == nil {
			r, err = search(ctx, bubble, cfg, set, progress)
		}
		if why, ok := errors.AsType[*unexplorableError](err); ok && len(cfg.Strategies) > 1 {
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

// unexplorableError explains why a strategy cannot be explored. If the Config is the reason, the
// error wraps ErrConfig.
type unexplorableError struct {
	of     error // either ErrConfig or nil
	reason string
}

func (e *unexplorableError) Error() string {
	if e.of != nil {
		return e.of.Error() + ": " + e.reason
	}
	return "explore: " + e.reason
}

func (e *unexplorableError) Unwrap() error { return e.of }

// searchOne searches the schedules of one strategy and judges what it finds. It calls progress
// while the search runs.
func searchOne(ctx context.Context, bubble Bubble, cfg Config, set sim.Setting, progress Watch) (Result, error) {
	began := time.Now()
	visited := search.Visited{}
	workers, err := startWorkers(bubble, cfg, set, nil, visited)
	defer closeAll(workers)
	confirmed := confirmer{known: map[findingID]Failure{}}
	result := func(s search.Summary, settled bool) (Result, error) {
		failures, err := confirmed.failures(s, settled)
		return Result{
			Strategy: set.Strategy.Name, Guard: set.Guard, Expected: claimed(cfg, set),
			Verdict: verdict(s), Complete: s.Complete, Reason: s.Reason, Failures: judgeClaims(cfg, set, failures),
			Levels: s.Levels, Schedules: s.Schedules, States: s.States, Elapsed: time.Since(began),
		}, err
	}
	searchCfg := search.Config{Bounds: cfg.bounds(), Properties: cfg.Properties, NoMerge: cfg.NoMerge, Schedules: cfg.Schedules}
	switch {
	case cfg.byClaim:
		searchCfg.Kind = func(v search.Violation, steps []schedule.Step) string {
			return fmt.Sprint(claimsUnder(cfg, set, faultsIn(steps, cfg.Faults)), isUnexpectedMode(set, modeOf(set, v)))
		}
	case cfg.Everything:
		searchCfg.Kind = func(_ search.Violation, steps []schedule.Step) string { return kindOf(steps) }
	}
	if ended, ok := errors.AsType[*EndedError](err); ok {
		r, _ := result(search.Summary{}, false)
		r = endedAlone(r, set, ended)
		r.Failures = judgeClaims(cfg, set, r.Failures)
		return r, nil
	}
	if err != nil {
		return Result{}, err
	}
	set.Actors = workers[0].actors()
	if cfg.Seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, began.Add(time.Duration(cfg.Seconds*float64(time.Second))))
		defer cancel()
	}
	confirmed.set, confirmed.worker = set, workers[0]
	summary, err := search.New(searchCfg, visited).Run(ctx, catalog.Map(workers, func(w worker) search.Worker { return w }), func(s search.Summary) {
		r, _ := result(s, true) // the final call returns any error again
		progress(r)
	})
	if err != nil {
		return Result{}, err
	}
	r, err := result(summary, false)
	if errors.Is(err, errDiffers) {
		r.Verdict, r.Complete, r.Reason, err = catalog.Unknown, false, err.Error(), nil
	}
	// The schedules report a known mistake only as a violation of answers-agree.
	if known := workers[0].knownMistake(); known != "" && len(r.Failures) == 0 && !slices.Contains(cfg.Properties, sim.MistakeProperty) {
		r.Verdict, r.Complete = catalog.Unknown, false
		r.Reason = fmt.Sprintf("the lock has a mistake that needs no schedule: %s: correct it, or add %s to the properties", known, sim.MistakeProperty)
	}
	if r.Verdict == catalog.Unknown && r.Reason == TimeOver {
		r.Expected = "" // the search had too little time for a comparison with the expected verdict
	}
	return r, err
}

func closeAll(workers []worker) {
	for _, w := range workers {
		_ = w.close() // its error no longer matters
	}
}

// startWorkers starts one worker in this process, or several child processes. If some children fail
// to start, it returns an error and the other workers, so that the caller can close those.
func startWorkers(bubble Bubble, cfg Config, set sim.Setting, given []schedule.Actor, visited search.Visited) ([]worker, error) {
	if len(cfg.Command) == 0 {
		l, err := newLocal(bubble, cfg, set, given, visited)
		if err != nil {
			return nil, err
		}
		return []worker{l}, nil
	}
	workers := make([]worker, cfg.Workers)
	var starting errgroup.Group
	for i := range workers {
		starting.Go(func() (err error) {
			workers[i], err = startChild(cfg.Command, opening{Config: cfg, Strategy: set.Strategy.Name, Actors: given}, visited)
			return err
		})
	}
	return workers, starting.Wait()
}

func verdict(s search.Summary) catalog.Verdict {
	v := verdictOf(catalog.Map(s.Findings, func(f search.Finding) string { return f.Property }))
	if v == catalog.Safe && !s.Complete {
		return catalog.Unknown
	}
	return v
}

// verdictOf derives the verdict from the broken properties. The verdict is "stuck" only if no other
// property is broken.
func verdictOf(broken []string) catalog.Verdict {
	switch {
	case len(broken) == 0:
		return catalog.Safe
	case slices.ContainsFunc(broken, func(property string) bool { return property != catalog.StuckOrder }):
		return catalog.Unsafe
	default:
		return catalog.Stuck
	}
}

// find returns the strategy with this name. It looks at the additional strategies first.
func (c Config) find(name string) (lock.Strategy, error) {
	more := slices.Concat(c.Own, c.Added)
	if i := slices.IndexFunc(more, func(s lock.Strategy) bool { return s.Name == name }); i >= 0 {
		return more[i], nil
	}
	return lock.Find(name)
}

// newSetting returns the parameters that all schedules of one strategy share, or an error if the
// strategy does not support them.
func newSetting(cfg Config, name string) (sim.Setting, error) {
	var set sim.Setting
	st, err := cfg.find(name)
	if err != nil {
		return set, err
	}
	set = sim.Setting{Strategy: st, Guard: st.GuardedBy(cfg.Guard), OnLost: cfg.OnLost, TTL: cfg.TTL, Work: cfg.Work, Wait: cfg.Wait, Nodes: cfg.Nodes, Stock: cfg.Stock, Mistake: cfg.Mistake}
	if set.Guard.NeedsFence() && !st.Fences {
		return set, &unexplorableError{ErrConfig, fmt.Sprintf("guard %s needs fencing tokens, but %s has none", set.Guard, name)}
	}
	if why := set.Guard.RefusesUnits(cfg.Stock); why != "" {
		return set, &unexplorableError{ErrConfig, fmt.Sprintf("%s cannot be explored with %d units: %s", name, cfg.Stock, why)}
	}
	if st.Unexplorable != "" {
		return set, &unexplorableError{ErrConfig, name + " cannot be explored: " + st.Unexplorable}
	}
	for i := range cfg.Actors {
		set.Actors = append(set.Actors, schedule.Actor{Name: string(rune('A' + i)), Instance: i%cfg.Instances + 1})
	}
	return set, nil
}
