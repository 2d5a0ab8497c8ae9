package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/wait"
)

// trail lists the remote calls that a request makes without a fault. There is one list for each role of
// a driver. For example, a driver that waits for the lock makes other calls than one that gets it at
// once.
type trail struct {
	calls map[fault.Role][]control.Call
	// queued is how many calls a driver makes before it waits for a notification that the lock is
	// free. It is 0 if drivers poll or do not wait.
	queued int
	// renews means that a background task renews the lease.
	renews  bool
	ledger  string         // table of the user's service that a request writes to; empty if unknown
	service *serviceTrail  // only for the user's service; nil for our own instances
	work    control.Point  // where in a request the work begins
	claim   *control.Point // the point before the first write; nil if unknown
	release *control.Point // the point before the first call that releases the lock; nil if unknown
	// callsAfterAnswer is how long a request may make calls after its response. It is 0 if the
	// request writes the winner before its response.
	callsAfterAnswer time.Duration
}

func ourTrail(calls map[fault.Role][]control.Call) trail {
	return trail{calls: calls, work: fault.AfterRead, claim: &beforeClaim, release: &beforeRelease}
}

// trails caches the recorded calls of each strategy. It is safe for concurrent use.
type trails struct {
	recordings sync.Map // *recording by strategy name
}

type recording struct {
	sync.Mutex // locked while the calls are being recorded
	trail
	done bool
}

// get returns the calls of a strategy. On first use, it calls record to observe them.
func (t *trails) get(strategy string, record func() (trail, error)) (_ trail, err error) {
	found, _ := t.recordings.LoadOrStore(strategy, new(recording))
	r := found.(*recording)
	r.Lock()
	defer r.Unlock()
	if !r.done {
		r.trail, err = record()
		r.done = err == nil
	}
	return r.trail, err
}

// These settings are for dry runs. A dry run sends a few requests without a fault, to record their
// remote calls.
const (
	dryTTL    = 3 * time.Second
	dryRuns   = 6 // maximum number of requests to record until two in a row make the same calls
	dryOrders = 2 + 3*dryRuns
	dryStep   = 10 * time.Second // how long to wait for each expected event
	// If a driver makes no call for quietFor, it is assumed to wait for a notification. Drivers
	// that poll pause for at most half of this time.
	quietFor = 300 * time.Millisecond
	askFor   = 4 * quietFor // a driver that is still making calls after this time is polling
)

type dryRun struct {
	struck, other *fleet.Instance
	lease         time.Duration
	next          int64
	swapped       bool // whether the last driver that had the lock used the instance struck
}

// recorder sends requests without a fault, and lists the remote calls that they make.
type recorder struct {
	cfg    Config
	stack  *stack.Stack
	fleet  *fleet.Fleet
	orders orders
}

func (w *worker) recorder() recorder { return recorder{w.cfg, w.stack, w.fleet, w.orders} }

// record finds out which remote calls a strategy makes in three situations: a driver has no
// competition, waits for the lock, or hands it over.
func (r recorder) record(ctx context.Context, s lock.Strategy) (t trail, err error) {
	u := r.cfg.setup()
	u.Control, u.TTL, u.Wait, u.Work = true, dryTTL, 2*dryTTL, injectionWork
	if err := r.fleet.Equip(ctx, u); err != nil {
		return t, err
	}
	leaseMS, err := r.fleet.Use(ctx, s.Name)
	if err != nil {
		return t, err
	}
	d := &dryRun{struck: r.fleet.Instances[0], other: r.fleet.Instances[1], lease: time.Duration(leaseMS * float64(time.Millisecond))}
	if d.next, err = r.orders.Create(ctx, dryOrders, r.cfg.units()); err != nil {
		return t, err
	}
	keys := make([]string, dryOrders)
	for i := range keys {
		keys[i] = grab.Key(s.Name, d.next+int64(i))
	}
	// Use only one master of a Redis Cluster, because on another master the dry run would also
	// record how the client loads the Lua scripts.
	if err := errors.Join(aim(ctx, r.stack, keys), d.warmUp(ctx)); err != nil {
		return t, err
	}
	if t, err = d.repeat(ctx); err != nil {
		return t, fmt.Errorf("experiment: the dry run of %s failed: %w", s.Name, err)
	}
	err = errors.Join(removeAll(ctx, d.struck), removeAll(ctx, d.other))
	return t, errors.Join(err, r.fleet.ReadEvents(func(history.Event) {})) // discard the events, because no figure may include a dry run
}

// repeat repeats the dry run until two recordings in a row are the same. The first one often
// differs, because connections and subscriptions are still new.
func (d *dryRun) repeat(ctx context.Context) (trail, error) {
	var last trail
	for i := range dryRuns {
		t := ourTrail(map[fault.Role][]control.Call{})
		for _, step := range []func(context.Context, *trail) error{d.alone, d.waiting} {
			if err := step(ctx, &t); err != nil {
				return t, err
			}
		}
		t.renewOnce()
		if i > 0 && t.equals(last) {
			return t, nil
		}
		last = t
	}
	return last, fmt.Errorf("a grab's calls are unknown, because no two of %d test grabs in a row made the same calls", dryRuns)
}

