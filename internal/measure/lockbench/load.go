package lockbench

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/testbed/infile"
)

// A benchmark folder contains these files: the result, the raw measurements, and the measurements in
// the format of the tool benchstat.
const (
	File          = "bench.json"
	SlicesFile    = "slices.jsonl"
	BenchstatFile = "bench.txt"
)

// Load reads a benchmark from its folder, without the raw measurements.
func Load(dir string) (*Result, error) {
	path := filepath.Join(dir, File)
	b, err := infile.Read(path, infile.Record)
	if err != nil {
		return nil, fmt.Errorf("lockbench: %w", err)
	}
	r := new(Result)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("lockbench: %s: %w", path, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("lockbench: %s has the format version %d, but this version of loadgen reads only %d: use the loadgen that wrote the file", path, r.Schema, Schema)
	}
	r.cases = catalog.Filter(Cases, func(c Case) bool { return slices.Contains(r.Config.Cases, c.Name) })
	return r, nil
}
