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

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/ledger"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"
	"grablab/internal/testbed/wait"
)

// open connects to the running instances, and takes their settings over.
func (runningTargets) open(ctx context.Context, w *worker, _ int) (err error) {
	t := w.cfg.Target
	if w.fleet, err = fleet.Attach(ctx, t); err != nil {
		return err
	}
	w.cfg.TTL = cmp.Or(t.Lease, target.DefaultLease)
	if w.fleet.Known() {
		w.cfg.asRunning(w.fleet.Settings)
	}
	if t.Database.DSN != "" && t.Database.Query == "" && (t.Open == nil || t.Open.ByCall()) {
		if !w.fleet.Known() {
			return fmt.Errorf("%w: -db alone has no effect on your own service: add -ledger-query SQL, which reads its ledger, or -open-orders 'sql: …'", fleet.ErrRefused)
		}
		t.Database.Query = order.LedgerQuery
		w.cfg.Target.Database = t.Database
	}
	return w.useTheirOrders(ctx, t)
}

// useTheirOrders decides how to open orders of the user's service. If necessary, it connects to the
// database of the service.
func (w *worker) useTheirOrders(ctx context.Context, t target.Target) (err error) {
	if t.Database.DSN != "" {
		if w.theirs, err = ledger.Open(ctx, t.Database.DSN, t.Database.Query, w.fleet.Shape); err != nil {
			key, remedy := "ledger-query", w.cfg.missingTable(err)
			if errors.Is(err, ledger.ErrNoAnswer) {
				key, remedy = "db", ": start the database, or correct db"
			}
			return &Problem{Key: key, Text: strings.TrimPrefix(err.Error(), "ledger: ") + remedy}
		}
	}
	w.orders = theirOrders{w.fleet, t, w.theirs}
	return nil
}

// strategies returns the strategies to test. For the user's service, these are the strategies that
// the user has named, or otherwise all available ones. at is nil until the run knows the instances.
func (cfg Config) strategies(at *fleet.Fleet) []lock.Strategy {
	if !cfg.TestsService() {
		return cfg.withControl(cfg.Strategies)
	}
	names, known := cfg.Target.Strategies, at != nil && at.Known()
	switch {
	case at == nil:
	case at.Foreign:
		names = []string{Foreign}
	case len(names) > 0:
	case known:
		names = catalog.Map(cfg.Strategies, func(s lock.Strategy) string { return s.Name })
	default:
		available := catalog.Filter(at.Strategies, func(s fleet.Strategy) bool { return s.Available })
		names = catalog.Map(available, func(s fleet.Strategy) string { return s.Name })
	}
	strategies := make([]lock.Strategy, len(names))
	for i, name := range names {
		s, err := lock.Find(name)
		if err != nil || !known {
			s = lock.Strategy{Name: name, Title: "of the targets", Excludes: catalog.NoExclusion}
		}
		strategies[i] = s
	}
	if known {
		strategies = cfg.withControl(strategies)
	}
	for i := range strategies {
		strategies[i].Needs = cfg.serviceNeeds()
	}
	return strategies
}

// wanted returns the verdict that the user expects for a strategy under a fault. It returns nil if
// the user expects none.
func (cfg Config) wanted(strategy string, f catalog.Fault) *catalog.Verdict {
	for _, e := range cfg.Expect {
		if e.Strategy == strategy && e.Fault == f {
			return new(e.Verdict)
		}
	}
	return nil
}

// checkExpectations returns an error if the user expects a verdict for a strategy that the service
// does not have.
func (cfg Config) checkExpectations(at *fleet.Fleet) error {
	known := []string{Foreign}
	if !at.Foreign {
		known = at.Names()
	}
	for _, e := range cfg.Expect {
		if !slices.Contains(known, e.Strategy) {
			return fmt.Errorf("%w: -expectations, line %d: there is no strategy %q%s", fleet.ErrRefused, e.Line, e.Strategy,
				catalog.Hint(e.Strategy, known, "; there are "+strings.Join(known, ", ")))
		}
	}
	return nil
}

// theirOrders opens orders of the user's service and reads its ledger, either by calling the
// service or through its database.
type theirOrders struct {
	*fleet.Fleet
	target target.Target
	db     *ledger.DB
}

