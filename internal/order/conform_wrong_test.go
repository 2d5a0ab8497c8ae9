package order_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/order"
)

func TestMem(t *testing.T) {
	conform(t, func(*testing.T) order.Store { return new(order.Mem) })
}

// TestIntercepted checks that an intercepted store behaves like the store itself, and that the function
// gets the result of each call.
func TestIntercepted(t *testing.T) {
	var calls atomic.Int64
	conform(t, func(*testing.T) order.Store {
		return order.Intercept(new(order.Mem), func(ctx context.Context, c *order.Call, send func(context.Context) error) error {
			calls.Add(1)
			err := send(ctx)
			if err != c.Err {
				t.Errorf("%s: send returns %v, but Call.Err is %v", c.Kind, err, c.Err)
			}
			return err
		})
	})
	if calls.Load() == 0 {
		t.Error("no call was intercepted")
	}
}

// TestMemInBubble checks that Mem also works in the virtual time of package synctest.
func TestMemInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got := failures(t.Context(), new(order.Mem)); got != nil {
			t.Errorf("the correct store fails the checks %q", got)
		}
	})
}

// TestWrongStoresFail runs the checks on wrong stores with one bug each. Each wrong store must fail the
// checks that are listed for it, and each check must fail for at least one wrong store.
func TestWrongStoresFail(t *testing.T) {
	failed := map[string]bool{}
	for _, w := range wrong {
		t.Run(w.name, func(t *testing.T) {
			var got []string
			synctest.Test(t, func(t *testing.T) { got = failures(t.Context(), w.store(new(order.Mem))) })
			for _, name := range got {
				failed[name] = true
			}
			for _, name := range w.fails {
				if !slices.Contains(got, name) {
					t.Errorf("passes %q; it fails %q", name, got)
				}
			}
		})
	}
	for _, c := range storeChecks {
		if !failed[c.name] {
			t.Errorf("no wrong store fails %q", c.name)
		}
	}
}

func failures(ctx context.Context, s order.Store) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, c := range storeChecks {
		if c.check(ctx, s) != nil {
			names = append(names, c.name)
		}
	}
	return names
}

var wrong = []struct {
	name  string
	store func(order.Store) order.Store
	fails []string
}{
	{"loses every third ledger row", losesRows, []string{"guards", "ledger", "same values twice", "naive together", "late writer"}},
	{"ignores the guard", ignoresGuard, []string{"guards", "guarded together", "unique together", "fenced together", "late writer", "session claims", "bad claim"}},
	{"ignores the fence of a read", ignoresRaise, []string{"raise", "fenced together"}},
	{"mistakes stale for taken", mistakes(order.ErrStale, order.ErrTaken), []string{"guards", "fence-write together"}},
	{"mistakes not found for taken", mistakes(order.ErrNotFound, order.ErrTaken), []string{"not found", "row lock of none"}},
	{"ledger of one order too many", wideLedger, []string{"ledger"}},
	{"gaps between the new ids", gaps, []string{"create", "create together"}},
	{"cannot be cancelled", uncancelled, []string{"cancelled", "row lock and writers", "session cancelled", "session claim cancelled"}},
	{"refuses without a word", mute, []string{"session or refusal"}},
	{"sells from the counter of others", relative, []string{"lost update", "stock guards"}},
	{"forgets whose units they are", forgetsHolders, []string{"per driver", "two requests of one driver"}},
	{"opens one unit", opensOne, []string{"stock", "stock together"}},
	{"knows no retry", renames, []string{"stock retried"}},
	{"locks nothing", locksNothing, []string{"row lock", "row lock handed on", "row lock and writers", "name lock", "name lock handed on"}},
}

// Each wrong store embeds a correct one and overrides the methods that have the bug.

type rowLoser struct{ order.Store }

func losesRows(s order.Store) order.Store { return rowLoser{s} }

func (s rowLoser) Ledger(ctx context.Context, first int64, count int) ([]order.Grab, error) {
	grabs, err := s.Store.Ledger(ctx, first, count)
	return slices.DeleteFunc(grabs, func(g order.Grab) bool { return g.ID%3 == 0 }), err
}

type guardIgnorer struct{ order.Store }

func ignoresGuard(s order.Store) order.Store { return guardIgnorer{s} }

func (s guardIgnorer) Claim(ctx context.Context, c order.Claim, _ order.Guard) error {
	return s.Store.Claim(ctx, c, order.Naive)
}

func (s guardIgnorer) Begin(ctx context.Context) (order.Tx, error) {
	tx, err := s.Store.Begin(ctx)
	return guardIgnorerTx{tx}, err
}

type guardIgnorerTx struct{ order.Tx }

func (t guardIgnorerTx) Claim(ctx context.Context, c order.Claim, _ order.Guard) error {
	return t.Tx.Claim(ctx, c, order.Naive)
}

type raiseIgnorer struct{ order.Store }

func ignoresRaise(s order.Store) order.Store { return raiseIgnorer{s} }

