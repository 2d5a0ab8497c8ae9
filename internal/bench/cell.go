package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// auditTimeout bounds what is done for a cell after its load, also when the
// run has been interrupted.
const auditTimeout = 30 * time.Second

// cell runs one strategy under load: fresh orders, switch, fire, let the
// stragglers end, audit, judge.
func (r *runner) cell(ctx context.Context, s lock.Strategy, load Load) Cell {
	c := r.blank(s, load)
	t, doubt := r.measure(ctx, s, load, &c)
	c.Verdict, c.Reason = judge(c, s, t, doubt)
	return c
}

func (r *runner) blank(s lock.Strategy, load Load) Cell {
	guard := s.Guard
	if r.cfg.Guard != "" && !s.FixedGuard {
		guard = r.cfg.Guard
	}
	c := Cell{
		Strategy: s.Name, Fault: lock.NoFault, Expected: r.cfg.expected(s, lock.NoFault),
		CountedFrom: fromAnswers, Orders: load.Orders,
		Outcomes: noOutcomes(), Errors: map[string]int{}, ServedBy: map[string]int{},
	}
	if load.Rate > 0 {
		c.OfferedRPS = &load.Rate
	}
	if s.New != nil {
		c.Guard, c.OnLost = guard, r.cfg.OnLost
		c.TTLMS, c.LeaseMS = ptr(millis(r.cfg.TTL)), ptr(millis(r.cfg.TTL))
		c.WorkMS, c.WaitMS = ptr(millis(r.cfg.Work)), ptr(millis(r.cfg.Wait))
	}
	return c
}

// measure fills in every figure of the cell that can be counted. It returns
// the accounts, and why the cell cannot be trusted, "" if it can.
func (r *runner) measure(ctx context.Context, s lock.Strategy, load Load, c *Cell) (t *tally, doubt string) {
	if err := r.prepare(ctx, s, c); err != nil {
		return nil, fmt.Sprintf("not measured: %v", err)
	}
	first, err := r.books.Create(ctx, load.Orders)
	if err != nil {
		return nil, fmt.Sprintf("not measured: could not open orders: %v", err)
	}
	before, beforeErr := r.fleet.counters(ctx)

	t, err = r.fire(ctx, c, first, load)
	if t == nil {
		return nil, fmt.Sprintf("not measured: %v", err)
	}
	doubts := &doubts{}
	doubts.note(err, "interrupted")

	// The audit goes on when the run is interrupted: its results are kept.
	audit, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	after, err := r.settle(audit)
	if !errors.Is(err, errNoMetrics) {
		doubts.note(err, "grabs may still have been in flight")
	}
	c.answers(t)
	c.count(before, after, errors.Join(beforeErr, err))
	doubts.note(r.readLedger(audit, c, t, first), "the ledger could not be read")
	doubts.note(r.readEvents(c, s), "events were lost")
	doubts.note(r.probeAll(ctx, c, first), "stuck orders could not be counted")
	return t, doubts.first
}

// probeAll counts the stuck orders. What the instances record of the probes is
// kept, and counts in no figure.
func (r *runner) probeAll(ctx context.Context, c *Cell, first int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	stuck, err := r.stuckOrders(ctx, first, c.Orders, r.lease(c))
	if err == nil {
		c.StuckOrders = &stuck
	}
	if r.fleet.ours {
		err = errors.Join(err, r.takeOver(func(history.Event) {}))
	}
	return err
}

// doubts keeps the first reason not to trust a cell.
type doubts struct{ first string }

func (d *doubts) note(err error, what string) {
	if err != nil && d.first == "" {
		d.first = fmt.Sprintf("%s: %v", what, err)
	}
}

// lease is for how long a lease lives in the cell, as far as we know.
func (r *runner) lease(c *Cell) time.Duration {
	if c.LeaseMS == nil {
		return r.cfg.TTL
	}
	return time.Duration(*c.LeaseMS * float64(time.Millisecond))
}

// prepare makes the fleet whole and switches it to the strategy, whose servers
// may have bounds of their own for a lease.
func (r *runner) prepare(ctx context.Context, s lock.Strategy, c *Cell) error {
	if err := r.fleet.revive(ctx, r.cfg, r.stack, r.progress.say); err != nil {
		return err
	}
	if r.fleet.foreign {
		return nil
	}
	lease, err := r.fleet.use(ctx, s.Name)
	if lease > 0 {
		c.LeaseMS = &lease
	}
	return err
}

