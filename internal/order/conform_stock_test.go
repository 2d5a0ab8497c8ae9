package order_test

import (
	"errors"
	"fmt"
	"slices"

	"grablab/internal/order"
)

// createStock opens an order of several units.
func (t *trial) createStock(units int) int64 {
	id, err := t.Create(t.ctx, 1, units)
	t.must(err)
	return id
}

// unit returns the claim of driver d on one unit. The parameter left is the number of units that the
// driver has read.
func unit(id, d, left int64, fence uint64) order.Claim {
	c := claim(id, d, fence)
	c.Stock = left
	return c
}

// stock checks that an order of several units reports how many are left, and is grabbed when
// none is left. An order of one unit behaves as before.
func stock(t *trial) {
	first, err := t.Create(t.ctx, 3, 2)
	t.must(err)
	for id := first; id < first+3; id++ {
		t.row(order.Order{ID: id, Units: 2, Stock: 2})
	}
	t.must(t.Claim(t.ctx, unit(first+1, 1, 2, 0), order.Guarded))
	t.row(order.Order{ID: first + 1, Driver: 1, Units: 2, Stock: 1})
	t.must(t.Claim(t.ctx, unit(first+1, 2, 1, 0), order.Guarded))
	t.row(order.Order{ID: first + 1, Status: order.Grabbed, Driver: 2, Units: 2})
	t.row(order.Order{ID: first, Units: 2, Stock: 2})
	t.row(order.Order{ID: first + 2, Units: 2, Stock: 2})
	t.drivers(first+1, 1, 2)

	one, err := t.Create(t.ctx, 1, 1)
	t.must(err)
	t.row(order.Order{ID: one})
}

// stockGuards checks every guard on a counter that another driver has changed since it was
// read. At the read, three units were left.
func stockGuards(t *trial) {
	for _, c := range []struct {
		guard    order.Guard
		now      int64
		seen     uint64 // fence of the row
		presents uint64 // fence of the claim
		want     error
		left     int64 // units left after the claim
	}{
		{order.Naive, 3, 0, 0, nil, 2},
		{order.Naive, 1, 0, 0, nil, 2}, // the other updates are lost
		{order.Naive, 0, 0, 0, nil, 2}, // the order was sold out, and now has units again

		{order.Decrement, 1, 0, 0, nil, 0},
		{order.Decrement, 0, 0, 0, nil, -1}, // no update is lost, but one unit too many is sold

		{order.Guarded, 1, 0, 0, nil, 0},
		{order.Guarded, 0, 0, 0, order.ErrTaken, 0},

		{order.Unique, 3, 0, 0, order.ErrNotWritten, 3},

		{order.FenceWrite, 1, 5, 6, nil, 2}, // the other updates are lost, although the fence is compared
		{order.FenceWrite, 1, 5, 4, order.ErrStale, 1},
		{order.Fenced, 3, 5, 5, nil, 2},
		{order.Fenced, 1, 5, 4, order.ErrStale, 1},
		{order.Fenced, 3, 5, 6, order.ErrNotWritten, 3}, // no read has raised the row's fence
	} {
		id := t.createStock(3)
		if c.seen > 0 {
			_, err := t.Read(t.ctx, id, c.seen)
			t.must(err)
		}
		var ledger []int64
		for left := int64(3); left > c.now; left-- {
			t.must(t.Claim(t.ctx, unit(id, 10+left, left, c.seen), order.Decrement))
			ledger = append(ledger, 10+left)
		}
		what := fmt.Sprintf("%s, %d left of 3, row has fence %d, claim %d", c.guard, c.now, c.seen, c.presents)
		t.expect(what, t.Claim(t.ctx, unit(id, 1, 3, c.presents), c.guard), c.want)
		o, err := t.Read(t.ctx, id, 0)
		t.must(err)
		if o.Stock != c.left || (o.Status == order.Open) != (o.Stock > 0) {
			t.failf("%s: the row is %+v, want %d left", what, o, c.left)
		}
		if c.want == nil {
			ledger = append(ledger, 1)
		}
		t.drivers(id, ledger...)
	}
}

