package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/service/control"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/wait"
)

// serviceNeeds returns the servers that the user's service uses. They do not depend on the
// strategy.
func (cfg Config) serviceNeeds() (needs lock.Backend) {
	s := cfg.Service
	if s == nil {
		return 0
	}
	if s.Uses("redis") {
		needs |= lock.Redis
	}
	if s.Uses("redlock") {
		needs |= lock.RedisQuorum
	}
	if s.Uses("db") || s.UsesPostgres() {
		needs |= lock.SQLLocks
	}
	return needs
}

// open starts the user's service and prepares its database.
func (startedService) open(ctx context.Context, w *worker, port int) error {
	w.fleet = fleet.NewService(fleet.Config{Instances: w.cfg.Instances, Say: w.progress.say}, *w.cfg.Service, w.stack, port)
	if err := w.fleet.Migrate(ctx, w.cfg.setup()); err != nil {
		return &Problem{Key: "migrate", Text: err.Error()}
	}
	if err := w.fleet.Equip(ctx, w.cfg.setup()); err != nil {
		key := "service"
		if _, ok := errors.AsType[*fleet.StatusError](err); ok { // only the ready path is asked
			key = "ready"
		}
		return &Problem{Key: key, Text: err.Error()}
	}
	t := w.cfg.Target
	if err := w.fleet.Identify(ctx, t); err != nil {
		return err
	}
	t.Database.DSN = w.stack.DSN
	return w.useTheirOrders(ctx, t)
}

// setsTTL reports whether the run sets the lock TTL of the user's service.
func (cfg Config) setsTTL() bool { return cfg.Service != nil && cfg.Service.Uses("ttl_ms") }

// maxStripes limits how many locks the orders of a service may share so that a dry run notices the
// sharing. For example, a lock may belong to all orders whose IDs have the same remainder. The order ID
// of a dry run must be above maxStripes, because a smaller ID may equal its remainder.
const maxStripes = 128

// ttlOfDryRuns returns the lock TTL in dry runs. If the run cannot set the service's TTL, that is
// the configured TTL.
func (cfg Config) ttlOfDryRuns() time.Duration {
	if cfg.Service != nil && !cfg.setsTTL() {
		return cfg.TTL
	}
	return dryTTL
}

// recordService records the remote calls that the service makes for a request. It then pauses
// another request before its work, to see how the service renews the lock.
func (r recorder) recordService(ctx context.Context, s lock.Strategy) (t trail, err error) {
	u := r.cfg.setup()
	u.TTL, u.Work = r.cfg.ttlOfDryRuns(), injectionWork
	if err := r.fleet.Equip(ctx, u); err != nil {
		return t, err
	}
	if _, err := r.fleet.Use(ctx, s.Name); err != nil {
		return t, err
	}
	first, err := r.orders.Create(ctx, 1+dryRuns+strikeTries, 1)
	if t := r.cfg.Target; err == nil && first <= maxStripes && !t.Shape.NamesOrders() && (t.Open != nil || t.FirstOrder == 0) {
		if _, err = r.orders.Create(ctx, maxStripes, 1); err == nil {
			first, err = r.orders.Create(ctx, 1+dryRuns+strikeTries, 1)
		}
	}
	if err != nil {
		return t, err
	}
	struck := r.fleet.Instances[0]
	defer struck.Watch(0, 0)
	// If simultaneous requests for one order got no answer, try single requests for other orders.
	if err := struck.AwaitGrab(ctx, first, dryStep); ctx.Err() != nil {
		return t, err
	}
	if t, err = r.listTrail(ctx, struck, first+1); err != nil {
		return t, fmt.Errorf("the dry run of %s failed: %w", s.Name, err)
	}
	held := first + 1 + int64(dryRuns)
	expires, err := r.holdInWork(ctx, struck, held, &t, u.TTL)
	for last := held + strikeTries - 1; errors.Is(err, errNoWork) && held < last; { // a request does not always make the same calls
		held++
		expires, err = r.holdInWork(ctx, struck, held, &t, u.TTL)
	}
	t.service.leased = len(expires) > 0
	if err == nil {
		err = checkLease(expires, u.TTL)
	}
	if err == nil && r.cfg.Target.NoExpiry {
		err = checkNoExpiry(expires)
	}
	if err == nil && slices.ContainsFunc(t.service.renewal, isShared) {
		var others []control.Call
		others, err = listWithoutGrab(ctx, struck, held, u.TTL)
		t.service.renewal = withoutOthers(t.service.renewal, others)
		t.service.background = append(t.service.background, others...)
		t.service.idle = slices.DeleteFunc(slices.Clone(t.service.background), writes)
	}
	t.renews = len(t.service.renewal) > 0
	if err == nil && !t.renews {
		t.service.shortLease = checkShortLease(expires, u.TTL)
	}
	return t, err
}