// renewOnce drops all background renewals but the first, because their number depends on timing.
func (t trail) renewOnce() {
	for role, calls := range t.calls {
		t.calls[role] = slices.DeleteFunc(calls, func(c control.Call) bool { return t.renews && c.Phase == tap.Renew && c.N > 1 })
	}
}

// equals reports whether both lists contain the same calls. It ignores their order, because
// parallel calls to several servers have no fixed order.
func (t trail) equals(o trail) bool {
	return maps.EqualFunc(t.calls, o.calls, sameCalls) &&
		t.queued == o.queued && t.renews == o.renews
}

// sameCalls reports whether both lists contain the same calls, in any order.
func sameCalls(a, b []control.Call) bool { return slices.Equal(sortedCalls(a), sortedCalls(b)) }

func sortedCalls(calls []control.Call) []control.Call {
	return slices.SortedFunc(slices.Values(slices.DeleteFunc(slices.Clone(calls), setsUp)), func(a, b control.Call) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.N, b.N), cmp.Compare(a.Target, b.Target))
	})
}

// warmUp makes both instances create everything that they create only once, such as connections and
// sessions.
func (d *dryRun) warmUp(ctx context.Context) error {
	for _, in := range []*fleet.Instance{d.struck, d.other} {
		g := d.grab(d.order(), in, 1)
		if err := g.start(ctx); err != nil {
			return err
		}
		if err := g.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// alone records a driver without competition, and pauses its request after the read until the lease
// is renewed.
func (d *dryRun) alone(ctx context.Context, t *trail) error {
	g := d.grab(d.order(), d.struck, 1)
	if err := g.startUntil(ctx, fault.AfterRead); err != nil {
		return err
	}
	renewed := func() (bool, error) {
		calls, err := g.calls(ctx)
		return slices.ContainsFunc(calls, func(c control.Call) bool { return c.Phase == tap.Renew }), err
	}
	var err error
	if t.renews, err = wait.Until(ctx, pollInterval, d.lease*2/3, renewed); err != nil {
		return err
	}
	if err := g.finish(ctx); err != nil {
		return err
	}
	t.calls[fault.Alone], err = g.calls(ctx)
	return err
}

// These are the points at which one request is stopped while the calls of another are recorded.
var (
	beforeRead    = control.Point{Phase: tap.Read, N: 1}
	beforeClaim   = control.Point{Phase: tap.Claim, N: 1}
	beforeRelease = control.Point{Phase: tap.Release, N: 1}
	secondTry     = control.Point{Phase: tap.Acquire, N: 2}
)

// waiting records a driver that waits for the lock, and how the holder hands the lock over to it. It
// makes the holder's write fail, so that the second driver can still win the order.
func (d *dryRun) waiting(ctx context.Context, t *trail) error {
	holder, waiter := d.pair()
	if err := errors.Join(holder.startUntil(ctx, beforeClaim), waiter.start(ctx)); err != nil {
		return err
	}
	n, waits, err := waiter.awaitQuiet(ctx)
	switch {
	case err != nil:
		return err
	case !waits: // the instances share no lock, so the second driver did not wait
		return holder.finish(ctx)
	}
	t.queued = n
	if n == 0 { // the driver polls, so there is no last call before the wait
		err = errors.Join(holder.fail(ctx), waiter.await(ctx))
		holder, waiter = d.pair()
		err = errors.Join(err, holder.startUntil(ctx, beforeClaim), waiter.startUntil(ctx, secondTry))
		if err != nil {
			return err
		}
	}
	if !wait.For(ctx, simultaneous) { // a message through a Redis Cluster can reach the holder after the reply has reached the waiter
		return context.Cause(ctx)
	}
	if err := errors.Join(holder.fail(ctx), waiter.finish(ctx)); err != nil {
		return err
	}
	if t.calls[fault.Waiting], err = waiter.calls(ctx); err != nil {
		return err
	}
	calls, err := holder.calls(ctx)
	t.calls[fault.HandingOver] = slices.DeleteFunc(calls, func(c control.Call) bool { return c.Phase != tap.Release })
	return err
}

func (d *dryRun) order() int64 {
	d.next++
	return d.next - 1
}

// pair returns two requests for the same order. The driver that has the lock and the driver that waits
// for it use different instances. These instances change roles each time, because the first hand-over
// at an instance may make different calls than later ones.
func (d *dryRun) pair() (holder, waiter *dryGrab) {
	id := d.order()
	at, waitsAt := d.other, d.struck
	if d.swapped = !d.swapped; d.swapped {
		at, waitsAt = waitsAt, at
	}
	return d.grab(id, at, 1), d.grab(id, waitsAt, 2)
}

// dryGrab is a request that is sent only to find out which remote calls it makes.
type dryGrab struct {
	in            *fleet.Instance
	order, driver int64
	send          func(context.Context) error
	ended         chan struct{}
	err           error         // the error of the request; valid once ended is closed
	heldAt        string        // name of the breakpoint that stops the request; empty if there is none
	at            control.Point // where that breakpoint stops the request
}

func (d *dryRun) grab(order int64, in *fleet.Instance, driver int64) *dryGrab {
	return &dryGrab{in: in, order: order, driver: driver, ended: make(chan struct{}), send: func(ctx context.Context) error {
		// Ignore the outcome, because a dry run needs only the calls.
		_ = in.Call(ctx, http.MethodPost, fmt.Sprintf("/orders/%d/grab", order), map[string]int64{"driver_id": driver}, nil)
		return nil
	}}
}

func (g *dryGrab) listed() string { return fmt.Sprintf("dry-%d-%d", g.order, g.driver) }

func (g *dryGrab) hold(ctx context.Context, name string, h control.Hold) error {
	h.First, h.Count, h.Drivers = g.order, 1, []int64{g.driver}
	return g.in.SetHold(ctx, name, h)
}

// start sends the request in the background, and records its calls.
func (g *dryGrab) start(ctx context.Context) error {
	if err := g.hold(ctx, g.listed(), control.Hold{Outcome: control.Delivered}); err != nil {
		return err
	}
	if g.heldAt != "" {
		if err := g.hold(ctx, g.heldAt, control.Hold{At: g.at}); err != nil {
			return err
		}
	}
	go func() {
		defer close(g.ended)
		g.err = g.send(ctx)
	}()
	return nil
}

// startUntil sends the request and returns when the request has stopped at the given point.
func (g *dryGrab) startUntil(ctx context.Context, at control.Point) error {
	g.heldAt, g.at = g.listed()+"-at", at
	if err := g.start(ctx); err != nil {
		return err
	}
	held, err := g.in.Held(ctx, g.heldAt, 1, dryStep)
	if err == nil && len(held) == 0 {
		err = fmt.Errorf("driver %d's grab did not reach the step %s in time", g.driver, at)
	}
	return err
}

func (g *dryGrab) calls(ctx context.Context) ([]control.Call, error) {
	held, err := g.in.Held(ctx, g.listed(), 0, 0)
	calls := make([]control.Call, len(held))
	for i, h := range held {
		calls[i] = h.Call
		calls[i].Order, calls[i].Driver = 0, 0
	}
	return calls, err
}

// awaitQuiet waits until the request makes no further calls, and returns how many it has made. n is
// 0 if the calls never stop. waits is false if the request has ended.
func (g *dryGrab) awaitQuiet(ctx context.Context) (n int, waits bool, err error) {
	since, last, ended := time.Now(), 0, false
	quiet, err := wait.Until(ctx, pollInterval, askFor, func() (bool, error) {
		calls, err := g.calls(ctx)
		if len(calls) != last {
			last, since = len(calls), time.Now()
		}
		ended = wait.IsOver(g.ended)
		return ended || last > 0 && time.Since(since) > quietFor, err
	})
	if !quiet {
		last = 0
	}
	return last, !ended, err
}

// fail makes the stopped call of the request return an error, and waits until the request has
// ended.
func (g *dryGrab) fail(ctx context.Context) error {
	held, err := g.in.Held(ctx, g.heldAt, 1, 0)
	if err != nil {
		return err
	}
	for _, h := range held {
		if _, err := g.in.Release(ctx, g.heldAt, h.Call, control.Refused); err != nil {
			return err
		}
	}
	return g.await(ctx)
}

func (g *dryGrab) proceed(ctx context.Context) error {
	if g.heldAt == "" {
		return nil
	}
	return g.in.RemoveHold(ctx, g.heldAt)
}

func (g *dryGrab) finish(ctx context.Context) error {
	return errors.Join(g.proceed(ctx), g.await(ctx))
}

func (g *dryGrab) await(ctx context.Context) error {
	ended, err := wait.Until(ctx, pollInterval, dryStep, func() (bool, error) { return wait.IsOver(g.ended), nil })
	if err == nil && !ended {
		err = fmt.Errorf("driver %d's grab did not end in time", g.driver)
	}
	return err
}

// points returns every place at which a fault can be injected, in the order in which a driver
// reaches them.
func (t trail) points() []fault.Point {
	if t.service != nil {
		return t.servicePoints()
	}
	var all []fault.Point
	add := func(p fault.Point) {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	for _, role := range []fault.Role{fault.Alone, fault.Waiting, fault.HandingOver} {
		for _, c := range t.calls[role] {
			p := fault.Point{Role: role, Point: control.Point{Phase: c.Phase, N: c.N}, Background: t.renews && c.Phase == tap.Renew}
			add(p)
			p.After = true
			add(p)
			if c.Phase == tap.Read && c.N == 1 {
				add(fault.Point{Role: role, Point: fault.AfterRead})
			}
		}
	}
	return all
}

// callsAt returns how many parallel calls a request makes at a point. For example, a lock on a
// quorum makes one call per node.
func (t trail) callsAt(p fault.Point) int {
	return max(len(catalog.Filter(t.calls[p.Role], isAt(p.Point))), 1) // the end of a phase is also a point, although it has no call
}

func isAt(p control.Point) func(control.Call) bool {
	return func(c control.Call) bool { return c.IsAt(p) }
}
