package target

import (
	"fmt"
	"slices"

	"grablab/internal/catalog"
)

// Expectation is the verdict that the user expects for a locking strategy under a fault.
type Expectation struct {
	Strategy string
	Fault    catalog.Fault
	Verdict  catalog.Verdict
	Line     int
}

// ReadExpectations reads a file of expected verdicts, with one verdict per strategy, or per
// strategy and fault.
func ReadExpectations(path string) ([]Expectation, error) { return read(path, parseExpectations) }

var verdicts = []string{string(catalog.Safe), string(catalog.Unsafe), string(catalog.Stuck), string(catalog.Unknown)}

func parseExpectations(text []byte) ([]Expectation, error) {
	root, err := parseYAML(text, expectationsSchema())
	if err != nil {
		return nil, err
	}
	var all []Expectation
	for _, strategy := range root.members() {
		cells := strategy.members()
		if _, perFault := strategy.plain.(map[string]any); !perFault {
			cells = []value{{node: strategy.node, plain: strategy.plain, key: string(catalog.NoFault)}}
		}
		for _, cell := range cells {
			found, _, ok := catalog.FindFault(cell.key)
			if !ok || !slices.Contains(catalog.RunFaults, found.Name) {
				return nil, fmt.Errorf("%v: there is no fault %q%s", cell.at(), cell.key, catalog.Hint(cell.key, faultNames(), ""))
			}
			if verdict := cell.text(); !slices.Contains(verdicts, verdict) {
				return nil, fmt.Errorf("%v: there is no verdict %q%s", cell.at(), verdict, catalog.Hint(verdict, verdicts, ""))
			}
			all = append(all, Expectation{strategy.key, found.Name, catalog.Verdict(cell.text()), cell.at().line})
		}
	}
	return all, nil
}

func faultNames() []string {
	return catalog.Map(catalog.RunFaults, func(f catalog.Fault) string { return string(f) })
}
