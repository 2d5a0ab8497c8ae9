package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	course "grablab/internal/schedule"
	"grablab/internal/stack"

	"github.com/redis/go-redis/v9"
)

// ForceConfig is a schedule, and what it is forced on.
type ForceConfig struct {
	Schedule course.Schedule
	Lines    []int         // on which its steps stand, for messages
	Strategy lock.Strategy // the schedule's own, or another that is put through it
	Exe      string        // as in Config
	Log      io.Writer     // what is said aloud of servers and instances
	Out      io.Writer     // the steps, as they happen
}

// Forced is what a schedule has come to on real servers.
type Forced struct {
	Violated bool
	Why      string // what was seen, and by what: a sentence
	LeftOut  int    // steps that another strategy never came to
}

var (
	// ErrCannotForce says which step cannot be forced, and why. Nothing is
	// claimed of the schedule then.
	ErrCannotForce = errors.New("bench: the schedule cannot be forced")
	// ErrTooSlow says that a lease ran out, or a deadline passed, where the
	// schedule lets no time pass: what happened was another schedule.
	ErrTooSlow = errors.New("bench: the machine was too slow for the schedule")
)

// takes is how often a schedule is begun again on a fresh order when the machine
// was too slow for it.
const takes = 10

// Force drives real instances, on a local stack of their own, through a
// schedule: every call of its drivers on their order waits at a gate, and goes
// when the schedule says so. What then stands in the ledger, in the events and
// on the lock servers decides whether the schedule's property was violated.
func Force(ctx context.Context, cfg ForceConfig) (f Forced, err error) {
	if err := cfg.check(); err != nil {
		return f, err
	}
	c, err := openConductor(ctx, cfg)
	defer func() { err = errors.Join(err, c.close()) }()
	if err != nil {
		return f, err
	}
	return c.force(ctx)
}

// conductor is who lets the calls go: servers and instances that are set up as
// the schedule says.
type conductor struct {
	*lane
	ForceConfig
	servers map[string]*redis.Client
	routes  map[string]stack.Routes // to the servers that are to be out of reach, from each instance
	setup   setup
	clock   func() time.Duration // CLOCK_MONOTONIC, as events have it
}

// grabTimeout is more than any schedule takes.
const grabTimeout = 10 * time.Minute

func openConductor(ctx context.Context, force ForceConfig) (*conductor, error) {
	s := force.Schedule
	cfg := Config{
		Exe: force.Exe, Log: force.Log, Instances: instancesOf(s), Guard: force.guard(), OnLost: grab.OnLost(s.OnLost),
		TTL: s.TTL, Work: s.Work, Wait: s.Wait, Load: Load{Timeout: grabTimeout},
		Stack: stack.Config{Kind: stack.Local, Needs: force.Strategy.Needs},
	}
	if cfg.OnLost == "" {
		cfg.OnLost = grab.Abort
	}
	l, err := openLane(ctx, cfg, 0, newProgress(cfg), nil)
	c := &conductor{lane: l, ForceConfig: force, servers: map[string]*redis.Client{}, routes: map[string]stack.Routes{}, clock: history.Clock()}
	if err != nil {
		return c, err
	}
	if err := c.reach(); err != nil {
		return c, err
	}
	_, err = l.switchTo(ctx, force.Strategy, c.setup)
	return c, err
}

// guard is the schedule's for its own strategy, else the strategy's own.
func (cfg ForceConfig) guard() order.Guard {
	if cfg.Strategy.Name == cfg.Schedule.Strategy {
		return order.Guard(cfg.Schedule.Guard)
	}
	return ""
}

func (cfg ForceConfig) own() bool { return cfg.Strategy.Name == cfg.Schedule.Strategy }

func instancesOf(s course.Schedule) int {
	most := 0
	for _, a := range s.Actors {
		most = max(most, a.Instance)
	}
	return most
}

