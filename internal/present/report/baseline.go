package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/target"
)

// Baseline maps each cell to its worst verdict in earlier runs. It is nil if the user gave no
// baseline.
type Baseline map[experiment.CellName]catalog.Verdict

// NewBaseline returns a baseline with the verdicts from a file.
func NewBaseline(verdicts []target.Expectation) Baseline {
	b := Baseline{}
	for _, v := range verdicts {
		b[experiment.CellName{Strategy: v.Strategy, Fault: v.Fault}] = v.Verdict
	}
	return b
}

// BaselineOf returns a baseline that contains the verdicts of one run.
func BaselineOf(run *experiment.Run) Baseline {
	b := Baseline{}
	for _, r := range recordsOf([]*experiment.Run{run}) {
		b[r.name] = r.verdict
	}
	return b
}

// NotRun lists the cells that are in the baseline but did not run this time.
func (b Baseline) NotRun(cases []Case) (names []string) {
	for name := range b {
		if !slices.ContainsFunc(cases, func(c Case) bool { return c.Name == name.String() && c.Result != NotRun }) {
			names = append(names, name.String())
		}
	}
	slices.Sort(names)
	return names
}

// cellRecord summarizes the verdicts that one cell had in several runs.
type cellRecord struct {
	name    experiment.CellName
	verdict catalog.Verdict // the worst of the verdicts
	reason  string          // the reason for the worst verdict
	all     []string        // the distinct verdicts
}

// recordsOf returns a record for each cell that ran in any of the runs, in the order in which the
// cells first ran.
func recordsOf(runs []*experiment.Run) (records []*cellRecord) {
	for _, run := range runs {
		for _, c := range Cases(run, nil, nil) {
			if c.Result == NotRun {
				continue
			}
			name := experiment.CellName{Strategy: c.Cell.Strategy, Fault: c.Cell.Fault}
			at := slices.IndexFunc(records, func(r *cellRecord) bool { return r.name == name })
			if at < 0 {
				at, records = len(records), append(records, &cellRecord{name: name})
			}
			r := records[at]
			if !slices.Contains(r.all, string(c.Cell.Verdict)) {
				r.all = append(r.all, string(c.Cell.Verdict))
			}
			if len(r.all) == 1 || c.Cell.Verdict.WorseThan(r.verdict) {
				r.verdict, r.reason = c.Cell.Verdict, c.Cell.Reason
			}
		}
	}
	return records
}

// WriteBaseline writes the worst verdict of each cell, in the format that the -expectations flag
// reads. Comments in the file contain the reasons, and list the verdicts that differ between the
// runs.
func WriteBaseline(w io.Writer, runs []*experiment.Run) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# The worst verdicts of %s, for loadgen run -baseline.\n", catalog.Plural(len(runs), "run", "runs"))
	var strategies []string
	lines := map[string]string{}
	for _, r := range recordsOf(runs) {
		if !slices.Contains(strategies, r.name.Strategy) {
			strategies = append(strategies, r.name.Strategy)
		}
		lines[r.name.Strategy] += fmt.Sprintf("  %s: %s%s\n", r.name.Fault, r.verdict, r.comment())
	}
	for _, s := range strategies {
		key, err := json.Marshal(s) // a JSON string is also a valid YAML string
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s:\n%s", key, lines[s])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const longestComment = 100

// comment explains the verdict of a cell. It returns "" if the cell was always safe.
func (r *cellRecord) comment() string {
	text := r.reason
	if len(r.all) > 1 {
		text = fmt.Sprintf("depends on chance (%s): %s", strings.Join(r.all, ", "), text)
	}
	if text == "" {
		return ""
	}
	return "  # " + catalog.Shorten(strings.Join(strings.Fields(text), " "), longestComment)
}
