package lockbench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/testbed/infile"
)

// A benchmark folder contains these files: the result, and the raw measurements.
const (
	File       = "bench.json"
	SlicesFile = "slices.jsonl"
)

// ErrNoBench means that a path contains no readable benchmark.
var ErrNoBench = errors.New("lockbench: no benchmark")

// Load reads a benchmark from its folder or from bench.json, and the raw measurements if they
// exist. Its errors wrap ErrNoBench.
func Load(path string) (*Result, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, File)
	}
	b, err := infile.Read(path, infile.Record)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoBench, err)
	}
	r := new(Result)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNoBench, path, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%w: %s has the format version %d, but this version of loadgen reads only %d: use the loadgen that wrote the file", ErrNoBench, path, r.Schema, Schema)
	}
	if len(r.Config.Cases) == 0 {
		return nil, fmt.Errorf("%w: %s has no cases, so it is not the result of a benchmark: pass a file that loadgen bench has written", ErrNoBench, path)
	}
	r.cases = catalog.Filter(Cases, func(c Case) bool { return slices.Contains(r.Config.Cases, c.Name) })
	if r.Slices, err = loadSlices(filepath.Join(filepath.Dir(path), SlicesFile)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoBench, err)
	}
	return r, nil
}

func loadSlices(path string) (of []Slice, err error) {
	text, err := infile.Read(path, infile.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for lines := json.NewDecoder(bytes.NewReader(text)); lines.More(); {
		var s Slice
		if err := lines.Decode(&s); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, len(of)+1, err)
		}
		of = append(of, s)
	}
	return of, nil
}

// Cost is the figure by which the locks in a case are compared. It has one value for each round, or
// only the median if there are no raw measurements.
type Cost struct {
	Strategy, Case string
	Figure         string // name and unit of the figure
	Values         []float64
	OverFloor      []float64 // lock cost divided by the floor's cost, within each round
	Median         *float64
	MedianRatio    *float64
}

// Costs returns the cost of every lock in every case, sorted by case.
func (r *Result) Costs() []Cost {
	var all []Cost
	for _, row := range r.Rows {
		i := slices.IndexFunc(Cases, func(c Case) bool { return c.Name == row.Case })
		if i < 0 {
			continue // the file comes from another program version, which had this case
		}
		c := Cases[i]
		by, lowest := cost(c), cost(c.forFloor()).of
		if row.Strategy == Floor {
			by.of = lowest
		}
		own := r.series(row.Strategy, c.Name)
		x := Cost{Strategy: row.Strategy, Case: c.Name, Figure: by.name, MedianRatio: row.Ratio, Median: by.of(Slice{Figures: row.Figures})}
		x.Values, _ = pairedValues(own, own, by.of, by.of)
		over, under := pairedValues(own, r.series(Floor, c.Name), by.of, lowest)
		for k := range over {
			x.OverFloor = append(x.OverFloor, over[k]/under[k])
		}
		all = append(all, x)
	}
	return all
}
