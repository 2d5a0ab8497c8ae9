package order_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/order"
)

func create(t *trial) {
	const count = 2500
	first := t.create(count)
	for i := range int64(count) {
		t.row(order.Order{ID: first + i})
	}
	if next := t.create(1); next < first+count {
		t.failf("next order is %d, after %d to %d", next, first, first+count-1)
	}
}

func createTogether(t *trial) {
	const count = 300
	firsts := make([]int64, many)
	t.must(errors.Join(together(many, func(i int64) (err error) {
		firsts[i-1], err = t.Create(t.ctx, count, 1)
		return err
	})...))
	slices.Sort(firsts)
	for i, first := range firsts {
		if i > 0 && first < firsts[i-1]+count {
			t.failf("orders %d and %d were both opened as the first of %d", firsts[i-1], first, count)
		}
		for id := first; id < first+count; id++ {
			t.row(order.Order{ID: id})
		}
	}
}

func notFound(t *trial) {
	id := t.create(1)
	for _, none := range []int64{-1, 0, id + 1_000_000} {
		for _, fence := range []uint64{0, 7} {
			_, err := t.Read(t.ctx, none, fence)
			t.expect("read", err, order.ErrNotFound)
		}
		for _, g := range order.Guards {
			t.expect("claim", t.Claim(t.ctx, claim(none, 1, 7), g), order.ErrNotFound, order.ErrNotWritten)
		}
		t.drivers(none)
	}
}

func badClaim(t *trial) {
	id := t.create(1)
	long := claim(id, 1, 0)
	long.Token = strings.Repeat("x", 256)
	for g, c := range map[order.Guard]order.Claim{
		order.Naive:      long,
		"":               claim(id, 1, 1),
		"trust me":       claim(id, 1, 1),
		order.FenceWrite: claim(id, 1, 0),
		order.Fenced:     claim(id, 1, 0),
	} {
		t.expect(fmt.Sprintf("guard %q", g), t.Claim(t.ctx, c, g), order.ErrNotWritten)
	}
	t.row(order.Order{ID: id})
	t.drivers(id)
}

// guards checks every guard on every state of an order.
func guards(t *trial) {
	const winner = 1 // the driver who has the order if it is taken
	for _, c := range []struct {
		guard    order.Guard
		seen     uint64 // fence of the row
		taken    bool
		driver   int64
		presents uint64 // fence of the claim
		want     error
		fence    uint64 // fence of the row after the claim
	}{
		{order.Naive, 0, false, 2, 0, nil, 0},
		{order.Naive, 0, true, 2, 0, nil, 0},
		{order.Naive, 5, false, 2, 4, nil, 5},
		{order.Naive, 5, true, 2, 6, nil, 5},

		{order.Guarded, 0, false, 2, 0, nil, 0},
		{order.Guarded, 0, true, 2, 0, order.ErrTaken, 0},
		{order.Guarded, 5, false, 2, 4, nil, 5},
		{order.Guarded, 5, true, 2, 6, order.ErrTaken, 5},
		{order.Guarded, 0, true, winner, 0, order.ErrTaken, 0},

		{order.Unique, 0, false, 2, 0, nil, 0},
		{order.Unique, 0, true, 2, 0, nil, 0}, // the winner's claim did not insert a grant
		{order.Unique, 5, false, 2, 4, nil, 5},

		{order.FenceWrite, 0, false, 2, 1, nil, 1},
		{order.FenceWrite, 5, false, 2, 4, order.ErrStale, 5},
		{order.FenceWrite, 5, false, 2, 5, order.ErrStale, 5},
		{order.FenceWrite, 5, false, 2, 6, nil, 6},
		{order.FenceWrite, 5, true, 2, 4, order.ErrStale, 5},
		{order.FenceWrite, 5, true, winner, 5, order.ErrTaken, 5},
		{order.FenceWrite, 5, true, 2, 6, nil, 6}, // a higher fence wins, although the order is taken

		{order.Fenced, 0, false, 2, 1, order.ErrNotWritten, 0}, // no read has raised the row's fence
		{order.Fenced, 5, false, 2, 4, order.ErrStale, 5},
		{order.Fenced, 5, false, 2, 5, nil, 5},
		{order.Fenced, 5, false, 2, 6, order.ErrNotWritten, 5},
		{order.Fenced, 5, true, 2, 4, order.ErrStale, 5},
		{order.Fenced, 5, true, winner, 5, order.ErrTaken, 5}, // the winner repeats its claim
	} {
		id := t.create(1)
		after, ledger := order.Order{ID: id, Fence: c.fence}, []int64(nil)
		if c.seen > 0 {
			_, err := t.Read(t.ctx, id, c.seen)
			t.must(err)
		}
		if c.taken {
			t.must(t.Claim(t.ctx, claim(id, winner, c.seen), order.Naive))
			after.Status, after.Driver, ledger = order.Grabbed, winner, []int64{winner}
		}
		if c.want == nil {
			after.Status, after.Driver, ledger = order.Grabbed, c.driver, append(ledger, c.driver)
		}
		what := fmt.Sprintf("%s, row has fence %d, taken %v, driver %d presents %d", c.guard, c.seen, c.taken, c.driver, c.presents)
		t.expect(what, t.Claim(t.ctx, claim(id, c.driver, c.presents), c.guard), c.want)
		t.row(after)
		t.drivers(id, ledger...)
	}
	again := claim(t.create(1), winner, 0)
	t.must(t.Claim(t.ctx, again, order.Guarded))
	again.Token = "another"
	if err := t.Claim(t.ctx, again, order.Guarded); !errors.Is(err, order.ErrTaken) || errors.Is(err, order.ErrLimit) {
		t.failf("the winner grabs an order of one unit again: got error %v, want %v, because no limit per driver applies", err, order.ErrTaken)
	}
}

