package check

import (
	"cmp"
	"fmt"
	"slices"

	"grablab/internal/history"
	"grablab/internal/order"
)

var oneWinner = Checker{
	Name:  "one-winner",
	About: "no order was grabbed more than once",
	Check: named("one-winner", func(e Evidence) Verdict {
		switch {
		case e.FromAnswers:
			return oneWinnerTold(e)
		case e.NoLedger != nil:
			// Answers can convict. They cannot acquit: a row may have lost its answer.
			if v := oneWinnerTold(e); v.Result == Fail {
				return v
			}
			return unknown(fmt.Sprintf("the ledger could not be read: %v", e.NoLedger))
		}
		c := CountGrabs(e.Ledger)
		if c.DoubleGrabs == 0 {
			return pass(fmt.Sprintf("%s grabbed, each by one driver", plural(c.Orders, "order was", "orders were")))
		}
		worst := c.Most
		return fail(fmt.Sprintf("%s grabbed more than once, order %d by %d drivers",
			plural(c.OrdersDouble, "order was", "orders were"), worst, c.MostRows), rowEvents(e.Ledger, worst)...)
	}),
}

// oneWinnerTold judges by what the clients were told.
func oneWinnerTold(e Evidence) Verdict {
	c := CountGrabs(Rows(e.Told))
	if c.DoubleGrabs > 0 {
		return fail(fmt.Sprintf("%s promised more than once, order %d to %d drivers",
			plural(c.OrdersDouble, "order was", "orders were"), c.Most, c.MostRows))
	}
	// One more winner than was told would make two of one, or of none.
	winners := map[int64]int{}
	for _, p := range slices.Concat(e.Told, e.Unsure) {
		if winners[p.Order]++; winners[p.Order] > 1 {
			return unknown(fmt.Sprintf("order %d may have a second winner, whose answer was lost", p.Order))
		}
	}
	return pass(fmt.Sprintf("%s promised, each to one driver", plural(c.Orders, "order was", "orders were")))
}

// Rows is a ledger as the answers would have it.
func Rows(told []Pair) []order.Grab {
	rows := make([]order.Grab, len(told))
	for i, p := range told {
		rows[i] = order.Grab{Order: p.Order, Driver: p.Driver}
	}
	return rows
}

// Grabs are the figures of a ledger.
type Grabs struct {
	Rows         int
	Orders       int // with at least one row
	DoubleGrabs  int // rows beyond the first of their order
	OrdersDouble int // with more than one row

	Most     int64 // the order with the most rows, the first of several; 0: there are none
	MostRows int
}

// CountGrabs counts a ledger.
func CountGrabs(ledger []order.Grab) Grabs {
	c := Grabs{Rows: len(ledger)}
	rows := map[int64]int{}
	for _, g := range ledger {
		rows[g.Order]++
	}
	c.Orders = len(rows)
	for id, n := range rows {
		if n > 1 {
			c.OrdersDouble++
			c.DoubleGrabs += n - 1
		}
		if n > c.MostRows || n == c.MostRows && id < c.Most {
			c.Most, c.MostRows = id, n
		}
	}
	return c
}

// rowEvents tells the ledger rows of one order as the claims that they are.
func rowEvents(ledger []order.Grab, id int64) []history.Event {
	var events []history.Event
	for _, g := range ledger {
		if g.Order == id {
			events = append(events, history.Event{
				Kind: history.OK, Op: history.Claim, Order: g.Order, Driver: g.Driver,
				Instance: g.Instance, Strategy: g.Strategy, Token: g.Token, Fence: g.Fence,
			})
		}
	}
	return events
}

// plural is n with the word that suits it.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// sorted pairs, so that the one that is named is always the same.
func sortPairs(pairs []Pair) {
	slices.SortFunc(pairs, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Driver, b.Driver))
	})
}
