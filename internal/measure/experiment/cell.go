package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// cell tests one strategy under load and returns the result. If the service is too slow for the
// load, cell repeats the load at a lower rate.
func (w *worker) cell(ctx context.Context, s lock.Strategy, size Load) Cell {
	c, m := w.load(ctx, s, size)
	for range slowerLoads {
		rate := w.slowerRate(c, m)
		if rate == 0 {
			break
		}
		w.progress.say("%s: the targets are too slow for %.0f requests/s, so the load is repeated at %.0f", s.Name, size.Rate, rate)
		size.Rate = rate
		c, m = w.load(ctx, s, size)
	}
	w.keep(&c, s, &m, nil)
	c.conclude(m)
	return c
}

// load opens new orders, sends the load, waits for the last responses, and checks the outcome.
func (w *worker) load(ctx context.Context, s lock.Strategy, size Load) (c Cell, m measured) {
	c = w.blank(s, catalog.NoFault, size)
	of := &workload{setup: w.cfg.setup(), send: func(ctx context.Context, first int64) (*accounting, error) {
		newPlan := func() *load.Plan {
			return load.NewPlan(w.fleet.URLs(), first, size.Orders, size.Drivers, w.cfg.Seed)
		}
		p := newPlan()
		switch {
		case w.cfg.Merge != nil:
			return w.replay(&c, newPlan, size), nil
		case w.cfg.Shard != nil:
			return w.sendShare(ctx, &c, p, size)
		}
		return w.send(ctx, &c, p, size, func(a *accounting, _ *vegeta.Result) {
			if a.notOpen(w.fleet) != "" {
				p.End()
			}
		})
	}, warmup: func(ctx context.Context) error { return w.warmUp(ctx, size) }}
	m = w.measure(ctx, s, &c, of)
	if of.running && w.fleet.IsService() {
		// Otherwise, the next dry run would count the calls of these requests as its own.
		m.invalidate(w.fleet.Stop(), "the service could not be stopped")
	}
	return c, m
}

func (c *Cell) conclude(m measured) {
	c.Verdict, c.Reason = judge(*c, m)
	if c.Verdict == catalog.Unknown && !strings.Contains(c.Reason, "http ") {
		c.Reason += m.unmatched(c.Fault)
	}
	c.Exclusive = judgeLock(*c, m)
}

// workload describes one test: how to prepare the instances, and which requests to send.
type workload struct {
	setup   fleet.Setup
	warmup  func(ctx context.Context) error // may be nil
	send    func(ctx context.Context, first int64) (*accounting, error)
	hung    int  // number of requests that will never end; known only after the load
	killed  bool // whether the instance that served the unanswered requests was killed
	running bool // whether requests without a response may still be running; known only at the end
}

// blank returns a result with the test's settings but without figures.
func (w *worker) blank(s lock.Strategy, f catalog.Fault, size Load) Cell {
	c := w.cfg.newCell(s, f)
	c.Orders = size.Orders
	if units := w.cfg.units(); units > 1 {
		c.Sale = &Sale{Stock: units}
	}
	if size.Rate > 0 {
		c.OfferedRPS = &size.Rate
	}
	if s.New != nil {
		c.TTLMS, c.LeaseMS = new(millis(w.cfg.TTL)), new(millis(w.cfg.TTL))
		c.WorkMS, c.WaitMS = new(millis(w.cfg.Work)), new(millis(w.cfg.Wait))
	}
	return c
}

// measured contains observations that affect the verdict but do not appear in the result file.
type measured struct {
	*accounting                // nil if the load could not start
	evidence    check.Evidence // everything that the property checks need
	invalid     string         // first reason not to trust the figures; empty if there is none
	vacuous     string         // why this test could not have revealed a broken lock; empty if it could have
	missed      string         // why the fault could not be tested; empty if unknown
	advice      string         // what to do if too few drivers competed; empty if unknown
	note        string         // text to append to the sentence about orders that were won too often
	noExpiry    bool           // whether the user says that the lock never expires
	repeated    string         // why surplus ledger rows may not mean a second winner; empty if they certainly mean one
}

