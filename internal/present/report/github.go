package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"grablab/internal/measure/experiment"
)

// summaryLimit is the size in bytes above which a summary omits details. GitHub drops summaries
// larger than 1 MiB.
const summaryLimit = 900_000

// StepSummary writes the test cases as a Markdown summary of a GitHub Actions step. Cases that did
// not pass come first.
func StepSummary(w io.Writer, run *experiment.Run, cases []Case) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## loadgen: %s\n\n", countCases(cases))
	markdownList(&b, head(run))
	fmt.Fprintln(&b)
	t := table{Headings: []heading{{Name: "result", Left: true}, {Name: "case", Left: true}, {Name: "verdict", Left: true}, {Name: "why", Left: true}}}
	cases = worstFirst(cases)
	for _, c := range cases {
		verdict := ""
		if c.Cell != nil {
			verdict = c.Cell.Said()
		}
		t.Rows = append(t.Rows, []field{{Text: string(c.Result)}, {Text: c.Name}, {Text: verdict}, {Text: c.Why}})
	}
	markdownTable(&b, t)
	for _, c := range cases {
		details, err := c.Details()
		if err != nil {
			return err
		}
		if details != "" && (c.Result == Failed || c.Result == Unknown) && b.Len()+len(details) < summaryLimit {
			fmt.Fprintf(&b, "\n<details><summary>%s</summary>\n\n````text\n%s\n````\n\n</details>\n", escape(c.Name), details)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Annotations writes a GitHub Actions command for each test case that did not pass: an error if it
// failed, and a warning if it gave no verdict.
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