// listTrail records requests until two in a row make the same remote calls. After dryRuns requests, it
// returns an error.
//
// A background task may make some of the same calls. The result then contains only the calls that both
// requests made.
//
// If no call after the response writes or commits, listTrail ignores late calls. They usually release
// the lock, which may happen before or after the response. If a request does write after its response,
// the two equal requests need not follow each other, because other instances may have handled the
// requests between them.
func (r recorder) listTrail(ctx context.Context, in *fleet.Instance, first int64) (trail, error) {
	var last []control.Call
	var took []time.Duration
	r.fleet.Proxied().IgnoreBackground(nil) // another strategy may have been recorded before
	t, err := findTrail(r.cfg.Target.Database.Query, func(n int64) (request, error) {
		req, err := r.listCalls(ctx, in, first+n)
		took = append(took, req.took)
		before := last
		last = slices.Concat(req.calls, req.behind)
		r.fleet.Proxied().Learn(changingNames(before, last)...)
		return req, err
	}, func(n int64) ([]control.Call, error) {
		others, err := listWithoutGrab(ctx, in, first+n, minSettle)
		r.fleet.Proxied().IgnoreBackground(withoutWinners(others, ledgerOf(last, r.cfg.Target.Database.Query)))
		return others, err
	})
	if t.service != nil && err == nil {
		t.service.takes = slices.Min(took)
	}
	return t, err
}

func serviceGrab(in *fleet.Instance, order int64) *dryGrab {
	in.Watch(order, 1)
	return &dryGrab{in: in, order: order, driver: 1, ended: make(chan struct{}), send: func(ctx context.Context) error {
		_, err := in.Grab(ctx, order, 1)
		return err
	}}
}

func (g *dryGrab) result() error {
	<-g.ended
	return g.err
}

// listedFor waits for the given duration. It returns the calls that were recorded before the wait,
// and those that were recorded during it.
func (g *dryGrab) listedFor(ctx context.Context, long time.Duration) (before, meanwhile []control.Call, err error) {
	if before, err = g.calls(ctx); err != nil {
		return nil, nil, err
	}
	if !wait.For(ctx, long) {
		return nil, nil, context.Cause(ctx)
	}
	all, err := g.calls(ctx)
	if err != nil {
		return nil, nil, err
	}
	return before, all[len(before):], nil
}

// listCalls sends one request, and returns the remote calls that the service makes before and after
// its response. It stops when the service has written the winner and is quiet, or after a timeout.
func (r recorder) listCalls(ctx context.Context, in *fleet.Instance, order int64) (req request, err error) {
	defer func() { _ = removeAll(context.WithoutCancel(ctx), in) }()
	began, g := time.Now(), serviceGrab(in, order)
	if err := g.start(ctx); err != nil {
		return req, err
	}
	if err := g.result(); err != nil {
		return req, err
	}
	answered, limit := time.Now(), cmp.Or(r.cfg.Settle, minSettle)
	req.calls, req.behind, err = g.listedFor(ctx, quietFor)
	for more := req.behind; err == nil && time.Since(answered) < limit && (len(more) > 0 || !slices.ContainsFunc(slices.Concat(req.calls, req.behind), writes)); {
		_, more, err = g.listedFor(ctx, quietFor)
		req.behind = append(req.behind, more...)
	}
	req.listened = time.Since(answered)
	req.took = max(answered.Sub(began), time.Since(began)-quietFor) // the last call came before the quiet time
	return req, err
}

