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

// Baseline contains each strategy's worst verdict under each fault in earlier runs, for comparison
// with a new run. It is nil if the user has not provided one.
type Baseline map[experiment.CellName]catalog.Verdict

// NewBaseline returns a baseline with the verdicts from an expectations file.
func NewBaseline(verdicts []target.Expectation) Baseline {
	b := Baseline{}
	for _, v := range verdicts {
		b[experiment.CellName{Strategy: v.Strategy, Fault: v.Fault}] = v.Verdict
	}
	return b
}

// BaselineOf returns a baseline with a single run's verdicts.
func BaselineOf(run *experiment.Run) Baseline {
	b := Baseline{}
	for _, r := range recordsOf([]*experiment.Run{run}) {
		b[r.name] = r.verdict
	}
	return b
}

// NotRun lists the strategy/fault combinations in the baseline for which cases has no result.
func (b Baseline) NotRun(cases []Case) (names []string) {
	for name := range b {
		if !slices.ContainsFunc(cases, func(c Case) bool { return c.Name == name.String() && c.Result != NotRun }) {
			names = append(names, name.String())
		}
	}
	slices.Sort(names)
	return names
}

// cellRecord contains a strategy's verdicts under one fault in several runs.
type cellRecord struct {
	name    experiment.CellName
	verdict catalog.Verdict // the worst verdict
	reason  string          // the reason for the worst verdict
	all     []string        // the distinct verdicts
}

// recordsOf collects the verdicts from several runs, with one record per strategy/fault
// combination.
func recordsOf(runs []*experiment.Run) (records []*cellRecord) {
	for _, run := range runs {
		for _, c := range Cases(run, nil, nil) {
			if c.Result == NotRun {
				continue
			}
			name := c.Cell.Name()
			at := slices.IndexFunc(records, func(r *cellRecord) bool { return r.name == name })
			if at < 0 {
				at, records = len(records), append(records, &cellRecord{name: name})
			}
			r := records[at]
			r.all = catalog.Distinct(append(r.all, string(c.Cell.Verdict)))
			if len(r.all) == 1 || c.Cell.Verdict.WorseThan(r.verdict) {
				r.verdict, r.reason = c.Cell.Verdict, c.Cell.Reason
			}
		}
	}
	return records
}

// WriteBaseline writes the worst verdict for each strategy and fault, in the format of the
// -expectations flag. Comments in the output explain why, and how the verdict varied between runs.
func WriteBaseline(w io.Writer, runs []*experiment.Run) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# The worst verdicts of %s, for loadgen run -baseline.\n", catalog.Plural(len(runs), "run", "runs"))
	var lines groupedTexts
	for _, r := range recordsOf(runs) {
		lines.add(fmt.Sprintf("  %s: %s%s\n", r.name.Fault, r.verdict, r.comment()), r.name.Strategy)
	}
	for _, s := range lines.order {
		key, err := json.Marshal(s) // a JSON string is also a valid YAML string
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s:\n%s", key, strings.Join(lines.names[s], ""))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const maxComment = 100

// comment returns the reason for the worst verdict and lists the other verdicts, or returns "" if
// there is nothing to say.
func (r *cellRecord) comment() string {
	text := r.reason
	if len(r.all) > 1 {
		text = fmt.Sprintf("depends on chance (%s): %s", strings.Join(r.all, ", "), text)
	}
	if text == "" {
		return ""
	}
	return "  # " + catalog.Shorten(strings.Join(strings.Fields(text), " "), maxComment)
}
