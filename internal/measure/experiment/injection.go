package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

const (
	injectionDrivers = 5 // drivers per order if the order has one unit
	injectionWork    = 5 * time.Millisecond
	strikeTries      = 3                // how often to inject a fault into a service at the same point until it hits a driver
	repeatedStrikes  = 6                // how many injections that hit no driver one test may repeat
	outlasting       = 12 * time.Second // a lease long enough for a service to reconnect
	restartTTL       = 3 * time.Second  // the shortest lease while an instance restarts
)

// injection tests one strategy under one fault. It injects the fault at each step of a request,
// each time with a new order. Breakpoints stop the calls, so that the outcome does not depend on
// timing.
type injection struct {
	w    *worker
	cell *Cell

	// These fields describe the test. They do not change after the first strike, except in a variation of the fault.
	traits   traits
	strategy lock.Strategy
	fault    fault.Fault
	trail    trail
	points   []fault.Point
	workload workload
	took     time.Duration // how long a grab takes, if the fault is injected at moments
	first    int64         // id of the first order
	began    time.Time

	// These fields can change before each strike.
	prepared      fault.Prepared
	struck, other *fleet.Instance // the instance of the affected driver, which the fault usually hits, and the other instance; they may swap roles
	ttl           time.Duration   // the TTL that the instances use now; longer while one of them restarts
	spare         int64           // an order that appears in no result; a request for it shows whether a service works
	next          int             // how many orders are already in use
	leaderMoves   bool            // whether each fault probably makes the other instance the leader
	repeats       int             // how many injections into a service may still be repeated
	aimed         []*contest      // orders whose locks must be on the Redis server that the fault hits

	// These fields send the requests, and record what happens.
	bursts      *load.Bursts
	responses   *responses
	contests    []*contest // the orders at which the fault was injected, or should have been
	undisturbed []*contest
	stuck       map[int64]bool // orders that were stuck before the next injection, and whether the last probe was answered "busy"
	shown       []check.Pair   // the winners that the ledger has named at any time
}

// inject tests one strategy under a fault and returns the result with its verdict.
func (w *worker) inject(ctx context.Context, s lock.Strategy, f fault.Fault) Cell {
	under := w.withSettingsFor(f)
	c := under.blank(s, f.Name, under.cfg.Load)
	c.Struck = new(0)
	under.prepareAndStrike(ctx, s, f, &c)
	w.dirty = w.dirty || under.dirty
	return c
}

// withSettingsFor returns a copy of the worker with the settings that the fault needs, but keeps
// the settings that the user chose.
func (w *worker) withSettingsFor(f fault.Fault) *worker {
	under, asked := *w, w.cfg.Asked
	cfg := &under.cfg
	cfg.TTL = cfg.ttlUnder(f)
	if !asked.Wait { // the contenders must wait until any earlier lease has expired
		cfg.Wait = 2 * cfg.TTL
	}
	if !asked.Work {
		cfg.Work = injectionWork
	}
	timeout := max(w.cfg.Timeout, 4*cfg.TTL+cfg.Wait)
	if f.Course == fault.Never && !asked.Timeout { // a hanging request ends only when the client times out
		timeout = max(cfg.Wait, 2*cfg.TTL) + time.Second
	}
	cfg.Load = Load{Drivers: cfg.strikeDrivers(), Timeout: timeout}
	return &under
}

// ttlUnder returns the lock TTL while fault f is tested. If the run cannot set the TTL, or the user has
// chosen one, it returns the configured TTL.
func (cfg Config) ttlUnder(f fault.Fault) time.Duration {
	ttl := cmp.Or(f.TTL, time.Second)
	switch {
	case cfg.Asked.TTL || cfg.TestsService() && !cfg.setsTTL():
		return cfg.TTL
	case cfg.setsTTL() && f.Severs: // the service needs time to reconnect
		return max(ttl, outlasting)
	default:
		return ttl
	}
}

func (in *injection) lease() time.Duration { return in.cell.lease(in.ttl) }

