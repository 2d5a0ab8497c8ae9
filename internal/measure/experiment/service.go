package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/wait"
	"grablab/internal/testbed/wire"
)

// serviceNeeds returns the servers that the user's service uses. They do not depend on the
// strategy.
func (cfg Config) serviceNeeds() (needs lock.Backend) {
	s := cfg.Service
	if s == nil {
		return 0
	}
	if s.Uses("redis") || s.Uses("sentinel") {
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

// serviceTrail contains the parts of a trail that only the user's service has. The proxies see only
// the service's command names, so the program must infer the purpose of each call.
type serviceTrail struct {
	parts   []tap.Phase    // the inferred phase of each call
	renewal []control.Call // background calls, each listed once
	// idle lists the SQL statements that an instance sends even while it serves no request. It
	// omits statements that may write.
	idle  []control.Call
	needs lock.Backend // servers that the calls go to
	// leased means that a grab creates a Redis key with a TTL, which is probably a lock.
	leased bool
}

// maxStripes is the number of locks up to which a dry run shows that a service shares them among its
// orders. It needs a larger order ID, because a smaller one equals its own remainder.
const maxStripes = 128

// ttlOfDryRuns returns the lock TTL in dry runs. If the run cannot set the service's TTL, that is
// the configured TTL.
func (cfg Config) ttlOfDryRuns() time.Duration {
	if cfg.Service != nil && !cfg.Service.Uses("ttl_ms") {
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
	if err == nil && slices.ContainsFunc(t.service.renewal, isShared) {
		var others []control.Call
		others, err = listWithoutGrab(ctx, struck, held, u.TTL)
		t.service.renewal = withoutOthers(t.service.renewal, others)
		t.service.idle = slices.DeleteFunc(others, writes)
	}
	t.renews = len(t.service.renewal) > 0
	return t, err
}

// listTrail records requests until two in a row make the same remote calls. After dryRuns requests,
// it returns an error.
//
// A background task may make some of the same calls. The result then contains only the calls that
// both requests made.
//
// Calls after the response count only if one of them writes. Other late calls usually release the lock,
// and a service may release it before or after its response. If a request writes after its response,
// the two equal requests need not be in a row, because other instances may have handled those between
// them.
func (r recorder) listTrail(ctx context.Context, in *fleet.Instance, first int64) (trail, error) {
	var last []control.Call
	return findTrail(func(n int64) (request, error) {
		req, err := r.listCalls(ctx, in, first+n)
		before := last
		last = slices.Concat(req.calls, req.behind)
		r.fleet.IgnoreNumbers(changingKeys(before, last)...)
		return req, err
	}, func(n int64) ([]control.Call, error) {
		return listWithoutGrab(ctx, in, first+n, minSettle)
	})
}

// request contains the remote calls that the service made for a request.
type request struct {
	calls, behind []control.Call // before and after its response
	listened      time.Duration  // how long the program recorded calls after the response
}

// findTrail finds two equal requests for listTrail. next sends the nth request, and idle returns the
// calls that the instance makes without a request.
func findTrail(next func(n int64) (request, error), idle func(n int64) ([]control.Call, error)) (t trail, err error) {
	var before, last, others []control.Call
	var deferred [][]control.Call
	var longest time.Duration
	late := map[tap.Phase]bool{} // calls that a request may still make after its response
	for n := range int64(dryRuns) {
		req, err := next(n)
		if err != nil {
			return t, err
		}
		calls, behind := req.calls, req.behind
		if slices.ContainsFunc(behind, writes) {
			if others == nil {
				if others, err = idle(n); err != nil {
					return t, err
				}
			}
			behind = withoutOthers(behind, others) // a background task may write to the same table at any time
		}
		wrote := slices.ContainsFunc(behind, writes)
		if wrote {
			longest = max(longest, req.listened)
		}
		if wrote || deferred != nil { // a write that races with the response may also come before it
			all := withoutOthers(slices.Concat(calls, behind), others)
			if slices.ContainsFunc(deferred, func(o []control.Call) bool { return sameCalls(all, o) }) {
				t = trailOf(all)
				t.callsAfterAnswer = longest
				return t, nil
			}
			if wrote {
				deferred = append(deferred, all)
			}
		}
		for _, c := range behind {
			late[c.Phase] = true
		}
		calls, last = onTime(calls, late), onTime(last, late)
		if n > 0 && deferred == nil && slices.ContainsFunc(calls, writes) {
			if !sameCalls(calls, last) && others == nil {
				if others, err = idle(n); err != nil {
					return t, err
				}
			}
			if sameCalls(withoutOthers(calls, others), withoutOthers(last, others)) {
				return trailOf(catalog.Filter(calls, func(c control.Call) bool { return slices.Contains(last, c) })), nil
			}
		}
		before, last = last, calls
	}
	if deferred == nil && sameCalls(before, last) {
		return trailOf(last), nil
	}
	return t, fmt.Errorf("the dry run made %d grabs, but no two in a row made the same requests: %s. %s. Or run without faults", dryRuns, differs(before, last, deferred), ownQueue)
}

// differs names a difference between two requests. before and last are their calls before the
// response. deferred lists all calls of the requests that wrote after their responses.
func differs(before, last []control.Call, deferred [][]control.Call) string {
	switch n := len(deferred); {
	case !sameCalls(before, last):
		return difference(before, last)
	case n < 2:
		return "only one of them wrote after its response"
	default:
		return "they differ only after the response: " + difference(deferred[n-2], deferred[n-1])
	}
}

func callNames(calls []control.Call) string {
	return cmp.Or(catalog.Join(calls, ", ", func(c control.Call) string { return string(c.Phase) }), "none")
}

func onTime(calls []control.Call, late map[tap.Phase]bool) []control.Call {
	return slices.DeleteFunc(calls, func(c control.Call) bool { return late[c.Phase] })
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
	g := serviceGrab(in, order)
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
	return req, err
}

// holdInWork stops a request before its work, and records the calls that a background task makes
// meanwhile. It also returns the lock TTLs. It recognizes locks as Redis keys that exist only
// during the request.
func (r recorder) holdInWork(ctx context.Context, in *fleet.Instance, order int64, t *trail, lease time.Duration) (locks map[string]lockTTL, err error) {
	defer func() { _ = removeAll(context.WithoutCancel(ctx), in) }()
	began, g := time.Now(), serviceGrab(in, order)
	g.heldAt, g.at = g.listed()+"-at", t.work
	if err := g.start(ctx); err != nil {
		return nil, err
	}
	meanwhile, locks, err := r.listRenewals(ctx, g, lease, began)
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
	maps.DeleteFunc(locks, func(key string, _ lockTTL) bool { _, kept := after[key]; return kept })
	return locks, err
}

// lockTTL contains the smallest and the largest TTL that a lock may have been given. The exact TTL
// is unknown, because the lock was set at some time between the request and the read of its
// remaining TTL.
type lockTTL struct{ atLeast, atMost time.Duration }

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
		keys[key] = lockTTL{ttl, ttl + elapsed}
	}
	_, calls, err = g.listedFor(ctx, lease*2/3)
	return calls, keys, err
}

// checkLease returns an error if a lock lives longer than the lease that the user specified,
// because contenders would then start while the lock is still valid.
func checkLease(locks map[string]lockTTL, lease time.Duration) error {
	for _, key := range slices.Sorted(maps.Keys(locks)) {
		found := locks[key]
		if found.atLeast > lease+lease/5 {
			_, key, _ = strings.Cut(key, " ")
			ttl := found.atMost.Truncate(time.Second / 2) // most services use a round TTL
			if ttl < found.atLeast {
				ttl = (found.atMost + time.Second/10).Truncate(time.Second / 10)
			}
			advice := fmt.Sprintf("set lease: %v, or pass {ttl_ms} to the service as its lock TTL", ttl)
			if ttl >= 900*lease && ttl <= 1100*lease {
				advice = "the service may read milliseconds as seconds"
			}
			return &Problem{Key: "lease", Text: fmt.Sprintf("the lock %s in Redis expires after %v, but lease is %v: %s", key, ttl, lease, advice), Faults: true}
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

// isShared reports whether a call could belong to any order. A call for one certain order has "*"
// in its name in place of the ID.
func isShared(c control.Call) bool { return !strings.Contains(string(c.Phase), "*") }

// withoutOthers returns the calls that an instance makes only while it serves a request. It removes
// calls that the instance also makes at other times, for example to poll a server.
func withoutOthers(calls, others []control.Call) []control.Call {
	return slices.DeleteFunc(slices.Clone(calls), func(c control.Call) bool {
		return isShared(c) && slices.ContainsFunc(others, func(o control.Call) bool { return o.Phase == c.Phase && o.Target == c.Target })
	})
}

// statements returns the SQL statements of a call, each reduced to its verb and its table.
func statements(c control.Call) []string {
	if c.Target != tap.DB {
		return nil
	}
	_, text, _ := strings.Cut(string(c.Phase), " ")
	return strings.Split(text, wire.Joint)
}

// lockFunctions matches statements that acquire a lock in the database, and unlockFunctions matches
// statements that release one.
var (
	lockFunctions   = regexp.MustCompile(`^SELECT (GET_LOCK|(?i:pg_(try_)?advisory_(xact_)?lock(_shared)?))$|` + wire.ForUpdate + `$`)
	unlockFunctions = regexp.MustCompile(`^SELECT (RELEASE_LOCK|RELEASE_ALL_LOCKS|(?i:pg_advisory_unlock(_shared|_all)?))$`)
)

func locks(c control.Call) bool { return slices.ContainsFunc(statements(c), lockFunctions.MatchString) }
func unlocks(c control.Call) bool {
	return slices.ContainsFunc(statements(c), unlockFunctions.MatchString)
}

// reads reports whether a call reads a table but writes to none.
func reads(c control.Call) bool {
	return !writes(c) && slices.ContainsFunc(statements(c), func(s string) bool {
		return strings.HasPrefix(s, "SELECT ") && (strings.HasSuffix(s, wire.ForUpdate) || !lockFunctions.MatchString(s) && !unlockFunctions.MatchString(s))
	})
}

var writeVerbs = []string{"INSERT", "UPDATE", "DELETE", "REPLACE", "CALL", "EXECUTE", "LOAD"}

func isWrite(statement string) bool {
	verb, _, _ := strings.Cut(statement, " ")
	return statement == wire.DoBlock || slices.Contains(writeVerbs, verb)
}

// writes reports whether a call writes to the database, judging by its name.
func writes(c control.Call) bool { return slices.ContainsFunc(statements(c), isWrite) }

// changingKeys returns the calls of the first request to lock servers whose keys have another number in
// the second request. For example, a lock may be shared by all orders with the same remainder.
func changingKeys(a, b []control.Call) (keys []tap.Phase) {
	has := func(calls []control.Call, p tap.Phase) bool {
		return slices.ContainsFunc(calls, func(c control.Call) bool { return c.Phase == p })
	}
	for _, x := range a {
		for _, y := range b {
			alike := x.Target != tap.DB && fleet.WithoutNumbers(string(x.Phase)) == fleet.WithoutNumbers(string(y.Phase))
			if alike && !has(a, y.Phase) && !has(b, x.Phase) {
				keys = append(keys, x.Phase)
			}
		}
	}
	return catalog.Distinct(keys)
}

// difference names one call that only the first of two requests made, and one that only the second
// request made.
func difference(a, b []control.Call) string {
	only := func(a, b []control.Call) string {
		for _, c := range a {
			if !slices.Contains(b, c) {
				return fmt.Sprintf("%s (no. %d)", c.Phase, c.N)
			}
		}
		return "no other call"
	}
	return fmt.Sprintf("one grab makes %s, and the next one makes %s", only(a, b), only(b, a))
}

// checkReadable returns an error if the proxies may have missed calls of a request. A fault could
// then hit the wrong call.
func (r recorder) checkReadable(t trail) error {
	if why := r.fleet.Unreadable(); why != "" {
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

// ownQueue is the advice for services whose instances share a queue. The proxies of one instance
// then see only some of the requests.
const ownQueue = "If the worker of another instance may write, give each instance a queue of its own for the test, named after {port}. " +
	"Otherwise, or if another process writes, start the instances yourself, and name them with -targets and -target-pid. The faults then hit the second one, so put the instance that writes there. " +
	"If the order's number decides which instance writes, test only orders of the first one, for example with path: /orders/{order}0/grab"

// oneLeads is the advice for services in which one instance does the work of the others.
const oneLeads = "If one instance leads, and the others forward to it or refuse, let instance 1 lead during the test, with {number}"

// unreadable is the reason for an unknown verdict if the proxies could not decode every call of the
// service.
const unreadable = "the proxies could not read all calls of the service"

// trailOf infers the purpose of each call from its position. For example, a call to a lock server
// before the order is read acquires the lock.
func trailOf(calls []control.Call) trail {
	calls = withoutNextJob(calls)
	t := &serviceTrail{}
	all := trail{calls: map[fault.Role][]control.Call{fault.Alone: calls}, service: t, ledger: ledgerOf(calls)}
	write := claimOf(calls, all.ledger)
	end := len(calls)
	if write >= 0 {
		end = write
		all.claim = &control.Point{Phase: calls[write].Phase, N: calls[write].N}
	}
	work := max(0, end-1)
	for i := end - 1; i >= 0; i-- {
		if reads(calls[i]) || isFirstWrite(calls, i) {
			work = i
			break
		}
	}
	leases := writtenTables(calls[:max(0, write)]...) // tables written before the winner may contain locks
	for i, c := range calls {
		part := tap.Acquire
		switch {
		case i == work:
			part = fault.Work
			all.work = control.Point{Phase: c.Phase, N: c.N, After: true}
		case write >= 0 && i > write && (c.Target != tap.DB || unlocks(c) || writesTo(c, leases)):
			part = tap.Release
		case write >= 0 && i >= write && c.Target == tap.DB:
			part = tap.Claim
		case locks(c), writesTo(c, leases):
		case c.Target == tap.DB:
			part = tap.Read
		case i > work:
			part = tap.Renew // the call checks the lock a last time before the write
		}
		if part == tap.Release && all.release == nil {
			all.release = &control.Point{Phase: c.Phase, N: c.N}
		}
		t.parts = append(t.parts, part)
		switch kind, _, _ := strings.Cut(string(c.Phase), " "); kind {
		case "redis":
			t.needs |= lock.Redis
		case "redlock":
			t.needs |= lock.RedisQuorum
		}
		if locks(c) || writesTo(c, leases) {
			t.needs |= lock.SQLLocks
		}
	}
	return all
}

// isFirstWrite reports whether the nth call is the first write to its table, such as a reservation of the
// order. A repeated write may be a renewal instead.
func isFirstWrite(calls []control.Call, n int) bool {
	tables := writtenTables(calls[n])
	return len(tables) > 0 && !slices.ContainsFunc(calls[:n], func(c control.Call) bool { return writesTo(c, tables) })
}

// waitsForJob matches calls that a worker makes to wait for its next job.
var waitsForJob = regexp.MustCompile(`^redis (BLPOP|BRPOP|BLMOVE|BRPOPLPUSH|BLMPOP|BZPOPMIN|BZPOPMAX|BZMPOP|XREAD|XREADGROUP) `)

// withoutNextJob removes the calls that a worker makes to wait for its next job after writing the
// winner, because they do not belong to the recorded request.
func withoutNextJob(calls []control.Call) []control.Call {
	write := claimOf(calls, ledgerOf(calls))
	var own []control.Call
	for i, c := range calls {
		if write < 0 || i < write || !waitsForJob.MatchString(string(c.Phase)) {
			own = append(own, c)
		}
	}
	return own
}

// ledgerOf returns the table that contains the winners. This is the table of the last INSERT or, if
// there is no INSERT, of the first write.
func ledgerOf(calls []control.Call) (table string) {
	for _, c := range calls {
		for _, s := range statements(c) {
			if verb, of, _ := strings.Cut(s, " "); isWrite(s) && (table == "" || verb == "INSERT") {
				table = of
			}
		}
	}
	return table
}

// claimOf returns the index of the call that writes the winner, or -1 if there is none. If several
// writes belong together, it returns the first one.
func claimOf(calls []control.Call, ledger string) int {
	last := -1
	for i, c := range calls {
		if writesTo(c, []string{ledger}) {
			last = i
		}
	}
	if last < 0 {
		return -1
	}
	from := 0
	if committed := slices.ContainsFunc(calls[last:], func(c control.Call) bool { return does(c, "COMMIT") }); !committed {
		for from = last; from > 0 && writes(calls[from-1]); {
			from--
		}
	}
	for i := last; i > from; i-- {
		if does(calls[i], "BEGIN") || does(calls[i-1], "COMMIT") || does(calls[i-1], "ROLLBACK") {
			from = i
		}
	}
	return from + slices.IndexFunc(calls[from:], writes)
}

func does(c control.Call, verb string) bool {
	return slices.ContainsFunc(statements(c), func(s string) bool { return s == verb || verb == "BEGIN" && strings.HasPrefix(s, "START TRANSACTION") })
}

func writtenTables(calls ...control.Call) (tables []string) {
	for _, c := range calls {
		for _, s := range statements(c) {
			if _, table, _ := strings.Cut(s, " "); isWrite(s) {
				tables = append(tables, table)
			}
		}
	}
	return tables
}

func writesTo(c control.Call, tables []string) bool {
	return slices.ContainsFunc(writtenTables(c), func(table string) bool { return slices.Contains(tables, table) })
}

// holdsLedger reports whether an open transaction has written to the ledger by the end of call c.
// before says whether this was true before call c.
func (t trail) holdsLedger(c control.Call, before bool) bool {
	mysql := strings.HasPrefix(string(c.Phase), "mysql ") // in MySQL, LOCK TABLES waits for SELECT … FOR UPDATE too
	for _, s := range statements(c) {
		verb, table, _ := strings.Cut(s, " ")
		switch {
		case verb == "COMMIT" || verb == "ROLLBACK":
			before = false
		case isWrite(s) && table == t.ledger, mysql && table == t.ledger+wire.ForUpdate:
			before = true
		}
	}
	return before
}

// unlockCommands matches the Redis commands that release a lock in most services.
var unlockCommands = regexp.MustCompile(`^\S+ (DEL|UNLINK|GETDEL|EVAL|EVALSHA|FCALL|PUBLISH|DISCARD|UNWATCH)\b`)

// changesAfter reports whether a request of the user's service may still change something after the
// point, other than releasing its lock. For example, the service may first record the winner, and
// then close the order.
func (t trail) changesAfter(p fault.Point) bool {
	calls := t.calls[fault.Alone]
	i := slices.IndexFunc(calls, func(c control.Call) bool { return c.Phase == p.Phase && c.N == p.N })
	if i < 0 || p.After { // a background call may come at any time
		i++
	}
	return slices.ContainsFunc(calls[i:], func(c control.Call) bool {
		if c.Target == tap.DB {
			return writes(c)
		}
		return !unlockCommands.MatchString(string(c.Phase))
	})
}

// servicePoints returns the places at which a fault can be injected: before and after each remote
// call of a request, and at each background call.
func (t trail) servicePoints() []fault.Point {
	var all []fault.Point
	holdsLedger := false
	add := func(c control.Call, part tap.Phase, background bool) {
		for _, after := range []bool{false, true} {
			if after && !background {
				holdsLedger = t.holdsLedger(c, holdsLedger)
			}
			p := fault.Point{Point: control.Point{Phase: c.Phase, N: c.N, After: after}, Part: part, Background: background, HoldsLedger: holdsLedger && !background}
			if locks(c) && part == fault.Work && !after { // SELECT … FOR UPDATE acquires the lock and also reads the order
				p.Part = tap.Acquire
			}
			if !slices.ContainsFunc(all, func(o fault.Point) bool { return o.Point == p.Point && o.Background == background }) {
				all = append(all, p)
			}
		}
	}
	for i, c := range t.calls[fault.Alone] {
		add(c, t.service.parts[i], false)
	}
	for _, c := range t.service.renewal {
		add(c, tap.Renew, true)
	}
	return all
}
