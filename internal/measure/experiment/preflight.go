package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/wait"
	"grablab/internal/testbed/wire"
)

// Preflight contains the findings from a few test requests to the user's service before the load.
type Preflight struct {
	Strategy string
	Answers  []SeenAnswer
	Ledger   string     // what the ledger shows about the test requests, in one sentence
	Calls    []SeenCall // one request's remote calls in order; empty if the program cannot see them
	Reaches  []Reach
	Problems []Problem
	Output   string // the end of the service's output, if its status was 500 or above
}

// SeenAnswer is the response to one test request.
type SeenAnswer struct {
	Question string // who sent the request, such as "first driver again"
	Answer   string // status and body as text
	Meaning  string
	Status   int
	Body     []byte
	Wrong    bool // whether a second driver has won
}

// SeenCall is one call that the service made to a server.
type SeenCall struct{ Role, Name string }

// Reach lists the remote calls of a request at which a fault can be injected.
type Reach struct {
	Fault         catalog.Fault
	Before, After []int  // numbers of the calls before and after which the fault can be injected, counted from 1
	Why           string // why the fault can hit no call, or which calls it cannot hit
}

// Problem is a mistake in the settings for the user's service.
type Problem struct {
	Key  string // setting to correct, named as in a target file
	Text string // what is wrong, with advice for the user
	// Faults is true if the problem affects only runs that inject faults.
	Faults bool
}

// Error names the setting and describes the problem.
func (p *Problem) Error() string { return p.Key + ": " + p.Text }

// roles maps a call's phase to the word shown to the user.
var roles = map[tap.Phase]string{
	tap.Acquire: "acquire", tap.Read: "read", fault.Work: "read, then work", tap.Claim: "write", tap.Release: "release", tap.Renew: "check of the lock",
}

// Inspect sends a few test requests with each strategy of the user's service, and calls show with
// the findings. If the run has to start the service, Inspect starts it first.
func Inspect(ctx context.Context, cfg Config, show func(Preflight)) (err error) {
	// Start the service with the settings that recordService will use, so that it need not start
	// twice.
	cfg.TTL, cfg.Work = cfg.ttlOfDryRuns(), injectionWork
	cfg.Stack.Needs |= cfg.serviceNeeds()
	progress := newProgress(cfg)
	if cfg.Service != nil {
		progress.say("starting the %s stack and the service", cfg.Stack.Kind)
	}
	w, err := openWorker(ctx, cfg, 0, progress, &journal{dir: cfg.Out})
	defer func() { err = errors.Join(err, w.close()) }()
	if err != nil {
		return err
	}
	i, all := w.inspector(), cfg.strategies(w.fleet)
	for n, s := range all {
		if n == 1 { // not earlier, because the caller may cancel ctx after the first strategy
			progress.say("trying %d more strategies, one after another; to try fewer, name them with -strategies", len(all)-1)
		}
		p := i.inspect(ctx, s)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var t trail
		if cfg.Service != nil && len(p.Problems) == 0 {
			t, err = i.recorder.recordService(ctx, s)
			i.inspectTrail(&p, t, err)
		}
		for _, f := range catalog.RunFaults {
			if f != catalog.NoFault && len(p.Problems) == 0 {
				p.Reaches = append(p.Reaches, w.cfg.reach(CellName{s.Name, f}, s, t))
			}
		}
		show(p)
		if ctx.Err() != nil {
			break
		}
	}
	return ctx.Err()
}

