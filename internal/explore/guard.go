package explore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// A guardStep is one call in a check of a guard: a read, or a claim if driver is not 0.
type guardStep struct {
	driver int64
	fence  uint64
}

func (s guardStep) String() string {
	if s.driver == 0 {
		return fmt.Sprintf("read with token %d", s.fence)
	}
	return fmt.Sprintf("write of driver %d with token %d", s.driver, s.fence)
}

// checkGuard is [compareGuard]. Tests replace it with a check that finds a mistake.
var checkGuard = compareGuard

// compareGuard compares a guard in SQL with the same guard in the simulated database, which all schedules use.
// It makes every short sequence of reads and writes in both databases. If a result differs, it returns the
// sequence and the two results, and otherwise "". It returns an error if SQLite cannot use its file.
func compareGuard(ctx context.Context, guard order.Guard) (difference string, err error) {
	defer func() {
		if err != nil && ctx.Err() == nil {
			difference, err = "", fmt.Errorf("explore: cannot compare the guard in a temporary SQLite database: %w: make sure that %s has free space and is writable", err, os.TempDir())
		}
	}()
	dir, err := os.MkdirTemp("", "loadgen-explore-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	db, err := order.Connect(ctx, "sqlite:"+filepath.Join(dir, "guard.db"), order.Options{})
	if err != nil {
		return "", err
	}
	defer db.Close()
	if err := db.Migrate(ctx); err != nil {
		return "", err
	}
	g := guardCheck{guard: guard, stores: [2]order.Store{db, &order.Mem{}}}
	for units := 1; units <= 2 && difference == "" && err == nil; units++ {
		if guard.RefusesUnits(units) == "" {
			difference, err = g.compare(ctx, units)
		}
	}
	return difference, err
}

// guardCheck holds the two databases whose results must be equal.
type guardCheck struct {
	guard  order.Guard
	stores [2]order.Store
}

// steps lists the calls of which the sequences consist. Without fencing tokens, fewer calls differ.
func (g guardCheck) steps() []guardStep {
	if g.guard.NeedsFence() {
		return []guardStep{{0, 1}, {0, 2}, {1, 1}, {2, 2}, {1, 2}}
	}
	return []guardStep{{0, 0}, {1, 0}, {2, 0}}
}

// guardSteps is the number of calls in a sequence.
const guardSteps = 4

// compare makes all sequences with orders of the given number of units. Each sequence has its own order.
func (g guardCheck) compare(ctx context.Context, units int) (difference string, err error) {
	sequences := [][]guardStep{{g.steps()[0]}} // each begins with a read
	for range guardSteps - 1 {
		var longer [][]guardStep
		for _, s := range sequences {
			for _, next := range g.steps() {
				longer = append(longer, append(append([]guardStep{}, s...), next))
			}
		}
		sequences = longer
	}
	var first [2]int64
	for i, s := range g.stores {
		if first[i], err = s.Create(ctx, len(sequences), units); err != nil {
			return "", err
		}
	}
	for n, steps := range sequences {
		var results [2][]string
		for i, s := range g.stores {
			if results[i], err = g.run(ctx, s, first[i]+int64(n), steps); err != nil {
				return "", err
			}
		}
		for i, inSQL := range results[0] {
			if simulated := results[1][i]; inSQL != simulated {
				return fmt.Sprintf("after %s, the guard %s gives %q in SQL, but %q in the simulated database",
					catalog.Join(steps[:min(i+1, len(steps))], ", ", guardStep.String), g.guard, inSQL, simulated), ctx.Err()
			}
		}
	}
	return "", ctx.Err()
}

// run makes the calls of a sequence, and returns their results. The last result is what the database then
// stores. run returns an error if a call failed because of the database's file, which says nothing about the guard.
func (g guardCheck) run(ctx context.Context, s order.Store, id int64, steps []guardStep) (results []string, err error) {
	var stock int64 // how many units the last read has found; 0 for an order with one unit
	for _, step := range steps {
		if step.driver == 0 {
			row, err := s.Read(ctx, id, step.fence)
			if err == nil && row.Stock > 0 {
				stock = row.Stock
			}
			row.ID = 0 // the two databases have different orders
			results = append(results, fmt.Sprintf("%s, %+v", nameOf(err), row))
			if order.IsFileFailure(err) {
				return nil, err
			}
			continue
		}
		err := s.Claim(ctx, order.Claim{
			Order: id, Driver: step.driver, Fence: step.fence, Token: fmt.Sprint("token-", step.driver, "-", step.fence), Stock: stock,
		}, g.guard)
		results = append(results, nameOf(err))
		if order.IsFileFailure(err) {
			return nil, err
		}
	}
	row, err := s.Read(ctx, id, 0)
	row.ID = 0
	ledger, unread := s.Ledger(ctx, id, 1)
	if err = errors.Join(err, unread); order.IsFileFailure(err) {
		return nil, err
	}
	sold := catalog.Join(ledger, " ", func(g order.Grab) string { return fmt.Sprint(g.Driver, "/", g.Fence, "/", g.Token) })
	return append(results, fmt.Sprintf("%+v %s %s", row, sold, nameOf(err))), nil
}

// nameOf returns the names of the errors of package order that err wraps. They decide what a driver is told.
func nameOf(err error) string {
	if err == nil {
		return "ok"
	}
	var names []string
	for _, of := range []error{order.ErrNotFound, order.ErrLimit, order.ErrTaken, order.ErrStale, order.ErrNotWritten} {
		if errors.Is(err, of) {
			names = append(names, strings.TrimPrefix(of.Error(), "order: "))
		}
	}
	if names == nil {
		return "another error"
	}
	return strings.Join(names, ", ")
}
