package whichlock

import (
	"fmt"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
)

// cells returns a strategy's test results. If there are none, it records a problem, which makes
// Write fail.
func (p *page) cells(name string) []experiment.Cell {
	cells := cellsOf(p.runOf(name), name)
	if len(cells) == 0 {
		p.fail("no reference run has %s", name)
	}
	return cells
}

// runOf returns the run that tested this strategy under all faults.
func (p *page) runOf(name string) *experiment.Run {
	for _, run := range []*experiment.Run{p.Unique, p.Libraries} {
		if len(cellsOf(run, name)) > 0 {
			return run
		}
	}
	return p.Matrix
}

func cellsOf(run *experiment.Run, strategy string) []experiment.Cell {
	return catalog.Filter(run.Cells, func(c experiment.Cell) bool { return c.Strategy == strategy })
}

// faults returns the faults under which a strategy's result meets a condition.
func (p *page) faults(name string, matches func(experiment.Cell) bool) []string {
	matching := catalog.Filter(p.cells(name), func(c experiment.Cell) bool { return c.Fault != catalog.NoFault && matches(c) })
	return catalog.Map(matching, func(c experiment.Cell) string { return string(c.Fault) })
}

func isTwice(c experiment.Cell) bool   { return c.Verdict == catalog.Unsafe }
func isStuck(c experiment.Cell) bool   { return c.Verdict == catalog.Stuck }
func isUnknown(c experiment.Cell) bool { return c.Verdict == catalog.Unknown }
func isStruck(c experiment.Cell) bool  { return c.Verdict != catalog.NA }
func letsTwoIn(c experiment.Cell) bool { return c.Exclusive != nil && *c.Exclusive == experiment.No }
func onlyTwoIn(c experiment.Cell) bool { return letsTwoIn(c) && !isTwice(c) }

// Twice returns the faults under which two clients got the same order.
func (p *page) Twice(name string) []string { return p.faults(name, isTwice) }

// TwoInside returns the faults under which two clients held the lock at once, but only one of them
// got the order.
func (p *page) TwoInside(name string) []string { return p.faults(name, onlyTwoIn) }

// Stuck returns the faults that leave an order stuck, so that no client can get it any more.
func (p *page) Stuck(name string) []string { return p.faults(name, isStuck) }

// Striking returns the faults that can affect a strategy.
func (p *page) Striking(name string) []string { return p.faults(name, isStruck) }

// PlainLoad returns a strategy's result in the load test without a fault.
func (p *page) PlainLoad(name string) experiment.Cell {
	plain := catalog.First(p.cells(name), func(c experiment.Cell) bool { return c.Fault == catalog.NoFault })
	if plain.Fault == "" {
		p.fail("%s was not run without a fault", name)
	}
	return plain
}

// DoubleGrabs returns how many times an order was grabbed although it already had a winner, in the load
// test without a fault.
func (p *page) DoubleGrabs(name string) int {
	if c := p.PlainLoad(name); isTwice(c) && c.DoubleGrabs != nil {
		return *c.DoubleGrabs
	}
	return 0
}

// AllSafe reports whether a strategy was safe under every fault that affects it.
func (p *page) AllSafe(name string) bool {
	return !slices.ContainsFunc(p.cells(name), func(c experiment.Cell) bool { return isTwice(c) || isStuck(c) || isUnknown(c) })
}

// NeverTwice reports whether no order was grabbed twice with any of these strategies.
func (p *page) NeverTwice(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return slices.ContainsFunc(p.cells(name), func(c experiment.Cell) bool { return isTwice(c) || isUnknown(c) })
	})
}

// EachBreaks reports whether each of these strategies gave an order to two clients under at least
// one fault.
func (p *page) EachBreaks(names []string) bool {
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return len(p.Twice(name)) == 0 })
}

// LibraryNames returns the names of the tested libraries.
func (p *page) LibraryNames() []string {
	return catalog.Map(catalog.Filter(lock.Peers, func(s lock.Strategy) bool { return len(cellsOf(p.Libraries, s.Name)) > 0 }), func(s lock.Strategy) string { return s.Name })
}

