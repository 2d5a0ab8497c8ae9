package whichlock

import (
	"fmt"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
)

// cells returns the cells of a strategy in its reference run.
func (p *page) cells(name string) []experiment.Cell {
	cells := cellsOf(p.runOf(name), name)
	if len(cells) == 0 {
		p.fail("no reference run has %s", name)
	}
	return cells
}

// runOf returns the reference run that tests this strategy under all faults.
func (p *page) runOf(name string) *experiment.Run {
	for _, run := range []*experiment.Run{p.Unique, p.Libraries} {
		if len(cellsOf(run, name)) > 0 {
			return run
		}
	}
	return p.Matrix
}

func cellsOf(run *experiment.Run, strategy string) []experiment.Cell {
	return slices.DeleteFunc(slices.Clone(run.Cells), func(c experiment.Cell) bool { return c.Strategy != strategy })
}

// underFaults returns the cells that have a fault and satisfy a condition.
func underFaults(cells []experiment.Cell, matches func(experiment.Cell) bool) []experiment.Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c experiment.Cell) bool { return c.Fault == catalog.NoFault || !matches(c) })
}

func isTwice(c experiment.Cell) bool   { return c.Verdict == catalog.Unsafe }
func isStuck(c experiment.Cell) bool   { return c.Verdict == catalog.Stuck }
func isUnknown(c experiment.Cell) bool { return c.Verdict == catalog.Unknown }
func isStruck(c experiment.Cell) bool  { return c.Verdict != catalog.NA }
func letsTwoIn(c experiment.Cell) bool { return c.Exclusive != nil && *c.Exclusive == experiment.No }
func onlyTwoIn(c experiment.Cell) bool { return letsTwoIn(c) && !isTwice(c) }

// faultsOf returns the fault of each cell as text.
func faultsOf(cells []experiment.Cell) []string {
	var names []string
	for _, c := range cells {
		names = append(names, string(c.Fault))
	}
	return names
}

// Twice returns the faults under which an order was grabbed twice.
func (p *page) Twice(name string) []string { return faultsOf(underFaults(p.cells(name), isTwice)) }

// TwoInside returns the faults under which the lock had two holders, but no order was grabbed
// twice.
func (p *page) TwoInside(name string) []string {
	return faultsOf(underFaults(p.cells(name), onlyTwoIn))
}

// Stuck returns the faults that leave an order which no driver can grab.
func (p *page) Stuck(name string) []string { return faultsOf(underFaults(p.cells(name), isStuck)) }

// Striking returns the faults that can affect a strategy at all.
func (p *page) Striking(name string) []string { return faultsOf(underFaults(p.cells(name), isStruck)) }

// PlainLoad returns the results of a strategy under load without a fault.
func (p *page) PlainLoad(name string) experiment.Cell {
	for _, c := range p.cells(name) {
		if c.Fault == catalog.NoFault {
			return c
		}
	}
	p.fail("%s was not run without a fault", name)
	return experiment.Cell{}
}

// DoubleGrabs returns how often an order was grabbed again under load without a fault.
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

// NeverTwice reports whether no order was grabbed twice under any of these strategies.
func (p *page) NeverTwice(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return slices.ContainsFunc(p.cells(name), func(c experiment.Cell) bool { return isTwice(c) || isUnknown(c) })
	})
}

// EachBreaks reports whether each of these strategies let two drivers win under at least one fault.
func (p *page) EachBreaks(names []string) bool {
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return len(p.Twice(name)) == 0 })
}

// LibraryNames returns the names of the libraries that the reference run tested.
func (p *page) LibraryNames() (names []string) {
	for _, s := range lock.Peers {
		if len(cellsOf(p.Libraries, s.Name)) > 0 {
			names = append(names, s.Name)
		}
	}
	return names
}

// Names returns all strategies in the tables: the recommended ones and the libraries.
func (p *page) Names() []string { return slices.Concat(Choices, p.LibraryNames()) }

// OwnNames returns our recommended strategies.
func (p *page) OwnNames() []string { return Choices }

// NeedDuty returns the recommended strategies that need the duty for short work, if two rows of an
// order are never allowed. It returns nil if all of them need it.
func (p *page) NeedDuty(d Duty) (names []string) {
	for _, name := range Choices {
		o := Option{Strategy: name, Guard: p.strategy(name).GuardedBy(""), Stuck: p.Stuck(name)}
		if slices.ContainsFunc(o.Duties([]string{"never", "", "shorter", "go"}), func(x Duty) bool { return x.Do == d.Do }) {
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

// Remote returns recommended strategies whose lock is outside the database. If fenced is true, it
// returns only strategies with a fencing token that the database checks. Otherwise, it returns only
// strategies without such a token.
func (p *page) Remote(fenced bool) (names []string) {
	for _, name := range Choices {
		s := p.strategy(name)
		if s.Needs&(lock.Redis|lock.RedisQuorum|lock.ZooKeeper|lock.Etcd) != 0 && (s.Guard == "fenced") == fenced {
			names = append(names, name)
		}
	}
	return names
}

// SurvivedByRedlock returns the faults that break watchdog but not redlock. The watchdog strategy
// has a single node.
func (p *page) SurvivedByRedlock() []string {
	broken := p.Twice("redlock")
	return slices.DeleteFunc(p.Twice("watchdog"), func(f string) bool { return slices.Contains(broken, f) })
}

// hangOutcomes groups the locks by what happens if their holder's work never ends.
type hangOutcomes struct{ Stuck, LetIn, Neither []string }

// HangOutcomes groups the locks by their result under the hang fault, in which the holder never
// finishes its work. In the first group, no other driver can grab the order. In the second group,
// another driver can grab it. The third group contains the other locks.
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

// ModeLink returns a Markdown link to a failure mode, for the documents in docs.
func ModeLink(id string) string {
	return fmt.Sprintf("[%s](failure-modes.md#%s)", id, strings.ToLower(id))
}

// quoteNames formats names as code, with commas.
func quoteNames(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// lossTotals counts the points of a grab that are unsafe with and without a check for a lost lock.
// Helps means that the check makes fewer points unsafe but no strategy safe.
type lossTotals struct {
	Ignoring, Checking int
	Helps              bool
}

// LossTotals compares runs in which holders check whether they have lost the lock with runs in which
// they do not check.
func (p *page) LossTotals() (t lossTotals) {
	t.Helps = true
	for _, name := range Choices {
		checking := cellsOf(p.Matrix, name)
		for _, c := range cellsOf(p.Ignoring, name) {
			i := slices.IndexFunc(checking, func(l experiment.Cell) bool { return l.Fault == c.Fault })
			if i < 0 {
				p.fail("%s has %s under %s, and %s does not", ignoringFolder, name, c.Fault, matrixFolder)
				continue
			}
			ignored, checked := unsafePoints(c), unsafePoints(checking[i])
			if ignored != checked {
				t.Ignoring, t.Checking = t.Ignoring+ignored, t.Checking+checked
				t.Helps = t.Helps && isTwice(c) && checked > 0
			}
		}
	}
	t.Helps = t.Helps && t.Ignoring > t.Checking
	return t
}

func unsafePoints(c experiment.Cell) (n int) {
	for _, at := range c.Points {
		if at.Verdict == catalog.Unsafe {
			n++
		}
	}
	return n
}
