package target

import (
	"fmt"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/testbed/infile"
)

// Expectation is the verdict that the user expects for a locking strategy under a fault.
type Expectation struct {
	Strategy string
	Fault    catalog.Fault
	Verdict  catalog.Verdict
	Line     int
}

// ReadExpectations reads a file of expected verdicts. The file has one verdict for each strategy,
// or one for each strategy and fault.
func ReadExpectations(path string) ([]Expectation, error) {
	text, err := infile.Read(path, infile.Small)
	if err != nil {
		return nil, err
	}
	all, err := parseExpectations(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return all, nil
}

var verdicts = []string{string(catalog.Safe), string(catalog.Unsafe), string(catalog.Stuck), string(catalog.Unknown)}

func parseExpectations(text []byte) ([]Expectation, error) {
	root, err := parseYAML(text, expectationsSchema())
	if err != nil {
		return nil, err
	}
	var all []Expectation
	add := func(strategy, fault string, v value) error {
		found, _, ok := catalog.FindFault(fault)
		if !ok || !slices.Contains(catalog.RunFaults, found.Name) {
			return fmt.Errorf("%v: there is no fault %q%s", v.at(), fault, catalog.Hint(fault, faultNames(), ""))
		}
		if !slices.Contains(verdicts, v.text()) {
			return fmt.Errorf("%v: there is no verdict %q%s", v.at(), v.text(), catalog.Hint(v.text(), verdicts, ""))
		}
		all = append(all, Expectation{strategy, found.Name, catalog.Verdict(v.text()), v.at().line})
		return nil
	}
	for _, strategy := range root.members() {
		if _, perFault := strategy.plain.(map[string]any); !perFault {
			if err := add(strategy.key, string(catalog.NoFault), strategy.value); err != nil {
				return nil, err
			}
		}
		for _, fault := range strategy.members() {
			if err := add(strategy.key, fault.key, fault.value); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func faultNames() []string {
	names := make([]string, len(catalog.RunFaults))
	for i, f := range catalog.RunFaults {
		names[i] = string(f)
	}
	return names
}
