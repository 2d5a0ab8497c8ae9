// Package replay runs a schedule on real instances and servers. A schedule is a list of steps,
// found by package explore, that may violate a lock's property. The replay checks whether real
// servers show the violation too.
//
// An instance stops before every remote call until the schedule names that call. Start reading at
// Run, and continue with attempt.go.
package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	"grablab/internal/testbed/wait"

	"github.com/redis/go-redis/v9"
)

// Config describes what to replay: a schedule, the strategy to run, and where to write the output.
type Config struct {
	Schedule schedule.Schedule
	Lines    []int         // each step's line in the schedule file, for messages
	Strategy lock.Strategy // the strategy of the schedule, or another strategy to try with this schedule
	Exe      string        // path of this program, which instances run too
	Log      io.Writer     // receives messages about servers and instances
	Out      io.Writer     // receives the steps as they happen
}

// Result is the outcome of a replay.
type Result struct {
	Violated bool
	Grabs    int    // number of rows in the ledger
	Why      string // the reason for the verdict, as one sentence
	LeftOut  int    // number of skipped steps; another strategy than the schedule's may not reach every step
}

var (
	// ErrCannotForce means that a step is impossible on real servers, so the replay has no result.
	ErrCannotForce = errors.New("replay: real servers cannot be made to follow this schedule")
	// ErrTooSlow means that a lease or a deadline ended too early, so the replay did not follow the
	// schedule.
	ErrTooSlow = errors.New("replay: this machine was too slow to follow the schedule")
)

// maxAttempts is how many times Run tries a schedule on a machine that is too slow.
const maxAttempts = 10

// Run starts servers and replays the schedule on them. The error wraps ErrCannotForce if a step is
// impossible on real servers, and ErrTooSlow if the machine was too slow.
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

// run replays the schedule, and tries again if the machine was too slow.
func (r *replayer) run(ctx context.Context) (res Result, err error) {
	for n := 1; ; n++ {
		res, err = r.attempt(ctx)
		if !errors.Is(err, ErrTooSlow) || n == maxAttempts {
			return res, err
		}
		r.say("%s; attempt %d begins, on a fresh order", strings.TrimPrefix(err.Error(), "replay: "), n+1)
	}
}

type replayer struct {
	Config
	stack   *stack.Stack
	store   *order.SQL
	fleet   *fleet.Fleet
	servers map[string]*redis.Client
	clock   func() time.Duration // CLOCK_MONOTONIC, the clock that events use too
	closers []func() error       // stop what was started, the latest first
}

// grabTimeout is longer than any schedule.
const grabTimeout = 10 * time.Minute

// open starts the servers and the service's instances. The caller must run the closers even after
// an error.
func open(ctx context.Context, cfg Config) (_ *replayer, err error) {
	r := &replayer{Config: cfg, servers: map[string]*redis.Client{}, clock: history.Clock}
	if r.stack, err = stack.Start(ctx, stack.Config{Kind: stack.Local, Needs: cfg.Strategy.Needs}); err != nil {
		return r, err
	}
	r.closers = append(r.closers, r.stack.Close)
	if r.store, err = order.Connect(ctx, r.stack.DSN, order.Options{MaxConns: 4}); err != nil {
		return r, err
	}
	r.closers = append(r.closers, r.store.Close)
	if err := r.store.Migrate(ctx); err != nil {
		return r, err
	}
	r.fleet = fleet.New(fleet.Config{
		Exe: cfg.Exe, Instances: cfg.instances(), Guard: cfg.guard(), OnLost: cmp.Or(grab.OnLost(cfg.Schedule.OnLost), grab.Abort),
		Say: func(format string, args ...any) { fmt.Fprintf(cfg.Log, format+"\n", args...) },
	}, r.stack, fleet.FirstPort)
	r.closers = append(r.closers, r.fleet.Stop)
	if err := r.fleet.Equip(ctx, r.connect()); err != nil {
		return r, err
	}
	_, err = r.fleet.Use(ctx, cfg.Strategy.Name)
	return r, err
}

// guard returns the schedule's guard. If the replay runs another strategy, guard returns "" for
// that strategy's default.
func (cfg Config) guard() order.Guard {
	if cfg.usesOwnStrategy() {
		return order.Guard(cfg.Schedule.Guard)
	}
	return ""
}

func (cfg Config) usesOwnStrategy() bool { return cfg.Strategy.Name == cfg.Schedule.Strategy }

func (cfg Config) instances() int {
	byInstance := func(a, b schedule.Actor) int { return cmp.Compare(a.Instance, b.Instance) }
	return slices.MaxFunc(cfg.Schedule.Actors, byInstance).Instance
}

// connect opens a client for each lock server, and returns the settings of the instances.
func (r *replayer) connect() fleet.Setup {
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
	return setup
}