// strikeDrivers returns how many drivers compete for each order under a fault. Each additional unit
// adds two drivers, so that there are enough to oversell the order even if some of them fail.
func (cfg Config) strikeDrivers() int { return injectionDrivers + 2*(cfg.units()-1) }

// prepareAndStrike prepares the fault, injects it and judges the outcome. It cleans up even after an
// error.
func (w *worker) prepareAndStrike(ctx context.Context, s lock.Strategy, f fault.Fault, c *Cell) {
	in := &injection{
		traits: w.cfg.subject().traits(), w: w, strategy: s, fault: f, cell: c, ttl: w.cfg.TTL,
		struck: w.fleet.Instances[0], other: w.fleet.Instances[1],
		bursts: load.NewBursts(), responses: newResponses(), stuck: map[int64]bool{},
	}
	m, err := w.cfg.subject().strike(ctx, in)
	switch {
	case errors.Is(err, errUntouched):
		c.skip(catalog.NA, untouched(f.Name, s.Name)+w.cfg.unusedRedis(f)+w.cfg.rowRelease(f))
		return
	case errors.Is(err, errUnreachable):
		c.skip(catalog.NA, err.Error())
		return
	case err != nil:
		m.invalid = fmt.Sprintf("not measured: %v", err)
	}
	c.Struck = new(len(catalog.Filter(in.contests, func(c *contest) bool { return c.struck })))
	m.vacuous = "" // each step now has its own verdict
	j := judgement{in: in, evidence: m.evidence}
	m.invalid = cmp.Or(m.invalid, j.overwritten(), j.outlived())
	j.judge(&m)
	c.conclude(m)
}

// readTrail finds out which remote calls a request makes. If they are not known for this strategy
// yet, it calls record to observe them.
func (in *injection) readTrail(ctx context.Context, record func(context.Context, lock.Strategy) (trail, error)) (err error) {
	in.trail, err = in.w.trails.get(in.strategy.Name, func() (trail, error) { return record(ctx, in.strategy) })
	in.responses.callsAfterAnswer = in.trail.callsAfterAnswer
	if t := in.trail.service; err == nil && t != nil {
		in.w.fleet.Proxied().Recognize(slices.Concat(in.trail.calls[fault.Alone], t.renewal), t.idle)
		in.w.fleet.Proxied().IgnoreBackground(withoutWinners(t.background, in.trail.ledger))
	}
	return err
}

func (in *injection) choosePoints() error {
	all := in.trail.points()
	in.points = catalog.Filter(all, in.fault.Reaches)
	if in.w.cfg.At != nil {
		in.points = slices.DeleteFunc(in.points, func(p fault.Point) bool { return p.String() != in.w.cfg.At.String() })
	}
	if len(in.points) == 0 {
		return fmt.Errorf("the fault %s cannot be injected at any step of a grab; the steps are %s", in.fault.Name, names(all))
	}
	return nil
}

func names(points []fault.Point) string { return catalog.Join(points, ", ", fault.Point.String) }

// strikeAtPoints injects the fault at every step of a request and measures the outcome. It returns
// an error only if it cannot prepare the fault.
func (in *injection) strikeAtPoints(ctx context.Context) (m measured, err error) {
	if err := in.prepareFault(ctx); err != nil {
		return m, err
	}
	again := in.repeats // how many injections may be repeated after those at all points
	for _, p := range in.points {
		if in.bothOrders(p) {
			again++
		}
		extra := in.variations().at(p)
		again += len(extra)
		if slices.Contains(extra, otherRestarts) {
			again++ // the instances may swap roles
			in.w.cfg.Load.Timeout = max(in.w.cfg.Load.Timeout, 2*in.ttlOfRestart())
		}
	}
	in.workload.setup = in.w.cfg.setup()
	in.workload.setup.Control = true
	in.workload.setup.Routes = in.routes()
	orders := len(in.prepared.Strikes)*(len(in.groups())+len(in.points)) + 2*again + 1 // each injection also needs an order without the fault
	m = in.measure(ctx, orders, in.strikeAll)
	if err := in.clear(ctx); err != nil {
		in.w.dirty = true
		m.invalid = cmp.Or(m.invalid, fmt.Sprintf("the fault could not be ended: %v", err))
	}
	return m, nil
}