// measure runs one cell. It opens the orders, sends the load, waits until no grab is in flight, and
// audits the result. m.invalid says why if the measurement proves nothing.
func (w *worker) measure(ctx context.Context, s lock.Strategy, c *Cell, of *workload) (m measured) {
	m.noExpiry = w.cfg.Target.NoExpiry
	au := w.auditor()
	first, err := w.begin(ctx, s, c, of, au)
	if err != nil {
		m.invalidate(err, "not measured")
		return m
	}
	before, beforeErr := w.fleet.Counters(ctx)

	back := au.watchTakeBacks(ctx, first, c.Orders)
	defer back.end()
	if m.accounting, err = of.send(ctx, first); m.accounting == nil {
		m.invalidate(err, "not measured")
		return m
	}
	m.invalidate(err, "interrupted")
	if w.cfg.Shard != nil {
		c.leaveToMerge(&m, w.cfg.Shard)
		return m
	}
	if why := m.notOpen(w.fleet); why != "" && !au.hasRows(ctx, first, c.Orders) {
		m.invalid = why
		c.answers(m.accounting)
		c.countAnswers(m.accounting)
		return m
	}

	after, err := w.fleet.Drain(context.WithoutCancel(ctx), of.hung, auditTimeout/2)
	drained := !errors.Is(err, fleet.ErrNoMetrics)
	if drained {
		m.invalidate(err, "grabs may still have been in flight")
	} else {
		drained = w.fleet.Proxied().AwaitQuiet(context.WithoutCancel(ctx), quietFor, auditTimeout/2)
	}
	drained = drained || of.killed
	of.running = !drained && m.unanswered() > 0
	c.answers(m.accounting)
	if w.cfg.Merge == nil { // a merge sends no load, so the load has already ended
		c.count(before, after, errors.Join(beforeErr, err))
	}
	au.audit(ctx, s, c, &m, first, drained, back)
	if doubt := au.doubt(context.WithoutCancel(ctx), c, &m, drained); doubt != "" && ctx.Err() == nil {
		m.invalid = doubt
	}
	if again := m.accounting.probeWins; again > 0 {
		m.note += fmt.Sprintf("; for %d of them, a new driver still won after all others had their responses", again)
	}
	if why := w.fleet.Proxied().Unreadable(); why != "" {
		m.invalidate(errors.New(why), unreadable)
	}
	if how := w.fleet.Proxied().EndedByItself(); how != "" {
		m.invalidate(errors.New(how), "an instance of the service exited unexpectedly, and its output in the result folder may say why")
	}
	c.withhold(&m)
	return m
}

// begin prepares the instances, and opens the orders of a test. It returns the first order's ID.
func (w *worker) begin(ctx context.Context, s lock.Strategy, c *Cell, of *workload, au *auditor) (first int64, err error) {
	if err := w.prepare(ctx, s, c, of.setup); err != nil {
		return 0, err
	}
	if of.warmup != nil {
		if err := of.warmup(ctx); err != nil {
			return 0, fmt.Errorf("the warm-up failed: %w", err)
		}
		if err := w.fleet.ReadEvents(func(history.Event) {}); err != nil { // discard the events, because they belong to no order of the cell
			return 0, err
		}
	}
	if first, err = w.orders.Create(ctx, c.Orders, w.cfg.units()); err != nil {
		return 0, fmt.Errorf("could not open orders: %w", err)
	}
	err = au.lookFirst(ctx, first, c.Orders)
	w.ledger = au.ledger
	return first, err
}

// invalidate stores err as the reason why the figures cannot be trusted. It does nothing if err is
// nil or if there already is a reason.
func (m *measured) invalidate(err error, what string) {
	if err != nil && m.invalid == "" {
		m.invalid = fmt.Sprintf("%s: %v", what, err)
	}
}

// lease returns the lease duration that the instances report. If they report none, it returns ttl.
func (c *Cell) lease(ttl time.Duration) time.Duration {
	if c.LeaseMS == nil {
		return ttl
	}
	return time.Duration(*c.LeaseMS * float64(time.Millisecond))
}

