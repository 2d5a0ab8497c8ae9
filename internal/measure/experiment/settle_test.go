package experiment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/check"
	"grablab/internal/order"
	"grablab/internal/testbed/fleet"
)

// readings is a ledger that advances to its next state after each read, and stays in the last one.
type readings struct {
	states [][]order.Grab
	next   int
}

func (r *readings) Create(context.Context, int, int) (int64, error) { panic("not used") }

func (r *readings) Ledger(context.Context, int64, int) ([]order.Grab, error) {
	now := r.states[min(r.next, len(r.states)-1)]
	r.next++
	return now, nil
}

// TestSettleForgetsNoDeletion applies every sequence of up to four changes to the ledger after the
// load. If any change deletes rows, the error must report how many, whatever the other changes are.
// Only a service that may undo grabs may delete rows.
func TestSettleForgetsNoDeletion(t *testing.T) {
	t.Parallel()
	row := func(driver int) order.Grab { return order.Grab{Order: 1, Driver: int64(driver)} }
	type change struct {
		name    string
		deletes int
		apply   func(rows []order.Grab, n int) []order.Grab
	}
	changes := []change{
		{"none", 0, func(rows []order.Grab, _ int) []order.Grab { return rows }},
		{"add", 0, func(rows []order.Grab, n int) []order.Grab { return append(slices.Clone(rows), row(100+n)) }},
		{"delete", 1, func(rows []order.Grab, _ int) []order.Grab { return slices.Clone(rows[1:]) }},
		{"delete two", 2, func(rows []order.Grab, _ int) []order.Grab { return slices.Clone(rows[2:]) }},
		{"replace", 1, func(rows []order.Grab, n int) []order.Grab { return append(slices.Clone(rows[1:]), row(100+n)) }},
	}
	synctest.Test(t, func(t *testing.T) {
		for sequence := range 2 * len(changes) * len(changes) * len(changes) * len(changes) {
			undoes := sequence%2 == 1
			rows := []order.Grab{}
			for driver := range 10 {
				rows = append(rows, row(driver))
			}
			ledger, names, deleted := &readings{states: [][]order.Grab{rows}}, []string{}, 0
			for n, rest := 0, sequence/2; n < 4; n, rest = n+1, rest/len(changes) {
				c := changes[rest%len(changes)]
				rows = c.apply(rows, n)
				ledger.states = append(ledger.states, rows)
				names, deleted = append(names, c.name), deleted+c.deletes
			}
			au := &auditor{
				cfg: Config{Settle: time.Second}, fleet: &fleet.Fleet{Foreign: true}, orders: ledger, ledger: true,
				progress: &workerProgress{progress: newProgress(Config{})},
			}
			if undoes {
				au.cfg.Target.Compensation = time.Second
			}
			got, err := au.settle(t.Context(), &Cell{Orders: 1}, &accounting{}, 1, ledger.states[0], false)
			if !slices.Equal(got, rows) {
				t.Fatalf("%q: settle: %v, want %v", names, got, rows)
			}
			if want := fmt.Sprintf("%d row", deleted); (err != nil) != (deleted > 0 && !undoes) || err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Fatalf("%q, the service may undo grabs %v: %v, want %d deleted rows", names, undoes, err, deleted)
			}
		}
	})
}

// TestSettleAwaitsPromisedRows makes a driver's row appear at various times after the load. If the
// driver was told that it won, the ledger must be read until the row appears, for at most
// promisedRows. Otherwise, it must be read until it has been unchanged for the settle time.
func TestSettleAwaitsPromisedRows(t *testing.T) {
	const settle, atOnce = time.Second, 100 * time.Millisecond // atOnce is the longest time between two reads
	synctest.Test(t, func(t *testing.T) {
		for _, promised := range []bool{false, true} {
			for after := time.Duration(0); after < promisedRows+time.Second; after += atOnce {
				limit, a := settle, &accounting{}
				if promised {
					limit, a.told = promisedRows, []check.Pair{{Order: 1, Driver: 7}}
				}
				if after > limit-atOnce && after < limit+atOnce {
					continue
				}
				au := &auditor{
					cfg: Config{Settle: settle}, fleet: &fleet.Fleet{Foreign: true}, ledger: true,
					orders:   slowLedger{0, map[int64]time.Time{7: time.Now().Add(after)}},
					progress: &workerProgress{progress: newProgress(Config{})},
				}
				rows, err := au.settle(t.Context(), &Cell{Orders: 1}, a, 1, nil, false)
				if seen := len(rows) == 1; err != nil || seen != (after < limit) {
					t.Errorf("promised %v, written after %v: seen %v, %v", promised, after, seen, err)
				}
			}
		}
	})
}
