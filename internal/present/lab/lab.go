// Package lab serves a live web page about locks. It runs servers and two instances of an order
// service. Drivers (the clients) compete to grab orders, at a given rate or by hand. The user
// injects faults into the first instance from the page, and sees the effects.
//
// Start reading at Serve. A Lab holds the running parts. state.go and orders.go record what
// happens, and sentences.go describes it in words. tick.go defines what the open pages get.
// server.go handles requests.
package lab

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/present/report"
	"grablab/internal/present/workshop"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"

	"github.com/redis/go-redis/v9"
)

// Config contains the settings of Serve.
type Config struct {
	Exe   string // path to this program, which also runs as the instances
	Stack stack.Config
	Addr  string // loopback address on which the page is served

	// Explore searches for schedules in which a strategy fails.
	Explore func(context.Context, Search) (report.Found, error)
	Own     []string // names of the user's own strategies, which can only be explored
	// Workshop opens a workshop session in a language.
	Workshop func(lang string) (*workshop.Session, error)

	Ready func(url string)              // called once the page is served
	Say   func(format string, a ...any) // shows a message to the user
}

// Search describes a search for schedules in which a strategy fails.
type Search struct {
	Strategy string          `json:"strategy"`
	Actors   int             `json:"actors"`
	Faults   []catalog.Fault `json:"faults"`
}

// Settings contains the run settings that the user has selected on the page.
type Settings struct {
	Strategy string        `json:"strategy"`
	Guard    order.Guard   `json:"guard"` // if empty, the strategy's default guard
	Fault    catalog.Fault `json:"fault"`
	Rate     float64       `json:"rate"`            // requests per second
	Units    int           `json:"units,omitempty"` // units per order; 0 means 1
	Slow     bool          `json:"slow"`            // whether everything runs five times slower
}

// Faults lists the faults that the page offers: the ones that do not need a network proxy.
var Faults = catalog.FaultsBy(catalog.Lab)

func (s Settings) units() int { return max(s.Units, 1) }

// drivers returns how many drivers compete for each order.
func (s Settings) drivers() int { return s.units() - 1 + driversEach }

// These constants determine the size of a run and the duration of its parts.
const (
	ordersAtOnce  = 20
	driversEach   = 5 // for single-unit orders
	maxUnits      = 20
	maxRate       = 1000
	slowFactor    = 5 // with a larger factor, a pause would exceed the write timeout
	leaseFor      = time.Second
	workFor       = 20 * time.Millisecond
	waitFor       = 2 * time.Second
	grabTimeout   = 2 * time.Minute
	handDriver    = 9001 // number of the first driver that the user controls; the others follow
	maxConcurrent = 2000
)

var firstSettings = Settings{Strategy: "setnx", Fault: catalog.Pause, Rate: 100, Units: 1}

// errBad means that a request is invalid.
var errBad = errors.New("bad request")

// ErrAddr means that the page cannot be served at Config.Addr.
var ErrAddr = errors.New("lab: the page cannot have this address")

// Lab is the web server with the instances and databases that it runs.
type Lab struct {
	cfg   Config
	ctx   context.Context // done when the lab ends
	url   string
	token string // secret that every state-changing request must contain
	state *state

	// open sets these fields before it starts the instances.
	stack   *stack.Stack
	store   order.Store
	closers []func() error
	redis   []server

	op     sync.Mutex   // held while the lab starts or stops something; guards the fields below
	look   sync.Mutex   // also held while fleet is replaced or its events are read
	fleet  *fleet.Fleet // nil until open starts the instances
	guard  order.Guard  // the instances' guard, which the database checks
	stop   func()       // ends the run; nil if there is none
	hand   int64        // the order for the drivers that the user controls; 0 if there is none
	inHand sync.WaitGroup
}

type server struct {
	name   string
	client *redis.Client
}