// fire sends the load and books every answer.
func (r *runner) fire(ctx context.Context, c *Cell, first int64, load Load) (*tally, error) {
	raw, err := r.record.answers(c)
	if err != nil {
		return nil, err
	}
	p := newPlan(r.fleet.urls(), first, load.Orders, load.Drivers, r.cfg.Seed)
	t := newTally(load.Drivers, r.fleet.names())
	began := time.Now()
	var bookErr error
	err = attack(ctx, p, load, func(res *vegeta.Result, due time.Time) {
		bookErr = errors.Join(bookErr, t.add(res, due), raw.Encode(res))
		r.progress.step("%d/%d requests, %d grabbed, %d errors", t.requests, p.requests(),
			t.outcomes[grab.Grabbed], t.outcomes[grab.Failed]+t.outcomes[grab.Timeout])
	})
	t.finish()
	if t.requests > 0 {
		c.DurationS = ptr(t.lastEnd.Sub(began).Seconds())
	}
	return t, errors.Join(err, bookErr, raw.Close())
}

// settle waits until no instance has a grab in flight any more: a client that
// gave up may have left one behind. It returns the counters as they then are.
func (r *runner) settle(ctx context.Context) (counters, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout/2)
	defer cancel()
	for {
		now, err := r.fleet.counters(ctx)
		if errors.Is(err, errNoMetrics) || err == nil && now.inFlight == 0 {
			return now, err
		}
		if !rest(ctx, 20*time.Millisecond) {
			return now, errors.Join(err, fmt.Errorf("bench: %v when last seen", now.inFlight))
		}
	}
}

// answers fills in what the clients saw.
func (c *Cell) answers(t *tally) {
	c.Requests, c.Outcomes, c.Errors, c.ServedBy = t.requests, t.outcomes, t.errors, t.servedBy
	c.ContendedOrders = &t.contended
	c.Latency, c.LatencySent = t.scheduled.figures(), t.sent.figures()
	if c.Latency != nil {
		ok := held(c.Latency, c.LatencySent)
		c.LoadHeld = &ok
		sent := t.requests - t.errors[kindRefused] - t.errors[kindInterrupted]
		c.CompletedRPS = ptr(float64(sent) / *c.DurationS)
	}
}

// count fills in what the instances have counted between two looks. What
// cannot be told, because nobody counts or somebody has forgotten, stays nil.
func (c *Cell) count(before, after counters, err error) {
	if err != nil || before.epoch != after.epoch || c.Requests == 0 {
		return
	}
	commands := int(after.redisCommands - before.redisCommands)
	perRequest := float64(commands) / float64(c.Requests)
	statements := (after.dbStatements - before.dbStatements) / float64(c.Requests)
	c.RedisCommands, c.RedisCommandsPerRequest, c.DBStatementsPerRequest = &commands, &perRequest, &statements
}

// readLedger lets the database decide what happened; where there is none to
// ask, the answers do.
func (r *runner) readLedger(ctx context.Context, c *Cell, t *tally, first int64) error {
	if r.fleet.foreign {
		c.DoubleGrabs, c.OrdersDoubleGrabbed, c.OrdersGrabbed = &t.doubles, &t.doubled, &t.won
		// Whoever got no answer may have won.
		if n := t.outcomes[grab.Timeout] + t.errors[kindReset] + t.errors[kindOther]; n > 0 {
			return fmt.Errorf("bench: there is none, and %d answers were lost", n)
		}
		return nil
	}
	c.CountedFrom = fromLedger
	ledger, err := r.books.Ledger(ctx, first, c.Orders)
	if err != nil {
		return err
	}
	grabs := check.CountGrabs(ledger)
	c.Grabs, c.OrdersGrabbed = &grabs.Rows, &grabs.Orders
	c.DoubleGrabs, c.OrdersDoubleGrabbed = &grabs.DoubleGrabs, &grabs.OrdersDouble
	phantom, unacknowledged := check.CompareAnswers(t.told, ledger)
	c.PhantomGrabs, c.UnacknowledgedGrabs = ptr(len(phantom)), ptr(len(unacknowledged))
	return nil
}

// readEvents takes over what our instances have recorded, and counts the
// overlaps and the near misses in it.
func (r *runner) readEvents(c *Cell, s lock.Strategy) error {
	if !r.fleet.ours {
		return nil
	}
	scan := check.Scan{Since: maps.Clone(r.record.seen), UntilClaim: s.UntilClaim}
	if err := r.takeOver(scan.Add); err != nil {
		return err
	}
	rec := scan.Record()
	if rec.Lost > 0 {
		return fmt.Errorf("bench: %d are missing", rec.Lost)
	}
	c.NearMisses = &rec.NearMisses
	if s.Excludes != lock.Nobody {
		c.Overlaps = ptr(len(check.Overlaps(rec.Holds, s.Excludes)))
	}
	return nil
}

// takeOver reads on in the event file of every instance.
func (r *runner) takeOver(each func(history.Event)) error {
	var lost error
	for _, in := range r.fleet.instances {
		lost = errors.Join(lost, r.record.takeOver(in.events, each))
	}
	return lost
}

func ptr[T any](v T) *T { return &v }