// Create opens orders, or takes the next unused ones, and returns the first id. Orders with several
// units are possible only if the service opens orders through its API.
func (o theirOrders) Create(ctx context.Context, count, units int) (int64, error) {
	first, err := o.Fleet.Create(ctx, count, units)
	if err != nil && o.Fleet.IsService() { // a fault may have left the service with dead connections
		_, _ = wait.Until(ctx, pollInterval, serviceArrives, func() (bool, error) {
			first, err = o.Fleet.Create(ctx, count, units)
			return err == nil, nil
		})
	}
	if open := o.target.Open; err == nil && open != nil && !open.ByCall() {
		err = o.db.Exec(ctx, open.Statements(first, count))
	}
	return first, err
}

func (o theirOrders) Ledger(ctx context.Context, first int64, count int) ([]order.Grab, error) {
	if o.target.Database.Query != "" {
		return o.db.Ledger(ctx, first, count)
	}
	return o.Fleet.Ledger(ctx, first, count)
}

// lookFirst finds out whether the user's service has a ledger. It returns an error if the ledger
// already has rows for new orders, because they would count as wins of this run.
func (au *auditor) lookFirst(ctx context.Context, first int64, count int) error {
	if au.fleet.Ours {
		return nil
	}
	au.ledger = au.cfg.Target.Database.Query != "" || au.fleet.KeepsLedger(ctx, first)
	if !au.ledger || au.cfg.Merge != nil {
		return nil
	}
	rows, err := au.orders.Ledger(ctx, first, count)
	if err == nil && len(rows) > 0 {
		remedy := "so these were used before: name fresh ones with -first-order, or open some with -open-orders"
		if au.cfg.Target.Open != nil {
			remedy = "although these were just opened: -ledger-query must return rows of grabs only, and -open-orders must not reuse orders"
		}
		err = fmt.Errorf("the ledger has %s for orders %s to %s before the load, "+remedy, catalog.Plural(len(rows), "row", "rows"), au.fleet.Shape.OrderText(first), au.fleet.Shape.OrderText(first+int64(count)-1))
	}
	return err
}

// notOpen returns a message if no driver could win the first order of the user's service.
// Otherwise, it returns "".
func (a *accounting) notOpen(at *fleet.Fleet) string {
	f := a.first
	switch {
	case at.Ours || f == nil || f.grabbed > 0 || f.unsure > 0:
		return ""
	case f.taken > 0 && f.taken+f.refused == a.drivers && at.OpensOrders():
		return fmt.Sprintf("order %s was opened for this run, but all of its %s were told that it is taken, and no driver had grabbed it. "+
			"The service may read an old state from a cache, or in a transaction that it never ended. Otherwise, correct -open-orders", a.shape.OrderText(f.id), catalog.Plural(a.drivers, "driver", "drivers"))
	case f.taken > 0 && f.taken+f.refused == a.drivers:
		return fmt.Sprintf("order %s is not open: all of its %s were told that it is taken, and no driver had grabbed it. Was it used before? "+
			"Name the first unused order with -first-order, or open new orders with -open-orders", a.shape.OrderText(f.id), catalog.Plural(a.drivers, "driver", "drivers"))
	case f.refused == a.drivers:
		return fmt.Sprintf("no driver could ask for order %s: the responses are %s. Check that the order exists (-first-order) and that the call is correct (-path, -method, -body, -header)",
			a.shape.OrderText(f.id), a.kinds(a.errors))
	}
	return ""
}

// kinds lists the kinds of error with their counts, the most frequent first. It includes an example
// response of the first kind.
func (a *accounting) kinds(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(x, y string) int { return cmp.Or(counts[y]-counts[x], strings.Compare(x, y)) })
	return catalog.Join(names, ", ", func(kind string) string {
		text := fmt.Sprintf("%s %d", kind, counts[kind])
		if kind == names[0] && a.samples[kind] != "" {
			text += fmt.Sprintf(" (%s)", catalog.Shorten(a.samples[kind], 100))
		}
		return text
	})
}

// countAnswers computes from the responses alone how often orders were won too often. It is the
// fallback if the ledger is missing or incomplete.
func (c *Cell) countAnswers(a *accounting) {
	promised := check.CountGrabs(check.Rows(a.told), a.units)
	c.CountedFrom, c.Grabs = fromAnswers, nil
	c.DoubleGrabs, c.OrdersDoubleGrabbed, c.OrdersGrabbed = &promised.DoubleGrabs, &promised.OrdersDouble, &promised.Orders
	c.LowerBound = len(a.unsure) > 0
}

// useAnswers makes the responses count instead of the ledger, for the cell and for each of its
// points.
func (m *measured) useAnswers(c *Cell, told []check.Pair) {
	m.told, m.evidence.Promised, m.evidence.FromAnswers = told, told, true
	c.countAnswers(m.accounting)
}

