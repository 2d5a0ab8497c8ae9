package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/load"
)

// head describes the run, and the machine and servers that it used.
func head(run *experiment.Run) []string {
	e, c := run.Environment, run.Config
	lines := []string{
		fmt.Sprintf("run %s, seed %d, %.1f s", run.ID, c.Seed, run.DurationS),
		fmt.Sprintf("on %s: %s; %s %s/%s, %d CPUs; vegeta %s; commit %s", e.Stack, servers(e), e.Go, e.OS, e.Arch, e.CPUs, e.Vegeta, e.Commit),
		loadLine(run),
	}
	if !run.Complete {
		why := "the run was interrupted, has used up its budget, or is still in progress"
		for _, cell := range run.Cells {
			if cell.Merged != nil && len(cell.Merged.Lost) > 0 {
				why = strings.Join(cell.Merged.Lost, "; ")
			}
		}
		lines = append(lines, fmt.Sprintf("INCOMPLETE: %s; %s here", why, catalog.Plural(len(run.Cells), "cell is", "cells are")))
	}
	return append(lines, catalog.Footnote)
}

func servers(e experiment.Environment) string {
	all := catalog.Filter([]string{e.Redis, e.Database, e.ZooKeeper, e.Etcd}, func(s string) bool { return s != "" })
	return cmp.Or(strings.Join(all, ", "), "servers unknown")
}

func loadLine(run *experiment.Run) string {
	c := run.Config
	orders := catalog.Plural(c.Orders, "order", "orders")
	if c.Stock > 1 {
		orders += fmt.Sprintf(" of %d units", c.Stock)
	}
	what := orders + " x " + catalog.Plural(c.Drivers, "driver", "drivers")
	switch {
	case isPeak(run):
		what = catalog.Plural(c.Drivers, "driver", "drivers") + " an order at rising rates"
	case c.Together:
		what += " at " + rate(c.Rate) + "/s, the drivers of an order close together"
	case c.Rate > 0:
		what += " at " + rate(c.Rate) + "/s"
	default:
		what += " all at once"
	}
	line := fmt.Sprintf("%s: %s over %s", c.Scenario, what, catalog.Plural(c.Instances, "instance", "instances"))
	if c.Repeat > 1 {
		line += fmt.Sprintf(", %d times where there is no fault", c.Repeat)
	}
	known := catalog.Filter(run.Cells, func(c experiment.Cell) bool { return c.WorkMS != nil })
	if len(known) == 0 {
		return line
	}
	all := catalog.Distinct(catalog.Map(known, settings))
	line = fmt.Sprintf("%s; %s, on-lost %s", line, all[0], known[0].OnLost)
	if len(all) > 1 {
		line += "; in other cells " + strings.Join(all[1:], ", or ")
	}
	return line
}

// settings returns the work time, the lock's TTL and the maximum wait as text.
func settings(c experiment.Cell) string {
	return fmt.Sprintf("work %s, TTL %s, wait %s", ofMillis(*c.WorkMS), ofMillis(*c.TTLMS), ofMillis(*c.WaitMS))
}

// remark is a piece of text that a report includes only if its field applies is true.
type remark struct {
	applies bool
	text    string
}

func applying(remarks []remark) []string {
	return catalog.Map(catalog.Filter(remarks, func(r remark) bool { return r.applies }), func(r remark) string { return r.text })
}

// remarks tells how the figures were counted.
func remarks(run *experiment.Run) []string {
	isTimed := func(c experiment.Cell) bool { return c.Latency != nil }
	lines := applying([]remark{
		{!isPeak(run) && len(repeatedCells(run.Cells)) == 0 && slices.ContainsFunc(run.Cells, isTimed), "a single run says little about latency, rate and commands, so only run.json contains them; with -repeat 6 or more, the table shows their medians with intervals"},
		{slices.ContainsFunc(run.Cells, hasMoments), momentLegend},
	})
	if r := run.Config.Rules; r != nil {
		lines = append(lines, fmt.Sprintf("outcomes by answer: grabbed %s; taken %s, another driver has the order; busy %s, the driver did not get the lock, and the order may still be open",
			orNone(r.Grabbed), orNone(r.Taken), orNone(r.Busy)))
	}
	var grouped groupedTexts
	for _, c := range run.Cells {
		switch {
		case !countedFromAnswers(c):
		case c.PhantomGrabs != nil: // there was a ledger with which to compare the responses
			grouped.add(c.Strategy, "double-grabs are counted from the answers, because the ledger names fewer winners than the answers do")
		default:
			grouped.add(c.Strategy, "double-grabs are counted from the answers, because there was no ledger to read")
		}
	}
	return append(lines, grouped.lines(": ", ": ")...)
}

func orNone(rule string) string { return cmp.Or(rule, "by none") }

