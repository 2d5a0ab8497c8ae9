package mutate

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"text/tabwriter"

	"grablab/internal/catalog"
)

// result records what found a mistake.
type result struct {
	group, seed string
	rule        string
	explored    bool // whether the explorer could search one of the strategies
	byExplorer  bool
	tested      bool   // whether tests ran
	byTest      string // the package whose test failed, or "" if none did
	byOwnTest   bool   // whether this is the package of the mistake
}

func (r result) killed() bool { return r.byExplorer || r.byTest != "" }

// describe returns a line that names the mistake and what found it. For a mistake that nothing found, it contains
// the code.
func (r result) describe(m mistake, source []byte) string {
	by := cmp.Or(r.byTest, "NOT FOUND")
	if r.byExplorer {
		by = "explorer, " + cmp.Or(r.byTest, "no test")
	}
	line := fmt.Sprintf("%-22s %s:%d: %s", by, m.file, m.line(source), m.rule)
	if !r.killed() {
		before, after := m.describe(source)
		line += fmt.Sprintf(": %s => %s", before, after)
	}
	return line
}

// shuffled returns the mistakes in an order that depends only on the seed.
func shuffled(all []mistake, seed string) []mistake {
	h := fnv.New64a()
	h.Write([]byte(seed))
	drawn := slices.Clone(all)
	rand.New(rand.NewPCG(h.Sum64(), 0)).Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	return drawn
}

// interval returns the bounds of the 95 % confidence interval of a proportion (Wilson, 1927).
func interval(killed, of int) (low, high float64) {
	const z = 1.96
	n, p := float64(of), float64(killed)/float64(of)
	middle := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return max(0, middle-half), min(1, middle+half)
}

// printRates prints how many mistakes were found, by group, by seed and by rule.
func printRates(w io.Writer, all []result) {
	for _, of := range []struct {
		title string
		name  func(result) string
	}{
		{"group", func(r result) string { return r.group }},
		{"seed", func(r result) string { return r.seed }},
		{"rule", func(r result) string { return r.rule }},
	} {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(table, "\n%s\tmistakes\tfound\tby tests of the package\tby the explorer\n", of.title)
		var order []string
		rows := map[string][]result{}
		for _, r := range all {
			name := of.name(r)
			if rows[name] == nil {
				order = append(order, name)
			}
			rows[name] = append(rows[name], r)
		}
		for _, name := range order {
			rs := rows[name]
			explored, tested := catalog.Filter(rs, func(r result) bool { return r.explored }), catalog.Filter(rs, func(r result) bool { return r.tested })
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", name, len(rs), rate(rs, result.killed), rate(tested, func(r result) bool { return r.byOwnTest }), rate(explored, func(r result) bool { return r.byExplorer }))
		}
		table.Flush()
	}
}

// rate returns the share of the results for which match returns true, with its confidence interval.
func rate(of []result, match func(result) bool) string {
	if len(of) == 0 {
		return "–"
	}
	n := 0
	for _, r := range of {
		if match(r) {
			n++
		}
	}
	low, high := interval(n, len(of))
	return fmt.Sprintf("%d = %.0f %% [%.0f, %.0f]", n, 100*float64(n)/float64(len(of)), 100*low, 100*high)
}