// raise checks that a read with a fence raises the row's fence, and fails unless its fence is higher.
func raise(t *trial) {
	id := t.create(1)
	for _, c := range []struct {
		fence uint64
		want  error
		now   uint64
	}{{5, nil, 5}, {5, order.ErrStale, 5}, {4, order.ErrStale, 5}, {6, nil, 6}, {1 << 62, nil, 1 << 62}} {
		got, err := t.Read(t.ctx, id, c.fence)
		want := order.Order{ID: id, Fence: c.now}
		if got != want {
			t.failf("read with fence %d: %+v, want %+v", c.fence, got, want)
		}
		t.expect(fmt.Sprint("read with fence ", c.fence), err, c.want)
		t.row(want)
	}
}

// ledger checks that the ledger returns the rows of the requested orders unchanged, in the
// order in which they were written.
func ledger(t *trial) {
	first := t.create(5)
	var want []order.Grab
	for i, id := range []int64{3, 0, 4, 1, 3, 2, 3} {
		c := claim(first+id, int64(i)+1, uint64(i)*7)
		c.Instance, c.Strategy = fmt.Sprint("n", i), "Ärger"
		t.must(t.Claim(t.ctx, c, order.Naive))
		if id >= 1 && id <= 3 {
			want = append(want, order.Grab{
				Order: c.Order, Driver: c.Driver, Instance: c.Instance,
				Strategy: c.Strategy, Token: c.Token, Fence: c.Fence,
			})
		}
	}
	got, err := t.Ledger(t.ctx, first+1, 3)
	t.must(err)
	var at time.Time
	var id int64
	for i := range got {
		if got[i].ID <= id || got[i].At.Before(at) || got[i].At.IsZero() || got[i].At.Location() != time.UTC {
			t.failf("grab %d at %v comes after grab %d at %v", got[i].ID, got[i].At, id, at)
		}
		id, at = got[i].ID, got[i].At
		got[i].ID, got[i].At = 0, time.Time{}
	}
	if !slices.Equal(got, want) {
		t.failf("ledger is\n%+v, want\n%+v", got, want)
	}
	if none, err := t.Ledger(t.ctx, first, 0); err != nil || len(none) != 0 {
		t.failf("ledger of no orders is %v, %v", none, err)
	}
}

// sameValuesTwice checks that a naive write counts as a grab even if it changes no value.
func sameValuesTwice(t *trial) {
	id := t.create(1)
	for range 20 {
		t.must(t.Claim(t.ctx, claim(id, 1, 0), order.Naive))
	}
	t.drivers(id, slices.Repeat([]int64{1}, 20)...)
}

func naiveTogether(t *trial) {
	id := t.create(1)
	t.must(errors.Join(together(many, func(i int64) error { return t.Claim(t.ctx, claim(id, i, 0), order.Naive) })...))
	grabs, err := t.Ledger(t.ctx, id, 1)
	if err != nil || len(grabs) != many {
		t.failf("%d naive winners left %d ledger rows, %v", many, len(grabs), err)
	}
	t.row(order.Order{ID: id, Status: order.Grabbed, Driver: grabs[many-1].Driver})
}