// measure opens orders, and sends the drivers' requests for them while strike injects the fault.
func (in *injection) measure(ctx context.Context, orders int, strike func(context.Context) error) measured {
	in.cell.Orders = orders
	in.w.cfg.Load.Orders, in.w.cfg.Load.MaxWorkers = orders, orders*in.w.cfg.Load.Drivers
	in.workload.send = in.sending(strike)
	return in.w.measure(ctx, in.strategy, in.cell, &in.workload)
}

func (in *injection) prepareFault(ctx context.Context) (err error) {
	in.prepared, err = in.fault.Prepare(ctx, fault.Target{
		Stack: in.w.stack, Strategy: in.strategy, Affected: in.struck, Contender: in.other, Keys: in.keys, Wire: !in.traits.tellsDrivers, Ledger: in.trail.lockedTable(in.w.cfg.Target.Database.Query),
	})
	return err
}

// aim ensures that the fault hits the server that stores the locks. On a Redis Cluster, it moves
// the locks to the master that will fail.
func (in *injection) aim(ctx context.Context, contests []*contest) error {
	in.aimed = contests
	return aim(ctx, in.w.stack, in.keys())
}

// aim moves the locks with the given keys to one master of a Redis Cluster.
func aim(ctx context.Context, st *stack.Stack, keys []string) error {
	if st == nil || st.Topology == nil {
		return nil
	}
	return st.Topology.Aim(ctx, keys)
}

func (in *injection) keys() []string {
	return catalog.Map(in.aimed, func(c *contest) string { return grab.Key(in.strategy.Name, c.order) })
}

// prepareAgain prepares the fault once more, because some faults can be injected only once per
// preparation.
func (in *injection) prepareAgain(ctx context.Context) error {
	if done := in.prepared.Close; done != nil {
		in.prepared.Close = nil
		if err := done(ctx); err != nil {
			return err
		}
	}
	if err := in.prepareFault(ctx); err != nil {
		return err
	}
	in.workload.setup.Routes = in.routes()
	in.w.fleet.Proxied().RouteTo(in.workload.setup.Routes)
	return nil
}

// routes maps each instance to the addresses at which it reaches the servers. These may be the
// addresses of proxies.
func (in *injection) routes() map[int]stack.Addresses {
	index := func(of *fleet.Instance) int { return slices.Index(in.w.fleet.Instances, of) }
	return map[int]stack.Addresses{index(in.struck): in.w.stack.Via(in.prepared.Affected...), index(in.other): in.w.stack.Via(in.prepared.Contender...)}
}

// groups divides a request's steps into groups that are tested at the same time. If the program
// cannot tell drivers apart, it tests one step at a time.
func (in *injection) groups() [][]fault.Point {
	if in.traits.tellsDrivers {
		return [][]fault.Point{in.points}
	}
	return slices.Collect(slices.Chunk(in.points, 1))
}

