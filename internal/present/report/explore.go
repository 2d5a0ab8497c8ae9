package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Exploration contains the results of a search for failing schedules, and report options.
type Exploration struct {
	Config  explore.Config
	Results []explore.Result
	Parts   []explore.Part // the parts of a search that was split by different limits
	Timing  bool           // whether the report includes the elapsed time

	// Replay returns the command line that replays a failure.
	Replay func(explore.Failure) string
}

// Explored writes a search report as text: a table of strategies, how much was searched, and the
// most important failure's steps. For a replay, it writes only the steps.
func Explored(w io.Writer, e Exploration) error { return e.document(false).text(w, 2) }

func replayed(r explore.Result) bool { return r.Replay }

// searched says for each strategy how much of the search is complete.
func (e Exploration) searched() (lines []string) {
	for _, r := range e.Results {
		lines = append(lines, fmt.Sprintf("%s: %s", r.Strategy, searched(r)))
		lines = append(lines, searchedParts(r.Parts)...)
	}
	over := func(r explore.Result) bool { return r.Reason == explore.TimeOver }
	if slices.ContainsFunc(e.Results, func(r explore.Result) bool { return over(r) || slices.ContainsFunc(r.Parts, over) }) {
		lines = append(lines, "a search that runs out of time ends at a different schedule each time; use -schedules N to end at the same one")
	}
	return lines
}

// searchedParts says for each part of the search how much of it is complete. Parts with the same
// text share a line.
func searchedParts(parts []explore.Result) (lines []string) {
	var grouped groupedTexts
	for _, p := range parts {
		grouped.add(p.Part, searched(p))
	}
	for _, extent := range grouped.order {
		lines = append(lines, fmt.Sprintf("  %s: %s", strings.Join(grouped.names[extent], ", "), extent))
	}
	return lines
}

// bounds describes the limits of the search and its parts.
func (e Exploration) bounds() []string {
	lines := []string{bounds(e.Config)}
	if len(e.Parts) > 0 {
		lines = append(lines, "after that, it makes these searches:")
	}
	for _, p := range e.Parts {
		lines = append(lines, fmt.Sprintf("  %s: %s", p.Name, bounds(p.Config)))
	}
	return lines
}

func bounds(c explore.Config) string { return say("bounds", c) }

// table returns a table of strategies with their failures. A strategy's first row shows its most
// important failure.
func (e Exploration) table() table {
	t := table{Headings: []heading{
		{Name: "strategy", Left: true}, {Name: "verdict", Left: true}, {Name: "steps"}, {Name: "mode", Left: true},
		{Name: "property", Left: true}, {Name: "schedules"}, {Name: "states"}, {Name: "time"},
	}}
	if !e.Timing {
		t.Headings = t.Headings[:len(t.Headings)-1]
	}
	for _, r := range e.withParts() {
		name := r.Strategy
		if r.Part != "" {
			name = "  " + r.Part
		}
		rows := [][8]string{{
			name, against(r.Verdict, r.Expected), "-", "-", "-",
			thousands(r.Schedules), thousands(r.States), r.Elapsed.Round(10 * time.Millisecond).String(),
		}}
		for i, f := range r.Failures {
			if i > 0 {
				rows = append(rows, [8]string{})
			}
			rows[i][2], rows[i][3], rows[i][4] = strconv.Itoa(len(f.Schedule.Steps)), cmp.Or(f.Mode, "-"), propertyOf(f)
		}
		for _, row := range rows {
			t.Rows = append(t.Rows, catalog.Map(row[:len(t.Headings)], func(s string) field { return field{Text: s} }))
		}
	}
	return t
}

// withParts returns all strategies' results. Each is followed by the parts of its search that found
// a failure.
func (e Exploration) withParts() (all []explore.Result) {
	for _, r := range e.Results {
		all = append(all, r)
		for _, p := range r.Parts {
			if len(p.Failures) > 0 {
				p.Expected = "" // a part's limits may be too narrow to find the expected failure
				all = append(all, p)
			}
		}
	}
	return all
}

// propertyOf returns the violated property's name, with a mark if the violation was unexpected.
func propertyOf(f explore.Failure) string {
	if f.Unexpected {
		return f.Property + " " + notExpected + " unexpected"
	}
	return f.Property
}

// against formats a verdict. It adds a check mark if the verdict is as expected, or a cross and the
// expected verdict.
func against(v, expected catalog.Verdict) string {
	switch expected {
	case "":
		return string(v)
	case v:
		return string(v) + " " + asExpected
	default:
		return fmt.Sprintf("%s %s %s", v, notExpected, expected)
	}
}

// searched says how much of the search for one strategy is complete.
func searched(r explore.Result) string {
	var parts []string
	if r.Reason != "" {
		parts = append(parts, r.Reason)
	}
	switch {
	case r.Complete:
		parts = append(parts, "all schedules were searched")
	case slices.ContainsFunc(r.Levels, func(l explore.Level) bool { return l.Waiting > 0 }):
		parts = append(parts, reachedLevels(r.Levels)...)
	}
	if len(r.Failures) == 0 && r.Verdict == catalog.Safe {
		parts = append(parts, "no violation within these bounds")
	}
	return cmp.Or(strings.Join(parts, "; "), "the search is not complete")
}

// reachedLevels says which search levels are complete. A level contains all schedules with the
// same number of preemptions and faults.
func reachedLevels(levels []explore.Level) []string {
	var parts []string
	most := -1 // the number of preemptions up to which the search with one fault fewer is complete
	for faults := 0; ; faults++ {
		all := -1
		for _, l := range levels {
			if l.Faults == faults && isExhausted(levels, l) {
				all = max(all, l.Preemptions)
			}
		}
		if all < 0 {
			return parts
		}
		part := fmt.Sprintf("all schedules with <= %s and <= %s were searched", catalog.Plural(all, "preemption", "preemptions"), catalog.Plural(faults, "fault", "faults"))
		if all == most {
			parts = parts[:len(parts)-1] // the new statement includes the previous one
		}
		parts, most = append(parts, part), all
	}
}

// isExhausted reports whether every schedule on a level has run. All lower levels must be complete
// too, because they can lead to new schedules on this level.
func isExhausted(levels []explore.Level, of explore.Level) bool {
	return !slices.ContainsFunc(levels, func(l explore.Level) bool {
		return l.Preemptions <= of.Preemptions && l.Faults <= of.Faults && l.Waiting > 0
	})
}

// thousands formats a number with commas, such as 12,345.
func thousands(n int) string { return message.NewPrinter(language.English).Sprint(n) }
