package target

import (
	_ "embed"
	"fmt"
	"slices"

	"grablab/internal/catalog"
)

// ExpectationsSchema is the JSON Schema of a file with expected verdicts.
//
//go:embed expectations.schema.json
var ExpectationsSchema string

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
	strategies, err := parseYAML(text)
	if err != nil {
		return nil, err
	}
	var all []Expectation
	for _, strategy := range strategies {
		cells, perFault := membersOf(strategy.value)
		if !perFault {
			cells = []member{{string(catalog.NoFault), strategy.at, strategy.value}}
		}
		for _, cell := range cells {
			found, _, ok := catalog.FindFault(cell.key)
			if !ok || !slices.Contains(catalog.RunFaults, found.Name) {
				return nil, fmt.Errorf("%v: there is no fault %q%s", cell.at, cell.key, catalog.Hint(cell.key, faultNames(), ""))
			}
			at := placeOf(cell.value)
			verdict, err := textOf(cell.value)
			switch {
			case err != nil:
				return nil, fmt.Errorf("%v: %s: the verdict %w", at, strategy.key, err)
			case !slices.Contains(verdicts, verdict):
				return nil, fmt.Errorf("%v: there is no verdict %q%s", at, verdict, catalog.Hint(verdict, verdicts, ""))
			}
			all = append(all, Expectation{strategy.key, found.Name, catalog.Verdict(verdict), at.line})
		}
	}
	return all, nil
}

func faultNames() []string {
	return catalog.Map(catalog.RunFaults, func(f catalog.Fault) string { return string(f) })
}
