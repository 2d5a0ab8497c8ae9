package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/wait"
	"grablab/internal/testbed/wire"
)

// serviceNeeds returns the servers that a service uses besides the database. It may also keep its
// locks in the database.
func (cfg Config) serviceNeeds() (needs lock.Backend) {
	if cfg.Service.Uses("redis") || cfg.Service.Uses("sentinel") {
		needs |= lock.Redis
	}
	if cfg.Service.Uses("redlock") {
		needs |= lock.RedisQuorum
	}
	if cfg.Service.Uses("db") || cfg.Service.UsesPostgres() {
		needs |= lock.SQLLocks
	}
	return needs
}

// startService starts the service once for each instance.
func (w *worker) startService(ctx context.Context, port int) error {
	w.fleet = fleet.NewService(fleet.Config{Instances: w.cfg.Instances, Say: w.progress.say}, *w.cfg.Service, w.stack, port)
	if err := w.fleet.Migrate(ctx, w.cfg.setup()); err != nil {
		return err
	}
	if err := w.fleet.Equip(ctx, w.cfg.setup()); err != nil {
		return &Problem{Key: "service", Text: err.Error()}
	}
	t := w.cfg.Target
	if err := w.fleet.Identify(ctx, t); err != nil {
		return err
	}
	t.Database.DSN = w.stack.DSN
	return w.useTheirOrders(ctx, t)
}

// serviceTrail has the part of a trail that only a foreign service needs. Proxies see the calls
// of such a service by their names on the wire, so their purpose is inferred.
type serviceTrail struct {
	parts   []tap.Phase    // the inferred phase of each call
	renewal []control.Call // the calls made in the background, each listed once
	needs   lock.Backend   // the servers that the calls go to
	table   string         // the table that a grab writes to, such as a ledger
}

// recordService makes the dry runs of a service. First one driver at a time grabs alone, and the
// proxies record its requests. Then one more grab is held before its work, which reveals the
// renewals of its lock.
func (w *worker) recordService(ctx context.Context, s lock.Strategy) (t trail, err error) {
	u := w.cfg.setup()
	if u.TTL, u.Work = dryTTL, injectionWork; !w.cfg.Service.Uses("ttl_ms") {
		u.TTL = w.cfg.TTL
	}
	if err := w.fleet.Equip(ctx, u); err != nil {
		return t, err
	}
	if _, err := w.fleet.Use(ctx, s.Name); err != nil {
		return t, err
	}
	first, err := w.orders.Create(ctx, dryRuns+2)
	if err != nil {
		return t, err
	}
	struck := w.fleet.Instances[0]
	defer struck.Watch(0, 0)
	if err := struck.AwaitGrab(ctx, first, dryStep); err != nil {
		return t, err
	}
	if t, err = w.listTrail(ctx, struck, first+1); err != nil {
		return t, fmt.Errorf("experiment: dry run of %s: %w", s.Name, err)
	}
	t.service.renewal, err = w.listRenewals(ctx, struck, first+1+int64(dryRuns), t, u.TTL)
	t.renews = len(t.service.renewal) > 0
	return t, err
}

// listTrail records the requests of up to dryRuns grabs, until two grabs in a row make the same
// requests.
func (w *worker) listTrail(ctx context.Context, in *fleet.Instance, first int64) (t trail, err error) {
	var before, last []control.Call
	late := map[tap.Phase]bool{} // calls that may still be made after a grab was answered
	for n := range int64(dryRuns) {
		calls, err := w.listCalls(ctx, in, first+n, late)
		if err != nil {
			return t, err
		}
		calls, last = onTime(calls, late), onTime(last, late)
		if n > 0 && slices.Equal(sortedCalls(calls), sortedCalls(last)) {
			return trailOf(calls), nil
		}
		before, last = last, calls
	}
	return t, fmt.Errorf("of %d grabs, no two in a row make the same requests: %s", dryRuns, difference(before, last))
}