func (s raiseIgnorer) Read(ctx context.Context, id int64, _ uint64) (order.Order, error) {
	return s.Store.Read(ctx, id, 0)
}

type mistaker struct {
	order.Store
	from, to error
}

func mistakes(from, to error) func(order.Store) order.Store {
	return func(s order.Store) order.Store { return mistaker{s, from, to} }
}

func (s mistaker) as(err error) error {
	if errors.Is(err, s.from) {
		return s.to
	}
	return err
}

func (s mistaker) Read(ctx context.Context, id int64, fence uint64) (order.Order, error) {
	o, err := s.Store.Read(ctx, id, fence)
	return o, s.as(err)
}

func (s mistaker) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	return s.as(s.Store.Claim(ctx, c, g))
}

func (s mistaker) Begin(ctx context.Context) (order.Tx, error) {
	tx, err := s.Store.Begin(ctx)
	return mistakerTx{tx, s}, err
}

type mistakerTx struct {
	order.Tx
	s mistaker
}

func (t mistakerTx) LockRow(ctx context.Context, id int64, wait time.Duration) (bool, error) {
	ok, err := t.Tx.LockRow(ctx, id, wait)
	return ok, t.s.as(err)
}

type wide struct{ order.Store }

func wideLedger(s order.Store) order.Store { return wide{s} }

func (s wide) Ledger(ctx context.Context, first int64, count int) ([]order.Grab, error) {
	return s.Store.Ledger(ctx, first-1, count+2)
}

type gapper struct{ order.Store }

func gaps(s order.Store) order.Store { return gapper{s} }

// Create opens half of the orders that it promises.
func (s gapper) Create(ctx context.Context, count, units int) (int64, error) {
	if count < 2 {
		return s.Store.Create(ctx, count, units)
	}
	return s.Store.Create(ctx, count/2, units)
}

type uncanceller struct{ order.Store }

func uncancelled(s order.Store) order.Store { return uncanceller{s} }

func (s uncanceller) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	if deaf := context.WithoutCancel(ctx); ctx.Err() != nil {
		return s.Store.Claim(deaf, c, g)
	}
	return untold(s.Store.Claim(ctx, c, g))
}

func (s uncanceller) Begin(ctx context.Context) (order.Tx, error) {
	tx, err := s.Store.Begin(ctx)
	return uncancellerTx{tx}, err
}

type uncancellerTx struct{ order.Tx }

func (t uncancellerTx) LockRow(ctx context.Context, id int64, wait time.Duration) (bool, error) {
	ok, err := t.Tx.LockRow(ctx, id, wait)
	return ok, untold(err)
}

func (t uncancellerTx) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	return t.Tx.Claim(context.WithoutCancel(ctx), c, g)
}

// untold replaces context.DeadlineExceeded with nil.
func untold(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

type muter struct{ order.Store }

func mute(s order.Store) order.Store { return muter{s} }

func (s muter) Begin(context.Context) (order.Tx, error) { return nil, order.ErrUnsupported }

type relativeStore struct{ order.Store }

func relative(s order.Store) order.Store { return relativeStore{s} }

// Claim decrements the counter even under the naive guard, which should overwrite it.
func (s relativeStore) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	if g == order.Naive && c.Stock > 0 {
		g = order.Decrement
	}
	return s.Store.Claim(ctx, c, g)
}

type holderForgetter struct{ order.Store }

func forgetsHolders(s order.Store) order.Store { return holderForgetter{s} }

func (s holderForgetter) Held(context.Context, int64, int64) (int, error) { return 0, nil }

func (s holderForgetter) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	c.PerDriver = 1000
	return s.Store.Claim(ctx, c, g)
}

type oneOpener struct{ order.Store }

func opensOne(s order.Store) order.Store { return oneOpener{s} }

func (s oneOpener) Create(ctx context.Context, count, _ int) (int64, error) {
	return s.Store.Create(ctx, count, 1)
}

type renamer struct {
	order.Store
	claims *atomic.Int64
}

func renames(s order.Store) order.Store { return renamer{s, new(atomic.Int64)} }

// Claim gives each claim a new token, so that the store cannot recognize a repeated claim.
func (s renamer) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	if c.Stock > 0 && c.Token != "" {
		c.Token = fmt.Sprint(c.Token, s.claims.Add(1))
	}
	return s.Store.Claim(ctx, c, g)
}

type unlocked struct{ order.Store }

func locksNothing(s order.Store) order.Store { return unlocked{s} }

func (s unlocked) Begin(ctx context.Context) (order.Tx, error) {
	tx, err := s.Store.Begin(ctx)
	return unlockedTx{tx}, err
}

type unlockedTx struct{ order.Tx }

func (unlockedTx) LockRow(context.Context, int64, time.Duration) (bool, error)   { return true, nil }
func (unlockedTx) LockName(context.Context, string, time.Duration) (bool, error) { return true, nil }
