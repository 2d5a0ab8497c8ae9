package experiment

import (
	"cmp"
	"context"
	"slices"
	"time"

	"grablab/internal/check"
	"grablab/internal/order"
)

// readSale sets the sale figures of a test whose orders have several units. A figure stays nil if
// it cannot be determined.
func (au *auditor) readSale(ctx context.Context, c *Cell, a *accounting, first int64, ledger []order.Grab) {
	rows := check.RowsByOrder(ledger)
	over := len(ledger) - len(check.Evidence{Ledger: ledger}.WithoutRepeats(au.cfg.perDriver()))
	left := 0
	for _, id := range a.refusedLast {
		left += max(0, a.units-rows[id])
	}
	c.Sale.Undersold, c.Sale.OverLimit = &left, &over
	c.Sale.LostUpdates = au.lostUpdates(ctx, first, c.Orders, rows)
}

// lostUpdates returns how many ledger rows were written without decreasing a stock counter. It
// returns nil if the counters cannot be read.
func (au *auditor) lostUpdates(ctx context.Context, first int64, count int, rows map[int64]int) *int {
	if au.store == nil {
		return nil
	}
	lost := 0
	for id := first; id < first+int64(count); id++ {
		o, err := au.store.Read(ctx, id, 0)
		if err != nil {
			return nil
		}
		lost += max(0, rows[id]-int(o.Units-o.Stock))
	}
	return &lost
}

func (s *Sale) sold(a *accounting, orders int) {
	if a.soldOut == orders {
		s.SoldOutMS = new(millis(a.soldOutBy.Sub(a.began)))
	}
	if len(a.told) > 0 {
		s.InOrder = new(float64(a.inOrder) / float64(len(a.told)))
	}
	s.OverTime = soldOverTime(a.sales)
}

// maxSoldSlices is the maximum number of time slices in which sales are counted.
const maxSoldSlices = 48

func soldOverTime(sales []time.Duration) *SoldOverTime {
	if len(sales) == 0 {
		return nil
	}
	slice, last := time.Millisecond, max(slices.Max(sales), 0)
	for last/slice >= maxSoldSlices {
		slice *= 2
	}
	o := &SoldOverTime{SliceMS: millis(slice), Sold: make([]int, last/slice+1)}
	for _, at := range sales {
		o.Sold[max(at, 0)/slice]++
	}
	return o
}

// merge combines the sale figures with those of one more repetition.
func (s *Sale) merge(next *Sale, repetitions []Repetition) *Sale {
	if s == nil || next == nil {
		return s
	}
	sum := *s
	add := func(a, b int) int { return a + b }
	sum.Undersold, sum.LostUpdates, sum.OverLimit = both(s.Undersold, next.Undersold, add), both(s.LostUpdates, next.LostUpdates, add), both(s.OverLimit, next.OverLimit, add)
	sum.SoldOutMS = medianOver(repetitions, func(s *Sale) *float64 { return s.SoldOutMS })
	sum.InOrder = medianOver(repetitions, func(s *Sale) *float64 { return s.InOrder })
	return &sum
}

// medianOver returns the median of a figure over all repetitions. It returns nil if a repetition
// does not have that figure.
func medianOver(repetitions []Repetition, of func(*Sale) *float64) *float64 {
	inSale := func(r Repetition) *float64 { return of(cmp.Or(r.Sale, &Sale{})) }
	if len(ValuesOf(repetitions, inSale)) < len(repetitions) {
		return nil
	}
	return medianOf(repetitions, inSale)
}
