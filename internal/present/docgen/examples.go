package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/testbed/target"
)

// examples lists the example services whose expected verdicts docs/your-service.md shows.
var examples = []struct{ folder, name string }{{"python", "Python"}, {"node", "Node.js"}, {"go-postgres", "Go"}}

// exampleVerdicts returns a table of the verdicts that the examples expect. Strategies that fail under the same faults
// share a row.
func exampleVerdicts() (string, error) {
	type row struct{ strategies, safe, unsafe, stuck string }
	var rows []row
	for _, example := range examples {
		all, err := target.ReadExpectations(filepath.Join(root, "examples", example.folder, "expectations.yaml"))
		if err != nil {
			return "", err
		}
		for _, strategy := range catalog.Distinct(catalog.Map(all, func(e target.Expectation) string { return e.Strategy })) {
			own := catalog.Filter(all, func(e target.Expectation) bool { return e.Strategy == strategy })
			found := row{fmt.Sprintf("`%s` (%s)", strategy, example.name), under(own, catalog.Safe), under(own, catalog.Unsafe), under(own, catalog.Stuck)}
			i := slices.IndexFunc(rows, func(r row) bool { return r.safe == found.safe && r.unsafe == found.unsafe && r.stuck == found.stuck })
			if i < 0 {
				rows = append(rows, found)
			} else {
				rows[i].strategies += ", " + found.strategies
			}
		}
	}
	var b strings.Builder
	b.WriteString("| strategy | `safe` | `unsafe` | `stuck` |\n|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.strategies, r.safe, r.unsafe, r.stuck)
	}
	return b.String(), nil
}

// under lists the faults under which a strategy has a verdict.
func under(all []target.Expectation, verdict catalog.Verdict) string {
	of := catalog.Filter(all, func(e target.Expectation) bool { return e.Verdict == verdict })
	if len(of) == len(all) {
		return "every fault that applies, and without a fault"
	}
	return cmp.Or(catalog.Join(of, ", ", func(e target.Expectation) string {
		if e.Fault == catalog.NoFault {
			return "without a fault"
		}
		return "`" + string(e.Fault) + "`"
	}), "-")
}