// quorumNodes returns how many Redlock servers to start: at least 3, even if the schedule names
// fewer.
func (cfg Config) quorumNodes() int {
	nodes := catalog.Filter(cfg.Schedule.Nodes, func(name string) bool { return name != "redis" })
	return max(len(nodes), 3)
}

// close stops everything that open has started. Calling it after a failed open is allowed.
func (r *replayer) close() (err error) {
	for _, client := range r.servers {
		err = errors.Join(err, client.Close())
	}
	for _, stop := range slices.Backward(r.closers) {
		err = errors.Join(err, stop())
	}
	return err
}

func (r *replayer) say(format string, args ...any) { fmt.Fprintf(r.Out, format+"\n", args...) }

// check returns an error if the schedule cannot be replayed. It runs before any server starts.
func (cfg Config) check() error {
	if proofs[cfg.Schedule.Property] == nil {
		return fmt.Errorf("%w: the schedule is about the property %q, but on real servers only these properties can be checked: %v",
			ErrCannotForce, cfg.Schedule.Property, catalog.PropertiesBy(catalog.Replay))
	}
	if cfg.Strategy.Needs&(lock.ZooKeeper|lock.Etcd) != 0 {
		return fmt.Errorf("%w: a schedule cannot control the servers of %s: use explore -replay, which simulates them", ErrCannotForce, cfg.Strategy.Name)
	}
	for i, s := range cfg.Schedule.Steps {
		switch s.Kind {
		case schedule.ArrivesLate:
			return cfg.cannot(i, "a client that has given up a call does not send it any more")
		case schedule.SentTwice:
			return cfg.cannot(i, "the clients of the instances do not send a call again by themselves")
		case schedule.MessageLost, schedule.MessageTwice, schedule.MessageLate, schedule.MessagesArrive:
			return cfg.cannot(i, "the messages of a real server cannot be held one by one")
		}
		if kinds[s.Kind].do == nil {
			return cfg.cannot(i, "on real servers, this fault needs loadgen run")
		}
	}
	for i, a := range cfg.Schedule.Actors {
		again := func(b schedule.Actor) bool {
			return b.Instance == a.Instance && (b.Name == a.As || b.As != "" && b.As == a.As)
		}
		if a.As != "" && slices.ContainsFunc(cfg.Schedule.Actors[:i], again) {
			return fmt.Errorf("%w: %s and another actor for the same driver use one instance, which cannot tell their calls apart: put them on different instances", ErrCannotForce, a.Name)
		}
	}
	return nil
}

func (cfg Config) cannot(i int, why string, args ...any) error {
	return fmt.Errorf("%w: line %d, %q: %s", ErrCannotForce, cfg.Lines[i], cfg.Schedule.Steps[i], fmt.Sprintf(why, args...))
}

// actor is a driver of the schedule. It sends its request to a real instance.
type actor struct {
	schedule.Actor
	in            *fleet.Instance
	driver        int64
	begun         bool
	dead, stopped bool
	asked         time.Duration // when its last call to get or renew a lease was released (CLOCK_MONOTONIC)
	hangUp        context.CancelFunc
	ended         chan struct{} // closed when the request has ended, with or without an answer
	answer        string        // valid once ended is closed
}

func (p *actor) hasEnded() bool { return p.dead || wait.IsOver(p.ended) }

// actors lists the actors of an attempt, in the order of the schedule.
type actors []*actor

// assign returns the schedule's actors, with their instances and driver IDs. Actors for the same
// driver share an ID.
func (r *replayer) assign() (all actors) {
	for i, a := range r.Schedule.Actors {
		p := &actor{Actor: a, in: r.fleet.Instances[a.Instance-1], driver: int64(i) + 1, ended: make(chan struct{})}
		if same := all.named(a.As); same != nil {
			p.driver = same.driver
		}
		all = append(all, p)
	}
	return all
}

// named returns the actor with this name, or nil if there is none.
func (as actors) named(name string) *actor {
	return catalog.First(as, func(p *actor) bool { return p.Actor.Name == name })
}

// on returns the actors at instance n.
func (as actors) on(n int) actors {
	return catalog.Filter(as, func(p *actor) bool { return p.Instance == n })
}

// who returns the actor for this driver at this instance, or nil if there is none.
func (as actors) who(driver int64, instance string) *actor {
	return catalog.First(as, func(p *actor) bool { return p.driver == driver && p.in.ID == instance })
}

// winners returns the names of the actors with a ledger row, in row order.
func (as actors) winners(rows []order.Grab) string {
	return catalog.Join(rows, " and ", func(g order.Grab) string {
		if p := as.who(g.Driver, g.Instance); p != nil {
			return p.Actor.Name
		}
		return fmt.Sprintf("driver %d", g.Driver)
	})
}

// ask sends the request and returns a text that describes the answer.
func ask(req *http.Request) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "no answer: " + fleet.OneLine(err.Error())
	}
	defer resp.Body.Close()
	var answer grab.Answer
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "no whole answer: " + fleet.OneLine(err.Error())
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, answer.Outcome)
}
