package report

import (
	"fmt"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// Result is the outcome of a Case.
type Result string

// These are the possible results of a test case.
const (
	Passed  Result = "passed"
	Failed  Result = "failed"
	Unknown Result = "unknown" // the test ran, but gave no verdict
	NotRun  Result = "not run"
)

// Case is a test case for a CI system: one strategy under one fault, or an -assert flag about the
// whole run.
type Case struct {
	Name   string // strategy/fault, or the text of an -assert
	Result Result
	Why    string           // why it did not pass
	Cell   *experiment.Cell // nil if the case is an -assert
}

// Cases returns a test case for each strategy under each fault, and for each assertion. If the
// baseline has a verdict, the case fails only if the new verdict is worse.
func Cases(run *experiment.Run, baseline Baseline, claims []experiment.Assert) []Case {
	var cases []Case
	for i := range run.Cells {
		c := &run.Cells[i]
		result, why := judgeCase(*c, baseline)
		cases = append(cases, Case{c.Name().String(), result, why, c})
	}
	for _, a := range claims {
		claim := Case{Name: "assert " + a.String(), Result: Passed}
		if misses := a.Misses(run); len(misses) > 0 {
			claim.Result, claim.Why = Failed, strings.Join(misses, "; ")
		}
		cases = append(cases, claim)
	}
	return cases
}

// judgeCase judges a test. If the baseline has a verdict, the test passes unless its own verdict is
// worse. Otherwise, it passes if its verdict is the expected one or, if none is expected, if the
// verdict is "safe". The returned text explains why the test does not pass.
func judgeCase(c experiment.Cell, baseline Baseline) (Result, string) {
	passes, why := c.Verdict == catalog.Safe, string(c.Verdict)
	if before, ok := baseline[c.Name()]; ok {
		passes, why = !c.Verdict.WorseThan(before), fmt.Sprintf("%s, and %s in the baseline", c.Verdict, before)
	} else if c.Expected != nil {
		passes, why = c.AsExpected(), c.Said()+", expected "+c.Claimed()
	}
	if c.Reason != "" {
		why += ": " + c.Reason
	}
	switch {
	case c.Verdict == catalog.NA, c.Verdict == catalog.Unknown && (c.Interrupted || c.Environment == nil):
		return NotRun, c.Reason
	case passes:
		return Passed, ""
	case c.Verdict == catalog.Unknown:
		return Unknown, why
	default:
		return Failed, why
	}
}

// Details explains the case as text, with a table of injected faults and an order's timeline.
func (c Case) Details() (string, error) {
	if c.Cell == nil {
		return "", nil
	}
	var d document
	d.add(points([]experiment.Cell{*c.Cell}))
	if c.Cell.Timeline != nil {
		d.add(timeline(*c.Cell))
	}
	var b strings.Builder
	err := d.text(&b, 1)
	return strings.TrimSpace(b.String()), err
}
