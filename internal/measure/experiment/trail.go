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

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/wait"
)

// trail lists the remote calls that the grabs of a strategy make without a fault, in order,
// for each role of the driver.
type trail struct {
	calls map[fault.Role][]control.Call
	// queued is how many calls a driver makes before it waits for a message that the lock is
	// free. It is 0 if the driver polls or does not wait.
	queued int
	// renews says whether renewals are made in the background.
	renews  bool
	service *serviceTrail  // nil for our own instances
	work    control.Point  // the point where the work begins
	claim   *control.Point // the point before the first write; nil if unknown
	release *control.Point // the point before the first call that releases the lock; nil if unknown
	// shares says whether one renewal may serve the grabs of several orders. Holding it then
	// holds it for all of them, and only once.
	shares bool
}

// ourTrail returns the trail of our own instances, which name the phases of a grab.
func ourTrail(calls map[fault.Role][]control.Call) trail {
	return trail{calls: calls, work: fault.AfterRead, claim: &beforeClaim, release: &beforeRelease}
}

// trails keeps the trail of each strategy. It is safe for concurrent use.
type trails struct {
	mu sync.Mutex
	by map[string]*recording // by the name of the strategy
}

type recording struct {
	sync.Mutex // held during the recording
	trail
	done bool
}

func newTrails() *trails { return &trails{by: map[string]*recording{}} }

// get records the trail of the strategy if it is not recorded yet. Two workers never record
// the same trail at the same time.
func (t *trails) get(strategy string, record func() (trail, error)) (trail, error) {
	r := t.of(strategy)
	r.Lock()
	defer r.Unlock()
	if r.done {
		return r.trail, nil
	}
	var err error
	r.trail, err = record()
	r.done = err == nil
	return r.trail, err
}

func (t *trails) of(strategy string) *recording {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by[strategy] == nil {
		t.by[strategy] = &recording{}
	}
	return t.by[strategy]
}

// Trails returns the remote calls that the grabs of each strategy of cfg make without a fault. They
// are in order, by the name of the strategy and the role of the driver. It records them
// on its own stack.
func Trails(ctx context.Context, cfg Config) (_ map[string]map[fault.Role][]control.Call, err error) {
	for _, s := range cfg.Strategies {
		cfg.Stack.Needs |= s.Needs
	}
	w, err := openWorker(ctx, cfg, 0, newProgress(cfg), &journal{dir: cfg.Out})
	defer func() { err = errors.Join(err, w.close()) }()
	if err != nil {
		return nil, err
	}
	calls := map[string]map[fault.Role][]control.Call{}
	for _, s := range cfg.Strategies {
		t, err := w.record(ctx, s)
		if err != nil {
			return nil, err
		}
		calls[s.Name] = t.calls
	}
	return calls, nil
}

// Settings and bounds of a dry run.
const (
	dryTTL    = 3 * time.Second
	dryRuns   = 6 // the maximum
	dryOrders = 2 + 5*dryRuns
	dryStep   = 10 * time.Second       // the limit for each expected event
	quietFor  = 300 * time.Millisecond // no call for so long: a driver waits to be told. Pollers pause for half as long
	askFor    = 4 * quietFor           // calls for so long: it asks again and again
)

// dryRun records a trail on orders of its own.
type dryRun struct {
	w             *worker
	struck, other *fleet.Instance
	lease         time.Duration
	next          int64 // order
}

// record makes the dry runs of a strategy: a driver alone, a driver that waits for another
// one, and a driver that hands over to another one.
func (w *worker) record(ctx context.Context, s lock.Strategy) (t trail, err error) {
	u := w.cfg.setup()
	u.Control, u.TTL, u.Wait, u.Work = true, dryTTL, 2*dryTTL, injectionWork
	if err := w.fleet.Equip(ctx, u); err != nil {
		return t, err
	}
	leaseMS, err := w.fleet.Use(ctx, s.Name)
	if err != nil {
		return t, err
	}
	d := &dryRun{w: w, struck: w.fleet.Instances[0], other: w.fleet.Instances[1], lease: time.Duration(leaseMS * float64(time.Millisecond))}
	if d.next, err = w.orders.CreateStock(ctx, dryOrders, w.cfg.units()); err != nil {
		return t, err
	}
	if err := d.aim(ctx, s.Name); err != nil {
		return t, err
	}
	if err := d.warmUp(ctx); err != nil {
		return t, err
	}
	if t, err = d.repeat(ctx); err != nil {
		return t, fmt.Errorf("experiment: dry run of %s: %w", s.Name, err)
	}
	err = errors.Join(removeAll(ctx, d.struck), removeAll(ctx, d.other))
	return t, errors.Join(err, w.fleet.ReadEvents(func(history.Event) {})) // the events of dry runs count in no figure
}

