package experiment

import (
	"fmt"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
)

// judge returns the verdict on the orders, with the reason. It applies the rules of docs/results.md
// in order, and the first rule that matches decides.
func judge(c Cell, m measured) (catalog.Verdict, string) {
	_, tooOften, tooFew := c.phrases()
	switch {
	case m.repeated == "" && value(c.DoubleGrabs) > 0:
		return catalog.Unsafe, share(*c.OrdersDoubleGrabbed, c.Orders, "was", "were") + tooOften + m.example(check.CountGrabs(rowsOf(m.evidence), m.evidence.Units).Most) + at(c.Points, is(catalog.Unsafe)) + m.note
	case m.repeated == "" && c.Sale != nil && value(c.Sale.OverLimit) > 0:
		return catalog.Unsafe, catalog.Plural(*c.Sale.OverLimit, "unit was", "units were") + " sold to drivers who already had the maximum"
	case c.Sale != nil && len(c.Points) == 0 && m.invalid == "" && value(c.Sale.Undersold) > 0: // under a fault, probes find the stuck units
		return catalog.Stuck, catalog.Plural(*c.Sale.Undersold, "unit was", "units were") + " left, and drivers were refused after the last sale"
	case c.StuckOrders != nil && *c.StuckOrders > 0:
		return catalog.Stuck, m.howStuck(c) + m.example(m.evidence.Stuck...) + at(c.Points, is(catalog.Stuck)) + m.withoutWinner() + m.freedLater() + m.mayExpire()
	case m.repeated != "":
		return catalog.Unknown, m.repeated
	case m.invalid != "":
		return catalog.Unknown, m.invalid + undecided(c.Points)
	case c.DoubleGrabs == nil:
		return catalog.Unknown, "double-grabs could not be counted: neither the ledger nor the responses say who has won"
	case c.StuckOrders == nil:
		return catalog.Unknown, "stuck orders could not be counted"
	case slices.ContainsFunc(c.Points, struckTooRarely):
		why := c.tooLate() + m.missed
		if why != "" {
			why += ". Points without a verdict" // at lists the points at the end, because there may be many
		}
		return catalog.Unknown, "the fault could not be tested" + why + at(c.Points, struckTooRarely)
	case slices.ContainsFunc(c.Points, leftUnits):
		return catalog.Unknown, "an order was not sold out, so no two drivers competed for its last unit" + at(c.Points, leftUnits)
	case slices.ContainsFunc(c.Points, is(catalog.Unknown)):
		return catalog.Unknown, tooFew + " got far enough to show a failure (past the lock, or refused by it after the lease had ended)" + at(c.Points, is(catalog.Unknown)) + m.advice
	case m.vacuous != "":
		return catalog.Unknown, m.vacuous
	case len(m.competed) < 2:
		return catalog.Unknown, "only one instance answered, so this run cannot show whether the lock works between processes"
	case *c.ContendedOrders == 0:
		return catalog.Unknown, "no two drivers competed for the same order: raise -rate or -drivers"
	case len(c.Points) == 0 && m.tried < c.Orders: // under a fault, probes have tried every order
		return catalog.Unknown, fmt.Sprintf("%s never tried, because no driver got the lock: lower -rate, or let drivers wait longer for the lock", share(c.Orders-m.tried, c.Orders, "was", "were"))
	case c.Sale != nil && len(c.Points) == 0 && (c.Grabs == nil || *c.Grabs < c.Orders*c.Sale.Stock):
		return catalog.Unknown, "an order was not sold out, so no two drivers competed for its last unit"
	case len(c.Points) == 0 && c.OrdersGrabbed != nil && *c.OrdersGrabbed == 0: // an earlier run may have taken all orders
		return catalog.Unknown, "no order was grabbed at all"
	default:
		return catalog.Safe, ""
	}
}

// tooLate explains an injection at a fixed time that came after the end of the request. It returns
// "" in all other cases.
func (c Cell) tooLate() string {
	switch {
	case !slices.ContainsFunc(c.Points, func(p Point) bool { return p.IsMoment() && struckTooRarely(p) }):
		return ""
	case c.Fault.Entry().Process == catalog.ProcessKilled:
		return ". The grab had ended before the process was killed: start the process again, and repeat the run"
	}
	return ". The grab had ended by then: its responses may arrive late, for example because a small response waits for a delayed acknowledgement (TCP_NODELAY avoids that)"
}

// howStuck says that orders can no longer be grabbed. If every order has its winners but all probes
// were answered "busy", it says instead that locks were not released.
func (m measured) howStuck(c Cell) string {
	locked := len(m.evidence.Stuck) == *c.StuckOrders && !slices.ContainsFunc(m.evidence.Stuck, func(id int64) bool {
		return !m.busy[id] || unsoldOf(m.evidence, id) > 0
	})
	if !locked {
		return share(*c.StuckOrders, c.Orders, "can", "can") + " no longer be grabbed"
	}
	has, why := " a winner", ", but still answer busy, for example because their locks are not released"
	if *c.StuckOrders == 1 {
		why = ", but still answers busy, for example because its lock is not released"
	}
	if c.Sale != nil {
		has = " no unit left"
	}
	return share(*c.StuckOrders, c.Orders, "has", "have") + has + why
}

// example names the first of the orders, so that users can find it in the database of their service.
// It returns "" for our own instances, whose timeline names an order.
func (m measured) example(orders ...int64) string {
	if m.accounting == nil || !m.evidence.Foreign || len(orders) == 0 || orders[0] == 0 {
		return ""
	}
	return ", for example order " + m.shape.OrderText(orders[0])
}

