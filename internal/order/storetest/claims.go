package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/order"
)

func create(ctx context.Context, s order.Store) error {
	const count = 2500
	first, err := s.Create(ctx, count)
	if err != nil {
		return err
	}
	for i := range int64(count) {
		if err := row(ctx, s, order.Order{ID: first + i}); err != nil {
			return err
		}
	}
	next, err := s.Create(ctx, 1)
	if err != nil || next < first+count {
		return fmt.Errorf("next order is %d, %v, after %d to %d", next, err, first, first+count-1)
	}
	return nil
}

func createRefuses(ctx context.Context, s order.Store) error {
	for _, count := range []int{-1, 0, order.MaxCreate + 1} {
		if _, err := s.Create(ctx, count); err == nil {
			return fmt.Errorf("opened %d orders", count)
		}
	}
	return nil
}

func createTogether(ctx context.Context, s order.Store) error {
	const creators, count = 8, 300
	firsts := make([]int64, creators)
	errs := together(creators, func(i int64) (err error) {
		firsts[i-1], err = s.Create(ctx, count)
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	slices.Sort(firsts)
	for i, first := range firsts {
		if i > 0 && first < firsts[i-1]+count {
			return fmt.Errorf("orders %d and %d were both opened as the first of %d", firsts[i-1], first, count)
		}
		for id := first; id < first+count; id++ {
			if err := row(ctx, s, order.Order{ID: id}); err != nil {
				return err
			}
		}
	}
	return nil
}

func notFound(ctx context.Context, s order.Store) error {
	id, err := one(ctx, s)
	if err != nil {
		return err
	}
	for _, none := range []int64{-1, 0, id + 1_000_000} {
		for _, fence := range []uint64{0, 7} {
			_, err := s.Read(ctx, none, fence)
			if err := expect("read", err, order.ErrNotFound); err != nil {
				return err
			}
		}
		for _, g := range order.Guards {
			err := s.Claim(ctx, claim(none, 1, 7), g)
			if err := errors.Join(expect("claim", err, order.ErrNotFound), expect("claim", err, order.ErrNotWritten)); err != nil {
				return err
			}
		}
		if err := drivers(ctx, s, none); err != nil {
			return err
		}
	}
	return nil
}

func badClaim(ctx context.Context, s order.Store) error {
	id, err := one(ctx, s)
	if err != nil {
		return err
	}
	long := claim(id, 1, 0)
	long.Token = strings.Repeat("x", 256)
	for g, c := range map[order.Guard]order.Claim{
		order.Naive:      long,
		"":               claim(id, 1, 1),
		"trust me":       claim(id, 1, 1),
		order.FenceWrite: claim(id, 1, 0),
		order.Fenced:     claim(id, 1, 0),
	} {
		if err := expect(fmt.Sprintf("guard %q", g), s.Claim(ctx, c, g), order.ErrNotWritten); err != nil {
			return err
		}
	}
	return errors.Join(row(ctx, s, order.Order{ID: id}), drivers(ctx, s, id))
}

// guards tries every guard on every state of an order.
func guards(ctx context.Context, s order.Store) error {
	const winner = 1 // who has the order where it is taken
	for _, c := range []struct {
		guard    order.Guard
		seen     uint64 // fence of the row
		taken    bool
		driver   int64
		presents uint64 // fence of the claim
		want     error
		fence    uint64 // fence of the row thereafter
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

		{order.FenceWrite, 0, false, 2, 1, nil, 1},
		{order.FenceWrite, 5, false, 2, 4, order.ErrStale, 5},
		{order.FenceWrite, 5, false, 2, 5, order.ErrStale, 5},
		{order.FenceWrite, 5, false, 2, 6, nil, 6},
		{order.FenceWrite, 5, true, 2, 4, order.ErrStale, 5},
		{order.FenceWrite, 5, true, winner, 5, order.ErrTaken, 5},
		{order.FenceWrite, 5, true, 2, 6, nil, 6}, // it looks fenced and is not

		{order.Fenced, 0, false, 2, 1, order.ErrNotWritten, 0}, // no read has raised it
		{order.Fenced, 5, false, 2, 4, order.ErrStale, 5},
		{order.Fenced, 5, false, 2, 5, nil, 5},
		{order.Fenced, 5, false, 2, 6, order.ErrNotWritten, 5},
		{order.Fenced, 5, true, 2, 4, order.ErrStale, 5},
		{order.Fenced, 5, true, winner, 5, order.ErrTaken, 5}, // its own retry
	} {
		id, err := one(ctx, s)
		if err != nil {
			return err
		}
		before, after := order.Order{ID: id, Fence: c.seen}, []int64(nil)
		if c.seen > 0 {
			if _, err := s.Read(ctx, id, c.seen); err != nil {
				return err
			}
		}
		if c.taken {
			if err := s.Claim(ctx, claim(id, winner, c.seen), order.Naive); err != nil {
				return err
			}
			before.Status, before.Driver, after = order.Grabbed, winner, []int64{winner}
		}
		if c.want == nil {
			before.Status, before.Driver, after = order.Grabbed, c.driver, append(after, c.driver)
		}
		before.Fence = c.fence

		err = expect("claim", s.Claim(ctx, claim(id, c.driver, c.presents), c.guard), c.want)
		if err := errors.Join(err, row(ctx, s, before), drivers(ctx, s, id, after...)); err != nil {
			return fmt.Errorf("%s, row has fence %d, taken %v, driver %d presents %d: %w",
				c.guard, c.seen, c.taken, c.driver, c.presents, err)
		}
	}
	return nil
}

// raise: a fenced read lifts the row's fence, strictly.
func raise(ctx context.Context, s order.Store) error {
	id, err := one(ctx, s)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		fence uint64
		want  error
		now   uint64
	}{{5, nil, 5}, {5, order.ErrStale, 5}, {4, order.ErrStale, 5}, {6, nil, 6}, {1 << 62, nil, 1 << 62}} {
		got, err := s.Read(ctx, id, c.fence)
		want := order.Order{ID: id, Fence: c.now}
		if got != want {
			return fmt.Errorf("read with fence %d: %+v, want %+v", c.fence, got, want)
		}
		if err := errors.Join(expect("read", err, c.want), row(ctx, s, want)); err != nil {
			return fmt.Errorf("fence %d: %w", c.fence, err)
		}
	}
	return nil
}

// ledger: the rows of the orders asked for, as written, in the order of writing.
func ledger(ctx context.Context, s order.Store) error {
	first, err := s.Create(ctx, 5)
	if err != nil {
		return err
	}
	var want []order.Grab
	for i, id := range []int64{3, 0, 4, 1, 3, 2, 3} {
		c := claim(first+id, int64(i)+1, uint64(i)*7)
		c.Instance, c.Strategy = fmt.Sprint("n", i), "Ärger"
		if err := s.Claim(ctx, c, order.Naive); err != nil {
			return err
		}
		if id >= 1 && id <= 3 {
			want = append(want, order.Grab{
				Order: c.Order, Driver: c.Driver, Instance: c.Instance,
				Strategy: c.Strategy, Token: c.Token, Fence: c.Fence,
			})
		}
	}
	got, err := s.Ledger(ctx, first+1, 3)
	if err != nil {
		return err
	}
	var at time.Time
	var id int64
	for i := range got {
		if got[i].ID <= id || got[i].At.Before(at) || got[i].At.IsZero() || got[i].At.Location() != time.UTC {
			return fmt.Errorf("grab %d at %v comes after grab %d at %v", got[i].ID, got[i].At, id, at)
		}
		id, at = got[i].ID, got[i].At
		got[i].ID, got[i].At = 0, time.Time{}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("ledger is\n%+v, want\n%+v", got, want)
	}
	if none, err := s.Ledger(ctx, first, 0); err != nil || len(none) != 0 {
		return fmt.Errorf("ledger of no orders is %v, %v", none, err)
	}
	return nil
}

// sameValuesTwice: a naive write that changes nothing is a grab all the same.
func sameValuesTwice(ctx context.Context, s order.Store) error {
	id, err := one(ctx, s)
	if err != nil {
		return err
	}
	for range 20 {
		if err := s.Claim(ctx, claim(id, 1, 0), order.Naive); err != nil {
			return err
		}
	}
	return drivers(ctx, s, id, slices.Repeat([]int64{1}, 20)...)
}

const many = 8 // how many drivers claim at once

func naiveTogether(ctx context.Context, s order.Store) error {
	id, err := one(ctx, s)
	if err != nil {
		return err
	}
	errs := together(many, func(i int64) error { return s.Claim(ctx, claim(id, i, 0), order.Naive) })
	if err := errors.Join(errs...); err != nil {
		return err
	}
	grabs, err := s.Ledger(ctx, id, 1)
	if err != nil || len(grabs) != many {
		return fmt.Errorf("%d naive winners left %d ledger rows, %v", many, len(grabs), err)
	}
	return row(ctx, s, order.Order{ID: id, Status: order.Grabbed, Driver: grabs[many-1].Driver})
}

func guardedTogether(ctx context.Context, s order.Store) error {
	for range 10 {
		id, err := one(ctx, s)
		if err != nil {
			return err
		}
		winner, err := onlyOne(together(many, func(i int64) error {
			return s.Claim(ctx, claim(id, i, 0), order.Guarded)
		}), order.ErrTaken)
		if err != nil {
			return err
		}
		err = errors.Join(drivers(ctx, s, id, winner), row(ctx, s, order.Order{ID: id, Status: order.Grabbed, Driver: winner}))
		if err != nil {
			return err
		}
	}
	return nil
}

// onlyOne finds the one driver who won, where all others must have been refused.
func onlyOne(errs []error, refusal error) (winner int64, err error) {
	for i, err := range errs {
		switch {
		case err == nil && winner == 0:
			winner = int64(i) + 1
		case err == nil:
			return 0, fmt.Errorf("drivers %d and %d both won", winner, i+1)
		case !errors.Is(err, refusal):
			return 0, expect(fmt.Sprint("driver ", i+1), err, refusal)
		}
	}
	if winner == 0 {
		return 0, errors.New("nobody won")
	}
	return winner, nil
}

func fenceWriteTogether(ctx context.Context, s order.Store) error {
	id, err := one(ctx, s)
	if err != nil {
		return err
	}
	errs := together(many, func(i int64) error { return s.Claim(ctx, claim(id, i, uint64(i)), order.FenceWrite) })
	grabs, err := s.Ledger(ctx, id, 1)
	if err != nil {
		return err
	}
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
		} else if err := expect(fmt.Sprint("token ", i+1), err, order.ErrStale); err != nil {
			return err
		}
	}
	rising := slices.IsSortedFunc(grabs, func(a, b order.Grab) int { return int(a.Fence) - int(b.Fence) })
	if won != len(grabs) || !rising || errs[many-1] != nil {
		return fmt.Errorf("%d won, the last token with %v, and the ledger is %+v", won, errs[many-1], grabs)
	}
	return row(ctx, s, order.Order{ID: id, Status: order.Grabbed, Driver: many, Fence: many})
}

