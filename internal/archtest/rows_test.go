package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

// Two strategies that are known to break in different ways can be told apart by their rows
// of the reference matrix: by a verdict, the order's or the lock's, or by a failure mode
// that was seen. Counts, which chance decides, are no part of that.
func TestRowsTellApart(t *testing.T) {
	run, err := loadMatrix()
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range lock.Strategies {
		for _, b := range lock.Strategies[:i] {
			known := func(s lock.Strategy) string { return strings.Join(slices.Sorted(slices.Values(s.Breaks)), " ") }
			if known(a) != known(b) && row(run, a.Name) == row(run, b.Name) {
				t.Errorf("%s, which breaks by %s, and %s, which breaks by %s, have the same row: %s", a.Name, known(a), b.Name, known(b), row(run, a.Name))
			}
		}
	}
}

// row is what the matrix says of a strategy, without figures.
func row(run *experiment.Run, strategy string) string {
	var cells []string
	for _, c := range run.Cells {
		if c.Strategy == strategy {
			exclusive := "?"
			if c.Exclusive != nil {
				exclusive = *c.Exclusive
			}
			cells = append(cells, fmt.Sprintf("%s %s %s", c.Fault, c.Verdict, exclusive))
		}
	}
	return strings.Join(append(cells, report.ModesSeen(run, strategy)...), ", ")
}
