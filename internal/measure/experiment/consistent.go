package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"grablab/internal/catalog"
)

// Contradiction returns an error if two figures in the run cannot both be right, for example
// because someone has edited the result file.
func (r *Run) Contradiction() error {
	for _, c := range r.Cells {
		if err := cmp.Or(c.contradiction(), r.contradicts(c)); err != nil {
			return fmt.Errorf("cell %v: %w", c.Name(), err)
		}
	}
	return nil
}

// contradicts returns an error if a result does not fit the settings of the run.
func (r *Run) contradicts(c Cell) error {
	if c.Environment != nil {
		for _, d := range r.Environment.Differences(*c.Environment) {
			return fmt.Errorf("the run has %s", d)
		}
	}
	switch {
	case c.Interrupted && r.Complete:
		return errors.New("it was interrupted, although the run is complete")
	case c.Sale != nil && c.Sale.Stock != max(r.Config.Stock, 1):
		return fmt.Errorf("its orders have %d units, but the run's orders have %d", c.Sale.Stock, max(r.Config.Stock, 1))
	case len(c.Repetitions) > max(r.Config.Repeat, 1):
		return fmt.Errorf("it has %d repetitions, but the run has %d", len(c.Repetitions), max(r.Config.Repeat, 1))
	default:
		return nil
	}
}

var verdictNames = []catalog.Verdict{catalog.Safe, catalog.Unsafe, catalog.Stuck, catalog.Unknown, catalog.NA}

func (c Cell) contradiction() error {
	if !slices.Contains(verdictNames, c.Verdict) {
		return fmt.Errorf("there is no verdict %q", c.Verdict)
	}
	if c.Verdict == catalog.Safe && (value(c.DoubleGrabs) > 0 || value(c.StuckOrders) > 0) {
		return fmt.Errorf("its verdict is safe, but it has %d double_grabs and %d stuck_orders", value(c.DoubleGrabs), value(c.StuckOrders))
	}
	return nil
}

func value[T int | float64](n *T) T { return *cmp.Or(n, new(T)) }