// fencedTogether: all read, then all claim, and only the highest token writes.
func fencedTogether(ctx context.Context, s order.Store) error {
	id, err := one(ctx, s)
	if err != nil {
		return err
	}
	for i, err := range together(many, func(i int64) error {
		_, err := s.Read(ctx, id, uint64(i))
		return err
	}) {
		if err != nil && (i+1 == many || !errors.Is(err, order.ErrStale)) {
			return fmt.Errorf("read with token %d: %w", i+1, err)
		}
	}
	winner, err := onlyOne(together(many, func(i int64) error {
		return s.Claim(ctx, claim(id, i, uint64(i)), order.Fenced)
	}), order.ErrStale)
	if err != nil {
		return err
	}
	if winner != many {
		return fmt.Errorf("token %d won, want %d", winner, many)
	}
	return drivers(ctx, s, id, many)
}

// lateWriter is F34: A reads, B reads, A writes, B writes. A fence that is
// compared at the write alone lets both through.
func lateWriter(ctx context.Context, s order.Store) error {
	for _, c := range []struct {
		guard order.Guard
		first error // what A's write comes to
		want  []int64
	}{
		{order.Naive, nil, []int64{1, 2}},
		{order.FenceWrite, nil, []int64{1, 2}},
		{order.Fenced, order.ErrStale, []int64{2}},
	} {
		id, err := one(ctx, s)
		if err != nil {
			return err
		}
		for fence := uint64(1); fence <= 2; fence++ {
			read := fence
			if c.guard != order.Fenced {
				read = 0
			}
			o, err := s.Read(ctx, id, read)
			if err != nil || o.Status != order.Open {
				return fmt.Errorf("%s: read %d: %+v, %v", c.guard, fence, o, err)
			}
		}
		err = errors.Join(
			expect("first write", s.Claim(ctx, claim(id, 1, 1), c.guard), c.first),
			expect("second write", s.Claim(ctx, claim(id, 2, 2), c.guard), nil),
			drivers(ctx, s, id, c.want...))
		if err != nil {
			return fmt.Errorf("%s: %w", c.guard, err)
		}
	}
	return nil
}

func cancelled(ctx context.Context, s order.Store) error {
	id, err := one(ctx, s)
	if err != nil {
		return err
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, readErr := s.Read(gone, id, 0)
	_, raiseErr := s.Read(gone, id, 1)
	_, createErr := s.Create(gone, 1)
	_, ledgerErr := s.Ledger(gone, id, 1)
	claimErr := s.Claim(gone, claim(id, 1, 0), order.Naive)
	return errors.Join(
		expect("read", readErr, context.Canceled),
		expect("fenced read", raiseErr, context.Canceled),
		expect("create", createErr, context.Canceled),
		expect("ledger", ledgerErr, context.Canceled),
		expect("claim", claimErr, context.Canceled),
		expect("claim", claimErr, order.ErrNotWritten),
		row(ctx, s, order.Order{ID: id}),
		drivers(ctx, s, id))
}
