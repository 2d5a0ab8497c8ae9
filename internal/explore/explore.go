// Package explore finds the shortest schedule that breaks a lock, or says how
// far it has looked.
//
// It runs the real strategies, with their real clients, through the function
// that an instance runs. What is not real is the time, which passes only when a
// step lets it, and the wire: a call stands at a gate until a step lets it
// through. So a schedule is a list of steps, and the search goes through the
// schedules by what they cost: how often an actor is preempted, and how many
// faults strike.
package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/schedule"
)

// Config says what to search, and how far. The zero value of a field is its
// default, unless it says otherwise.
type Config struct {
	Strategies  []string
	Actors      int      // 2
	Preemptions int      // 0 is none
	Faults      []string // the kinds, of Faults
	FaultCount  int      // how many of them strike in one schedule; 0 is none
	Properties  []string // all

	Guard  order.Guard // each strategy's own
	OnLost grab.OnLost // grab.Abort
	TTL    time.Duration
	Work   time.Duration // none
	Wait   time.Duration // none: each actor tries once

	Seconds float64 // how long the search may take for each strategy; 0: as long as it takes
	// Command starts a child that does Work; so many Workers of them play side by
	// side. nil: all is played in this process, which a strategy may take down.
	Command []string
	Workers int // 1
	// First: stop at the first failure of any property.
	First bool

	// The reductions can be switched off, to show that they change no verdict.
	NoMerge  bool // equal states are not merged
	NoReduce bool // independent calls are tried in every order
}

// What a zero Config means.
const (
	DefaultActors = 2
	DefaultTTL    = 3 * time.Second
)

// Bounds of a search, beyond which its tables would not reach.
const (
	MaxActors      = 4
	MaxPreemptions = 7
	MaxFaultCount  = 3
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
	case c.Preemptions < 0 || c.Preemptions > MaxPreemptions:
		return c, fmt.Errorf("%w: %d preemptions, there can be 0 to %d", ErrConfig, c.Preemptions, MaxPreemptions)
	case c.FaultCount < 0 || c.FaultCount > MaxFaultCount:
		return c, fmt.Errorf("%w: %d faults in one schedule, there can be 0 to %d", ErrConfig, c.FaultCount, MaxFaultCount)
	}
	return c, errors.Join(known("fault", c.Faults, Faults), known("property", c.Properties, Properties))
}

func known(what string, names, all []string) error {
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("%w: no %s %q; there are %s", ErrConfig, what, name, strings.Join(all, ", "))
		}
	}
	return nil
}

// Level is how much was searched of one price: so many preemptions and faults.
type Level struct {
	Preemptions int
	Faults      int
	Run         int // schedules
	Waiting     int // schedules that were not run
}

// Result is what a search of one strategy has come to.
type Result struct {
	Strategy  string
	Guard     order.Guard
	Verdict   lock.Verdict
	Expected  lock.Verdict // by the registry; "": it claims nothing
	Complete  bool         // everything within the bounds was looked at
	Reason    string       // why it is not, or why the verdict is unknown; "": neither
	Levels    []Level
	Schedules int
	States    int
	Elapsed   time.Duration
	Failures  []Failure // the shortest of each property, the one that matters first

	// Of a replay, whatever it came to.
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
	Stack    string // of the process, where the strategy took it down; else ""
}

// Moment is one step, as it went.
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

// Bubble runs f in a bubble of testing/synctest, and returns when everything in
// it has ended.
type Bubble func(f func())

// Watch is told how far a search has come.
type Watch func(Result)

// Search looks at each of the strategies, in children by cfg.Command or, without
// one, in bubbles. The results so far are returned with
// the context's error once ctx is done.
func Search(ctx context.Context, bubble Bubble, cfg Config, progress Watch) ([]Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, name := range cfg.Strategies {
		s, err := newSearch(cfg, name)
		if err != nil {
			return results, err
		}
		r, err := s.run(ctx, bubble, progress)
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

// newSetting is what the schedules of one strategy have in common.
func newSetting(cfg Config, name string) (setting, error) {
	st, err := lock.Find(name)
	if err != nil {
		return setting{}, err
	}
	if st.Needs&(lock.ZooKeeper|lock.Etcd) != 0 {
		return setting{}, fmt.Errorf("%w: %s needs servers that do not run in virtual time; try it with loadgen run -stack local", ErrConfig, name)
	}
	set := setting{strategy: st, guard: st.GuardedBy(cfg.Guard), onLost: cfg.OnLost, ttl: cfg.TTL, work: cfg.Work, wait: cfg.Wait}
	if set.guard.NeedsFence() && !st.Fences {
		return setting{}, fmt.Errorf("%w: guard %s needs fencing tokens, and %s has none", ErrConfig, set.guard, name)
	}
	for i := range cfg.Actors {
		set.actors = append(set.actors, schedule.Actor{Name: string(rune('A' + i)), Instance: i%instances + 1})
	}
	return set, nil
}

// instances is how many the actors are spread over.
const instances = 2