// inspectFirst sends a few requests with each strategy of the user's service before the run measures
// anything, and returns the first problem. It does nothing if the run takes its orders from -first-order and
// cannot open more, because the requests would use up some of them.
func (r *runner) inspectFirst(ctx context.Context, w *worker) error {
	if r.cfg.Inspected == nil || w.fleet.Known() || w.cfg.Target.Open == nil && w.cfg.Target.FirstOrder > 0 {
		return nil
	}
	i, all := w.inspector(), r.cfg.strategies(w.fleet)
	faultless, faulty := r.left()
	left := append(faulty, faultless...) // inspect a test with a fault first, because it has more requirements
	for _, s := range all {
		n := slices.IndexFunc(left, func(spec *cellSpec) bool { return spec.Strategy == s.Name })
		if n < 0 {
			continue
		}
		p := i.inspect(ctx, s)
		if left[n].Fault != catalog.NoFault && r.cfg.Service != nil && len(p.Problems) == 0 {
			t, err := i.recorder.quickTrail(ctx)
			i.inspectTrail(&p, t, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(all) > 1 {
			p.nameStrategy()
		}
		if err := r.cfg.Inspected(p); err != nil {
			return err
		}
	}
	return nil
}

// quickTrail records the remote calls of one request. To save time, it does not wait for background
// calls, such as renewals.
func (r recorder) quickTrail(ctx context.Context) (t trail, err error) {
	first, err := r.orders.Create(ctx, dryRuns, 1)
	if err != nil {
		return t, err
	}
	in := r.fleet.Instances[0]
	defer in.Watch(0, 0)
	return r.listTrail(ctx, in, first)
}

// nameStrategy adds the strategy to each problem, because only some of several strategies may have it.
func (p *Preflight) nameStrategy() {
	for i := range p.Problems {
		p.Problems[i].Text = p.Strategy + ": " + p.Problems[i].Text
	}
}

func (p *Preflight) add(key, format string, args ...any) {
	p.Problems = append(p.Problems, Problem{Key: key, Text: fmt.Sprintf(format, args...)})
}

// inspector sends a few test requests to the user's service, and lists what is wrong with the
// settings.
type inspector struct {
	cfg      Config
	fleet    *fleet.Fleet
	orders   orders
	auditor  *auditor
	recorder recorder
}

func (w *worker) inspector() inspector {
	return inspector{w.cfg, w.fleet, w.orders, w.auditor(), w.recorder()}
}

// inspect sends three test requests for a new order: one driver wins, another comes too late, and
// the winner asks again.
func (i inspector) inspect(ctx context.Context, s lock.Strategy) (p Preflight) {
	p.Strategy = s.Name
	if _, err := i.fleet.Use(ctx, s.Name); err != nil {
		p.add("strategies", "%v: the service must accept PUT /strategy", err)
		return p
	}
	open := "open-orders"
	if i.cfg.Target.Open == nil && i.cfg.Target.FirstOrder > 0 {
		open = "first-order"
	}
	count := 1
	if i.cfg.Target.Open != nil {
		count = 2 // the second order shows whether the ids are consecutive
	}
	id, err := i.orders.Create(ctx, count, 1)
	if err != nil {
		hint := ""
		if status, ok := errors.AsType[*fleet.StatusError](err); ok && status.Code == http.StatusInternalServerError {
			hint = i.cfg.noMigrations()
		}
		advice := "Correct the call or the ID field in its response, or open orders with sql: INSERT …"
		if o := i.cfg.Target.Open; o != nil && !o.ByCall() {
			advice = "Correct the statement; if it must run again, let it delete the orders first"
		}
		p.add(open, "no order could be opened: %v. %s%s", err, advice, hint)
		return p
	}
	if err := i.auditor.lookFirst(ctx, id, 1); err != nil {
		key := open
		if strings.HasPrefix(err.Error(), "ledger: ") {
			key = "ledger-query"
		}
		p.add(key, "%s%s", strings.TrimPrefix(err.Error(), "ledger: "), i.cfg.missingTable(err))
		return p
	}
	name := i.fleet.Shape.OrderText(id)
	winner, late := i.fleet.ProbeDriver(0), i.fleet.ProbeDriver(1)
	first := i.fleet.Instances[0]
	m := i.ask(ctx, &p, first, id, winner, "first driver of order "+name)
	failed := m.status >= 500 && i.auditor.hasRows(ctx, id, 1)
	if m.outcome != grab.Grabbed && !failed {
		known := ""
		if i.cfg.Target.ProbeDrivers == 0 && i.fleet.Shape.TellsDrivers() {
			known = fmt.Sprintf(". If the service does not know driver %d, set probe-drivers to the first of several drivers that it knows", winner)
		}
		failing := "body"
		if i.cfg.Service != nil {
			failing = "service"
		}
		p.addLoser(m, open, failing, known)
		if last := &p.Problems[len(p.Problems)-1]; last.Key == "later" && m.result == nil { // a run without a fault may need only the ledger
			last.Faults, _ = wait.Until(ctx, pollInterval, i.ledgerArrives(), func() (bool, error) { return i.auditor.hasRows(ctx, id, 1), nil })
		}
		if process := first.Process(); process != nil && m.status >= 500 {
			p.Output = process.LogTail()
		}
		return p
	}
	m = i.ask(ctx, &p, i.fleet.Instances[min(1, len(i.fleet.Instances)-1)], id, late, "second driver, too late")
	p.Answers[len(p.Answers)-1].Wrong = m.outcome == grab.Grabbed
	rows := i.inspectLedger(ctx, &p, id, winner)
	if failed {
		p.Ledger += fmt.Sprintf(", although the service answered that driver with HTTP %d. The ledger counts, not the response", p.Answers[0].Status)
	}
	switch {
	case m.status == 0 && m.result == nil:
		p.add("service", "a driver who comes too late gets no response: %s. The service must answer every driver. If this driver waits for a lock, "+
			"the winner has not released it, for example because it used another connection of its pool", m.text)
	case m.outcome == grab.Failed || m.outcome == grab.Timeout:
		p.add("taken", "the response to a driver who comes too late matches no rule: %s: set taken to a rule for such responses", m.text)
	case m.outcome == grab.Grabbed && i.fleet.Shape.AssumesGrabbed && rows < 2:
		p.add("grabbed", "two drivers of order %s were both answered with status 200: set grabbed to a rule that only a winner's response matches, as in json:.code==0 or xml:/grab/code==0. "+
			"If both were really told that they had won, write grabbed: 200, and run again", name)
	}
	i.ask(ctx, &p, first, id, winner, "first driver again")
	if count > 1 && !failed && len(p.Problems) == 0 {
		i.inspectSecond(ctx, &p, id+1)
	}
	return p
}

// inspectSecond checks that -open-orders has also opened a second order, because a run needs
// several orders with consecutive ids.
func (i inspector) inspectSecond(ctx context.Context, p *Preflight, id int64) {
	m := i.ask(ctx, p, i.fleet.Instances[0], id, i.fleet.ProbeDriver(1), "driver of the next order")
	if m.outcome == grab.Grabbed || m.outcome == grab.Busy {
		p.Answers = p.Answers[:len(p.Answers)-1]
		return
	}
	p.add("open-orders", "order %s could be grabbed, but the next one, %s, was answered with %s: open {count} orders with consecutive ids. "+
		"If a call opens only one order, write {order_uuid} instead of {order} in path or body: the program then calls it for each order. "+
		"The ledger-query then needs WHERE order_id IN ({orders}). Convert a numeric column: order_id::text in PostgreSQL, and CAST(order_id AS CHAR) in MySQL",
		i.fleet.Shape.OrderText(id-1), i.fleet.Shape.OrderText(id), m.text)
}

// missingTable returns a hint if a database error reports a missing table.
func (cfg Config) missingTable(err error) string {
	for _, text := range []string{"doesn't exist", `relation "`, "no such table"} {
		if strings.Contains(err.Error(), text) {
			return cfg.noMigrations()
		}
	}
	return ""
}

// noMigrations returns a hint for errors that may be caused by missing tables.
func (cfg Config) noMigrations() string {
	if cfg.Service == nil || len(cfg.Service.Migrations) > 0 {
		return ""
	}
	return ". The private database is empty: if the service does not create its tables, create them with migrate"
}

type reply struct {
	status  int
	outcome grab.Outcome
	text    string            // status and body, or the error if there is no response
	result  *load.ResultError // why a result that comes later is missing; nil if it is not
}

// ask sends one grab to the instance, and stores the answer and its meaning in p. question
// describes the grab for the user.
func (i inspector) ask(ctx context.Context, p *Preflight, in *fleet.Instance, id, driver int64, question string) reply {
	a, m, err := in.Ask(ctx, id, driver)
	h := reply{status: a.Status, outcome: m.Outcome, text: strings.TrimSpace(fmt.Sprintf("HTTP %d %s", a.Status, fleet.OneLine(string(a.Body))))}
	rules := i.fleet.Shape.Says()
	rule := map[grab.Outcome]string{grab.Grabbed: rules.Grabbed, grab.Taken: rules.Taken, grab.Busy: rules.Busy}[m.Outcome]
	meaning := fmt.Sprintf("%s, by the rule %s", m.Outcome, rule)
	switch {
	case errors.As(err, &h.result):
		h.text, meaning = h.result.Error(), "no result"
	case err != nil:
		h.text, meaning = err.Error(), "no answer"
	case rule == "" && strings.HasPrefix(m.Kind, "both "):
		meaning = m.Kind
	case rule == "":
		meaning = "matches no rule"
	}
	p.Answers = append(p.Answers, SeenAnswer{Question: question, Answer: h.text, Meaning: meaning, Status: a.Status, Body: a.Body})
	return h
}

// addLoser adds the problem that the first driver of a new order did not win. From the response, it
// derives which setting to correct. The parameter open is the setting that opens orders, and failing is
// the setting to name if the service fails. The parameter known is a hint for services that accept only
// known drivers.
func (p *Preflight) addLoser(m reply, open, failing, known string) {
	says := "the first driver of a fresh order was answered with " + m.text
	switch {
	case m.outcome == grab.Taken || m.outcome == grab.Busy:
		key := open
		if m.outcome == grab.Busy {
			key = "busy"
		}
		p.add(key, "%s, which means %s: open fresh orders, or correct the rules", says, m.outcome)
	case m.result != nil:
		p.add("later", "%v", m.result)
	case m.status == 0:
		p.add("path", "%s: the service must answer", m.text)
	case m.status == http.StatusNotFound:
		p.add("path", "%s: correct the path; if it is right, the order does not exist: correct first-order, or open orders with open-orders%s", says, known)
	case m.status == http.StatusMethodNotAllowed:
		p.add("method", "%s: correct the method", says)
	case m.status == http.StatusUnauthorized || m.status == http.StatusForbidden:
		p.add("header", "%s: add the header that the service requires%s", says, known)
	case m.status >= 400 && m.status < 500:
		p.add("body", "%s: correct the body%s", says, known)
	case m.status >= 500:
		p.add(failing, "%s: see the output of the service", says)
	case m.status == http.StatusAccepted:
		p.add("later", "%s, which matches no rule: if the result comes later, set later to the place where the program can ask for it", says)
	default:
		p.add("grabbed", "%s, which matches no rule: set grabbed to a rule for a winner's response", says)
	}
}

// ledgerArrives returns how long to wait for a ledger row after a grab's response.
func (i inspector) ledgerArrives() time.Duration { return max(i.cfg.Settle, minSettle) }

// inspectLedger compares the ledger with the responses, and returns how many drivers have a ledger
// row for this order.
func (i inspector) inspectLedger(ctx context.Context, p *Preflight, id, winner int64) int {
	if !i.auditor.ledger {
		p.Ledger = "no ledger can be read, so only the responses tell who won"
		return 0
	}
	var rows []order.Grab
	within := i.ledgerArrives()
	_, err := wait.Until(ctx, pollInterval, within, func() (_ bool, err error) {
		rows, err = i.orders.Ledger(ctx, id, 1)
		return len(rows) > 0, err
	})
	drivers := map[int64]bool{}
	for _, r := range rows {
		drivers[r.Driver] = true
	}
	switch {
	case err != nil:
		p.add("ledger-query", "%v", err)
	case len(rows) == 0:
		p.Ledger = "has no row for the grab"
		p.add("ledger-query", "driver %d won order %s, but the ledger has no row for it after %v: query the table that stores the winners, or look for a missing COMMIT in the service. If the service writes the row later, set settle to the longest delay", winner, i.fleet.Shape.OrderText(id), within)
	case !drivers[winner]:
		p.Ledger = fmt.Sprintf("has a row for driver %d", rows[0].Driver)
		p.add("ledger-query", "driver %d won order %s, but the ledger names driver %d: select the column with the request's driver", winner, i.fleet.Shape.OrderText(id), rows[0].Driver)
	default:
		p.Ledger = "has " + catalog.Plural(len(rows), "row", "rows") + " for the order"
	}
	return len(drivers)
}

// inspectTrail adds the recorded calls of a request to p. If they could not be recorded, it adds
// the reason.
func (i inspector) inspectTrail(p *Preflight, t trail, err error) {
	if err == nil {
		err = i.recorder.checkReadable(t)
	}
	if problem, ok := errors.AsType[*Problem](err); ok {
		p.Problems = append(p.Problems, *problem)
	} else if err != nil {
		p.Problems = append(p.Problems, Problem{"service", err.Error(), true})
	}
	if t.service == nil {
		return
	}
	if problem, ok := errors.AsType[*Problem](t.service.shortLease); ok {
		p.Problems = append(p.Problems, *problem)
	}
	if p.Ledger != "" && t.onlyUpdates(i.cfg.Target.Database.Query) {
		p.Ledger += ". A grab only updates this row, so a second winner would overwrite the first one: a table with one row for each winner is better"
	}
	for i, c := range t.calls[fault.Alone] {
		role := roles[t.service.parts[i]]
		if locks(c) && t.service.parts[i] == fault.Work {
			role = "acquire, " + role
		}
		p.Calls = append(p.Calls, SeenCall{role, string(c.Phase)})
	}
	for _, c := range t.service.renewal {
		p.Calls = append(p.Calls, SeenCall{"renewal", string(c.Phase)})
	}
}

// onlyUpdates reports whether a request writes to a table of the ledger query, but adds no row.
func (t trail) onlyUpdates(query string) (updates bool) {
	read := wire.Tables(query)
	for _, s := range statements(t.calls[fault.Alone]...) {
		verb, table, _ := strings.Cut(s, " ")
		if !isWrite(s) || !isOneOf(read, table) {
			continue
		}
		if verb != "UPDATE" {
			return false
		}
		updates = true
	}
	return updates
}

// reach finds the remote calls at which a fault can be injected. If the service's calls are
// unknown, its result says why.
func (cfg Config) reach(name CellName, s lock.Strategy, t trail) Reach {
	r := Reach{Fault: name.Fault}
	f, _ := fault.Find(name.Fault)
	cell := cfg.excuse(&cellSpec{CellName: name, strategy: s})
	untouched := !f.Touches(s) || t.service != nil && !f.HitsAny(t.service.needs)
	switch {
	case f.NotForeign == "" && untouched:
		r.Why = errUntouched.Error() + cfg.unusedRedis(f) + cfg.rowRelease(f)
	case cell != nil:
		r.Why = cell.Reason
	case cfg.byTime():
		r.Why = "at fixed times, because a grab's calls are not known"
	case cfg.Service == nil:
		r.Why = "the processes are not known: name them with target-pid, or let the program start the service"
	case t.service == nil:
		r.Why = "a grab's calls are not known"
	case f.Reach != nil:
		r.Why = f.Reach.Why
	}
	if t.service == nil || cell != nil || untouched {
		return r
	}
	alone := t.calls[fault.Alone]
	for _, p := range t.points() {
		if !f.Reaches(p) {
			continue
		}
		n := slices.IndexFunc(alone, isAt(p.Point))
		if p.Background {
			n = len(alone) + slices.IndexFunc(t.service.renewal, isAt(p.Point))
		}
		if p.After {
			r.After = append(r.After, n+1)
		} else {
			r.Before = append(r.Before, n+1)
		}
	}
	return r
}