// notes lists the reasons for the verdicts, and other facts without a table column.
func notes(cells []experiment.Cell) []string {
	var grouped groupedTexts
	for _, c := range cells {
		if f := facts(c); len(f) > 0 {
			grouped.add(name(c), fmt.Sprintf("%s: %s", c.Verdict, strings.Join(f, "; ")))
		}
	}
	return grouped.lines(" is ", " are ")
}

func facts(c experiment.Cell) []string {
	var facts []string
	if c.Reason != "" {
		facts = append(facts, c.Reason)
	}
	if c.Peak != nil && c.Peak.LimitReason != "" {
		facts = append(facts, fmt.Sprintf("limited by %s: %s", cmp.Or(c.Peak.LimitedBy, "?"), c.Peak.LimitReason))
	}
	for _, f := range []struct {
		n         *int
		one, many string
	}{
		{c.Overlaps, "overlap of holders", "overlaps of holders"},
		{c.PhantomGrabs, "phantom grab", "phantom grabs"},
		{c.UnacknowledgedGrabs, "unacknowledged grab", "unacknowledged grabs"},
		{c.NearMisses, "near miss", "near misses"},
	} {
		if n := orZero(f.n); n > 0 {
			facts = append(facts, catalog.Plural(n, f.one, f.many))
		}
	}
	return slices.Concat(facts, otherFailures(c), failures(c.Errors))
}

// groupedTexts collects texts about test results, and joins results with the same text on one line.
type groupedTexts struct {
	order []string
	names map[string][]string
}

func (s *groupedTexts) add(name, text string) {
	if s.names == nil {
		s.names = map[string][]string{}
	}
	if s.names[text] == nil {
		s.order = append(s.order, text)
	}
	if !slices.Contains(s.names[text], name) {
		s.names[text] = append(s.names[text], name)
	}
}

// lines returns a line for each text, beginning with the names of the results. After a single name, it
// inserts one, and after several names, it inserts many.
func (s *groupedTexts) lines(one, many string) []string {
	lines := make([]string, len(s.order))
	for i, text := range s.order {
		between := many
		if len(s.names[text]) == 1 {
			between = one
		}
		lines[i] = catalog.List(s.names[text]) + between + text
	}
	return lines
}

// explanations explains in sentences what the test results mean for the orders.
func explanations(run *experiment.Run, cells []experiment.Cell) []string {
	var grouped groupedTexts
	for _, c := range cells {
		for _, m := range findings(c, run.Config) {
			grouped.add(name(c), m)
		}
	}
	return grouped.lines(": ", ": ")
}

// findings explains in sentences what a single test result means.
func findings(c experiment.Cell, cfg experiment.RunConfig) (texts []string) {
	if m := explainCounts(c, cfg); m != "" {
		texts = append(texts, m)
	}
	if n := orZero(c.CompensatedOrders); n > 0 {
		texts = append(texts, fmt.Sprintf("%s more than one winner, for at most %.0f ms, until the service took the rest back.", catalog.Plural(n, "order had", "orders had"), *c.LongestCompensationMS))
	}
	if c.SettleMS != nil {
		texts = append(texts, fmt.Sprintf("the ledger was watched for %.1f s after the last driver had asked.", *c.SettleMS/1000))
	}
	return texts
}

// explainCounts explains a test's counts in a sentence. It returns "" if they need no explanation.
func explainCounts(c experiment.Cell, cfg experiment.RunConfig) string {
	if c.DoubleGrabs == nil || c.OrdersDoubleGrabbed == nil || c.OrdersGrabbed == nil {
		return ""
	}
	if n := orZero(c.RepeatedRows); n > 0 && c.Verdict != catalog.Unsafe {
		return catalog.Plural(n, "row of the ledger repeats", "rows of the ledger repeat") + " an order and its driver, and no order has a second driver."
	}
	if c.Sale != nil {
		return explainSale(c)
	}
	s, err := lock.Find(c.Strategy)
	perProcess := err == nil && s.Excludes == catalog.PerProcess && cfg.Rules == nil && c.Fault == catalog.NoFault
	switch {
	case perProcess && cfg.Instances > 1 && c.Requests > cfg.Instances*c.Orders && *c.OrdersDoubleGrabbed == c.Orders && *c.DoubleGrabs == (cfg.Instances-1)*c.Orders && c.Orders > 0:
		return fmt.Sprintf("%s won by exactly %d drivers, one for each instance: the lock works only within one process.", each(c.Orders), cfg.Instances)
	case *c.DoubleGrabs > 0:
		cause := causeOf(c)
		if c.Strategy == experiment.Foreign || cfg.Rules != nil { // the program does not know what the user's service does
			cause = "."
			if len(c.ServedBy) == 2 && *c.OrdersDoubleGrabbed == c.Orders && *c.DoubleGrabs == c.Orders && c.CountedFrom == "answers" {
				cause = ": each order has one winner for each of the two instances. Either an instance locks only within its own process, or the instances use two databases."
			}
		}
		return fmt.Sprintf("%s grabbed more than once, %s too many%s",
			ofAll(*c.OrdersDoubleGrabbed, c.Orders), catalog.Plural(*c.DoubleGrabs, "grab", "grabs"), cause)
	case c.Verdict == catalog.Stuck && c.StuckOrders != nil && *c.OrdersGrabbed == c.Orders:
		return fmt.Sprintf("%s grabbed exactly once, but a new driver gets no final answer for %d.", each(c.Orders), *c.StuckOrders)
	case c.Verdict == catalog.Stuck && c.StuckOrders != nil:
		return fmt.Sprintf("no order was grabbed twice, but %s left that no driver can grab any more.", ofAll(*c.StuckOrders, c.Orders))
	case c.Verdict != catalog.Safe:
		return ""
	case *c.OrdersGrabbed == c.Orders:
		return fmt.Sprintf("%s grabbed exactly once.", each(c.Orders))
	default:
		return fmt.Sprintf("no order was grabbed twice; %s grabbed under this load.", ofAll(*c.OrdersGrabbed, c.Orders))
	}
}

