// Package whichlock writes the page that helps to choose a lock, docs/which-lock.md: a
// decision in a dozen lines, a table of what breaks each lock and what it costs, and claims
// of others beside what was measured of them.
//
// Begin with [Write]. All of it comes from reference runs and from the registry. A
// sentence that says what the runs have shown is written only if they still show it:
// otherwise Write fails and names the sentence.
package whichlock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/lockbench"
	"grablab/internal/present/report"
)

// Sources are what the page is made of, as folders and files below results/ of a
// repository.
type Sources struct {
	Matrix    *experiment.Run   // the strategies under all faults
	Libraries *experiment.Run   // those of others, likewise
	Ignoring  *experiment.Run   // those that can tell of a loss, with -on-lost ignore
	Sale      *experiment.Run   // an item of many units
	Stock     *experiment.Run   // the strategies that decide in Redis, under all faults
	Bench     *lockbench.Result // each lock by itself
	Claims    string            // what .ci/claims printed
	Versions  map[string]string // of the libraries, by module
}

// The folders of the sources.
const (
	matrixFolder    = "reference-matrix-local"
	librariesFolder = "reference-peers-local"
	ignoringFolder  = "reference-ignore-local"
	saleFolder      = "reference-sale-local"
	stockFolder     = "reference-stock-local"
	benchFolder     = "reference-bench-local"
	claimsFile      = "claims.txt"
)

// Load reads the sources of a repository.
func Load(root string) (Sources, error) {
	results := filepath.Join(root, "results")
	var s Sources
	for folder, run := range map[string]**experiment.Run{matrixFolder: &s.Matrix, librariesFolder: &s.Libraries, ignoringFolder: &s.Ignoring,
		saleFolder: &s.Sale, stockFolder: &s.Stock} {
		var err error
		if *run, err = report.Load(filepath.Join(results, folder)); err != nil {
			return s, fmt.Errorf("whichlock: %w", err)
		}
	}
	var err error
	if s.Bench, err = lockbench.Load(filepath.Join(results, benchFolder)); err != nil {
		return s, fmt.Errorf("whichlock: %w", err)
	}
	claims, err := os.ReadFile(filepath.Join(results, claimsFile))
	if err != nil {
		return s, fmt.Errorf("whichlock: %w", err)
	}
	s.Claims = string(claims)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return s, fmt.Errorf("whichlock: %w", err)
	}
	s.Versions = Versions(string(mod))
	return s, nil
}

// Versions are those of the modules that the text of a go.mod requires.
func Versions(mod string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(mod) {
		if words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require ")); len(words) >= 2 && strings.HasPrefix(words[1], "v") {
			found[words[0]] = words[1]
		}
	}
	return found
}

// Choices are the strategies that one may reasonably choose among. The others are there
// because of what they get wrong.
var Choices = []string{
	"mysql-cas", "mysql-getlock", "mysql-forupdate", "setnx", "setnx-fenced", "watchdog", "watchdog-fenced", "handoff",
	"redlock", "zookeeper", "zookeeper-fenced", "etcd", "etcd-fenced",
}

// page is what is written, with what is wrong with it.
type page struct {
	Sources
	b     strings.Builder
	wrong []error
}

// Write writes the page as Markdown.
func Write(w io.Writer, s Sources) error {
	p := &page{Sources: s}
	p.b.WriteString("# Which lock\n\n")
	env := s.Matrix.Environment
	fmt.Fprintf(&p.b, "Many drivers grab an order at once, through two instances of a service; one may win. What the\n"+
		"reference runs have shown of that, with %s, %s (for `mysql-*`), %s and\n%s on %d shared cores, everything on one machine. *Unsafe* is a lock under which an order was\n"+
		"grabbed twice, by the ledger in the database. Costs are in round trips to Redis, %s there: yours take\nlonger, but pauses between two tries and writes to a disk do not. "+
		"What the faults are: [faults.md](faults.md).\n", env.Redis, env.Database, env.ZooKeeper, env.Etcd, env.CPUs, p.roundTrip())
	p.situations()
	p.decision()
	p.breaks()
	p.costs()
	p.sale()
	p.notLooking()
	p.claims()
	p.sources()
	if err := errors.Join(p.wrong...); err != nil {
		return err
	}
	_, err := io.WriteString(w, p.b.String())
	return err
}

// fail notes what is wrong with a source.
func (p *page) fail(format string, args ...any) {
	p.wrong = append(p.wrong, fmt.Errorf("whichlock: "+format, args...))
}

// strategy by name, one of ours or of the libraries.
func (p *page) strategy(name string) lock.Strategy {
	s, err := lock.Find(name)
	if err != nil {
		p.fail("%w", err)
	}
	return s
}

// cells of a strategy, in whichever run it is.
func (p *page) cells(name string) []experiment.Cell {
	cells := slices.Concat(cellsOf(p.Matrix, name), cellsOf(p.Libraries, name))
	if len(cells) == 0 {
		p.fail("no reference run has %s", name)
	}
	return cells
}

func cellsOf(run *experiment.Run, strategy string) []experiment.Cell {
	return slices.DeleteFunc(slices.Clone(run.Cells), func(c experiment.Cell) bool { return c.Strategy != strategy })
}

// under are the cells of which a word holds, without those of no fault.
func under(cells []experiment.Cell, holds func(experiment.Cell) bool) []experiment.Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c experiment.Cell) bool { return c.Fault == catalog.NoFault || !holds(c) })
}

func grabbedTwice(c experiment.Cell) bool { return c.Verdict == catalog.Unsafe }
func stuck(c experiment.Cell) bool        { return c.Verdict == catalog.Stuck }
func unknown(c experiment.Cell) bool      { return c.Verdict == catalog.Unknown }
func struck(c experiment.Cell) bool       { return c.Verdict != catalog.NA }
func letIn(c experiment.Cell) bool        { return c.Exclusive != nil && *c.Exclusive == experiment.No }

// faults are the names of those that cells are under.
func faults(cells []experiment.Cell) string {
	var names []string
	for _, c := range cells {
		names = append(names, "`"+string(c.Fault)+"`")
	}
	return strings.Join(names, ", ")
}

// calm is the cell of a strategy under no fault.
func (p *page) calm(name string) experiment.Cell {
	for _, c := range p.cells(name) {
		if c.Fault == catalog.NoFault {
			return c
		}
	}
	p.fail("%s was not run under no fault", name)
	return experiment.Cell{}
}

// row is a lock in a case of the benchmark; nil: it was not measured there.
func (p *page) row(name, of string) *lockbench.Row {
	for i, row := range p.Bench.Rows {
		if row.Strategy == name && row.Case == of {
			return &p.Bench.Rows[i]
		}
	}
	return nil
}

// trips are the round trips of a lock in a case: acquire and release by one worker alone, or
// from one holder to the next. "?": it was not measured.
func (p *page) trips(name, of string) string {
	row := p.row(name, of)
	if row == nil || row.Ratio == nil || row.RatioLow == nil || row.RatioHigh == nil {
		return "?"
	}
	return fmt.Sprintf("%s [%s, %s]", figure(2**row.Ratio), figure(2**row.RatioLow), figure(2**row.RatioHigh)) // the floor is two
}

// roundTrip is that of the benchmark's floor, which makes two.
func (p *page) roundTrip() string {
	row := p.row(lockbench.Floor, "uncontended")
	if row == nil {
		p.fail("the floor was not measured")
		return "?"
	}
	return fmt.Sprintf("%.0f µs", row.P50US/2)
}

// figure has three digits, as far as they say anything.
func figure(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.2f", x)
	}
}
