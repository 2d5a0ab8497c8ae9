// Package storetest is the conformance suite of order.Store: memory, SQLite and
// MySQL answer alike because each passes it.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"grablab/internal/order"
)

// Check is one demand on a store. It opens orders of its own, so that checks
// can share a store.
type Check struct {
	Name string
	Run  func(context.Context, order.Store) error
}

// Checks lists all demands. They are functions and not tests, so that it can
// be shown of each that a wrong store fails it.
var Checks = []Check{
	{"create", create},
	{"create refuses", createRefuses},
	{"create together", createTogether},
	{"not found", notFound},
	{"bad claim", badClaim},
	{"guards", guards},
	{"raise", raise},
	{"ledger", ledger},
	{"same values twice", sameValuesTwice},
	{"naive together", naiveTogether},
	{"guarded together", guardedTogether},
	{"fence-write together", fenceWriteTogether},
	{"fenced together", fencedTogether},
	{"late writer", lateWriter},
	{"cancelled", cancelled},
	{"session or refusal", sessionOrRefusal},
	{"row lock", rowLock},
	{"row lock of none", rowLockOfNone},
	{"row lock handed on", rowLockHandedOn},
	{"row lock and writers", rowLockAndWriters},
	{"name lock", nameLock},
	{"name lock handed on", nameLockHandedOn},
	{"session claims", sessionClaims},
	{"session rolls back", sessionRollsBack},
	{"session cancelled", sessionCancelled},
}

// limit of one check: a wrong store may wait for ever.
const limit = 60 * time.Second

// Run holds the store that open returns to every check.
func Run(t *testing.T, open func(t *testing.T) order.Store) {
	s := open(t)
	for _, c := range Checks {
		t.Run(c.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := c.Run(ctx, s); err != nil {
				t.Error(err)
			}
		})
	}
}

// claim is driver d's, with the fencing token fence.
func claim(id, d int64, fence uint64) order.Claim {
	return order.Claim{
		Order: id, Driver: d, Fence: fence, Instance: "8004", Strategy: "test",
		Token: fmt.Sprintf("%d-%d-%d", id, d, fence),
	}
}

// one opens a single order.
func one(ctx context.Context, s order.Store) (int64, error) { return s.Create(ctx, 1) }

// expect compares an error with the sentinel that it should be; nil: none.
func expect(what string, err, want error) error {
	if err == want || want != nil && errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("%s: got error %v, want %v", what, err, want)
}

// row checks an order as anybody reads it.
func row(ctx context.Context, s order.Store, want order.Order) error {
	got, err := s.Read(ctx, want.ID, 0)
	if err != nil || got != want {
		return fmt.Errorf("order is %+v, %v, want %+v", got, err, want)
	}
	return nil
}

// drivers checks who stands in the ledger of one order, in this order.
func drivers(ctx context.Context, s order.Store, id int64, want ...int64) error {
	grabs, err := s.Ledger(ctx, id, 1)
	if err != nil {
		return err
	}
	got := make([]int64, len(grabs))
	for i, g := range grabs {
		got[i] = g.Driver
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("ledger of order %d has drivers %v, want %v", id, got, want)
	}
	return nil
}

// together runs f for 1 to n at once and returns the errors: those of f(i) at
// index i-1.
func together(n int, f func(i int64) error) []error {
	errs := make([]error, n)
	start, done := make(chan struct{}), make(chan struct{})
	for i := range n {
		go func() {
			<-start
			errs[i] = f(int64(i) + 1)
			done <- struct{}{}
		}()
	}
	close(start)
	for range n {
		<-done
	}
	return errs
}
