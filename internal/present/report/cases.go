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
		name := c.Name()
		result, why := judgeCase(*c)
		if before, ok := baseline[name]; ok && result != NotRun {
			result, why = compareCase(*c, before)
		}
		cases = append(cases, Case{name.String(), result, why, c})
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

// judgeCase judges a test without a baseline. The test passes if its verdict is the expected one
// or, if none is expected, if the verdict is "safe".
func judgeCase(c experiment.Cell) (Result, string) {
	why := string(c.Verdict)
	if c.Expected != nil {
		why = c.Said() + ", expected " + c.Claimed()
	}
	if c.Reason != "" {
		why += ": " + c.Reason
	}
	switch {
	case c.Verdict == catalog.NA, c.Verdict == catalog.Unknown && (c.Interrupted || c.Environment == nil):
		return NotRun, c.Reason
	case c.Expected != nil && c.AsExpected() || c.Expected == nil && c.Verdict == catalog.Safe:
		return Passed, ""
	case c.Verdict == catalog.Unknown:
		return Unknown, why
	default:
		return Failed, why
	}
}

// compareCase compares a test's verdict with the baseline. If the verdict has become worse, the
// test does not pass, and the returned text explains why.
func compareCase(c experiment.Cell, before catalog.Verdict) (Result, string) {
	why := fmt.Sprintf("%s, and %s in the baseline: %s", c.Verdict, before, c.Reason)
	switch {
	case !c.Verdict.WorseThan(before):
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

// countCases sums up the results in a phrase such as "4 of 5 passed, 1 failed".
func countCases(cases []Case) string {
	n := map[Result]int{}
	for _, c := range cases {
		n[c.Result]++
	}
	text := fmt.Sprintf("%d of %d passed", n[Passed], len(cases))
	for _, r := range []Result{Failed, Unknown, NotRun} {
		if n[r] > 0 {
			text += fmt.Sprintf(", %d %s", n[r], r)
		}
	}
	return text
}
