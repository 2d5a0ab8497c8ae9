package report

import (
	"fmt"
	"slices"
	"strconv"

	"grablab/internal/bench"
	"grablab/internal/check"
)

// detailColumns tell what became of a cell under a fault.
var detailColumns = []column{
	{"", "fault", true, func(c bench.Cell) string { return string(c.Fault) }},
	{"", "strategy", true, func(c bench.Cell) string { return c.Strategy }},
	{"", "verdict", true, verdict},
	{"", "struck", false, func(c bench.Cell) string { return count(c, c.Struck) }},
	{"ledger", "grabs", false, func(c bench.Cell) string { return count(c, c.Grabs) }},
	{"ledger", "double", false, func(c bench.Cell) string { return count(c, c.DoubleGrabs) }},
	{"ledger", "stuck", false, func(c bench.Cell) string { return count(c, c.StuckOrders) }},
	{"events", "overlaps", false, func(c bench.Cell) string { return optional(c, c.Overlaps) }},
	{"events", "near misses", false, func(c bench.Cell) string { return count(c, c.NearMisses) }},
	{"ms", "lease", false, func(c bench.Cell) string { return float(c, c.LeaseMS, whole) }},
	{"ms", "belief gap", false, func(c bench.Cell) string { return gap(c) }},
	{"", "explained by", true, mode},
}

// detailLegend explains the columns, and how large the scenes are.
func detailLegend(cells []bench.Cell) []string {
	lines := []string{
		"struck: grabs that the fault hit; overlaps: holders inside at once, - where there is no lock; near misses: writes that a guard or a fence refused",
		"belief gap: the longest time for which a holder believed in a lock that another had, - where nobody lost it or learned of it",
	}
	var sizes []string
	for _, c := range cells {
		if c.Requests > 0 {
			sizes = append(sizes, fmt.Sprintf("%s and %s", plural(c.Orders, "order", "orders"), plural(c.Requests, "grab", "grabs")))
		}
	}
	if sizes = slices.Compact(sizes); len(sizes) == 1 {
		lines = append(lines, "a cell under a fault is a scene of "+sizes[0])
	}
	return lines
}

// optional is a figure that a strategy need not have.
func optional(c bench.Cell, n *int) string {
	if n == nil {
		return "-"
	}
	return count(c, n)
}

func gap(c bench.Cell) string {
	if c.BeliefGapMS == nil {
		return "-"
	}
	return whole(*c.BeliefGapMS)
}

func whole(ms float64) string { return strconv.FormatFloat(ms, 'f', 0, 64) }

func mode(c bench.Cell) string {
	if c.Story == nil {
		return ""
	}
	return c.Story.Mode
}

// storyHeadings are those of the steps of a story.
var storyHeadings = []heading{
	{"", "ms", false}, {"", "instance", true}, {"", "driver", false}, {"", "what happened", true}, {"", "what the driver believed", true}, {"", "what was true", true},
}

// story of one order of a cell, with the failure mode that it shows.
func story(c bench.Cell) section {
	s := c.Story
	explained := "no known failure mode explains it"
	if s.Mode != "" {
		explained = fmt.Sprintf("%s: %s; cure: %s", s.Mode, s.Name, s.Cure)
	}
	told := section{
		title: fmt.Sprintf("%s is %s: the story of order %d", name(c), c.Verdict, s.Order),
		lines: []string{explained},
		table: table{headings: storyHeadings},
	}
	if s.Picture != "" {
		told.link = link{"picture of its grabs", s.Picture}
	}
	for _, step := range s.Steps {
		told.table.rows = append(told.table.rows, []field{
			{text: strconv.FormatFloat(step.TMS, 'f', 1, 64)}, {text: step.Instance}, {text: strconv.FormatInt(step.Driver, 10)},
			{text: step.Event}, {text: step.Believed}, {text: step.True},
		})
	}
	return told
}

// verdictCheckers are those that make a verdict; what they say is in the table.
var verdictCheckers = []string{"one-winner", "holders-apart", "nothing-stuck", "answers-agree"}

// otherFailures are properties that were not kept though no verdict rests on them.
func otherFailures(c bench.Cell) []string {
	var why []string
	for _, k := range c.Checks {
		implied := k.Checker == "linearizable" && c.DoubleGrabs != nil && *c.DoubleGrabs > 0 ||
			k.Checker == "effects-apart" && c.DoubleGrabs != nil && *c.DoubleGrabs > 0
		if k.Result == check.Fail && !implied && !slices.Contains(verdictCheckers, k.Checker) {
			why = append(why, k.Checker+": "+k.Why)
		}
	}
	return why
}