func guardedTogether(t *trial) { oneOfMany(t, order.Guarded) }

func uniqueTogether(t *trial) { oneOfMany(t, order.Unique) }

// oneOfMany checks that exactly one claim wins, and that the others get ErrTaken.
func oneOfMany(t *trial, g order.Guard) {
	for range 10 {
		id := t.create(1)
		winner := t.onlyOne(together(many, func(i int64) error {
			return t.Claim(t.ctx, claim(id, i, 0), g)
		}), order.ErrTaken)
		again := claim(id, winner, 0)
		t.expect("the winner's second claim", t.Claim(t.ctx, again, g), order.ErrTaken)
		t.drivers(id, winner)
		t.row(order.Order{ID: id, Status: order.Grabbed, Driver: winner})
	}
}

func fenceWriteTogether(t *trial) {
	id := t.create(1)
	errs := together(many, func(i int64) error { return t.Claim(t.ctx, claim(id, i, uint64(i)), order.FenceWrite) })
	grabs, err := t.Ledger(t.ctx, id, 1)
	t.must(err)
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
		} else {
			t.expect(fmt.Sprint("token ", i+1), err, order.ErrStale)
		}
	}
	rising := slices.IsSortedFunc(grabs, func(a, b order.Grab) int { return int(a.Fence) - int(b.Fence) })
	if won != len(grabs) || !rising || errs[many-1] != nil {
		t.failf("%d won, the last token with %v, and the ledger is %+v", won, errs[many-1], grabs)
	}
	t.row(order.Order{ID: id, Status: order.Grabbed, Driver: many, Fence: many})
}

// fencedTogether checks that only the highest token wins if all drivers read before any of them claims.
func fencedTogether(t *trial) {
	id := t.create(1)
	for i, err := range together(many, func(i int64) error {
		_, err := t.Read(t.ctx, id, uint64(i))
		return err
	}) {
		if err != nil && (i+1 == many || !errors.Is(err, order.ErrStale)) {
			t.failf("read with token %d: %w", i+1, err)
		}
	}
	winner := t.onlyOne(together(many, func(i int64) error {
		return t.Claim(t.ctx, claim(id, i, uint64(i)), order.Fenced)
	}), order.ErrStale)
	if winner != many {
		t.failf("token %d won, want %d", winner, many)
	}
	t.drivers(id, many)
}

// lateWriter checks failure mode F34: A reads, B reads, A writes, B writes. A guard that compares the
// fence only at the write accepts both.
func lateWriter(t *trial) {
	for _, c := range []struct {
		guard order.Guard
		first error // the result of A's write
		want  []int64
	}{
		{order.Naive, nil, []int64{1, 2}},
		{order.FenceWrite, nil, []int64{1, 2}},
		{order.Fenced, order.ErrStale, []int64{2}},
	} {
		id := t.create(1)
		for fence := uint64(1); fence <= 2; fence++ {
			read := fence
			if c.guard != order.Fenced {
				read = 0
			}
			o, err := t.Read(t.ctx, id, read)
			if err != nil || o.Status != order.Open {
				t.failf("%s: read %d: %+v, %v", c.guard, fence, o, err)
			}
		}
		t.expect(fmt.Sprint(c.guard, ": first write"), t.Claim(t.ctx, claim(id, 1, 1), c.guard), c.first)
		t.expect(fmt.Sprint(c.guard, ": second write"), t.Claim(t.ctx, claim(id, 2, 2), c.guard), nil)
		t.drivers(id, c.want...)
	}
}

func cancelled(t *trial) {
	id := t.create(1)
	gone, cancel := context.WithCancel(t.ctx)
	cancel()
	_, err := t.Read(gone, id, 0)
	t.expect("read", err, context.Canceled)
	_, err = t.Read(gone, id, 1)
	t.expect("fenced read", err, context.Canceled)
	_, err = t.Create(gone, 1, 1)
	t.expect("create", err, context.Canceled)
	_, err = t.Ledger(gone, id, 1)
	t.expect("ledger", err, context.Canceled)
	t.expect("claim", t.Claim(gone, claim(id, 1, 0), order.Naive), context.Canceled, order.ErrNotWritten)
	t.row(order.Order{ID: id})
	t.drivers(id)
}