// aim gives the locks of all dry runs to one master of a Cluster. Otherwise, a call of a script
// would fail and be repeated on each master that does not know the script yet.
func (d *dryRun) aim(ctx context.Context, strategy string) error {
	if d.w.stack.Topology == nil {
		return nil
	}
	keys := make([]string, dryOrders)
	for i := range keys {
		keys[i] = grab.Key(strategy, d.next+int64(i))
	}
	return d.w.stack.Topology.Aim(ctx, keys)
}

// repeat makes the dry runs until two in a row give the same trail. The first may differ,
// because a driver may have to subscribe or a server may be slow for a moment.
func (d *dryRun) repeat(ctx context.Context) (trail, error) {
	var last trail
	for i := range dryRuns {
		t := ourTrail(map[fault.Role][]control.Call{})
		for _, step := range []func(context.Context, *trail) error{d.alone, d.waiting, d.handingOver} {
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
	return last, fmt.Errorf("%d of them, and no two in a row make the same calls", dryRuns)
}

// renewOnce keeps only the first background renewal, because their number depends on timing.
func (t trail) renewOnce() {
	for role, calls := range t.calls {
		t.calls[role] = slices.DeleteFunc(calls, func(c control.Call) bool { return t.renews && c.Phase == tap.Renew && c.N > 1 })
	}
}

// equals reports whether the same calls were made. Simultaneous calls to a quorum have no
// order.
func (t trail) equals(o trail) bool {
	return maps.EqualFunc(t.calls, o.calls, func(a, b []control.Call) bool { return slices.Equal(sortedCalls(a), sortedCalls(b)) }) &&
		t.queued == o.queued && t.renews == o.renews && t.shares == o.shares
}

func sortedCalls(calls []control.Call) []control.Call {
	return slices.SortedFunc(slices.Values(calls), func(a, b control.Call) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.N, b.N), cmp.Compare(a.Target, b.Target))
	})
}

// warmUp makes both instances create what they create only once, such as sessions and nodes.
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

// alone holds the grab after its read until a renewal has come, if any does. It also holds
// the grab of another order, because one renewal may serve both.
func (d *dryRun) alone(ctx context.Context, t *trail) error {
	g, another := d.grab(d.order(), d.struck, 1), d.grab(d.order(), d.struck, 1)
	for _, g := range []*dryGrab{g, another} {
		if err := g.startUntil(ctx, fault.AfterRead); err != nil {
			return err
		}
	}
	renewed := func() (bool, error) {
		calls, err := g.calls(ctx)
		return slices.ContainsFunc(calls, func(c control.Call) bool { return c.Phase == tap.Renew }), err
	}
	var err error
	if t.renews, err = wait.Until(ctx, pollInterval, d.lease*2/3, renewed); err != nil {
		return err
	}
	if err := errors.Join(g.finish(ctx), another.finish(ctx)); err != nil {
		return err
	}
	t.calls[fault.Alone], err = g.calls(ctx)
	t.shares = g.shares
	return err
}

// Points at which a grab is held so that another one can be observed.
var (
	beforeRead    = control.Point{Phase: tap.Read, N: 1}
	beforeClaim   = control.Point{Phase: tap.Claim, N: 1}
	beforeRelease = control.Point{Phase: tap.Release, N: 1}
	secondTry     = control.Point{Phase: tap.Acquire, N: 2}
)

// waiting lets a driver come while another one has the lock. The holder's read is then
// refused, so that it releases without a write. A driver that polls is held before its
// second call, so that the number of its calls is known.
func (d *dryRun) waiting(ctx context.Context, t *trail) error {
	holder, waiter := d.pair()
	if err := holder.startUntil(ctx, beforeRead); err != nil {
		return err
	}
	if err := waiter.start(ctx); err != nil {
		return err
	}
	n, waits, err := waiter.awaitQuiet(ctx)
	switch {
	case err != nil:
		return err
	case !waits: // there is no lock across instances
		return holder.finish(ctx)
	}
	t.queued = n
	if n == 0 { // it polls
		err = errors.Join(holder.fail(ctx), waiter.await(ctx))
		holder, waiter = d.pair()
		err = errors.Join(err, holder.startUntil(ctx, beforeRead), waiter.startUntil(ctx, secondTry))
		if err != nil {
			return err
		}
	}
	if err := holder.fail(ctx); err != nil {
		return err
	}
	if err := waiter.finish(ctx); err != nil {
		return err
	}
	t.calls[fault.Waiting], err = waiter.calls(ctx)
	return err
}