// unanswered returns how many requests got no response.
func (a *accounting) unanswered() int {
	return a.outcomes[grab.Timeout] + a.errors[load.Reset] + a.errors[load.Other]
}

// doubt returns a reason not to trust the figures of the user's service, or "" if there is none.
func (au *auditor) doubt(ctx context.Context, c *Cell, m *measured, drained bool) (reason string) {
	if au.fleet.Ours {
		return ""
	}
	a := m.accounting
	unanswered := a.unanswered()
	told := check.Evidence{Ledger: check.Rows(a.told)}.WithoutRepeats(au.cfg.perDriver())
	promised := check.CountGrabs(told, a.units)
	winners := check.CountGrabs(m.evidence.WithoutRepeats(au.cfg.perDriver()), a.units)
	switch {
	case c.DoubleGrabs == nil: // the ledger could not be read
		if promised.DoubleGrabs > 0 {
			m.useAnswers(c, check.Pairs(told))
			m.note = ", according to the responses"
		}
	case au.ledger && promised.DoubleGrabs > winners.DoubleGrabs:
		m.useAnswers(c, check.Pairs(told))
		m.note = ", according to the responses: more drivers were told that they had won than the ledger names, so the ledger may keep only one of them"
	case value(c.RepeatedRows) > 0 && winners.DoubleGrabs == 0 && !au.cfg.Target.Idempotent:
		m.repeated = fmt.Sprintf("%s an order and its driver, and no order has a second driver: does -ledger-query double rows, as a JOIN may, or does the service write a grab twice? If a retry of a driver may repeat its row, add -idempotent",
			catalog.Plural(*c.RepeatedRows, "row repeats", "rows repeat"))
	case a.unreadable != "":
		reason = fmt.Sprintf("%s: if its text says who has won, name the field, as in -grabbed 'json:.code==0'; if that status does mean a win, say so with -grabbed %s",
			a.unreadable, au.fleet.Shape.Says().Grabbed)
	case au.ledger && *c.PhantomGrabs > 0:
		reason = fmt.Sprintf("%s that the ledger does not have: does -ledger-query read all of them?", catalog.Plural(*c.PhantomGrabs, "grab was promised", "grabs were promised"))
		if c.Fault != catalog.NoFault {
			reason += " Perhaps the service writes after its response, and the fault prevented this write: let the service write before it responds. If a worker repeats the write later, set -settle to the time that this takes"
		}
	case au.ledger && unanswered > 0 && !drained:
		reason = fmt.Sprintf("%s, and may still have been in progress when the ledger was read: set a longer -timeout", catalog.Plural(unanswered, "request was not answered", "requests were not answered"))
		if au.fleet.IsService() {
			reason += ". If an instance is always blocked in a statement, as a standby for a lock is, the program cannot see that all grabs have ended: let the instance poll instead, at most three times per second"
		}
	case !au.ledger && len(a.unsure) > 0:
		reason = fmt.Sprintf("%s may hide a grab: %s. There is no ledger to check: name it with -db and -ledger-query, or say what a response means with -grabbed, -taken and -busy",
			catalog.Plural(len(a.unsure), "answer", "answers"), a.kinds(a.hiding))
	}
	if reason == "" && au.fleet.Shape != target.Own {
		reason = au.fleet.OneInstance(a.competed)
	}
	if n := len(a.unsure); c.LowerBound && *c.DoubleGrabs > 0 {
		m.note += fmt.Sprintf("; %s may hide more of them", catalog.Plural(n, "answer", "answers"))
	}
	if m.vacuous = a.whyNothingShown(c, m.evidence.Ledger); m.vacuous == "" {
		m.vacuous = au.askAgain(ctx, a)
	}
	return reason
}

// whyNothingShown explains why this test could not have revealed a broken lock. It returns "" if it
// could have.
func (a *accounting) whyNothingShown(c *Cell, rows []order.Grab) string {
	found := check.RowsByOrder(rows)
	unclaimed := len(catalog.Filter(a.unclaimed, func(id int64) bool { return found[id] == 0 }))
	reachedLock := a.outcomes[grab.Grabbed] + a.outcomes[grab.Taken] + a.outcomes[grab.Busy]
	switch {
	case c.OrdersGrabbed != nil && *c.OrdersGrabbed == 0:
		return fmt.Sprintf("no order was grabbed at all: %s. Check that these orders are new (-first-order), and that the rules fit the answers (-grabbed, -taken)", a.answersSeen())
	case unclaimed > 0:
		return fmt.Sprintf("%s reported as taken, but no driver was told that it had won: perhaps the orders were used before, winners were told that they had lost, or the service limits how many orders a driver may have: turn such a limit off for the test", share(unclaimed, c.Orders, "was", "were"))
	case 2*reachedLock < a.requests:
		return fmt.Sprintf("the targets served %d of %d requests, too few for a race: %s%s", reachedLock, a.requests, a.kinds(a.errors), ifLost)
	}
	return a.tooSlow(c)
}