// explainSale is like explainCounts, but for orders with several units.
func explainSale(c experiment.Cell) string {
	units := c.Orders * c.Sale.Stock
	lost := ""
	if n := orZero(c.Sale.LostUpdates); n > 0 {
		lost = fmt.Sprintf(" The counter has missed %s: two drivers read the same number, and both wrote this number minus one.", catalog.Plural(n, "sale", "sales"))
	}
	switch {
	case *c.DoubleGrabs > 0 && c.Grabs == nil: // counted from the responses
		return fmt.Sprintf("%s sold too many.%s", catalog.Plural(*c.DoubleGrabs, "unit was", "units were"), lost)
	case *c.DoubleGrabs > 0:
		return fmt.Sprintf("%s of %s sold, %d too many.%s", catalog.Plural(*c.Grabs, "unit", "units"), catalog.Plural(units, "was", "were"), *c.DoubleGrabs, lost)
	case orZero(c.Sale.Undersold) > 0:
		return fmt.Sprintf("%d of %s left, and drivers were refused.", *c.Sale.Undersold, catalog.Plural(units, "unit was", "units were"))
	case c.Verdict != catalog.Safe:
		return ""
	default:
		return fmt.Sprintf("exactly %s sold.", catalog.Plural(units, "unit was", "units were"))
	}
}

func each(orders int) string {
	if orders == 1 {
		return "the order was"
	}
	return fmt.Sprintf("each of the %d orders was", orders)
}

func ofAll(n, orders int) string {
	switch {
	case n == 1 && orders == 1:
		return each(1)
	case n == 1:
		return fmt.Sprintf("1 of %d orders was", orders)
	default:
		return fmt.Sprintf("%d of %s were", n, catalog.Plural(orders, "order", "orders"))
	}
}

// name returns a result's name: the strategy and the fault, if there was one.
func name(c experiment.Cell) string {
	if c.Fault == catalog.NoFault {
		return c.Strategy
	}
	return c.Name().String()
}

// failures tells what happened to the failed requests, beginning with the most frequent kind of
// failure.
func failures(of map[string]int) (texts []string) {
	kinds := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(of[b]-of[a], strings.Compare(a, b))
	})
	for _, k := range kinds {
		what := cmp.Or(errorKinds[k], "failed")
		texts = append(texts, fmt.Sprintf("%s %s (%s)", catalog.Plural(of[k], "grab", "grabs"), what, k))
	}
	return texts
}

// errorKinds contains a phrase for each kind of error that tells what happened to the request.
var errorKinds = map[string]string{
	"dependency":     "wrote nothing, because a call failed or the test refused the write",
	grab.LeaseLost:   "wrote nothing, because the lease was lost before the write",
	"stale":          "wrote nothing, because the database had seen a newer fencing token",
	"unknown":        "got no answer to the write, so its outcome is not known",
	"deadline":       "wrote nothing before the deadline",
	"cancelled":      "ended without a write, because the client had hung up",
	load.Refused:     "found no instance that accepts a connection",
	load.Reset:       "lost the connection to the instance before an answer arrived",
	load.Timeout:     "got no answer from the instance in time",
	load.Other:       "failed, but not by a timeout or a lost connection",
	load.Interrupted: "had no answer when the load was stopped",
}

func ofMillis(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).String()
}

// causeOf returns the end of a sentence about orders that were grabbed twice: the cause, or only a full
// stop if the cause is unknown.
func causeOf(c experiment.Cell) string {
	id := mode(c)
	for _, p := range decidingPoints(c) {
		id = cmp.Or(id, p.FailureMode)
	}
	switch m, ok := catalog.FindMode(id); {
	case ok && id != "F1":
		return fmt.Sprintf(". %s: %s.", id, m.Name)
	case !ok && orZero(c.Overlaps) > 0:
		return ": the lock let in a driver while another was still inside."
	case ok || c.Fault == catalog.NoFault:
		return ": one driver reads that an order is open, and another driver reads the same before the first one has written."
	default:
		return "."
	}
}
