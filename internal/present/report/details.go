package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
)

// detailColumns shows the results of strategies under a fault.
var detailColumns = []column{
	faultColumn,
	strategyColumn,
	text("verdict", func(c experiment.Cell) string {
		return markedVerdict(string(c.Verdict), c.Expected != nil, c.Expected == nil || c.Verdict == *c.Expected)
	}),
	text("exclusive", exclusive),
	number("", "struck", struck),
	number("ledger", "grabs", func(c experiment.Cell) string { return count(c, c.Grabs) }),
	number("ledger", "double", doubleGrabText),
	number("ledger", "stuck", func(c experiment.Cell) string { return count(c, c.StuckOrders) }),
	number("events", "overlaps", func(c experiment.Cell) string { return optional(c.Overlaps, strconv.Itoa) }),
	number("events", "near misses", func(c experiment.Cell) string { return count(c, c.NearMisses) }),
	number("ms", "lease", func(c experiment.Cell) string { return figure(c, c.LeaseMS, formatWhole) }),
	number("ms", "belief gap", func(c experiment.Cell) string { return optional(c.BeliefGapMS, formatWhole) }),
	text("explained by", mode),
}

// exclusive returns whether the lock excluded other clients, with a mark if this was expected or
// unexpected.
func exclusive(c experiment.Cell) string {
	claims := c.ExpectedExclusive != nil
	switch {
	case c.Exclusive != nil:
		return markedVerdict(*c.Exclusive, claims, claims && *c.Exclusive == *c.ExpectedExclusive)
	case c.Verdict == catalog.NA || !locks(c.Strategy):
		return "-"
	default:
		return markedVerdict("?", claims, false)
	}
}

// locks reports whether a strategy uses a lock. For an unknown strategy, it returns true.
func locks(strategy string) bool {
	s, err := lock.Find(strategy)
	return err != nil || s.Excludes != catalog.NoExclusion
}

// struck returns how many steps of a request were hit by the fault as often as planned. If the
// steps are unknown, it returns the number of requests that were hit.
func struck(c experiment.Cell) string {
	if len(c.Points) == 0 {
		return count(c, c.Struck)
	}
	return fmt.Sprintf("%d/%d", pointsWith(c, func(p experiment.Point) bool { return p.Struck >= p.Strikes }), len(c.Points))
}

// detailLegend explains the columns and gives the number of orders and requests.
func detailLegend(cells []experiment.Cell) []string {
	if len(cells) == 0 {
		return nil
	}
	lines := []string{
		"verdict: what happened to the orders, judged by the ledger only; exclusive: whether the lock kept two drivers from being inside at once (-: no lock is known, ?: it is unknown)",
		"struck: at how many points of a grab the fault struck, out of all points that it can reach; overlaps: how often two drivers were inside the lock at once; near misses: writes that a guard or a fence refused",
		"belief gap: the longest time for which a driver believed that it held the lock while another driver held it (-: no driver lost its lock or learned of the loss)",
	}
	if answersAlone(cells) {
		lines[0] = strings.Replace(lines[0], "judged by the ledger only", "judged by the HTTP answers only, because no ledger could be read", 1)
	}
	if slices.ContainsFunc(cells, func(c experiment.Cell) bool { return c.LowerBound }) {
		lines = append(lines, atLeast+" or more: some answers may hide a grab")
	}
	if !slices.ContainsFunc(cells, func(c experiment.Cell) bool { return len(c.Points) > 0 }) {
		lines[1] = "struck: the number of grabs that the fault hit; overlaps: how often two drivers were inside the lock at once; near misses: writes that a guard or a fence refused"
	}
	var sizes []string
	for _, c := range cells {
		if c.Requests > 0 {
			sizes = append(sizes, fmt.Sprintf("%s and %s", catalog.Plural(c.Orders, "order", "orders"), catalog.Plural(c.Requests, "grab", "grabs")))
		}
	}
	if sizes = slices.Compact(sizes); len(sizes) == 1 {
		lines = append(lines, "each cell under a fault consists of "+sizes[0])
	}
	return lines
}

// optional formats *x. It returns "-" if x is nil.
func optional[T any](x *T, format func(T) string) string {
	if x == nil {
		return "-"
	}
	return format(*x)
}

func formatWhole(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) }

func mode(c experiment.Cell) string {
	if c.Timeline == nil {
		return ""
	}
	return c.Timeline.Mode
}

var timelineHeadings = []heading{
	{Name: "ms"}, {Name: "instance", Left: true}, {Name: "driver"},
	{Name: "what happened", Left: true}, {Name: "what the driver believed", Left: true}, {Name: "what was true", Left: true},
}

func timelineTitle(c experiment.Cell) string {
	return fmt.Sprintf("%s is %s: the timeline of order %d", name(c), c.Said(), c.Timeline.Order)
}

// timeline shows what happened to one order, and names the failure mode that explains it.
func timeline(c experiment.Cell) section {
	s := c.Timeline
	explained := "no known failure mode explains this failure: look below for the first step at which a driver believes something that is not true"
	if s.Mode != "" {
		explained = fmt.Sprintf("%s: %s; cure: %s", s.Mode, s.Name, s.Cure)
	}
	shown := section{
		Title: timelineTitle(c),
		Lines: []string{explained},
		Table: table{Headings: timelineHeadings},
	}
	for _, step := range s.Steps {
		shown.Table.Rows = append(shown.Table.Rows, []field{
			{Text: strconv.FormatFloat(step.TMS, 'f', 1, 64)}, {Text: step.Instance}, {Text: strconv.FormatInt(step.Driver, 10)},
			{Text: step.Event}, {Text: step.Believed}, {Text: step.True},
		})
	}
	return shown
}

// decisive lists the properties that decide a verdict. The notes omit these properties, because the
// table already shows them.
var decisive = []string{catalog.OneWinner, catalog.HoldersExclusive, catalog.StuckOrder, catalog.AnswersAgree}

// doubleGrabs lists the properties that are always violated if an order is grabbed twice.
var doubleGrabs = []string{catalog.Linearizable, catalog.WritesExclusive}

// otherFailures describes the violated properties that do not affect the verdict.
func otherFailures(c experiment.Cell) []string {
	var why []string
	for _, k := range c.Checks {
		property, _, _ := catalog.FindProperty(k.Property) // an older run may use an old name
		implied := slices.Contains(doubleGrabs, property.Name) && c.DoubleGrabs != nil && *c.DoubleGrabs > 0
		if k.Result == check.Fail && !implied && !slices.Contains(decisive, property.Name) {
			why = append(why, property.Name+": "+k.Why)
		}
	}
	return why
}