// handingOver records the release of a driver whose claim was refused while another driver
// waits.
func (d *dryRun) handingOver(ctx context.Context, t *trail) error {
	if len(t.calls[fault.Waiting]) == 0 {
		return nil
	}
	id := d.order()
	holder, waiter := d.grab(id, d.struck, 1), d.grab(id, d.other, 2)
	if err := holder.startUntil(ctx, beforeClaim); err != nil {
		return err
	}
	if err := waiter.start(ctx); err != nil {
		return err
	}
	if err := waiter.awaitCalls(ctx, max(1, t.queued)); err != nil {
		return err
	}
	if err := holder.fail(ctx); err != nil {
		return err
	}
	if err := waiter.await(ctx); err != nil {
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

// pair returns a driver at the other instance and a driver at the struck one, for the same
// order.
func (d *dryRun) pair() (holder, waiter *dryGrab) {
	id := d.order()
	return d.grab(id, d.other, 1), d.grab(id, d.struck, 2)
}

// dryGrab is one grab of a dry run.
type dryGrab struct {
	in            *fleet.Instance
	order, driver int64
	ended         chan struct{}
	heldAt        string        // the name of the hold that stops it; may be empty
	at            control.Point // the point of that hold
	shares        bool          // whether one of its calls may have served other grabs
}

func (d *dryRun) grab(order int64, in *fleet.Instance, driver int64) *dryGrab {
	return &dryGrab{in: in, order: order, driver: driver, ended: make(chan struct{})}
}

func (g *dryGrab) listed() string { return fmt.Sprintf("dry-%d-%d", g.order, g.driver) }

func (g *dryGrab) hold(ctx context.Context, name string, h control.Hold) error {
	h.First, h.Count, h.Drivers = g.order, 1, []int64{g.driver}
	return g.in.SetHold(ctx, name, h)
}

// start sends the grab. Its calls are listed.
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
		// Only the calls matter here, not the outcome.
		_ = g.in.Call(ctx, http.MethodPost, fmt.Sprintf("/orders/%d/grab", g.order), map[string]int64{"driver_id": g.driver}, nil)
	}()
	return nil
}

// startUntil sends the grab and returns when it is held at a point.
func (g *dryGrab) startUntil(ctx context.Context, at control.Point) error {
	g.heldAt, g.at = g.listed()+"-at", at
	if err := g.start(ctx); err != nil {
		return err
	}
	held, err := g.in.Held(ctx, g.heldAt, 1, dryStep)
	if err == nil && len(held) == 0 {
		err = fmt.Errorf("driver %d did not come %s", g.driver, at)
	}
	return err
}

// calls returns the calls that the grab has made so far.
func (g *dryGrab) calls(ctx context.Context) ([]control.Call, error) {
	held, err := g.in.Held(ctx, g.listed(), 0, 0)
	calls := make([]control.Call, len(held))
	for i, h := range held {
		calls[i] = h.Call
		calls[i].Order, calls[i].Driver = 0, 0
		g.shares = g.shares || h.Shared
	}
	return calls, err
}

// awaitCalls returns when the grab has made n calls.
func (g *dryGrab) awaitCalls(ctx context.Context, n int) error {
	held, err := g.in.Held(ctx, g.listed(), n, dryStep)
	if err == nil && len(held) < n {
		err = fmt.Errorf("driver %d has made %d calls, and waits for the lock after %d", g.driver, len(held), n)
	}
	return err
}

// awaitQuiet returns the number of calls that the grab has made when it makes no more, or 0
// if it continues. waits is false if the grab has ended.
func (g *dryGrab) awaitQuiet(ctx context.Context) (n int, waits bool, err error) {
	since, last, ended := time.Now(), 0, false
	quiet, err := wait.Until(ctx, pollInterval, askFor, func() (bool, error) {
		calls, err := g.calls(ctx)
		if len(calls) != last {
			last, since = len(calls), time.Now()
		}
		ended = isClosed(g.ended)
		return ended || last > 0 && time.Since(since) > quietFor, err
	})
	if !quiet {
		last = 0
	}
	return last, !ended, err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// fail refuses the call before which the grab is held, and returns when the grab has ended.
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

// finish lets the grab continue if it is held, and returns when it has ended.
func (g *dryGrab) finish(ctx context.Context) error {
	if g.heldAt != "" {
		if err := g.in.RemoveHold(ctx, g.heldAt); err != nil {
			return err
		}
	}
	return g.await(ctx)
}

func (g *dryGrab) await(ctx context.Context) error {
	ended, err := wait.Until(ctx, pollInterval, dryStep, func() (bool, error) { return isClosed(g.ended), nil })
	if err == nil && !ended {
		err = fmt.Errorf("the grab of driver %d does not end", g.driver)
	}
	return err
}

// points returns all strike points, in the order in which a driver of each role reaches
// them.
func (t trail) points() []fault.Point {
	if t.service != nil {
		return t.service.points(t.calls[fault.Alone])
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
			if p.After = true; !p.Background || !t.shares {
				add(p)
			}
			if c.Phase == tap.Read && c.N == 1 {
				add(fault.Point{Role: role, Point: fault.AfterRead})
			}
		}
	}
	return all
}

// callsAt returns how many calls are made at once at a point.
func (t trail) callsAt(p fault.Point) (n int) {
	for _, c := range t.calls[p.Role] {
		if c.Phase == p.Phase && c.N == p.N {
			n++
		}
	}
	return max(n, 1) // the end of a phase is a point without a call
}
