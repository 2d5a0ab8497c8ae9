package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
)

// Exploration is what a search has found, and what of it is shown.
type Exploration struct {
	Config  explore.Config
	Results []explore.Result
	Timing  bool // whether to say how long it took, which no two searches agree on

	// Replay is the command that shows a failure again.
	Replay func(explore.Failure) string
}

// Explored renders a line a strategy, how far each was searched, and the
// steps of its failure that matters most. Of a replay it shows the steps alone.
func Explored(w io.Writer, e Exploration) error {
	var b strings.Builder
	if !slices.ContainsFunc(e.Results, replayed) {
		e.account(&b)
	}
	for _, r := range e.Results {
		e.failures(&b, r)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// replayed says whether a result is that of one schedule.
func replayed(r explore.Result) bool { return len(r.Moments) > 0 }

// account says what was let happen, what came of it, and how far was searched.
func (e Exploration) account(b *strings.Builder) {
	fmt.Fprintf(b, "%s\n\n", bounds(e.Config))
	e.table(b)
	fmt.Fprintln(b)
	for _, r := range e.Results {
		fmt.Fprintf(b, "%s: %s\n", r.Strategy, searched(r))
	}
	fmt.Fprintln(b)
}

// bounds says what was let happen.
func bounds(c explore.Config) string {
	line := fmt.Sprintf("%s, up to %s, ", plural(c.Actors, "actor", "actors"), plural(c.Preemptions, "preemption", "preemptions"))
	if c.FaultCount == 0 || len(c.Faults) == 0 {
		return line + "no faults"
	}
	return line + fmt.Sprintf("up to %s of %s", plural(c.FaultCount, "fault", "faults"), strings.Join(list(c.Faults), ", "))
}

// table has a line a strategy with the failure that matters most, and below it
// a line for each other property that fails.
func (e Exploration) table(b *strings.Builder) {
	var t table
	for _, name := range []string{"strategy", "verdict", "steps", "mode", "property", "schedules", "states", "time"} {
		figures := name == "steps" || len(t.Headings) > 4
		t.Headings = append(t.Headings, heading{Name: name, Left: !figures})
	}
	if !e.Timing {
		t.Headings = t.Headings[:len(t.Headings)-1]
	}
	add := func(texts ...string) {
		row := make([]field, len(t.Headings))
		for i := range row[:min(len(row), len(texts))] {
			row[i].Text = texts[i]
		}
		t.Rows = append(t.Rows, row)
	}
	for _, r := range e.Results {
		f := failing(r.Failures)
		add(r.Strategy, against(r.Verdict, r.Expected), f[0], f[1], f[2],
			thousands(r.Schedules), thousands(r.States), r.Elapsed.Round(10*time.Millisecond).String())
		for i := range r.Failures[min(1, len(r.Failures)):] {
			f := failing(r.Failures[i+1:])
			add("", "", f[0], f[1], f[2])
		}
	}
	t.text(b, 2)
}

// failing is the first of the failures, in columns.
func failing(failures []explore.Failure) [3]string {
	if len(failures) == 0 {
		return [3]string{"-", "-", "-"}
	}
	f := failures[0]
	return [3]string{strconv.Itoa(len(f.Schedule.Steps)), orDash(f.Mode), f.Property}
}

// against marks a verdict as the expected one, or says which that were.
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

// searched says how far the search got, and rounds nothing up.
func searched(r explore.Result) string {
	var parts []string
	if r.Reason != "" {
		parts = append(parts, r.Reason)
	}
	if r.Complete {
		parts = append(parts, "all of it searched")
	} else {
		parts = append(parts, reached(r.Levels)...)
	}
	if len(r.Failures) == 0 && r.Verdict == catalog.Safe {
		parts = append(parts, "no violation within these bounds")
	}
	return strings.Join(parts, "; ")
}

// reached says of what cost all has been run, and of what cost some.
func reached(levels []explore.Level) []string {
	var parts []string
	most := -1 // preemptions, of which all was run with one fault less
	for faults := 0; ; faults++ {
		all := -1
		for _, l := range levels {
			if l.Faults == faults && exhausted(levels, l) {
				all = max(all, l.Preemptions)
			}
		}
		if all < 0 {
			break
		}
		part := fmt.Sprintf("all of <= %s and <= %s", plural(all, "preemption", "preemptions"), plural(faults, "fault", "faults"))
		if all == most {
			parts = parts[:len(parts)-1] // this says more
		}
		parts, most = append(parts, part), all
	}
	for _, l := range levels {
		cost := plural(l.Preemptions, "preemption", "preemptions") + " and " + plural(l.Faults, "fault", "faults")
		switch {
		case exhausted(levels, l):
		case l.Run+l.Waiting == 0:
			parts = append(parts, "nothing of "+cost)
		default:
			parts = append(parts, fmt.Sprintf("of %s %s schedules run, %s waiting", cost, thousands(l.Run), thousands(l.Waiting)))
		}
	}
	return parts
}

// exhausted says whether all of a level was run, and all that is cheaper: from that,
// more of it could still come.
func exhausted(levels []explore.Level, of explore.Level) bool {
	return !slices.ContainsFunc(levels, func(l explore.Level) bool {
		return l.Preemptions <= of.Preemptions && l.Faults <= of.Faults && l.Waiting > 0
	})
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// thousands sets a comma after every third digit.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