// Serve runs the web page until ctx is done, then stops all processes that it started and removes
// their files. The page can be opened before the servers are ready.
func Serve(ctx context.Context, cfg Config) (err error) {
	listener, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return fmt.Errorf("%w: %w: use another one, such as 127.0.0.1:0", ErrAddr, err)
	}
	if addr, ok := listener.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() {
		return errors.Join(fmt.Errorf("%w: %s is not on loopback: use 127.0.0.1, because the page can stop processes of this machine", ErrAddr, listener.Addr()), listener.Close())
	}
	ctx, end := context.WithCancel(ctx)
	l := &Lab{cfg: cfg, ctx: ctx, url: "http://" + listener.Addr().String(), token: rand.Text(), state: newState()}
	web := &http.Server{Handler: l.handler(), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	defer func() {
		end() // end the streams to the pages, so that the server can shut down
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, web.Shutdown(ending))
		if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
	}()
	cfg.Ready(l.url)
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	l.watch(ctx)
	return nil
}

// open starts the Redis servers, the database and the instances.
func (l *Lab) open(ctx context.Context) error {
	l.state.say(Starting, "starting the "+l.cfg.Stack.Kind+" stack")
	l.cfg.Stack.Needs = serversOf(l.cfg.Stack.Kind)
	var err error
	if l.stack, err = stack.Start(ctx, l.cfg.Stack); err != nil {
		return err
	}
	store, err := order.Connect(ctx, l.stack.DSN, order.Options{MaxConns: 4})
	if err != nil {
		return err
	}
	l.store, l.closers = store, append(l.closers, store.Close)
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	for i, addr := range append([]string{l.stack.Redis}, l.stack.Redlock...) {
		name := "redis"
		if i > 0 {
			name = fmt.Sprintf("redlock-%d", i)
		}
		c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second})
		l.redis, l.closers = append(l.redis, server{name: name, client: c}), append(l.closers, c.Close)
	}
	l.op.Lock() // only now, so that Start and ByHand can refuse earlier requests at once
	defer l.op.Unlock()
	l.state.say(Starting, "starting two instances")
	if err := l.equip(ctx, firstSettings); err != nil {
		return err
	}
	l.state.settle(firstSettings, "")
	return nil
}

// close stops the instances before the servers, so that the instances can still release their
// locks.
func (l *Lab) close() error {
	l.op.Lock()
	defer l.op.Unlock()
	l.endRun()
	l.state.endWork()
	var errs []error
	if l.fleet != nil {
		errs = append(errs, l.releaseHand(context.Background()), l.fleet.Close())
	}
	l.inHand.Wait()
	for _, c := range slices.Backward(l.closers) {
		errs = append(errs, c())
	}
	if l.stack != nil {
		errs = append(errs, l.stack.Close())
	}
	return errors.Join(errs...)
}

// setupOf returns the setup of the instances. Its durations are longer if the user has selected a
// slow run.
func setupOf(s Settings) fleet.Setup {
	factor := time.Duration(1)
	if s.Slow {
		factor = slowFactor
	}
	return fleet.Setup{Work: workFor * factor, TTL: leaseFor * factor, Wait: waitFor * factor, Timeout: grabTimeout, Control: true}
}

// equip prepares the instances for these settings. It restarts them if a setting cannot change
// while they run.
func (l *Lab) equip(ctx context.Context, s Settings) error {
	l.look.Lock()
	defer l.look.Unlock()
	l.state.clear()
	if l.fleet != nil && l.guard != s.Guard {
		if err := l.fleet.Close(); err != nil {
			return err
		}
		l.fleet = nil
	}
	if l.fleet == nil {
		l.guard = s.Guard
		l.fleet = fleet.New(fleet.Config{Exe: l.cfg.Exe, Instances: 2, Guard: s.Guard, OnLost: grab.Abort, Lab: l.url, Say: l.cfg.Say}, l.stack, fleet.FirstPort)
	}
	if err := l.fleet.Equip(ctx, setupOf(s)); err != nil {
		return err
	}
	if _, err := l.fleet.Use(ctx, s.Strategy); err != nil {
		return err
	}
	l.state.setInstances(l.fleet)
	return nil
}

// serversOf returns the servers that a stack of this kind provides in the lab.
func serversOf(kind string) lock.Backend {
	if kind == stack.Local {
		return lock.Redis | lock.RedisQuorum | lock.SQL | lock.SQLLocks
	}
	return lock.Redis | lock.RedisQuorum | lock.SQL
}