// ifLost is the advice about responses that match no rule.
const ifLost = ". If these responses mean that a driver lost, say so: with -taken if another driver has won, or with -busy if the driver may try again. If they limit the rate of requests, turn this limit off for the test"

// unmatched quotes the responses that match no rule, and adds advice. It returns "" if there are none. Under
// a fault, it adds that the fault may be the reason.
func (a *accounting) unmatched(f catalog.Fault) string {
	if a == nil || a.shape == nil || a.shape == target.Own {
		return ""
	}
	answers := maps.Clone(a.errors)
	maps.DeleteFunc(answers, func(kind string, _ int) bool { return !strings.HasPrefix(kind, "http ") })
	if len(answers) == 0 {
		return ""
	}
	cause := ""
	if f != catalog.NoFault {
		cause = ". The fault may be the reason"
	}
	if answers["http 500"] > 0 && len(answers) == 1 {
		return ". Some requests failed: " + a.kinds(answers) + cause + ". If a driver may try again after this response, say so with -busy"
	}
	return ". Some responses match no rule: " + a.kinds(answers) + cause + ifLost
}

// askAgain repeats the request of a winner. If the service says again that the driver has won, the
// counted wins may come from an earlier run.
func (au *auditor) askAgain(ctx context.Context, a *accounting) string {
	if au.ledger || au.cfg.Target.FirstOrder == 0 || au.cfg.Target.Open != nil || len(a.told) == 0 {
		return ""
	}
	winner := a.told[0]
	if again, err := au.fleet.Wins(ctx, winner.Order, winner.Driver); err != nil || !again { // many services refuse a repeated grab with an error
		return ""
	}
	return fmt.Sprintf("driver %d asked again and was told again that it had won order %s, so the win may be from an earlier run. The responses alone do not show that these orders were new: "+
		"read the ledger (-db and -ledger-query), or open new orders (-open-orders)", winner.Driver, a.shape.OrderText(winner.Order))
}

func (a *accounting) answersSeen() string {
	var words []string
	for _, o := range grab.Outcomes {
		if n := a.outcomes[o]; n > 0 && o != grab.Failed {
			words = append(words, fmt.Sprintf("%d responses were %s", n, o))
		}
	}
	if len(a.errors) > 0 {
		words = append(words, "errors were "+a.kinds(a.errors))
	}
	return strings.Join(words, ", ")
}

// hiccup is the longest delay for which the program blames a busy machine.
const hiccup = 100 * time.Millisecond

// servedHalf returns when half of the requests had been served, and when the last one was due. late
// means that requests had to wait for each other, which can hide a race.
func (a *accounting) servedHalf(c *Cell) (half, due time.Duration, late bool) {
	if c.OfferedRPS == nil || c.Latency == nil {
		return 0, 0, false
	}
	due = a.lastDue.Sub(a.began)
	quickest := time.Duration(a.sent.Latency().Min * float64(time.Millisecond))
	half = a.served.At(float64(a.requests) / 2)
	return half, due, half > due+max(2*quickest, hiccup)
}

// tooSlow explains why the service was too slow to reveal a race. It returns "" if the service kept
// up with the load.
func (a *accounting) tooSlow(c *Cell) string {
	half, due, late := a.servedHalf(c)
	if !late {
		return ""
	}
	return fmt.Sprintf("half of the requests were served only after %v, although all of them were due within %v. Such a slow service hides its races: "+
		"lower -rate, or let it warm up with -warmup", half.Round(time.Millisecond), due.Round(time.Millisecond))
}

// slowerLoads is how often to repeat a load at a lower rate.
const slowerLoads = 2

// slowerRate returns the rate at which to repeat a load that was too fast: half of the rate that
// the service achieved. It returns 0 if the load should not be repeated.
func (w *worker) slowerRate(c Cell, m measured) float64 {
	t := w.cfg.Target
	if m.accounting == nil || !w.cfg.Together || w.cfg.Shard != nil || w.cfg.Merge != nil || t.FirstOrder != 0 && t.Open == nil {
		return 0
	}
	half, _, late := m.accounting.servedHalf(&c)
	if _, reason := judge(c, m); !late || m.vacuous == "" || reason != m.vacuous {
		return 0
	}
	return float64(m.accounting.requests) / 2 / half.Seconds() / 2
}
