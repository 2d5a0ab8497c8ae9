package archtest

import (
	"fmt"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// besides are the strategies of the Spring example, each with that of ours which it is
// compared with.
var besides = []struct{ theirs, ours string }{
	{"none", "none"}, {"synchronized", "mutex"}, {"setnx", "setnx"}, {"rlock-lease", "setnx"},
	{"rlock", "watchdog"}, {"fair", "watchdog"}, {"redlock", "redlock"}, {"multilock", "redlock"},
}

// differences say why a verdict on theirs is another one than on ours: by the fault and
// theirs, or by the fault alone.
var differences = map[string]string{
	"slow-db": "`unknown`: behind its INSERT the driver itself holds the table that the fault is to hold, so two points could not be struck; the other points are safe, as ours are.",
	"redlock/none": "`unknown`: beside other work on this machine it served less than half of the grabs a second that were offered, and one that is so slow hides its races. " +
		"RedissonRedLock asks five nodes one after the other, and waits at each that another driver has; ours asks all at once.",
	"redlock/hang":                 leased,
	"multilock/hang":               leased,
	"redlock/partition-db":         notRenewed,
	"multilock/partition-db":       notRenewed,
	"redlock/slow-db":              notRenewed,
	"multilock/slow-db":            notRenewed,
	"multilock/redis-restart-most": "a MultiLock needs all five nodes: the two that still have the lock keep the others out. A majority, as of Redlock, is gone with three.",
	"multilock/amnesia":            allNodes,
	"multilock/failover-split":     allNodes,
	"latency": "the reply that grants the lock comes when its lease is over ([F12](failure-modes.md#f12)). Ours takes off what the acquire took, and refuses; " +
		"neither RLock and the fair lock, once they are granted, nor the code around Spring's template looks at the clock.",
}

const (
	notRenewed = "its lease runs out while the write cannot reach the database, or waits there, and the write comes through afterwards: Redisson renews no lock that was taken with a lease, and nothing looks at it before the write. Ours is renewed."
	leased     = "the example takes it with a lease, which Redisson does not renew then: it runs out under what hangs, and the next driver gets in. Ours is renewed for as long as its process lives, and what hangs keeps everybody out."
	allNodes   = "`unknown`: the fault lets the faulted driver reach a bare majority of the nodes. A MultiLock needs all of them, so that it has no lock to lose there."
)

// beside is the matrix of the Spring example beside ours, where both have a verdict, and a
// sentence for each difference.
func beside() (string, error) {
	spring, err := loadRun("reference-spring-local")
	if err != nil {
		return "", err
	}
	matrix, err := loadRun("reference-matrix-local")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| fault |")
	besides := slices.DeleteFunc(slices.Clone(besides), func(s struct{ theirs, ours string }) bool { return cellOf(spring, s.theirs, catalog.NoFault) == nil })
	for _, s := range besides {
		if fmt.Fprintf(&b, " `%s`", s.theirs); s.ours != s.theirs {
			fmt.Fprintf(&b, " (`%s`)", s.ours)
		}
		b.WriteString(" |")
	}
	b.WriteString("\n|---" + strings.Repeat("|---", len(besides)) + "|\n")
	used := map[string]bool{}
	var missing []string
	for _, f := range catalog.RunFaults {
		row := fmt.Sprintf("| %s |", f)
		for _, s := range besides {
			text, differ := compared(cellOf(spring, s.theirs, f), cellOf(matrix, s.ours, f))
			row += " " + text + " |"
			if !differ {
				continue
			}
			key := fmt.Sprintf("%s/%s", s.theirs, f)
			if differences[key] == "" {
				key = string(f)
			}
			if used[key] = true; differences[key] == "" {
				missing = append(missing, fmt.Sprintf("%s/%s", s.theirs, f))
			}
		}
		if strings.Trim(row[strings.Index(row[2:], "|")+2:], "| -") != "" {
			b.WriteString(row + "\n")
		}
	}
	b.WriteString("\n")
	for _, s := range besides {
		for _, f := range catalog.RunFaults {
			if key := fmt.Sprintf("%s/%s", s.theirs, f); used[key] {
				fmt.Fprintf(&b, "- `%s`, %s: %s\n", s.theirs, f, differences[key])
			}
		}
	}
	for _, f := range catalog.RunFaults {
		if used[string(f)] {
			fmt.Fprintf(&b, "- %s: %s\n", f, differences[string(f)])
		}
	}
	for key := range differences {
		if !used[key] {
			missing = append(missing, key+" (which does not differ)")
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		return "", fmt.Errorf("differences that no sentence explains: %s", strings.Join(missing, ", "))
	}
	return b.String(), nil
}

func cellOf(run *experiment.Run, strategy string, f catalog.Fault) *experiment.Cell {
	i := slices.IndexFunc(run.Cells, func(c experiment.Cell) bool { return c.Strategy == strategy && c.Fault == f && !c.Interrupted })
	if i < 0 {
		return nil
	}
	return &run.Cells[i]
}

// compared is the verdict on theirs, and that on ours where it is another one.
func compared(theirs, ours *experiment.Cell) (text string, differ bool) {
	if theirs == nil || theirs.Verdict == catalog.NA {
		return "-", false
	}
	text = withPoints(theirs)
	if ours == nil || ours.Verdict == catalog.NA || ours.Verdict == theirs.Verdict {
		return text, false
	}
	return fmt.Sprintf("**%s** (%s)", text, withPoints(ours)), true
}

// withPoints is a verdict, with at how many of the points it is so.
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
