// Package replay forces a schedule of the explorer on real instances, real Redis servers and
// the real database, and judges the result.
//
// Every call of the schedule's actors on their order is held in its instance and released
// when the schedule names it. The ledger, the events and the lock servers then decide
// whether the property of the schedule was violated. Start reading at Run, and continue with
// attempt.go.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"

	"github.com/redis/go-redis/v9"
)

// Config is a schedule and the environment in which it is forced.
type Config struct {
	Schedule schedule.Schedule
	Lines    []int         // the lines of its steps in the file, for messages
	Strategy lock.Strategy // the schedule's strategy, or another one to try
	Exe      string        // this program, which is also the instance
	Log      io.Writer     // messages about servers and instances
	Out      io.Writer     // the steps, as they happen
}

// Result is the outcome of a schedule on real servers.
type Result struct {
	Violated bool
	Grabs    int    // number of ledger rows
	Why      string // a sentence about what was observed, and where
	LeftOut  int    // number of steps that another strategy did not reach
}

var (
	// ErrCannotForce says which step cannot be forced and why. The replay then claims
	// nothing about the schedule.
	ErrCannotForce = errors.New("replay: the schedule cannot be forced")
	// ErrTooSlow means that a lease expired, or a deadline passed, although the schedule let
	// no time pass. So another schedule was executed.
	ErrTooSlow = errors.New("replay: the machine was too slow for the schedule")
)

// maxAttempts bounds how often a schedule starts again on a fresh order because the machine
// was too slow.
const maxAttempts = 10

// Run forces the schedule on its own local stack. It returns errors of the stack,
// ErrCannotForce, and ErrTooSlow.
func Run(ctx context.Context, cfg Config) (res Result, err error) {
	if err := cfg.check(); err != nil {
		return res, err
	}
	r, err := open(ctx, cfg)
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return res, err
	}
	return r.run(ctx)
}

// run repeats the attempt while the machine is too slow.
func (r *replayer) run(ctx context.Context) (res Result, err error) {
	for n := 1; ; n++ {
		res, err = r.attempt(ctx)
		if !errors.Is(err, ErrTooSlow) || n == maxAttempts {
			return res, err
		}
		r.say("%s; attempt %d begins, on a fresh order", strings.TrimPrefix(err.Error(), "replay: "), n+1)
	}
}

// replayer holds the servers and instances that the schedule names.
type replayer struct {
	Config
	stack   *stack.Stack
	store   *order.SQL
	fleet   *fleet.Fleet
	servers map[string]*redis.Client
	routes  map[string]stack.Routes // routes from each instance to the servers that the schedule makes unreachable
	clock   func() time.Duration    // CLOCK_MONOTONIC, as events have it
}

// grabTimeout is longer than any schedule.
const grabTimeout = 10 * time.Minute

func open(ctx context.Context, cfg Config) (_ *replayer, err error) {
	r := &replayer{Config: cfg, servers: map[string]*redis.Client{}, routes: map[string]stack.Routes{}, clock: history.Clock()}
	if r.stack, err = stack.Start(ctx, stack.Config{Kind: stack.Local, Needs: cfg.Strategy.Needs}); err != nil {
		return r, err
	}
	if r.store, err = order.Connect(ctx, r.stack.DSN, order.Options{MaxConns: 4}); err != nil {
		return r, err
	}
	if err := r.store.Migrate(ctx); err != nil {
		return r, err
	}
	r.fleet = fleet.New(fleet.Config{
		Exe: cfg.Exe, Instances: cfg.instances(), Guard: cfg.guard(), OnLost: cmp.Or(grab.OnLost(cfg.Schedule.OnLost), grab.Abort),
		Say: func(format string, args ...any) { fmt.Fprintf(cfg.Log, format+"\n", args...) },
	}, r.stack, fleet.FirstPort)
	setup, err := r.connect()
	if err != nil {
		return r, err
	}
	if err := r.fleet.Equip(ctx, setup); err != nil {
		return r, err
	}
	_, err = r.fleet.Use(ctx, cfg.Strategy.Name)
	return r, err
}

// guard returns the schedule's guard for its own strategy, and otherwise the default of the
// strategy.
func (cfg Config) guard() order.Guard {
	if cfg.usesOwnStrategy() {
		return order.Guard(cfg.Schedule.Guard)
	}
	return ""
}

// usesOwnStrategy reports whether the schedule was found for the strategy.
func (cfg Config) usesOwnStrategy() bool { return cfg.Strategy.Name == cfg.Schedule.Strategy }

