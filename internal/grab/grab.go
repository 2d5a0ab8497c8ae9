// Package grab lets a driver grab an order. A grab acquires the order's lock, reads the order,
// simulates the driver's work, records the driver as the winner, and releases the lock. Recording
// the winner is called a claim. Start reading at Service.Grab.
package grab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/grab/trace"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/tap"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
)

// Request is a driver's request to grab one order.
type Request struct {
	Order    int64
	Driver   int64
	Strategy string // used instead of the current strategy; may be empty
	TryOnce  bool   // if the lock is held, fail instead of waiting for it
}

// Grab tries to grab an order and records the steps in the history.
func (s *Service) Grab(ctx context.Context, req Request) Answer {
	a := &attempt{Service: s, Request: req, lock: s.current.Load(), scope: tap.Scope{Order: req.Order, Driver: req.Driver}}
	if req.Strategy != "" && req.Strategy != a.lock.Name {
		l, err := s.lockOf(req.Strategy)
		if err != nil {
			return a.answer(fmt.Errorf("%w: %w", errBadStrategy, err))
		}
		a.lock = l
	}
	ctx, whole := s.cfg.Trace.Begin(ctx, trace.Grab)
	a.record(history.Invoke, history.Grab, nil)
	err := a.lockWithRepair(ctx)
	if errors.Is(err, order.ErrNotFound) {
		a.forget(ctx)
	}
	a.span = whole
	a.record(kindOf(err), history.Grab, err)
	answer := a.answer(err)
	describe(whole, answer)
	whole.End()
	return answer
}

// enter begins a step of a grab, such as acquire. The caller must use the returned context during
// the step, and call the returned function at its end.
func (a *attempt) enter(ctx context.Context, phase tap.Phase) (context.Context, func()) {
	ctx, end := a.scope.Enter(ctx, phase)
	ctx, span := a.cfg.Trace.Begin(ctx, string(phase))
	a.span = span
	return ctx, func() {
		span.End()
		end()
	}
}

func describe(span trace.Span, ans Answer) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attribute.Int64("order", ans.Order), attribute.Int64("driver", ans.Driver), attribute.String("strategy", ans.Strategy),
		attribute.String("token", ans.Token), attribute.Int64("fence", int64(ans.Fence)),
		attribute.String("outcome", string(ans.Outcome)), attribute.String("reason", ans.Reason))
}

// forget deletes the lock server's data for an order that does not exist. Otherwise, requests for
// such orders could fill the server's memory.
func (a *attempt) forget(ctx context.Context) {
	forgetter, ok := a.lock.Locker.(lock.Forgetter)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_ = forgetter.Forget(ctx, a.key())
}

type attempt struct {
	*Service
	Request
	lock  *guardedLock
	scope tap.Scope

	token        string
	fence        uint64
	waited, held time.Duration

	span trace.Span // the span of the current phase
}

// maxRepairs limits how often one request raises the fencing token counter. Once is enough, unless
// Redis loses the counter again.
const maxRepairs = 3

// lockWithRepair takes the lock and tries to win the order. If the database has already seen the
// grab's fencing token or a higher one, lockWithRepair raises the lock's token counter and retries.
func (a *attempt) lockWithRepair(ctx context.Context) error {
	for repairs := 0; ; repairs++ {
		err := a.underLock(ctx)
		var behind *behindError
		if repairs == maxRepairs || !errors.As(err, &behind) {
			return err
		}
		if err := a.raise(ctx, behind.fence); err != nil {
			return err
		}
	}
}

// behindError means that the database has already seen this fencing token or a higher one for the
// order. Either the lease is old, or Redis has lost its fencing token counter.
type behindError struct {
	fence uint64 // the highest fencing token that the order has seen
	cause error
}

func (e *behindError) Error() string { return e.cause.Error() }
func (e *behindError) Unwrap() error { return e.cause }

// judgeStale returns the error for a grab whose fencing token the database has rejected. It returns
// order.ErrTaken if another driver already has the order. Otherwise, it returns a behindError if
// the lock's token counter can be raised, and stale if it cannot.
func (a *attempt) judgeStale(row order.Order, stale error) error {
	if row.Status != order.Open {
		return order.ErrTaken
	}
	if _, ok := a.lock.Locker.(lock.FenceRaiser); !ok {
		return stale
	}
	return &behindError{row.Fence, stale}
}

// raise sets the fencing token counter to at least fence.
func (a *attempt) raise(ctx context.Context, fence uint64) error {
	ctx, end := a.scope.Enter(ctx, tap.Acquire)
	defer end()

	if err := a.lock.Locker.(lock.FenceRaiser).RaiseFence(ctx, a.key(), fence); err != nil {
		return fmt.Errorf("grab: cannot raise the fencing token counter: %w", err)
	}
	return nil
}

