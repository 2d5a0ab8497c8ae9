package report

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// summaryLimit is the size in bytes above which a summary omits timelines. It must stay below 1 MiB,
// because GitHub drops a larger summary.
const summaryLimit = 900_000

// StepSummary writes the run as a Markdown summary for a GitHub Actions step. It names the test cases that
// failed or have no verdict near the top, and shows their timelines at the end.
func StepSummary(w io.Writer, run *experiment.Run, cases []Case) error {
	bad := catalog.Filter(cases, func(c Case) bool { return c.Result == Failed || c.Result == Unknown })
	d := compose(run, false)
	d.Head = slices.Insert(d.Head, 1, catalog.Map(bad, func(c Case) string { return c.Name + ": " + c.Why })...)
	var b strings.Builder
	err := d.markdown(&b)
	for _, c := range bad {
		if c.Cell == nil || c.Cell.Timeline == nil {
			continue
		}
		var story strings.Builder
		err = errors.Join(err, textTemplates.ExecuteTemplate(&story, "sections", []section{timeline(*c.Cell)}))
		if b.Len()+story.Len() < summaryLimit {
			b.WriteString(story.String())
		}
	}
	_, failed := io.WriteString(w, b.String())
	return errors.Join(err, failed)
}

// Annotations writes a GitHub Actions command for each test case that did not pass. A failed case
// becomes an error, and a case without a verdict becomes a warning.
func Annotations(w io.Writer, cases []Case) error {
	for _, c := range cases {
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
