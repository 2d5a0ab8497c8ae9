package report

import (
	"fmt"
	"io"
	"strings"

	"grablab/internal/measure/experiment"
)

// StepSummary writes the run as a Markdown summary for a GitHub Actions step. Like the text report, it
// shows timelines only for unexpected verdicts, because GitHub drops a summary of more than 1 MiB.
func StepSummary(w io.Writer, run *experiment.Run) error { return compose(run, false).markdown(w) }

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
