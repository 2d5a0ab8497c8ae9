package report

import (
	"fmt"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// answer sums up a run in a few sentences, for the top of a report.
func answer(run *experiment.Run) string {
	var unsafe, stuck, unknown, safe, let, differ, measured int
	var worst *experiment.Cell
	for i, c := range run.Cells {
		if c.Verdict == catalog.NA {
			continue
		}
		measured++
		switch c.Verdict {
		case catalog.Unsafe:
			unsafe++
			if c.DoubleGrabs != nil && (worst == nil || *c.DoubleGrabs > *worst.DoubleGrabs) {
				worst = &run.Cells[i]
			}
		case catalog.Stuck:
			stuck++
		case catalog.Safe:
			safe++
			if lockMark(c) != "" {
				let++
			}
		default:
			unknown++
		}
		if differs(c) {
			differ++
		}
	}
	if measured == 0 {
		return "Nothing has been measured."
	}
	sentences := []string{asExpectedSentence(run, measured, differ)}
	twice, kept := "let an order be grabbed twice", "kept every order to one driver"
	if isSale(run) {
		twice, kept = "sold more units of an order than it has", "sold no more units of an order than it has"
	}
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{unsafe, twice}, {stuck, "left an order that no driver can grab"}, {unknown, "could not be judged"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if safe > 0 {
		text := fmt.Sprintf("%d %s", safe, kept)
		if let > 0 {
			text += fmt.Sprintf(" (in %d of these, the lock still let two holders in)", let)
		}
		parts = append(parts, text)
	}
	sentences = append(sentences, capital(catalog.List(parts))+".")
	if worst != nil && *worst.DoubleGrabs > 0 {
		sentences = append(sentences, fmt.Sprintf("The worst cell is %s: %s too many.", strings.Replace(name(*worst), "none", "none (no lock)", 1), catalog.Plural(*worst.DoubleGrabs, "grab", "grabs")))
	}
	if !run.Complete {
		sentences = append(sentences, "The run is not complete.")
	}
	return joined(sentences)
}

func asExpectedSentence(run *experiment.Run, measured, differ int) string {
	claimed := 0
	for _, c := range run.Cells {
		if c.Expected != nil {
			claimed++
		}
	}
	switch {
	case claimed == 0:
		return fmt.Sprintf("%s measured, and no verdict was expected.", catalog.Plural(measured, "cell was", "cells were"))
	case differ > 0:
		return fmt.Sprintf("%s not as expected, of %d.", catalog.Plural(differ, "cell is", "cells are"), claimed)
	case claimed == 1:
		return "The one cell is as expected."
	default:
		return fmt.Sprintf("All %d cells are as expected.", claimed)
	}
}

func joined(sentences []string) string { return strings.Join(sentences, " ") }

func capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