// reach opens our own way to each lock server, and the ways of the instances:
// those that the schedule is to cut are routes, and there are as many nodes as
// it names.
func (c *conductor) reach() error {
	to := c.stack.Addresses
	to.Redlock = to.Redlock[:min(c.quorumNodes(), len(to.Redlock))]
	c.setup = c.cfg.setup()
	c.setup.traps, c.setup.routes = true, map[int]stack.Addresses{}
	for i := range c.cfg.Instances {
		c.setup.routes[i] = to
	}
	if to.Redis != "" {
		c.servers["redis"] = redis.NewClient(&redis.Options{Addr: to.Redis})
	}
	for i, addr := range to.Redlock {
		c.servers[fmt.Sprintf("redlock-%d", i+1)] = redis.NewClient(&redis.Options{Addr: addr})
	}
	for _, s := range c.Schedule.Steps {
		if s.Kind == course.Down && c.servers[s.Target] != nil && c.routes[s.Target] == nil {
			if err := c.detour(s.Target); err != nil {
				return err
			}
		}
	}
	return nil
}

// quorumNodes is how many nodes a Redlock has in the schedule; with the nodes of
// another strategy, the fewest that make sense.
func (c *conductor) quorumNodes() int {
	n := 0
	for _, name := range c.Schedule.Nodes {
		if name != "redis" {
			n++
		}
	}
	return max(n, 3)
}

func (c *conductor) detour(server string) error {
	for i := range c.cfg.Instances {
		r, err := c.stack.Route(player{n: i}.Name(), server)
		if err != nil {
			return err
		}
		c.routes[server] = append(c.routes[server], r)
		c.setup.routes[i] = c.setup.routes[i].Via(r)
	}
	return nil
}

// close also ends a conductor that was opened in part.
func (c *conductor) close() error {
	var errs []error
	for _, client := range c.servers {
		errs = append(errs, client.Close())
	}
	return errors.Join(append(errs, c.lane.close())...)
}

// force begins again for as long as the machine is too slow.
func (c *conductor) force(ctx context.Context) (f Forced, err error) {
	for n := 1; ; n++ {
		f, err = c.take(ctx)
		if !errors.Is(err, ErrTooSlow) || n == takes {
			return f, err
		}
		c.say("%s; take %d begins, on a fresh order", strings.TrimPrefix(err.Error(), "bench: "), n+1)
	}
}

func (c *conductor) say(format string, args ...any) { fmt.Fprintf(c.Out, format+"\n", args...) }

// check finds what cannot be forced before anything is started.
func (cfg ForceConfig) check() error {
	if !slices.Contains(forcible(), cfg.Schedule.Property) {
		return fmt.Errorf("%w: its property is %q; on real servers these can be judged: %v", ErrCannotForce, cfg.Schedule.Property, forcible())
	}
	if cfg.Strategy.Needs&coordinators != 0 {
		return fmt.Errorf("%w: %s needs servers that no step can name", ErrCannotForce, cfg.Strategy.Name)
	}
	for i, s := range cfg.Schedule.Steps {
		if s.Kind == course.ArrivesLate {
			return cfg.cannot(i, "a client that has given up a call sends it no more")
		}
	}
	for i, a := range cfg.Schedule.Actors {
		twice := func(b course.Actor) bool {
			return b.Instance == a.Instance && (b.Name == a.As || b.As != "" && b.As == a.As)
		}
		if a.As != "" && slices.ContainsFunc(cfg.Schedule.Actors[:i], twice) {
			return fmt.Errorf("%w: %s and another attempt of its driver are on one instance, where nothing tells their calls apart", ErrCannotForce, a.Name)
		}
	}
	return nil
}

// cannot says why step i cannot be forced.
func (cfg ForceConfig) cannot(i int, why string, args ...any) error {
	return fmt.Errorf("%w: line %d, %q: %s", ErrCannotForce, cfg.Lines[i], cfg.Schedule.Steps[i], fmt.Sprintf(why, args...))
}
