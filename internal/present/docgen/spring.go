package main

import (
	"fmt"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// A pair is a strategy of the Spring example and our strategy to compare it with.
type pair struct{ theirs, ours string }

var springPairs = []pair{
	{"none", "none"}, {"synchronized", "mutex"}, {"setnx", "setnx"}, {"rlock-lease", "setnx"},
	{"rlock", "watchdog"}, {"fair", "watchdog"}, {"redlock", "redlock"}, {"multilock", "redlock"},
}

// springDifferences explains why the Spring example has a different verdict than our strategy. A
// key is "theirs/fault", or a fault if the reason is the same for all strategies.
var springDifferences = map[string]string{
	"slow-db": "`unknown`: after its INSERT, the driver itself locks the table that the fault should lock. So the fault could not strike at two points. The other points are safe, as ours are.",
	"redlock/none": "`unknown`: on this machine it answered less than half of the offered grabs per second, and such a slow service hides its races. " +
		"RedissonRedLock asks the five nodes one after the other, and waits at each node that another driver holds. Our redlock asks all nodes at once.",
	"redlock/hang":                 notRenewedHang,
	"multilock/hang":               notRenewedHang,
	"redlock/partition-db":         notRenewedWrite,
	"multilock/partition-db":       notRenewedWrite,
	"redlock/slow-db":              notRenewedWrite,
	"multilock/slow-db":            notRenewedWrite,
	"multilock/redis-restart-most": "a MultiLock needs all five nodes, so the two nodes that still have the lock keep other drivers out. Redlock needs only a majority, and loses it with three nodes.",
	"multilock/amnesia":            needsAllNodes,
	"multilock/failover-split":     needsAllNodes,
	"latency": "the reply that grants the lock arrives after the lease has expired ([F12](failure-modes.md#f12)). Our lock subtracts the time that the acquire took, and refuses. " +
		"RLock, the fair lock and the code around Spring's template do not check the time after the lock is granted.",
}

const (
	notRenewedWrite = "the lease expires while the write waits for the database, and the write succeeds afterwards. Redisson does not renew a lock that was taken with a lease time, and nothing checks the lock before the write. Our lock is renewed."
	notRenewedHang  = "the example takes the lock with a lease time, so Redisson does not renew it. The lease expires while the work hangs, and the next driver gets in. Our lock is renewed as long as its process lives, so hanging work keeps every driver out."
	needsAllNodes   = "`unknown`: the fault lets the faulted driver reach only a majority of the nodes. A MultiLock needs all of them, so there is no lock that it could lose."
)

// compareWithSpring returns the matrix of the Spring example next to our verdicts, and an
// explanation for each difference. It fails if a difference has no explanation, or an
// explanation has no difference.
func (g generator) compareWithSpring() (string, error) {
	spring, err := g.loadRun("reference-spring-local")
	if err != nil {
		return "", err
	}
	matrix, err := g.loadRun("reference-matrix-local")
	if err != nil {
		return "", err
	}
	pairs := slices.DeleteFunc(slices.Clone(springPairs), func(p pair) bool { return cellOf(spring, p.theirs, catalog.NoFault) == nil })
	var b strings.Builder
	b.WriteString("| fault |")
	for _, p := range pairs {
		if fmt.Fprintf(&b, " `%s`", p.theirs); p.ours != p.theirs {
			fmt.Fprintf(&b, " (`%s`)", p.ours)
		}
		b.WriteString(" |")
	}
	b.WriteString("\n|---" + strings.Repeat("|---", len(pairs)) + "|\n")
	used := map[string]bool{}
	var unexplained []string
	for _, f := range catalog.RunFaults {
		row, applies := fmt.Sprintf("| %s |", f), false
		for _, p := range pairs {
			theirs := cellOf(spring, p.theirs, f)
			text, differ := compareCells(theirs, cellOf(matrix, p.ours, f))
			row += " " + text + " |"
			applies = applies || text != "-"
			if !differ {
				continue
			}
			key := p.theirs + "/" + string(f)
			if springDifferences[key] == "" {
				key = string(f)
			}
			if used[key] = true; springDifferences[key] == "" {
				unexplained = append(unexplained, p.theirs+"/"+string(f))
			}
		}
		if applies {
			b.WriteString(row + "\n")
		}
	}
	b.WriteString("\n")
	for _, p := range pairs {
		for _, f := range catalog.RunFaults {
			if key := p.theirs + "/" + string(f); used[key] {
				fmt.Fprintf(&b, "- `%s`, %s: %s\n", p.theirs, f, springDifferences[key])
			}
		}
	}
	for _, f := range catalog.RunFaults {
		if used[string(f)] {
			fmt.Fprintf(&b, "- %s: %s\n", f, springDifferences[string(f)])
		}
	}
	for key := range springDifferences {
		if !used[key] {
			unexplained = append(unexplained, key+" (which does not differ)")
		}
	}
	if slices.Sort(unexplained); len(unexplained) > 0 {
		return "", fmt.Errorf("springDifferences does not explain: %s", strings.Join(unexplained, ", "))
	}
	return b.String(), nil
}

// cellOf returns a cell of a run, or nil if the run has not finished such a cell.
func cellOf(run *experiment.Run, strategy string, f catalog.Fault) *experiment.Cell {
	i := slices.IndexFunc(run.Cells, func(c experiment.Cell) bool { return c.Strategy == strategy && c.Fault == f && !c.Interrupted })
	if i < 0 {
		return nil
	}
	return &run.Cells[i]
}

// compareCells returns the verdict of their cell, followed by the verdict of our cell if it
// differs.
func compareCells(theirs, ours *experiment.Cell) (text string, differ bool) {
	if theirs == nil || theirs.Verdict == catalog.NA {
		return "-", false
	}
	text = withPoints(theirs)
	if ours == nil || ours.Verdict == catalog.NA || ours.Verdict == theirs.Verdict {
		return text, false
	}
	return fmt.Sprintf("**%s** (%s)", text, withPoints(ours)), true
}

// withPoints returns the verdict of a cell, with the share of the points that have this verdict.
func withPoints(c *experiment.Cell) string {
	n := 0
	for _, p := range c.Points {
		if p.Verdict == c.Verdict {
			n++
		}
	}
	if n == 0 || c.Verdict == catalog.Safe {
		return string(c.Verdict)
	}
	return fmt.Sprintf("%s %d/%d", c.Verdict, n, len(c.Points))
}
