package archtest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

func loadRun(folder string) (*experiment.Run, error) {
	return report.Load(filepath.Join(root, "results", folder))
}

// loadMatrix returns the reference matrix, completed by the reference runs of the strategies
// that it leaves out.
func loadMatrix() (*experiment.Run, error) {
	run, err := loadRun("reference-matrix-local")
	if err != nil {
		return nil, err
	}
	for _, folder := range []string{"reference-stock-local", "reference-unique-local"} {
		more, err := loadRun(folder)
		if err != nil {
			return nil, err
		}
		for _, c := range more.Cells {
			if !slices.ContainsFunc(run.Cells, func(o experiment.Cell) bool { return o.Strategy == c.Strategy && o.Fault == c.Fault }) {
				run.Cells = append(run.Cells, c)
			}
		}
	}
	return run, nil
}

// TestDifferentModesHaveDifferentRows checks that strategies with different known failure modes have different rows in the
// reference matrix. It compares verdicts and observed failure modes, but not counts, because counts
// depend on chance.
func TestDifferentModesHaveDifferentRows(t *testing.T) {
	run, err := loadMatrix()
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range lock.Strategies {
		for _, b := range lock.Strategies[:i] {
			known := func(s lock.Strategy) string { return strings.Join(slices.Sorted(slices.Values(s.Breaks)), " ") }
			if known(a) != known(b) && row(run, a.Name) == row(run, b.Name) {
				t.Errorf("%s (%s) and %s (%s) have the same row: %s", a.Name, known(a), b.Name, known(b), row(run, a.Name))
			}
		}
	}
}

// row returns the verdicts and the failure modes of a strategy in the matrix, without figures.
func row(run *experiment.Run, strategy string) string {
	var cells, modes []string
	for _, c := range run.Cells {
		if c.Strategy == strategy {
			if c.Timeline != nil {
				modes = append(modes, c.Timeline.Mode)
			}
			for _, p := range c.Points {
				modes = append(modes, p.FailureMode)
			}
			exclusive := "?"
			if c.Exclusive != nil {
				exclusive = *c.Exclusive
			}
			cells = append(cells, fmt.Sprintf("%s %s %s", c.Fault, c.Verdict, exclusive))
		}
	}
	return strings.Join(append(cells, slices.Compact(slices.Sorted(slices.Values(modes)))...), ", ")
}