// prepare starts the instances with these settings and selects the strategy. It records the lease
// duration that the instances report, because some lock servers round the TTL.
func (w *worker) prepare(ctx context.Context, s lock.Strategy, c *Cell, u fleet.Setup) error {
	if err := w.fleet.Equip(ctx, u); err != nil {
		return err
	}
	lease, err := w.fleet.Use(ctx, s.Name)
	if lease > 0 {
		c.LeaseMS = &lease
	}
	return err
}

// send sends the requests and counts every response. If answered is not nil, send calls it with
// each response.
func (w *worker) send(ctx context.Context, c *Cell, requests load.Workload, size Load, answered func(*accounting, *vegeta.Result)) (*accounting, error) {
	record, closeFile, err := w.journal.answers(c, w.suffix())
	if err != nil {
		return nil, err
	}
	size.Shape, size.Asking = w.fleet.Shape, w.fleet.Asking
	a := newAccounting(size.Drivers, w.fleet.IDs(), size.Shape)
	a.units, a.partial = w.cfg.units(), w.cfg.Shard != nil
	var accountErr error
	err = load.Attack(ctx, requests, size, func(res *vegeta.Result, due time.Time) {
		accountErr = cmp.Or(accountErr, errors.Join(a.add(res, due), record(res))) // one error is enough: a full disk causes one for each response
		if answered != nil {
			answered(a, res)
		}
		w.progress.step("%d/%d requests, %d grabbed, %d errors", a.requests, requests.Requests(),
			a.outcomes[grab.Grabbed], a.outcomes[grab.Failed]+a.outcomes[grab.Timeout])
	})
	a.finish()
	c.lasted(a)
	return a, errors.Join(err, accountErr, closeFile())
}

// warmUp sends the load to other orders for the warm-up time, and ignores the responses.
func (w *worker) warmUp(ctx context.Context, size Load) error {
	if w.cfg.Warmup == 0 {
		return nil
	}
	first, err := w.orders.Create(ctx, size.Orders, w.cfg.units())
	if err != nil {
		return err
	}
	size.Shape, size.Asking = w.fleet.Shape, w.fleet.Asking
	sent := 0
	for end := time.Now().Add(w.cfg.Warmup); time.Now().Before(end); {
		p := load.NewPlan(w.fleet.URLs(), first, size.Orders, size.Drivers, w.cfg.Seed)
		stop := time.AfterFunc(time.Until(end), p.End)
		err := load.Attack(ctx, p, size, func(*vegeta.Result, time.Time) { sent++ })
		stop.Stop()
		if err != nil {
			return err
		}
	}
	w.progress.say("warm-up: %d requests to orders %s to %s", sent, size.Shape.OrderText(first), size.Shape.OrderText(first+int64(size.Orders)-1))
	return nil
}

// answers fills in the figures that can be computed from the service's responses.
func (c *Cell) answers(a *accounting) {
	c.Requests, c.Outcomes, c.Errors, c.ServedBy = a.requests, a.outcomes, a.errors, a.servedBy
	c.ContendedOrders = &a.contended
	if c.Sale != nil && c.Fault == catalog.NoFault { // under a fault, the program chooses when drivers arrive, so sale figures would mean nothing
		c.Sale.sold(a, c.Orders)
	}
	c.Latency, c.LatencySent, c.OverTime = a.scheduled.Latency(), a.sent.Latency(), a.series.OverTime()
	if c.Latency != nil {
		c.LoadHeld = new(load.Held(c.Latency, c.LatencySent))
		sent := a.requests - a.errors[load.Refused] - a.errors[load.Interrupted]
		c.CompletedRPS = new(float64(sent) / *c.DurationS)
	}
}

// count stores how much the instances' counters grew during the load. The figures stay nil if an
// instance has no counters or has restarted.
func (c *Cell) count(before, after fleet.Counters, err error) {
	if err != nil || before.Epoch != after.Epoch || c.Requests == 0 {
		return
	}
	if commands := after.RedisCommands - before.RedisCommands; !math.IsNaN(commands) {
		c.RedisCommands, c.RedisCommandsPerRequest = new(int(commands)), new(commands/float64(c.Requests))
	}
	if statements := after.DBStatements - before.DBStatements; !math.IsNaN(statements) {
		c.DBStatementsPerRequest = new(statements / float64(c.Requests))
	}
}