// underLock takes the lock, reads the order, works, records the winner and releases the lock.
func (a *attempt) underLock(ctx context.Context) error {
	lease, err := a.acquire(ctx)
	if err != nil {
		return err
	}
	defer a.release(ctx, lease, time.Now())

	holding, done := a.whileHeld(ctx, lease)
	defer done()

	rows := order.Rows(a.cfg.Orders)
	if tx, ok := lease.(lock.TxLease); ok {
		rows = tx.Rows()
	}
	row, err := a.read(holding, rows)
	if err != nil {
		return err
	}
	if row.Status != order.Open {
		return order.ErrTaken
	}
	if err := a.checkLimit(holding, rows, row); err != nil {
		return err
	}
	if err := a.work(holding); err != nil {
		return err
	}
	err = a.claim(holding, rows, lease, row.Stock)
	if unit, ok := lease.(lock.Reservation); ok && err == nil {
		unit.Sold()
	}
	return err
}

// These are the timeouts for releasing the lock and for recording the winner. Both operations need
// their own timeouts, because they continue even if the client disconnects or the request times
// out.
const (
	releaseTimeout = 5 * time.Second
	claimTimeout   = 10 * time.Second
)

var (
	errBadStrategy = errors.New("grab: bad strategy")
	errUnknown     = errors.New("grab: may have happened")
)

// acquire acquires the lock in the grab's first phase, and records the result in the history.
func (a *attempt) acquire(ctx context.Context) (lock.Lease, error) {
	ctx, end := a.enter(ctx, tap.Acquire)
	defer end()

	began := time.Now()
	a.record(history.Invoke, history.Acquire, nil)
	ctx = lock.OnRenewal(lock.WithDriver(ctx, a.Driver), a.renewed())
	lease, err := a.lock.Acquire(a.limitWait(ctx), a.key())
	a.waited += time.Since(began)
	if err != nil {
		a.record(kindOf(err), history.Acquire, err)
		return nil, err
	}
	a.token, a.fence = lease.Token(), lease.Fence()
	granted := a.event(history.OK, history.Acquire)
	if bounded, ok := lease.(lock.Bounded); ok {
		granted.Lease = leaseLeft(bounded.Until())
	}
	a.cfg.History.Record(granted)
	return lease, nil
}

// renewed returns a function that records each renewal in the history. The recorded events have no
// token, because a renewal may happen before acquire knows the token.
func (a *attempt) renewed() func(until time.Time) {
	e, recorder := a.event(history.OK, history.Renew), a.cfg.History
	e.Token, e.Fence = "", 0
	return func(until time.Time) {
		e := e
		e.Lease = leaseLeft(until)
		recorder.Record(e)
	}
}

// leaseLeft returns how long a lease that ends at until will still last. A zero until means that
// the lease never ends.
func leaseLeft(until time.Time) time.Duration {
	if until.IsZero() {
		return history.Endless
	}
	return max(time.Until(until), 1) // 0 would mean unknown
}

// limitWait returns a context that limits the wait for the lock to the request's remaining waiting
// time. With TryOnce, the limit is 0.
func (a *attempt) limitWait(ctx context.Context) context.Context {
	if a.TryOnce {
		return lock.TryOnce(ctx)
	}
	return lock.WaitAtMost(ctx, a.cfg.Lock.Wait-a.waited)
}

// Key returns the key of an order's lock. Each strategy has keys of its own, because strategies
// store different types of values. The braces keep all keys of a lock on one node of a Redis
// Cluster.
func Key(strategy string, order int64) string { return fmt.Sprintf("grab:%s:{%d}", strategy, order) }

func (a *attempt) key() string { return Key(a.lock.Name, a.Order) }

// whileHeld returns a context for the work under the lock. If the lease is lost, the context is
// cancelled, unless OnLost is Ignore. The caller must call the returned function after the work.
func (a *attempt) whileHeld(ctx context.Context, lease lock.Lease) (context.Context, func()) {
	lost := lease.Lost()
	if lost == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-lost:
			a.record(history.Info, history.Lost, nil)
			if a.cfg.OnLost == Abort {
				cancel(lock.ErrLost)
			}
		case <-ended:
		}
	}()
	return ctx, func() {
		close(ended)
		<-watched
		cancel(nil)
	}
}

// read reads the order, and records in the history whether the order is still open.
func (a *attempt) read(ctx context.Context, rows order.Rows) (order.Order, error) {
	ctx, end := a.enter(ctx, tap.Read)
	defer end()

	var fence uint64
	if a.lock.guard == order.Fenced {
		fence = a.fence
	}
	a.record(history.Invoke, history.Read, nil)
	row, err := rows.Read(ctx, a.Order, fence)
	if errors.Is(err, order.ErrStale) {
		err = a.judgeStale(row, err)
	}
	if err = causeOf(ctx, err); err != nil {
		a.record(kindOf(err), history.Read, err)
		return row, err
	}
	answer := a.event(history.OK, history.Read)
	answer.Code = history.Open
	if row.Status != order.Open {
		answer.Code = history.Taken
	}
	a.cfg.History.Record(answer)
	return row, nil
}

