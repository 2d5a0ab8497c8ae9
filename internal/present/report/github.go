package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"grablab/internal/measure/experiment"
)

// summaryLimit is the size in bytes above which a summary omits details. It must stay below 1 MiB,
// because GitHub drops a larger summary.
const summaryLimit = 900_000

// StepSummary writes the test cases as a Markdown summary for a GitHub Actions step, beginning with
// the cases that did not pass.
func StepSummary(w io.Writer, run *experiment.Run, cases []Case) error {
	cases = worstFirst(cases)
	s := struct {
		section
		Head []string
	}{section{Title: countCases(cases), Table: tableOf(caseColumns, cases)}, head(run)}
	var b strings.Builder
	if err := markdown.ExecuteTemplate(&b, "summary", s); err != nil {
		return err
	}
	for _, c := range cases {
		details, err := c.Details()
		if details != "" && (c.Result == Failed || c.Result == Unknown) && b.Len()+len(details) < summaryLimit {
			err = markdown.ExecuteTemplate(&b, "details", struct{ Name, Text string }{c.Name, details})
		}
		if err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

var caseColumns = []column[Case]{
	text("result", func(c Case) string { return string(c.Result) }),
	text("case", func(c Case) string { return c.Name }),
	text("verdict", func(c Case) string {
		if c.Cell == nil {
			return ""
		}
		return c.Cell.Said()
	}),
	text("why", func(c Case) string { return c.Why }),
}

// Annotations writes a GitHub Actions command for each test case that did not pass. A failed case
// becomes an error, and a case without a verdict becomes a warning.
func Annotations(w io.Writer, cases []Case) error {
	for _, c := range worstFirst(cases) {
		level := map[Result]string{Failed: "error", Unknown: "warning"}[c.Result]
		if level == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "::%s title=%s::%s\n", level, commandProperty(c.Name), commandText(c.Why)); err != nil {
			return err
		}
	}
	return nil
}

// commandText and commandProperty escape text for a GitHub Actions command.
var (
	commandText     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace
	commandProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace
)

// worstFirst sorts test cases in the order failed, unknown, not run, passed.
func worstFirst(cases []Case) []Case {
	order := []Result{Failed, Unknown, NotRun, Passed}
	return slices.SortedStableFunc(slices.Values(cases), func(a, b Case) int {
		return cmp.Compare(slices.Index(order, a.Result), slices.Index(order, b.Result))
	})
}