// strategies lists the strategies for the page. If a stack of this kind lacks servers that a strategy
// needs, the field Refused gives the reason.
func strategies(kind string) []choice {
	return catalog.Map(lock.Strategies, func(s lock.Strategy) choice {
		c := choice{Name: s.Name, About: s.Title, Guard: s.Guard, Fences: s.Fences}
		switch {
		case s.Needs&^serversOf(kind) == 0:
		case s.Needs&^serversOf(stack.Local) == 0:
			c.Refused = "needs -stack local"
		default:
			c.Refused = "needs servers that this lab does not start"
		}
		return c
	})
}

// check returns an error that wraps errBad if a stack of this kind cannot run with the settings.
func (s Settings) check(kind string) error {
	strategy, _ := lock.Find(s.Strategy)
	chosen := catalog.First(strategies(kind), func(c choice) bool { return c.Name == s.Strategy })
	switch {
	case chosen.Name == "":
		return fmt.Errorf("%w: there is no strategy %.40q", errBad, s.Strategy)
	case chosen.Refused != "":
		return fmt.Errorf("%w: %s: %s", errBad, s.Strategy, chosen.Refused)
	case s.Guard != "" && !slices.Contains(order.Guards, s.Guard):
		return fmt.Errorf("%w: there is no guard %.40q", errBad, s.Guard)
	case s.Guard.NeedsFence() && !strategy.Fences:
		return fmt.Errorf("%w: the guard %s needs fencing tokens, but %s has none: choose another guard", errBad, s.Guard, s.Strategy)
	case !slices.Contains(Faults, s.Fault):
		return fmt.Errorf("%w: the lab cannot inject the fault %.40q: choose another one, or use loadgen run", errBad, s.Fault)
	case s.Rate < 1 || s.Rate > maxRate:
		return fmt.Errorf("%w: the rate is %v grabs a second: it must be from 1 to %d", errBad, s.Rate, maxRate)
	case s.Units < 0 || s.Units > maxUnits:
		return fmt.Errorf("%w: an order has %d units: it must have 1 to %d", errBad, s.Units, maxUnits)
	}
	if why := strategy.GuardedBy(s.Guard).RefusesUnits(s.units()); why != "" {
		return fmt.Errorf("%w: %s", errBad, why)
	}
	if f, err := fault.Find(s.Fault); err == nil && !f.Touches(strategy) {
		return fmt.Errorf("%w: the fault %s does not affect %s: choose another fault", errBad, s.Fault, s.Strategy)
	}
	return nil
}

// Start ends the current run, if there is one, and starts a new run with these settings.
func (l *Lab) Start(ctx context.Context, s Settings) error {
	if err := s.check(l.cfg.Stack.Kind); err != nil {
		return err
	}
	l.op.Lock()
	defer l.op.Unlock()
	if l.fleet == nil {
		return fmt.Errorf("%w: the servers are still starting: try again in a few seconds", errBad)
	}
	l.endRun()
	release, err := l.state.occupy("a live run (view Live)")
	if err != nil {
		return err
	}
	l.state.say(Starting, "switching to "+s.Strategy)
	if err := errors.Join(l.releaseHand(ctx), l.equip(ctx, s)); err != nil {
		l.state.settle(s, err.Error())
		release()
		return err
	}
	l.state.begin(s)
	stop := l.run(s)
	l.stop = func() { stop(); release() }
	return nil
}

// Stop ends the current run and waits for requests in flight.
func (l *Lab) Stop() {
	l.op.Lock()
	defer l.op.Unlock()
	l.endRun()
}

func (l *Lab) endRun() {
	if l.stop != nil {
		l.stop()
		l.stop = nil
		l.state.end()
	}
}

// guardOf returns the guard for a run, which is the condition for a database write. This is the user's
// choice or, if the user has not chosen or the strategy needs a special guard, the strategy's own
// guard.
func guardOf(s Settings) order.Guard {
	st, _ := lock.Find(s.Strategy)
	return cmp.Or(st.GuardedBy(s.Guard), s.Guard)
}
