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

// loadLine describes the load, and the settings of the cells for which they are known.
func loadLine(run *experiment.Run) string {
	known := catalog.Filter(run.Cells, func(c experiment.Cell) bool { return c.WorkMS != nil })
	return say("load", map[string]any{
		"Config": run.Config, "Peak": isPeak(run),
		"Settings": catalog.Distinct(catalog.Map(known, settings)),
		"OnLost":   catalog.First(known, func(experiment.Cell) bool { return true }).OnLost,
	})
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

// remarks says how the figures were counted.
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
func notes(run *experiment.Run, cells []experiment.Cell) []string {
	var grouped groupedTexts
	for _, c := range cells {
		if f := facts(c, run.Config); len(f) > 0 {
			grouped.add(name(c), fmt.Sprintf("%s: %s", c.Verdict, strings.Join(f, "; ")))
		}
	}
	return grouped.lines(" is ", " are ")
}

// facts returns all that the report says about a cell besides its verdict: the reason, the findings
// and the failures.
func facts(c experiment.Cell, cfg experiment.RunConfig) []string {
	var facts []string
	if c.Reason != "" {
		facts = append(facts, c.Reason)
	}
	if c.Peak != nil && c.Peak.LimitReason != "" {
		facts = append(facts, fmt.Sprintf("limited by %s: %s", cmp.Or(c.Peak.LimitedBy, "?"), c.Peak.LimitReason))
	}
	facts = append(facts, findings(c, cfg)...)
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

// lines returns a line for each text, beginning with the names of the results. Between the names and the
// text, it inserts one after a single name, and many after several names.
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

// findings returns facts about a test result, in addition to the reason for its verdict.
func findings(c experiment.Cell, cfg experiment.RunConfig) (texts []string) {
	if why := cause(c, cfg); why != "" {
		texts = append(texts, why)
	}
	if n := orZero(c.RepeatedRows); n > 0 && c.Verdict != catalog.Unsafe {
		texts = append(texts, catalog.Plural(n, "row of the ledger repeats", "rows of the ledger repeat")+" an order and its driver, and no order has a second driver")
	}
	if n := orZero(c.CompensatedOrders); n > 0 {
		texts = append(texts, fmt.Sprintf("%s more than one winner, for at most %.0f ms, until the service took the rest back", catalog.Plural(n, "order had", "orders had"), *c.LongestCompensationMS))
	}
	if c.SettleMS != nil {
		texts = append(texts, fmt.Sprintf("the ledger was watched for %.1f s after the last driver had asked", *c.SettleMS/1000))
	}
	return texts
}

// cause explains why orders were grabbed twice without a fault. It returns "" if this did not happen, or
// if the cause is unknown.
func cause(c experiment.Cell, cfg experiment.RunConfig) string {
	if c.Fault != catalog.NoFault || c.Sale != nil || orZero(c.DoubleGrabs) == 0 {
		return ""
	}
	perInstance := func(instances int) bool { // whether each order has one winner for each instance
		return c.OrdersDoubleGrabbed != nil && *c.OrdersDoubleGrabbed == c.Orders && *c.DoubleGrabs == (instances-1)*c.Orders
	}
	if c.Strategy == experiment.Foreign || cfg.Rules != nil { // the program does not know what the user's service does
		if len(c.ServedBy) == 2 && perInstance(2) && c.CountedFrom == fromAnswers {
			return "each order has one winner for each of the two instances. Either an instance locks only within its own process, or the instances use two databases"
		}
		return ""
	}
	s, err := lock.Find(c.Strategy)
	m, known := catalog.FindMode(mode(c))
	switch {
	case err == nil && s.Excludes == catalog.PerProcess && perInstance(cfg.Instances) && c.Requests > cfg.Instances*c.Orders:
		return "each order has one winner for each instance, because the lock works only within one process"
	case known && m.ID != "F1":
		return m.ID + ": " + m.Name
	case !known && orZero(c.Overlaps) > 0:
		return "the lock let in a driver while another was still inside"
	default:
		return "one driver reads that an order is open, and another driver reads the same before the first one has written"
	}
}

// name returns a result's name: the strategy and the fault, if there was one.
func name(c experiment.Cell) string {
	if c.Fault == catalog.NoFault {
		return c.Strategy
	}
	return c.Name().String()
}

// failures describes what happened to the failed requests, beginning with the most frequent kind of
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

// errorKinds contains, for each kind of error, a phrase for what happened to the request.
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