// holdInWork stops a request before its work, and records the calls that a background task makes
// meanwhile. It also returns the lock TTLs.
func (r recorder) holdInWork(ctx context.Context, in *fleet.Instance, order int64, t *trail, lease time.Duration) (locks map[string]lockTTL, err error) {
	defer func() { _ = removeAll(context.WithoutCancel(ctx), in) }()
	began, g := time.Now(), serviceGrab(in, order)
	g.heldAt, g.at = g.listed()+"-at", t.work
	if err := g.start(ctx); err != nil {
		return nil, err
	}
	meanwhile, keys, err := r.listRenewals(ctx, g, lease, began)
	for _, c := range meanwhile {
		if !slices.ContainsFunc(t.service.renewal, func(o control.Call) bool { return o.Phase == c.Phase && o.Target == c.Target }) {
			t.service.renewal = append(t.service.renewal, c)
		}
	}
	err = errors.Join(err, g.proceed(ctx))
	result := g.result()
	if _, answered := errors.AsType[*fleet.StatusError](result); answered { // the service may give up a request that is stopped for so long
		result = nil
	}
	if err = errors.Join(err, result); err != nil {
		return nil, err
	}
	wait.For(ctx, max(quietFor, t.callsAfterAnswer)) // a release may come after the response
	after, err := r.stack.KeyTTLs(ctx)
	for key, found := range keys {
		_, found.kept = after[key]
		_, name, _ := strings.Cut(key, " ")
		found.use = t.useOf(in.NameOfKey(name))
		if found.atLeast == 0 {
			t.service.endless = append(t.service.endless, found.use.name)
		}
		keys[key] = found
	}
	return locksAmong(keys), err
}

// lockTTL contains the smallest and the largest TTL that a lock may have been given. The exact TTL
// is unknown, because the lock was set at some time between the request and the read of its
// remaining TTL. If the key never expires, atLeast is 0.
type lockTTL struct {
	atLeast, atMost time.Duration
	use             keyUse
	kept            bool // whether the key is left after the request
}

// locksAmong returns the keys that are probably locks: keys with a TTL that are not part of a cache. A key that is left
// after the request is a lock only if the service releases no other one. Otherwise, it is probably a mark that the
// order is sold.
func locksAmong(keys map[string]lockTTL) map[string]lockTTL {
	locks, releases := maps.Clone(keys), false
	for _, k := range keys {
		releases = releases || k.atLeast > 0 && !k.kept && k.use.isLock() && !k.use.namesDriver()
	}
	maps.DeleteFunc(locks, func(_ string, k lockTTL) bool {
		return k.atLeast == 0 || k.use.caches() || k.kept && (releases || !k.use.isUnreleasedLock(k.atLeast))
	})
	return locks
}

// errNoWork means that a test request did not reach the start of its work.
var errNoWork = errors.New("a test grab did not get as far as the work between its read and its write")

// listRenewals waits until a request has reached its work, and then records calls for two thirds of
// a lease. It also returns the TTL of each Redis key. began is when the request was sent.
func (r recorder) listRenewals(ctx context.Context, g *dryGrab, lease time.Duration, began time.Time) (calls []control.Call, keys map[string]lockTTL, err error) {
	if met, err := g.in.Held(ctx, g.heldAt, 1, dryStep); err != nil || len(met) == 0 {
		return nil, nil, cmp.Or(err, errNoWork)
	}
	left, err := r.stack.KeyTTLs(ctx)
	if err != nil {
		return nil, nil, err
	}
	elapsed := time.Since(began)
	keys = make(map[string]lockTTL, len(left))
	for key, ttl := range left {
		keys[key] = lockTTL{atLeast: ttl, atMost: ttl + elapsed}
	}
	_, calls, err = g.listedFor(ctx, lease*2/3)
	return calls, keys, err
}

// checkLease returns an error if a lock lives longer than the lease that the user specified. Contenders
// would then start while the lock is still valid.
func checkLease(locks map[string]lockTTL, lease time.Duration) error {
	for _, key := range slices.Sorted(maps.Keys(locks)) {
		found := locks[key]
		if found.atLeast > lease+lease/5 {
			_, key, _ = strings.Cut(key, " ")
			return &Problem{Key: "lease", Text: fmt.Sprintf("the lock %s in Redis expires after %v, but lease is %v: set lease: %[2]v, or pass {ttl_ms} to the service as its lock TTL", key, found.rounded(), lease), Faults: true}
		}
	}
	return nil
}

