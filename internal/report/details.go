package report

import (
	"fmt"
	"slices"
	"strconv"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/experiment"
)

// detailColumns show what became of a cell under a fault.
var detailColumns = []column{
	faultColumn,
	strategyColumn,
	text("verdict", verdict),
	number("", "struck", func(c experiment.Cell) string { return count(c, c.Struck) }),
	number("ledger", "grabs", func(c experiment.Cell) string { return count(c, c.Grabs) }),
	number("ledger", "double", func(c experiment.Cell) string { return count(c, c.DoubleGrabs) }),
	number("ledger", "stuck", func(c experiment.Cell) string { return count(c, c.StuckOrders) }),
	number("events", "overlaps", func(c experiment.Cell) string { return optional(c.Overlaps, strconv.Itoa) }),
	number("events", "near misses", func(c experiment.Cell) string { return count(c, c.NearMisses) }),
	number("ms", "lease", func(c experiment.Cell) string { return figure(c, c.LeaseMS, whole) }),
	number("ms", "belief gap", func(c experiment.Cell) string { return optional(c.BeliefGapMS, whole) }),
	text("explained by", mode),
}

// detailLegend explains the columns, and how large a scenario is.
func detailLegend(cells []experiment.Cell) []string {
	if len(cells) == 0 {
		return nil
	}
	lines := []string{
		"struck: grabs that the fault hit; overlaps: holders inside at once, - where there is no lock; near misses: writes that a guard or a fence refused",
		"belief gap: the longest time for which a holder believed in a lock that another had, - where no holder lost it or learned of it",
	}
	var sizes []string
	for _, c := range cells {
		if c.Requests > 0 {
			sizes = append(sizes, fmt.Sprintf("%s and %s", plural(c.Orders, "order", "orders"), plural(c.Requests, "grab", "grabs")))
		}
	}
	if sizes = slices.Compact(sizes); len(sizes) == 1 {
		lines = append(lines, "a cell under a fault is a scenario of "+sizes[0])
	}
	return lines
}

// optional is a figure that a cell need not have.
func optional[T any](x *T, format func(T) string) string {
	if x == nil {
		return "-"
	}
	return format(*x)
}

func whole(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) }

func mode(c experiment.Cell) string {
	if c.Timeline == nil {
		return ""
	}
	return c.Timeline.Mode
}

// timelineHeadings are those of the steps of a timeline.
var timelineHeadings = []heading{
	{Name: "ms"}, {Name: "instance", Left: true}, {Name: "driver"},
	{Name: "what happened", Left: true}, {Name: "what the driver believed", Left: true}, {Name: "what was true", Left: true},
}

// timeline of one order of a cell, with the failure mode that it shows.
func timeline(c experiment.Cell) section {
	s := c.Timeline
	explained := "no known failure mode explains it"
	if s.Mode != "" {
		explained = fmt.Sprintf("%s: %s; cure: %s", s.Mode, s.Name, s.Cure)
	}
	shown := section{
		Title: fmt.Sprintf("%s is %s: the timeline of order %d", name(c), c.Verdict, s.Order),
		Lines: []string{explained},
		Table: table{Headings: timelineHeadings},
	}
	if s.Picture != "" {
		shown.Link = link{"picture of its grabs", s.Picture}
	}
	for _, step := range s.Steps {
		shown.Table.Rows = append(shown.Table.Rows, []field{
			{Text: strconv.FormatFloat(step.TMS, 'f', 1, 64)}, {Text: step.Instance}, {Text: strconv.FormatInt(step.Driver, 10)},
			{Text: step.Event}, {Text: step.Believed}, {Text: step.True},
		})
	}
	return shown
}

// decisive are the properties that make a verdict; what is said of them is in the table.
var decisive = []string{catalog.OneWinner, catalog.HoldersExclusive, catalog.StuckOrder, catalog.AnswersAgree}

// doubleGrabs are properties that every double-grab violates, too.
var doubleGrabs = []string{catalog.Linearizable, catalog.WritesExclusive}

// otherFailures are properties that were not kept though no verdict rests on them.
func otherFailures(c experiment.Cell) []string {
	var why []string
	for _, k := range c.Checks {
		property, _, _ := catalog.FindProperty(k.Property) // of an older run, it may have an old name
		implied := slices.Contains(doubleGrabs, property.Name) && c.DoubleGrabs != nil && *c.DoubleGrabs > 0
		if k.Result == check.Fail && !implied && !slices.Contains(decisive, property.Name) {
			why = append(why, property.Name+": "+k.Why)
		}
	}
	return why
}