// Names returns the names of the recommended strategies and of the tested libraries.
func (p *page) Names() []string { return slices.Concat(Choices, p.LibraryNames()) }

// OwnNames returns the names of the recommended strategies, which all come from this repository.
func (p *page) OwnNames() []string { return Choices }

// NeedDuty returns the recommended strategies whose users have this duty, or nil if all of them do.
// It assumes short work, and that no order may go to two clients.
func (p *page) NeedDuty(d Duty) (names []string) {
	for _, name := range Choices {
		o := Option{Strategy: name, Guard: p.strategy(name).GuardedBy(""), Stuck: p.Stuck(name)}
		if slices.ContainsFunc(o.Duties(Answers{Rows: "never", Work: "shorter", Stack: "go"}), func(x Duty) bool { return x.Do == d.Do }) {
			names = append(names, name)
		}
	}
	if len(names) == len(Choices) {
		return nil
	}
	return names
}

// IsLock reports whether a strategy uses a lock.
func (p *page) IsLock(name string) bool { return p.strategy(name).Excludes != catalog.NoExclusion }

// Remote returns the recommended strategies whose lock is outside the database. With fenced, it
// selects those whose fencing tokens the database checks, and otherwise those without that check.
func (p *page) Remote(fenced bool) (names []string) {
	for _, name := range Choices {
		s := p.strategy(name)
		if s.Needs&(lock.Redis|lock.RedisQuorum|lock.ZooKeeper|lock.Etcd) != 0 && (s.Guard == "fenced") == fenced {
			names = append(names, name)
		}
	}
	return names
}

// SurvivedByRedlock returns the faults that break watchdog, which needs a single Redis server, but
// not redlock.
func (p *page) SurvivedByRedlock() []string {
	broken := p.Twice("redlock")
	return slices.DeleteFunc(p.Twice("watchdog"), func(f string) bool { return slices.Contains(broken, f) })
}

// hangOutcomes groups locks by what happens if a client hangs and never releases its lock.
type hangOutcomes struct{ Stuck, LetIn, Neither []string }

// HangOutcomes groups the locks by what happens if a client hangs while it holds the lock. Stuck
// means that no other client can get the order. LetIn means that another client gets the lock.
func (p *page) HangOutcomes() (o hangOutcomes) {
	for _, name := range p.Names() {
		for _, c := range p.cells(name) {
			switch {
			case c.Fault.Shows()&catalog.Hung == 0 || !p.IsLock(name):
			case isStuck(c):
				o.Stuck = append(o.Stuck, name)
			case letsTwoIn(c):
				o.LetIn = append(o.LetIn, name)
			default:
				o.Neither = append(o.Neither, name)
			}
		}
	}
	return o
}

// ModeLink returns a Markdown link to a failure mode's description, for documents in docs.
func ModeLink(id string) string {
	return fmt.Sprintf("[%s](failure-modes.md#%s)", id, strings.ToLower(id))
}

// QuoteNames formats names as code, separated by commas.
func QuoteNames(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// lossTotals counts the steps at which a fault had an unsafe result: Ignoring without a check for a
// lost lock, and Checking with it. Helps means that the check reduces the number, but not to 0.
type lossTotals struct {
	Ignoring, Checking int
	Helps              bool
}

// LossTotals compares runs with and without a check for a lost lock, to show how much the check
// helps.
func (p *page) LossTotals() (t lossTotals) {
	for _, c := range p.Ignoring.Cells {
		i := slices.IndexFunc(p.Matrix.Cells, func(l experiment.Cell) bool { return l.Name() == c.Name() })
		if i < 0 {
			p.fail("%s has %v, and %s does not", ignoringFolder, c.Name(), matrixFolder)
			continue
		}
		t.Ignoring += unsafePoints(c)
		t.Checking += unsafePoints(p.Matrix.Cells[i])
	}
	t.Helps = t.Checking > 0 && t.Checking < t.Ignoring
	return t
}

func unsafePoints(c experiment.Cell) int {
	return len(catalog.Filter(c.Points, func(at experiment.Point) bool { return at.Verdict == catalog.Unsafe }))
}