func callNames(calls []control.Call) string {
	names := make([]string, len(calls))
	for i, c := range calls {
		names[i] = string(c.Phase)
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

func onTime(calls []control.Call, late map[tap.Phase]bool) []control.Call {
	return slices.DeleteFunc(calls, func(c control.Call) bool { return late[c.Phase] })
}

// Names of the holds that a dry run sets at the proxies.
const (
	dryList = "dry"
	dryHold = "dry-at"
)

// dryGrabOf sends a grab and records its requests. If at is not nil, the grab is held there. The
// caller must call done, which removes that hold, waits for the grab and returns its error.
func (w *worker) dryGrabOf(ctx context.Context, in *fleet.Instance, order int64, at *control.Point) (done func() error, err error) {
	in.Watch(order, 1)
	if err := in.SetHold(ctx, dryList, control.Hold{First: order, Count: 1, Outcome: control.Delivered}); err != nil {
		return nil, err
	}
	if at != nil {
		if err := in.SetHold(ctx, dryHold, control.Hold{First: order, Count: 1, At: *at}); err != nil {
			return nil, err
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := in.Grab(ctx, order, 1)
		ended <- err
	}()
	return func() error {
		if at != nil {
			if err := in.RemoveHold(ctx, dryHold); err != nil {
				return err
			}
		}
		return <-ended
	}, nil
}

// listed returns the requests that the proxies have recorded so far in a dry run.
func listed(ctx context.Context, in *fleet.Instance) ([]control.Call, error) {
	met, err := in.Held(ctx, dryList, 0, 0)
	calls := make([]control.Call, len(met))
	for i, h := range met {
		calls[i] = h.Call
		calls[i].Order, calls[i].Driver = 0, 0
	}
	return calls, err
}

// listedFor returns the requests recorded so far, and separately those that follow within the
// given time.
func listedFor(ctx context.Context, in *fleet.Instance, long time.Duration) (before, meanwhile []control.Call, err error) {
	if before, err = listed(ctx, in); err != nil {
		return nil, nil, err
	}
	if !wait.For(ctx, long) {
		return nil, nil, context.Cause(ctx)
	}
	all, err := listed(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	return before, all[len(before):], nil
}

// listCalls returns the requests of one grab in order. It adds those that come after the answer to
// late.
func (w *worker) listCalls(ctx context.Context, in *fleet.Instance, order int64, late map[tap.Phase]bool) ([]control.Call, error) {
	defer func() { _ = removeAll(context.WithoutCancel(ctx), in) }()
	done, err := w.dryGrabOf(ctx, in, order, nil)
	if err != nil {
		return nil, err
	}
	if err := done(); err != nil {
		return nil, fmt.Errorf("its grab failed: %w", err)
	}
	calls, behind, err := listedFor(ctx, in, quietFor)
	for _, c := range behind {
		late[c.Phase] = true
	}
	return calls, err
}

// listRenewals returns the requests that are made while a grab is held before its work. They must
// come from the background on another connection, because the grab and its own connection are
// waiting.
func (w *worker) listRenewals(ctx context.Context, in *fleet.Instance, order int64, t trail, lease time.Duration) (once []control.Call, err error) {
	defer func() { _ = removeAll(context.WithoutCancel(ctx), in) }()
	done, err := w.dryGrabOf(ctx, in, order, &t.work)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if met, err := in.Held(ctx, dryHold, 1, dryStep); err != nil || len(met) == 0 {
		return nil, cmp.Or(err, errors.New("the grab did not come to its work"))
	}
	_, meanwhile, err := listedFor(ctx, in, lease*2/3)
	for _, c := range meanwhile {
		if !slices.ContainsFunc(once, func(o control.Call) bool { return o.Phase == c.Phase && o.Target == c.Target }) {
			once = append(once, c)
		}
	}
	return once, err
}

// statements returns the SQL statements that a call sends, each as a verb and a table.
func statements(c control.Call) []string {
	if c.Target != tap.DB {
		return nil
	}
	_, text, _ := strings.Cut(string(c.Phase), " ")
	return strings.Split(text, wire.Joint)
}

// lockFunctions matches statements that take a lock in the database, and unlockFunctions those
// that give one back.
var (
	lockFunctions   = regexp.MustCompile(`^SELECT (GET_LOCK|(?i:pg_(try_)?advisory_(xact_)?lock(_shared)?))$|` + wire.ForUpdate + `$`)
	unlockFunctions = regexp.MustCompile(`^SELECT (RELEASE_LOCK|RELEASE_ALL_LOCKS|(?i:pg_advisory_unlock(_shared|_all)?))$`)
)

func locks(c control.Call) bool { return slices.ContainsFunc(statements(c), lockFunctions.MatchString) }
func unlocks(c control.Call) bool {
	return slices.ContainsFunc(statements(c), unlockFunctions.MatchString)
}

// reads reports whether a call reads a table without writing to any.
func reads(c control.Call) bool {
	return !writes(c) && slices.ContainsFunc(statements(c), func(s string) bool {
		return strings.HasPrefix(s, "SELECT ") && (strings.HasSuffix(s, wire.ForUpdate) || !lockFunctions.MatchString(s) && !unlockFunctions.MatchString(s))
	})
}

// writeVerbs lists the verbs of SQL statements that write, or that may write where the proxies
// cannot see it.
var writeVerbs = []string{"INSERT", "UPDATE", "DELETE", "REPLACE", "CALL", "EXECUTE", "LOAD"}

func isWrite(statement string) bool {
	verb, _, _ := strings.Cut(statement, " ")
	return statement == wire.DoBlock || slices.Contains(writeVerbs, verb)
}

// writes reports whether a call writes to the database, as far as the name of its statement shows.
func writes(c control.Call) bool {
	return c.Target == tap.DB && slices.ContainsFunc(statements(c), isWrite)
}

// difference returns a text that names a call which only one of two grabs has made.
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

// checkReadable returns an error if the proxies cannot have seen every call of a grab, because
// then a fault could miss its point.
func (w *worker) checkReadable(t trail) error {
	if why := w.fleet.Unreadable(); why != "" {
		return fmt.Errorf("%s: %s", unreadable, why)
	}
	if t.claim == nil {
		return fmt.Errorf("a grab makes no write to the database that the proxies see, only %s: the service must write through the address in {db} or {postgres}, and win the order of a dry run",
			callNames(t.calls[fault.Alone]))
	}
	return nil
}

// unreadable is the reason to distrust a cell if the proxies could not decode all calls of the
// service.
const unreadable = "the proxies could not read all calls of the service"

// trailOf infers the purpose of each call of a grab from its position. Calls to the lock's servers
// acquire the lock if they precede the read of the order, and release it if they follow the write.
// The work begins after the last read before the first write.
func trailOf(calls []control.Call) trail {
	t := &serviceTrail{}
	all := trail{calls: map[fault.Role][]control.Call{fault.Alone: calls}, service: t}
	write := slices.IndexFunc(calls, writes)
	end := len(calls)
	if write >= 0 {
		end = write
		all.claim = &control.Point{Phase: calls[write].Phase, N: calls[write].N}
	}
	work := max(0, end-1)
	for i := end - 1; i >= 0; i-- {
		if reads(calls[i]) {
			work = i
			break
		}
	}
	for i, c := range calls {
		part := tap.Acquire
		switch {
		case i == work:
			part = fault.Work
			all.work = control.Point{Phase: c.Phase, N: c.N, After: true}
		case write >= 0 && i > write && (c.Target != tap.DB || unlocks(c)):
			part = tap.Release
		case write >= 0 && i >= write && c.Target == tap.DB:
			part = tap.Claim
		case locks(c):
		case c.Target == tap.DB:
			part = tap.Read
		case i > work:
			part = tap.Renew // a last check of the lock before the write
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
		if locks(c) {
			t.needs |= lock.SQLLocks
		}
		for _, s := range statements(c) {
			verb, table, _ := strings.Cut(s, " ")
			if isWrite(s) && (t.table == "" || verb == "INSERT") {
				t.table = table
			}
		}
	}
	return all
}

// points returns the points at which a fault can be injected: before and after each call of a grab,
// and before and after each background call, such as a renewal, while the grab works.
func (t *serviceTrail) points(calls []control.Call) []fault.Point {
	var all []fault.Point
	add := func(c control.Call, part tap.Phase, background bool) {
		for _, after := range []bool{false, true} {
			p := fault.Point{Point: control.Point{Phase: c.Phase, N: c.N, After: after}, Part: part, Background: background}
			if locks(c) && part == fault.Work && !after { // SELECT … FOR UPDATE acquires and reads
				p.Part = tap.Acquire
			}
			if !slices.ContainsFunc(all, func(o fault.Point) bool { return o.Point == p.Point && o.Background == background }) {
				all = append(all, p)
			}
		}
	}
	for i, c := range calls {
		add(c, t.parts[i], false)
	}
	for _, c := range t.renewal {
		add(c, tap.Renew, true)
	}
	return all
}