// rounded returns the upper bound of the TTL, rounded to 100 ms.
func (l lockTTL) rounded() time.Duration { return l.atMost.Round(time.Second / 10) }

// checkShortLease returns an error if the locks live for much less than the lease that the user specified. Some faults
// must be shorter than a lease. If they outlast the lock, another driver wins although the fault broke nothing.
func checkShortLease(locks map[string]lockTTL, lease time.Duration) error {
	var name string
	var longest lockTTL
	for _, key := range slices.Sorted(maps.Keys(locks)) {
		if found := locks[key]; found.use.isLock() && found.atMost > longest.atMost {
			_, name, _ = strings.Cut(key, " ")
			longest = found
		}
	}
	if name == "" || longest.atMost >= lease*2/3 {
		return nil
	}
	return &Problem{Key: "lease", Text: fmt.Sprintf("the lock %s in Redis expires after only %v, but lease is %v: set lease: %[2]v, or pass {ttl_ms} to the service as its lock TTL",
		name, longest.rounded(), lease), Faults: true}
}

// checkNoExpiry returns an error if one of the locks expires, although the user says that they never do. A key with a
// TTL is also a lock if a grab stores it before it reads the order, and removes it in the end. The grab has probably
// checked before that the key was free.
func checkNoExpiry(locks map[string]lockTTL) error {
	for _, key := range slices.Sorted(maps.Keys(locks)) {
		found := locks[key]
		stored := found.use.stores && found.use.other && found.use.unlocks && !found.kept
		if (found.use.refuses || found.use.scripts || stored) && !found.use.namesDriver() {
			_, name, _ := strings.Cut(key, " ")
			return &Problem{Key: "no-expiry", Text: fmt.Sprintf("the lock %s in Redis expires after %v: remove no-expiry, and set lease: %[2]v", name, found.rounded()), Faults: true}
		}
	}
	return nil
}

// listWithoutGrab returns the remote calls that an instance makes while it serves no request.
func listWithoutGrab(ctx context.Context, in *fleet.Instance, order int64, lease time.Duration) ([]control.Call, error) {
	defer func() { _ = removeAll(context.WithoutCancel(ctx), in) }()
	if !wait.For(ctx, quietFor) { // wait until the last request has ended
		return nil, context.Cause(ctx)
	}
	g := serviceGrab(in, order)
	if err := g.hold(ctx, g.listed(), control.Hold{Outcome: control.Delivered}); err != nil {
		return nil, err
	}
	_, all, err := g.listedFor(ctx, lease*2/3)
	return all, err
}

// checkReadable returns an error if the proxies may have missed calls of a request. A fault could
// then hit the wrong call.
func (r recorder) checkReadable(t trail) error {
	if why := r.fleet.Proxied().Unreadable(); why != "" {
		return fmt.Errorf("%s: %s", unreadable, why)
	}
	if t.claim == nil {
		return fmt.Errorf("the proxies saw no grab write to the database, only %s: the service must use the address in {db} or {postgres}, and win the order of a test grab. "+
			"If a worker writes later, set settle to the longest time between the response and the write. "+oneLeads+". "+ownQueue,
			callNames(t.calls[fault.Alone]))
	}
	if t.callsAfterAnswer > 0 && r.cfg.Target.Database.Query == "" {
		return errors.New("the service writes after it has answered, so only the ledger shows when a grab has ended: add ledger-query, which reads the ledger")
	}
	return nil
}

// oneLeads is the advice for services in which one instance does the work of the others.
const oneLeads = "If one instance leads, and the others forward to it or refuse, let instance 1 lead during the test, with {number}. If a fault makes another instance the leader and later faults miss it, test one point in each run, with -at"

// unreadable is the reason for an unknown verdict if the proxies could not decode every call of the
// service.
const unreadable = "the proxies could not read all calls of the service"