// mayExpire returns a hint for orders of the user's service whose probes were all answered "busy", or "taken" without a
// winner. A lock in the database may live longer than the lease that the user specified, because no dry run shows its
// lifetime. It returns "" if there are no such orders, or if the user says that the lock never expires.
func (m measured) mayExpire() string {
	refused := func(id int64) bool { return m.busy[id] || m.stuck[id] || slices.Contains(m.winnerless, id) }
	if m.accounting == nil || m.noExpiry || !m.evidence.Foreign || !slices.ContainsFunc(m.evidence.Stuck, refused) {
		return ""
	}
	return "; if the lock expires by itself, but later, set -lease to its lifetime"
}

// freedLater says that stuck orders became free before the end of the test. It returns "" if there are none.
func (m measured) freedLater() string {
	if m.accounting == nil || len(m.stuck) == 0 || m.evidence.ProbeErr != nil {
		return ""
	}
	return fmt.Sprintf("; for %d of them, this ended later, probably because the fault struck again", len(m.stuck))
}

// withoutWinner describes the orders that are reported as taken although the ledger has no winner.
// It returns "" if there are none.
func (m measured) withoutWinner() string {
	if m.accounting == nil || len(m.winnerless) == 0 {
		return ""
	}
	text := fmt.Sprintf("; drivers are told that order %s is taken, but the ledger names no winner", m.shape.OrderText(m.winnerless[0]))
	if m.evidence.Foreign {
		text += ". If another table names the winner, read it with -ledger-query too; if the order was used before, name a fresh one with -first-order"
	}
	return text
}

// phrases returns the words for three cases: an order was grabbed, it was grabbed too often, or too
// few drivers competed for it. The words differ if orders have several units.
func (c Cell) phrases() (grabbed, tooOften, tooFew string) {
	if c.Sale == nil {
		return "grabbed", " grabbed more than once", "no contender"
	}
	return "sold out", fmt.Sprintf(" sold more than %d times", c.Sale.Stock), fmt.Sprintf("fewer than %d contenders", c.Sale.Stock)
}

// at lists the points for which holds returns true, such as ": before acquire; after release". It
// returns "" if there are none.
func at(points []Point, holds func(Point) bool) string {
	points = catalog.Filter(points, holds)
	if len(points) == 0 {
		return ""
	}
	return ": " + catalog.Join(points, "; ", func(p Point) string { return p.Point })
}

// undecided lists the points without a verdict if other points have one. Otherwise, it returns "".
func undecided(points []Point) string {
	unknown := catalog.Filter(points, is(catalog.Unknown))
	if len(unknown) == len(points) || len(unknown) == 0 {
		return ""
	}
	return ". Points without a verdict" + at(points, is(catalog.Unknown))
}

func is(v catalog.Verdict) func(Point) bool { return func(p Point) bool { return p.Verdict == v } }

// struckTooRarely reports whether the fault missed this step of a request at least once.
func struckTooRarely(p Point) bool { return p.Struck < p.Strikes }

// leftUnits reports whether units stayed unsold after the fault, and nothing worse has happened.
func leftUnits(p Point) bool { return p.Verdict == catalog.Unknown && value(p.Unsold) > 0 }

// judgeLock returns Yes if the lock never had two holders at once, and No if it did. It returns nil
// if this is unknown or if there is no lock.
func judgeLock(c Cell, m measured) *string {
	switch {
	case c.Overlaps == nil:
		return nil
	case *c.Overlaps > 0:
		return new(No)
	case m.invalid != "" || len(m.competed) < 2 || value(c.ContendedOrders) == 0 ||
		slices.ContainsFunc(c.Points, struckTooRarely) || slices.ContainsFunc(c.Points, is(catalog.Unknown)):
		return nil // in some part of the test, two drivers could not have held the lock at once
	default:
		return new(Yes)
	}
}

// share returns how many orders are affected, as part of a sentence such as "1 of 5 orders was" or
// "2 of 5 orders were".
func share(n, of int, one, many string) string {
	verb := many
	if n == 1 {
		verb = one
	}
	return fmt.Sprintf("%d of %d orders %s", n, of, verb)
}

// expected returns the verdicts that we expect on the orders and on the lock. They are nil if we
// have no expectation for these settings.
func (cfg Config) expected(s lock.Strategy, f catalog.Fault) (v *catalog.Verdict, exclusive *string) {
	// The expectations assume that drivers compete, which is not certain in a search for the
	// highest rate.
	asDeclared := cfg.Scenario != "peak" && !(cfg.byTime() && f != catalog.NoFault) && s.GuardedBy(cfg.Guard) == s.Guard && cfg.At == nil &&
		cfg.OnLost == grab.Abort && cfg.ClockOffset == 0 && cfg.Work < cfg.TTL
	switch {
	case s.New == nil || !asDeclared, // a strategy without New belongs to the user's service
		s.Excludes == catalog.PerProcess && cfg.Instances == 1, // the registry says only that this lock fails with several processes
		s.Expected(f) == catalog.Unknown:                       // the registry makes no prediction, because the outcome depends on chance
		return nil, nil
	case s.Excludes == catalog.NoExclusion:
	case s.ExclusiveUnder(f):
		exclusive = new(Yes)
	default:
		exclusive = new(No)
	}
	return new(s.Expected(f)), exclusive
}

const (
	fromLedger  = "ledger"
	fromAnswers = "answers"
)
