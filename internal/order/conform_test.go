package order_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"grablab/internal/order"
)

// storeCheck is one requirement on a store. It opens its own orders, so that checks can share a
// store.
type storeCheck struct {
	name string
	run  func(*trial)
}

// storeChecks lists all requirements. They are data rather than tests, so that a test can show that each
// check rejects a wrong store.
var storeChecks = []storeCheck{
	{"create", create},
	{"create together", createTogether},
	{"not found", notFound},
	{"bad claim", badClaim},
	{"guards", guards},
	{"raise", raise},
	{"ledger", ledger},
	{"same values twice", sameValuesTwice},
	{"naive together", naiveTogether},
	{"guarded together", guardedTogether},
	{"unique together", uniqueTogether},
	{"fence-write together", fenceWriteTogether},
	{"fenced together", fencedTogether},
	{"late writer", lateWriter},
	{"stock", stock},
	{"stock guards", stockGuards},
	{"stock together", stockTogether},
	{"lost update", lostUpdate},
	{"per driver", perDriver},
	{"two requests of one driver", twoRequests},
	{"stock retried", stockRetried},
	{"cancelled", cancelled},
	{"session or refusal", sessionOrRefusal},
	{"row lock", rowLock},
	{"row lock of none", rowLockOfNone},
	{"row lock handed on", rowLockHandedOn},
	{"row lock after a claim", rowLockAfterClaim},
	{"row lock and writers", rowLockAndWriters},
	{"name lock", nameLock},
	{"name lock handed on", nameLockHandedOn},
	{"session claims", sessionClaims},
	{"session cancelled", sessionCancelled},
	{"session claim cancelled", sessionClaimCancelled},
}

// limit is the maximum duration of a check. It is necessary because a wrong store may wait forever.
const limit = 60 * time.Second

// conform runs every check on the store that open returns. The stores in memory, SQLite and MySQL
// behave alike because each of them passes all checks.
func conform(t *testing.T, open func(t *testing.T) order.Store) {
	s := open(t)
	for _, c := range storeChecks {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := c.check(ctx, s); err != nil {
				t.Error(err)
			}
		})
	}
}

// check returns nil if the store meets the requirement. Otherwise, the error says what the store did.
func (c storeCheck) check(ctx context.Context, s order.Store) (err error) {
	t := &trial{Store: s, ctx: ctx}
	defer func() {
		switch end := recover().(type) {
		case nil:
		case ended:
			err = end.why
		default:
			panic(end)
		}
		for _, x := range slices.Backward(t.open) {
			err = errors.Join(err, x.Close(ctx))
		}
	}()
	c.run(t)
	return nil
}

// trial is one check of one store. At the first violation, its methods end the check by a panic,
// which storeCheck.check recovers. Only the goroutine of the check may call them.
type trial struct {
	order.Store
	ctx  context.Context
	open []*session
}

// ended is the value with which a trial panics. why is nil if the check does not apply.
type ended struct{ why error }

func (t *trial) failf(format string, args ...any) { panic(ended{fmt.Errorf(format, args...)}) }

func (t *trial) must(err error) {
	if err != nil {
		panic(ended{err})
	}
}

// create opens orders and returns the first.
func (t *trial) create(count int) int64 {
	first, err := t.Create(t.ctx, count, 1)
	t.must(err)
	return first
}

// expect checks that err wraps every error in wants. If an error in wants is nil, err must be nil.
func (t *trial) expect(what string, err error, wants ...error) {
	for _, want := range wants {
		if err != want && (want == nil || !errors.Is(err, want)) {
			t.failf("%s: got error %v, want %v", what, err, want)
		}
	}
}

// row checks that a read without a fence returns want.
func (t *trial) row(want order.Order) {
	got, err := t.Read(t.ctx, want.ID, 0)
	if err != nil || got != want {
		t.failf("order is %+v, %v, want %+v", got, err, want)
	}
}

// drivers checks which drivers the ledger lists for an order, in the order of their writes.
func (t *trial) drivers(id int64, want ...int64) {
	grabs, err := t.Ledger(t.ctx, id, 1)
	t.must(err)
	got := make([]int64, len(grabs))
	for i, g := range grabs {
		got[i] = g.Driver
	}
	if !slices.Equal(got, want) {
		t.failf("ledger of order %d has drivers %v, want %v", id, got, want)
	}
}

// claim returns a claim of driver d with the fencing token fence.
func claim(id, d int64, fence uint64) order.Claim {
	return order.Claim{
		Order: id, Driver: d, Fence: fence, Instance: "8004", Strategy: "test",
		Token: fmt.Sprintf("%d-%d-%d", id, d, fence),
	}
}

const many = 8 // the number of drivers that claim at once

// together calls f(1) to f(n) concurrently and returns their errors. The error of f(i) is at index i-1.
func together(n int, f func(i int64) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() {
			<-start
			errs[i] = f(int64(i) + 1)
		})
	}
	close(start)
	done.Wait()
	return errs
}

// onlyOne returns the driver who won. The check fails unless there is exactly one, and all others got the
// error refusal.
func (t *trial) onlyOne(errs []error, refusal error) (winner int64) {
	for i, err := range errs {
		switch {
		case err == nil && winner == 0:
			winner = int64(i) + 1
		case err == nil:
			t.failf("drivers %d and %d both won", winner, i+1)
		default:
			t.expect(fmt.Sprint("driver ", i+1), err, refusal)
		}
	}
	if winner == 0 {
		t.failf("no driver won")
	}
	return winner
}
