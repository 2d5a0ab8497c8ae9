package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// cell runs one strategy under load: fresh orders, switch, fire, let the
// stragglers end, audit, judge.
func (l *lane) cell(ctx context.Context, s lock.Strategy, load Load) Cell {
	c := l.blank(s, load)
	t, doubt := l.measure(ctx, s, &c, &trial{setup: l.cfg.setup(), fire: func(ctx context.Context, first int64) (*tally, error) {
		p := newPlan(l.fleet.urls(), first, load.Orders, load.Drivers, l.cfg.Seed)
		return l.fire(ctx, &c, p, load, nil)
	}})
	c.Verdict, c.Reason = judge(c, s, t, doubt)
	return c
}

// trial is what the fresh orders of a cell are put to.
type trial struct {
	setup setup
	fire  func(ctx context.Context, first int64) (*tally, error)
	hung  int // grabs that never end, once it is over
}

func (l *lane) blank(s lock.Strategy, load Load) Cell {
	c := Cell{
		Strategy: s.Name, Fault: lock.NoFault, Expected: l.cfg.expected(s, lock.NoFault),
		CountedFrom: fromAnswers, Orders: load.Orders,
		Outcomes: noOutcomes(), Errors: map[string]int{}, ServedBy: map[string]int{},
	}
	if load.Rate > 0 {
		c.OfferedRPS = &load.Rate
	}
	if s.New != nil {
		c.Guard, c.OnLost = s.GuardedBy(l.cfg.Guard), l.cfg.OnLost
		c.TTLMS, c.LeaseMS = ptr(millis(l.cfg.TTL)), ptr(millis(l.cfg.TTL))
		c.WorkMS, c.WaitMS = ptr(millis(l.cfg.Work)), ptr(millis(l.cfg.Wait))
	}
	return c
}

// measure fills in every figure of the cell that can be counted. It returns
// the accounts, and why the cell cannot be trusted, "" if it can.
func (l *lane) measure(ctx context.Context, s lock.Strategy, c *Cell, of *trial) (t *tally, doubt string) {
	if err := l.prepare(ctx, s, c, of.setup); err != nil {
		return nil, fmt.Sprintf("not measured: %v", err)
	}
	first, err := l.books.Create(ctx, c.Orders)
	if err != nil {
		return nil, fmt.Sprintf("not measured: could not open orders: %v", err)
	}
	before, beforeErr := l.fleet.counters(ctx)

	t, err = of.fire(ctx, first)
	if t == nil {
		return nil, fmt.Sprintf("not measured: %v", err)
	}
	doubts := &doubts{}
	doubts.note(err, "interrupted")

	after, err := l.settle(context.WithoutCancel(ctx), of.hung)
	if !errors.Is(err, errNoMetrics) {
		doubts.note(err, "grabs may still have been in flight")
	}
	c.answers(t)
	c.count(before, after, errors.Join(beforeErr, err))
	l.audit(ctx, s, c, t, first, doubts)
	return t, doubts.first
}

// doubts keeps the first reason not to trust a cell.
type doubts struct{ first string }

func (d *doubts) note(err error, what string) {
	if err != nil && d.first == "" {
		d.first = fmt.Sprintf("%s: %v", what, err)
	}
}

// lease is for how long a lease lives in the cell, as far as we know.
func (l *lane) lease(c *Cell) time.Duration {
	if c.LeaseMS == nil {
		return l.cfg.TTL
	}
	return time.Duration(*c.LeaseMS * float64(time.Millisecond))
}

// prepare switches the fleet to the strategy, whose servers may have bounds of
// their own for a lease.
func (l *lane) prepare(ctx context.Context, s lock.Strategy, c *Cell, u setup) error {
	lease, err := l.switchTo(ctx, s, u)
	if lease > 0 {
		c.LeaseMS = &lease
	}
	return err
}

// fire sends a salvo and books every answer. heard is told of each, one at a
// time; nil: nobody is.
func (l *lane) fire(ctx context.Context, c *Cell, p salvo, load Load, heard func(*vegeta.Result)) (*tally, error) {
	raw, err := l.record.answers(c)
	if err != nil {
		return nil, err
	}
	t := newTally(load.Drivers, l.fleet.names())
	began := time.Now()
	var bookErr error
	err = attack(ctx, p, load, func(res *vegeta.Result, due time.Time) {
		bookErr = errors.Join(bookErr, t.add(res, due), raw.Encode(res))
		if heard != nil {
			heard(res)
		}
		l.progress.step("%d/%d requests, %d grabbed, %d errors", t.requests, p.requests(),
			t.outcomes[grab.Grabbed], t.outcomes[grab.Failed]+t.outcomes[grab.Timeout])
	})
	t.finish()
	if t.requests > 0 {
		c.DurationS = ptr(t.lastEnd.Sub(began).Seconds())
	}
	return t, errors.Join(err, bookErr, raw.Close())
}

// settle waits until no instance has a grab in flight any more but those that
// hang: a client that gave up may have left one behind. It returns the counters
// as they then are.
func (l *lane) settle(ctx context.Context, hung int) (counters, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout/2)
	defer cancel()
	for {
		now, err := l.fleet.counters(ctx)
		if errors.Is(err, errNoMetrics) || err == nil && now.inFlight <= float64(hung) {
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

func ptr[T any](v T) *T { return &v }