// stockTogether checks that the conditional update sells every unit exactly once, even if more drivers
// than units claim at once.
func stockTogether(t *trial) {
	for range 5 {
		id := t.createStock(3)
		sold := 0
		for i, err := range together(many, func(i int64) error {
			return t.Claim(t.ctx, unit(id, i, 3, 0), order.Guarded)
		}) {
			if err == nil {
				sold++
			} else {
				t.expect(fmt.Sprint("driver ", i+1), err, order.ErrTaken)
			}
		}
		grabs, err := t.Ledger(t.ctx, id, 1)
		t.must(err)
		o, err := t.Read(t.ctx, id, 0)
		t.must(err)
		if sold != 3 || len(grabs) != 3 || o.Stock != 0 || o.Status != order.Grabbed {
			t.failf("3 units: %d were sold, the ledger has %d, the row is %+v", sold, len(grabs), o)
		}
	}
	// Claims of neighbouring orders do not block each other forever.
	first, err := t.Create(t.ctx, 2*many, 2)
	t.must(err)
	for range 2 {
		t.must(errors.Join(together(2*many, func(i int64) error {
			id := first + i - 1
			o, err := t.Read(t.ctx, id, 0)
			if err != nil {
				return err
			}
			return t.Claim(t.ctx, unit(id, o.Stock, o.Stock, 0), order.Guarded)
		})...))
	}
	for id := first; id < first+2*many; id++ {
		t.drivers(id, 2, 1)
	}
}

// lostUpdate checks that the counter decreases only once if two drivers write it after
// reading the same value.
func lostUpdate(t *trial) {
	id := t.createStock(2)
	for driver := int64(1); driver <= 2; driver++ {
		t.must(t.Claim(t.ctx, unit(id, driver, 2, 0), order.Naive))
	}
	t.row(order.Order{ID: id, Driver: 2, Units: 2, Stock: 1})
	t.drivers(id, 1, 2)
}

// perDriver checks that guards that check during the write give no driver more units than the limit. A
// driver at the limit must get ErrLimit, even if no unit is left.
func perDriver(t *trial) {
	for _, limit := range []int{0, 1, 2} {
		for _, g := range []order.Guard{order.Guarded, order.FenceWrite, order.Fenced} {
			id, may := t.createStock(3), max(limit, 1)
			for i := range 4 {
				fence := uint64(i) + 1
				o, err := t.Read(t.ctx, id, map[bool]uint64{true: fence}[g == order.Fenced])
				t.must(err)
				c := unit(id, 1, o.Stock, fence)
				c.PerDriver = limit
				err = t.Claim(t.ctx, c, g)
				if i < may {
					t.expect(fmt.Sprint(g, ": unit ", i+1), err, nil)
				} else {
					t.expect(fmt.Sprint(g, ": unit ", i+1), err, order.ErrLimit, order.ErrTaken)
				}
				held, err := t.Held(t.ctx, id, 1)
				if want := min(i+1, may); err != nil || held != want {
					t.failf("%s: the driver has %d units, %v, want %d", g, held, err, want)
				}
			}
			t.drivers(id, slices.Repeat([]int64{1}, may)...)
			if held, err := t.Held(t.ctx, id, 2); err != nil || held != 0 {
				t.failf("another driver has %d units, %v", held, err)
			}
		}
	}
}

// twoRequests checks that only one of two simultaneous requests of a driver wins if the limit is one unit.
// With the naive guard, both must win, because the limit is checked before the write.
func twoRequests(t *trial) {
	for range 5 {
		id := t.createStock(3)
		errs := together(2, func(i int64) error {
			c := unit(id, 1, 3, 0)
			c.Token = fmt.Sprint(id, "-", i)
			return t.Claim(t.ctx, c, order.Guarded)
		})
		won := slices.Index(errs, nil)
		if won < 0 {
			t.failf("neither request was granted: %v, %v", errs[0], errs[1])
		}
		t.expect("the driver's other request", errs[1-won], order.ErrLimit)
		t.drivers(id, 1)
		t.row(order.Order{ID: id, Driver: 1, Units: 3, Stock: 2})
	}
	id := t.createStock(3)
	for range 2 {
		if held, err := t.Held(t.ctx, id, 1); err != nil || held != 0 {
			t.failf("the driver already has %d units, %v", held, err)
		}
	}
	for i := range 2 {
		c := unit(id, 1, 3, 0)
		c.Token = fmt.Sprint(id, "-", i)
		t.must(t.Claim(t.ctx, c, order.Naive))
	}
	t.drivers(id, 1, 1)
}

// stockRetried checks that a repeated claim does not sell a second unit (F33), even if the limit allows
// one.
func stockRetried(t *trial) {
	for _, g := range []order.Guard{order.Guarded, order.Fenced} {
		id := t.createStock(3)
		_, err := t.Read(t.ctx, id, 1)
		t.must(err)
		c := unit(id, 1, 3, 1)
		c.PerDriver = 2
		t.must(t.Claim(t.ctx, c, g))
		err = t.Claim(t.ctx, c, g)
		t.expect(string(g), err, order.ErrTaken)
		if errors.Is(err, order.ErrLimit) {
			t.failf("%s: a claim that was sent again: %v", g, err)
		}
		t.drivers(id, 1)
		t.row(order.Order{ID: id, Driver: 1, Fence: 1, Units: 3, Stock: 2})
	}
}
