package check

import (
	"maps"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// oneWinner checks that no order has more winners than units. If there is no ledger, it counts the
// promised wins instead. Judge calls it through the table checkers.
func oneWinner(e Evidence) Verdict {
	switch {
	case e.FromAnswers:
		return oneWinnerTold(e)
	case e.LedgerErr != nil:
		// The clients' answers can prove a failure, but not success, because answers may have been
		// lost.
		if v := oneWinnerTold(e); v.Result == Fail {
			return v
		}
		return noLedger(e)
	}
	c := CountGrabs(e.Ledger, e.Units)
	if e.Foreign && c.DoubleGrabs > 0 && CountGrabs(e.WithoutRepeats(1), e.Units).DoubleGrabs == 0 {
		return unknown("every surplus row repeats an order and its driver, for example %[2]d rows of order %[1]s: the query may double rows, or the service may write them twice", e.OrderText(c.Most), c.MostRows)
	}
	if e.Units > 1 {
		return oversold(e, c, "sold")
	}
	if c.DoubleGrabs > 0 {
		return fail("%s grabbed more than once; for example, order %s has %d rows", catalog.Plural(c.OrdersDouble, "order was", "orders were"), e.OrderText(c.Most), c.MostRows)
	}
	return pass("%s grabbed, each by one driver", catalog.Plural(c.Orders, "order was", "orders were"))
}

// oneWinnerTold checks without the ledger that the answers promise each order only once.
func oneWinnerTold(e Evidence) Verdict {
	c := CountGrabs(Rows(e.Promised), e.Units)
	if e.Units > 1 && c.DoubleGrabs > 0 {
		return oversold(e, c, "promised")
	}
	if c.DoubleGrabs > 0 {
		return fail("%s promised more than once; for example, order %s was promised %d times", catalog.Plural(c.OrdersDouble, "order was", "orders were"), e.OrderText(c.Most), c.MostRows)
	}
	// A client whose outcome is unknown may have won too.
	winners := map[int64]int{}
	for _, p := range slices.Concat(e.Promised, e.Unsure) {
		winners[p.Order]++
		switch {
		case winners[p.Order] <= e.units():
		case e.Units > 1:
			return unknown("order %s (%d units) may have another winner, because an answer was lost", e.OrderText(p.Order), e.Units)
		default:
			return unknown("order %s may have a second winner, whose answer was lost", e.OrderText(p.Order))
		}
	}
	if e.Units > 1 {
		return oversold(e, c, "promised")
	}
	return pass("%s promised, each to one driver", catalog.Plural(c.Orders, "order was", "orders were"))
}

// oversold returns the verdict for orders with several units. done is a word for the message, such
// as "sold".
func oversold(e Evidence, c Grabs, done string) Verdict {
	if c.DoubleGrabs > 0 {
		return fail("%s %s too often; for example, order %s has %d units, but was %s %d times",
			catalog.Plural(c.OrdersDouble, "order was", "orders were"), done, e.OrderText(c.Most), e.Units, done, c.MostRows)
	}
	return pass("%s %s, and no order was %s more than %d times", catalog.Plural(c.Orders, "order was", "orders were"), done, done, e.Units)
}

// Pairs returns the attempts that wrote a ledger's rows.
func Pairs(ledger []order.Grab) []Pair {
	return catalog.Map(ledger, func(g order.Grab) Pair { return Pair{g.Order, g.Driver} })
}

// Rows returns the ledger rows that the answers "grabbed" promise.
func Rows(told []Pair) []order.Grab {
	return catalog.Map(told, func(p Pair) order.Grab { return order.Grab{Order: p.Order, Driver: p.Driver} })
}

// WithoutRepeats returns the ledger without repeated rows. For each pair of an order and a driver,
// it keeps at most perDriver rows.
func (e Evidence) WithoutRepeats(perDriver int) []order.Grab {
	has := map[Pair]int{}
	return slices.DeleteFunc(slices.Clone(e.Ledger), func(g order.Grab) bool {
		p := Pair{g.Order, g.Driver}
		has[p]++
		return has[p] > perDriver
	})
}

// RowsByOrder counts the rows of each order.
func RowsByOrder(ledger []order.Grab) map[int64]int {
	rows := map[int64]int{}
	for _, g := range ledger {
		rows[g.Order]++
	}
	return rows
}

// Grabs summarizes a ledger in figures.
type Grabs struct {
	Rows         int
	Orders       int // the number of orders with at least one row
	DoubleGrabs  int // the number of rows in excess of their order's units
	OrdersDouble int // the number of orders with more rows than units

	Most     int64 // the first order with the highest number of rows; 0 if the ledger is empty
	MostRows int
}

// CountGrabs counts the grabs and double-grabs in a ledger. units is the number of units per order,
// where 0 means 1.
func CountGrabs(ledger []order.Grab, units int) Grabs {
	units = max(units, 1)
	c := Grabs{Rows: len(ledger)}
	rows := RowsByOrder(ledger)
	c.Orders = len(rows)
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		n := rows[id]
		if n > units {
			c.OrdersDouble++
			c.DoubleGrabs += n - units
		}
		if n > c.MostRows {
			c.Most, c.MostRows = id, n
		}
	}
	return c
}