// instances returns the number of instances that the schedule uses.
func (cfg Config) instances() int {
	most := 0
	for _, a := range cfg.Schedule.Actors {
		most = max(most, a.Instance)
	}
	return most
}

// connect opens clients of the lock servers, and routes to those that the schedule makes
// unreachable. It returns the setup of the instances. For Redlock, they know as many nodes
// as the schedule names.
func (r *replayer) connect() (fleet.Setup, error) {
	s := r.Schedule
	to := r.stack.Addresses
	to.Redlock = to.Redlock[:min(r.quorumNodes(), len(to.Redlock))]
	setup := fleet.Setup{Work: s.Work, TTL: s.TTL, Wait: s.Wait, Timeout: grabTimeout, Control: true, Routes: map[int]stack.Addresses{}}
	for i := range r.fleet.Instances {
		setup.Routes[i] = to
	}
	if to.Redis != "" {
		r.servers["redis"] = redis.NewClient(&redis.Options{Addr: to.Redis})
	}
	for i, addr := range to.Redlock {
		r.servers[fmt.Sprintf("redlock-%d", i+1)] = redis.NewClient(&redis.Options{Addr: addr})
	}
	for _, step := range s.Steps {
		if step.Kind != schedule.Down || r.servers[step.Target] == nil || r.routes[step.Target] != nil {
			continue
		}
		for i, in := range r.fleet.Instances {
			route, err := r.stack.Route(in.Name(), step.Target)
			if err != nil {
				return setup, err
			}
			r.routes[step.Target] = append(r.routes[step.Target], route)
			setup.Routes[i] = setup.Routes[i].Via(route)
		}
	}
	return setup, nil
}

// quorumNodes returns the number of Redlock nodes in the schedule. For the nodes of another
// strategy it returns the smallest sensible number.
func (cfg Config) quorumNodes() int {
	nodes := slices.DeleteFunc(slices.Clone(cfg.Schedule.Nodes), func(name string) bool { return name == "redis" })
	return max(len(nodes), 3)
}

// close also closes a replayer that was only partly opened.
func (r *replayer) close() error {
	var errs []error
	for _, client := range r.servers {
		errs = append(errs, client.Close())
	}
	if r.fleet != nil {
		errs = append(errs, r.fleet.Stop())
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	if r.stack != nil {
		errs = append(errs, r.stack.Close())
	}
	return errors.Join(errs...)
}

func (r *replayer) say(format string, args ...any) { fmt.Fprintf(r.Out, format+"\n", args...) }

// check finds what cannot be forced before anything is started.
func (cfg Config) check() error {
	if proofs[cfg.Schedule.Property] == nil {
		return fmt.Errorf("%w: its property is %q; on real servers these can be judged: %v",
			ErrCannotForce, cfg.Schedule.Property, catalog.PropertiesBy(catalog.Replay))
	}
	if cfg.Strategy.Needs&(lock.ZooKeeper|lock.Etcd) != 0 {
		return fmt.Errorf("%w: %s needs servers that no step can name", ErrCannotForce, cfg.Strategy.Name)
	}
	for i, s := range cfg.Schedule.Steps {
		switch s.Kind {
		case schedule.ArrivesLate:
			return cfg.cannot(i, "a client that has given up a call does not send it any more")
		case schedule.SentTwice:
			return cfg.cannot(i, "the clients of the instances do not send a call again by themselves")
		case schedule.MessageLost, schedule.MessageTwice, schedule.MessageLate, schedule.MessagesArrive:
			return cfg.cannot(i, "the messages of a real server cannot be held one by one")
		case schedule.Hangs, schedule.FailsOver, schedule.Evicts, schedule.CutOff, schedule.Reaches:
			return cfg.cannot(i, "such a step is forced by a cell of run, under its fault")
		}
	}
	for i, a := range cfg.Schedule.Actors {
		again := func(b schedule.Actor) bool {
			return b.Instance == a.Instance && (b.Name == a.As || b.As != "" && b.As == a.As)
		}
		if a.As != "" && slices.ContainsFunc(cfg.Schedule.Actors[:i], again) {
			return fmt.Errorf("%w: %s and another attempt of its driver are on one instance, where their calls cannot be told apart", ErrCannotForce, a.Name)
		}
	}
	return nil
}

// cannot says why step i cannot be forced.
func (cfg Config) cannot(i int, why string, args ...any) error {
	return fmt.Errorf("%w: line %d, %q: %s", ErrCannotForce, cfg.Lines[i], cfg.Schedule.Steps[i], fmt.Sprintf(why, args...))
}