// checkLimit returns order.ErrLimit if the driver has already reached the limit of units per driver.
// It does nothing if the order has only one unit. It does nothing either if the guard is not Naive,
// because the write or the strategy then checks the limit.
func (a *attempt) checkLimit(ctx context.Context, rows order.Rows, row order.Order) error {
	if row.Units == 0 || !a.lock.guard.LooksFirst() {
		return nil
	}
	ctx, end := a.enter(ctx, tap.Read)
	defer end()

	held, err := rows.Held(ctx, a.Order, a.Driver)
	if err == nil && held >= max(a.cfg.PerDriver, 1) {
		return order.ErrLimit
	}
	return causeOf(ctx, err)
}

// causeOf returns err, or the reason why ctx has ended if that may have caused err. For example, a
// read fails with context.Canceled if the lease is lost during the read, but the reason is
// lock.ErrLost.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// claim checks the lease once more and then records the winner. Once the write has started, claim
// does not cancel it, because its result would then be unknown. stock is the number of units that
// were left when the grab read the order.
func (a *attempt) claim(ctx context.Context, rows order.Rows, lease lock.Lease, stock int64) error {
	if err := a.checkLost(ctx, lease); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	ctx, end := a.enter(ctx, tap.Claim)
	defer end()

	a.record(history.Invoke, history.Claim, nil)
	err := rows.Claim(ctx, order.Claim{
		Order: a.Order, Driver: a.Driver, Fence: a.fence, Token: a.token,
		Instance: a.cfg.Instance, Strategy: a.lock.Name, Stock: stock, PerDriver: a.cfg.PerDriver,
	}, a.lock.guard)
	switch {
	case err == nil, errors.Is(err, order.ErrTaken), errors.Is(err, order.ErrStale), errors.Is(err, order.ErrNotWritten):
	default:
		err = fmt.Errorf("%w: %w", errUnknown, err)
	}
	a.record(kindOf(err), history.Claim, err)
	return err
}

// checkLost returns an error if ctx has ended or the lease is lost. If OnLost is Ignore, it does
// not check the lease.
func (a *attempt) checkLost(ctx context.Context, lease lock.Lease) error {
	if a.cfg.OnLost == Abort {
		if err := a.check(ctx, lease); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if a.cfg.OnLost == Abort && lock.IsClosed(lease.Lost()) {
		return lock.ErrLost
	}
	return nil
}

// check asks the lock server whether the lease is still valid. It returns nil for locks that do not
// support this.
func (a *attempt) check(ctx context.Context, lease lock.Lease) error {
	checker, ok := lease.(lock.Checker)
	if !ok {
		return nil
	}
	ctx, end := a.enter(ctx, tap.Renew)
	defer end()

	err := checker.Check(ctx)
	if errors.Is(err, lock.ErrLost) {
		a.record(history.Info, history.Lost, nil)
	}
	return err
}

func (a *attempt) release(ctx context.Context, lease lock.Lease, since time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	ctx, end := a.enter(ctx, tap.Release)
	defer end()

	a.held = time.Since(since)
	a.record(history.Invoke, history.Release, nil)
	err := lease.Release(ctx)
	a.record(kindOf(err), history.Release, err)
}

func (a *attempt) work(ctx context.Context) error {
	ctx, span := a.cfg.Trace.Begin(ctx, trace.Work)
	defer span.End()
	if a.cfg.Work > 0 && lock.Sleep(ctx, a.cfg.Work) != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (a *attempt) event(kind history.Kind, op string) history.Event {
	return history.Event{
		Kind: kind, Op: op, Order: a.Order, Driver: a.Driver,
		Strategy: a.lock.Name, Token: a.token, Fence: a.fence,
	}
}

func (a *attempt) record(kind history.Kind, op string, err error) {
	e := a.event(kind, op)
	if err != nil {
		v := errorAnswerTo(err)
		e.Code, e.Note = history.Code(cmp.Or(v.reason, string(v.outcome))), err.Error()
		if v.outcome == Failed || v.outcome == Timeout {
			a.span.SetStatus(codes.Error, e.Note)
		}
	}
	a.cfg.History.Record(e)
}

// kindOf returns the kind of the event that ends an operation: OK, Fail, or Info if the result is
// unknown.
func kindOf(err error) history.Kind {
	switch {
	case err == nil:
		return history.OK
	case errors.Is(err, errUnknown):
		return history.Info
	default:
		return history.Fail
	}
}