// clear stops the instance under fault if requests hang there, and then closes the fault's proxies.
func (in *injection) clear(ctx context.Context) error {
	var errs []error
	if in.workload.hung > 0 {
		errs = append(errs, in.struck.Process().Stop(0))
	}
	if in.prepared.Close != nil {
		if in.traits.reconnects {
			in.w.fleet.Proxied().RouteTo(nil)
		} else {
			errs = append(errs, in.w.fleet.Stop())
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
		defer cancel()
		errs = append(errs, in.prepared.Close(ctx))
	}
	return errors.Join(errs...)
}

// sending returns a function that sends the drivers' requests and counts every response. It calls
// strike while the requests run.
func (in *injection) sending(strike func(context.Context) error) func(context.Context, int64) (*accounting, error) {
	return func(ctx context.Context, first int64) (*accounting, error) {
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		in.first, in.began = first, time.Now()
		size := in.w.cfg.Load
		size.Drivers = math.MaxInt // do not limit the requests per order, because some drivers send several
		var striking sync.WaitGroup
		striking.Go(func() {
			defer in.bursts.End()
			if err := strike(ctx); err != nil {
				// Stop the instances. Otherwise, the paused calls would continue in random order.
				if in.w.fleet.Started() {
					err = errors.Join(err, in.struck.Process().Stop(0), in.other.Process().Stop(0))
				}
				stop(err)
			}
		})
		a, err := in.w.send(ctx, in.cell, in.bursts, size, in.noteAnswer)
		stop(err) // if no request could be sent, no driver will reach its step
		striking.Wait()
		if a != nil {
			a.stuck = in.stuck
		}
		return a, err
	}
}

func (in *injection) noteAnswer(_ *accounting, r *vegeta.Result) {
	req, err := load.ParseRequest(r.URL)
	if err != nil {
		return // the accounting reports this error
	}
	in.responses.add(req, response{classify(r, in.w.fleet.Shape).Outcome, r.Timestamp, r.End()})
}

// strikeAll injects the fault at every step of a request. Before each injection and after the last
// one, it uses a new order to check that drivers can win without the fault.
func (in *injection) strikeAll(ctx context.Context) error {
	if err := in.strikeVariations(ctx); err != nil {
		return err
	}
	for n := range in.prepared.Strikes {
		for _, points := range in.groups() {
			if err := in.strikeUntilHit(ctx, points, n, usual); err != nil {
				return err
			}
			if n == 0 && in.bothOrders(points[0]) {
				if err := in.strikeUntilHit(ctx, points, n, affectedFirst); err != nil {
					return err
				}
			}
		}
	}
	err := in.withoutFault(ctx)
	in.cell.Orders = in.next // drop the unused orders
	return err
}

// bothOrders reports whether to inject the fault twice at this step. This is necessary because some
// checks, such as fencing tokens, refuse only the last writer. In the first injection, the delayed
// driver writes last. In the second, it writes first.
func (in *injection) bothOrders(p fault.Point) bool {
	return in.traits.unknownLock && in.trail.claim != nil && p.InWork() &&
		in.outlasts() && in.fault.Course == fault.AfterHeal
}

// strikeUntilHit injects the fault at the given steps. If the fault misses, it tries a few more
// times. If the other instance has made the grab, the fault strikes there, because the service may have a leader. The fault
// probably changes the leader again then, unless this turns out to be wrong.
func (in *injection) strikeUntilHit(ctx context.Context, points []fault.Point, n int, v variation) error {
	follows := v != otherRestarts // which has chosen the instance itself
	for try, elsewhere := 1, in.leaderMoves && follows; ; try++ {
		if elsewhere {
			in.swapInstances()
			if err := in.prepareAgain(ctx); err != nil {
				return err
			}
		}
		contests, err := in.strikeAt(ctx, points, n, v)
		missed := slices.ContainsFunc(contests, func(c *contest) bool { return !c.struck })
		hangs := in.fault.Course == fault.Never // a hanging request cannot be repeated, because it occupies the instance
		if err != nil || !missed || hangs || try == strikeTries || in.repeats <= 0 {
			return err
		}
		in.repeats--
		if elsewhere = follows && every(contests, func(c *contest) bool { return c.struck || c.forwarded }); elsewhere {
			in.leaderMoves = !in.leaderMoves
		}
		for _, c := range contests {
			c.repeated = true
		}
	}
}

func (in *injection) swapInstances() { in.struck, in.other = in.other, in.struck }

// strikeAt injects the fault once, at several steps in parallel. Each step is tested with a new
// order and its own drivers.
func (in *injection) strikeAt(ctx context.Context, points []fault.Point, n int, v variation) ([]*contest, error) {
	if len(in.contests) > 0 && in.fault.Once && in.traits.reconnects {
		if err := in.prepareAgain(ctx); err != nil {
			return nil, err
		}
	}
	if err := in.withoutFault(ctx); err != nil {
		return nil, err
	}
	s := newStrike(in)
	for _, p := range points {
		c := in.following(p)
		c.variation = v
		s.contests = append(s.contests, c)
	}
	in.contests = append(in.contests, s.contests...)
	if err := in.aim(ctx, s.contests); err != nil {
		return nil, err
	}
	if err := s.run(ctx, in.prepared.Strikes[n]); err != nil {
		return nil, fmt.Errorf("experiment: the injection failed: %w", err)
	}
	return s.contests, s.probeUnsold(ctx)
}

// claimed reads the ledger, and returns a function that reports whether a driver has written.
// Without a ledger, the function reports whether the driver was told that it won. claimed also
// updates what each contest knows about writes.
func (in *injection) claimed(ctx context.Context, contests []*contest) func(load.Request) bool {
	asked := time.Now()
	var rows []order.Grab
	var err error
	if in.w.ledger && in.traits.liveLedger {
		within, cancel := context.WithTimeout(ctx, readTimeout)
		rows, err = in.w.orders.Ledger(within, contests[0].order, len(contests))
		cancel()
	}
	in.shown = catalog.Distinct(append(in.shown, check.Pairs(rows)...))
	has := func(r load.Request) bool {
		if a, _ := in.responses.of(r); !in.w.fleet.Ours && in.trail.callsAfterAnswer == 0 && a.outcome == grab.Grabbed { // the user's service may have no ledger
			return true
		}
		return slices.ContainsFunc(rows, func(g order.Grab) bool { return g.Order == r.Order && g.Driver == r.Driver })
	}
	for _, c := range contests {
		if err == nil && !has(c.affected) {
			c.openUntil = asked
		}
		others := catalog.Filter(rows, func(g order.Grab) bool {
			return g.Order == c.order && (g.Driver != c.affected.Driver || in.fault.Course == fault.Released)
		})
		c.othersPassed = c.othersPassed || len(others) >= in.w.cfg.units()
	}
	return has
}

// cancel discards an injection that hit the affected driver, because it could not have revealed a failure. why
// is the reason.
func (c *contest) cancel(why string) {
	if c.struck {
		c.struck, c.missed = false, why
	}
}

// probeUnsold finds stuck orders of a user's service after a fault that may delete data in Redis. The next injection may
// delete the key that makes such an order stuck, so the probes after the load would come too late.
func (s *strike) probeUnsold(ctx context.Context) error {
	in := s.in
	deletes := in.fault.Hits != 0 && in.fault.EndsBeforeLease() || s.contests[0].variation == headStart
	if !in.traits.reconnects || !deletes {
		return nil
	}
	claimed := s.in.claimed(ctx, s.contests)
	won := func(r load.Request) bool { a, _ := in.responses.of(r); return claimed(r) || a.outcome == grab.Grabbed }
	for _, c := range s.contests {
		if slices.ContainsFunc(c.all(), won) {
			continue
		}
		var last grab.Outcome
		stuck, err := in.w.fleet.StuckOrders(ctx, c.order, 1, in.lease(), func(int64) bool { return in.w.ledger }, func(_, _ int64, o grab.Outcome) { last = o })
		if err == nil && last == grab.Taken && in.w.ledger {
			var rows []order.Grab
			if rows, err = in.w.orders.Ledger(ctx, c.order, 1); len(rows) == 0 {
				stuck = []int64{c.order}
			}
		}
		if err == nil && len(stuck) > 0 { // after an error, the probes after the load will find the cause
			in.stuck[c.order] = last == grab.Busy
		}
	}
	return context.Cause(ctx)
}

func (in *injection) following(p fault.Point) *contest {
	in.next++
	return in.contest(in.next-1, p)
}

func (in *injection) withoutFault(ctx context.Context) error {
	c := in.following(fault.Point{})
	in.undisturbed = append(in.undisturbed, c)
	if len(in.cell.Strikes) == 0 { // these requests load the Lua scripts into the master that the fault will hit
		if err := in.aim(ctx, []*contest{c}); err != nil {
			return err
		}
	}
	in.struck.Watch(0, 0)
	in.other.Watch(0, 0)
	return newStrike(in, c).withoutFault(ctx)
}
