package whichlock

import (
	"fmt"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/lockbench"
	"grablab/internal/present/report"
)

func (p *page) libraryNames() (names []string) {
	for _, s := range lock.Peers {
		if len(cellsOf(p.Libraries, s.Name)) > 0 {
			names = append(names, s.Name)
		}
	}
	return names
}

func (p *page) all() []string { return slices.Concat(Choices, p.libraryNames()) }

// situations is the decision in short.
func (p *page) situations() {
	p.b.WriteString("\n| you have | take | it costs | accept |\n|---|---|---|---|\n")
	for _, row := range [][4]string{
		{"a write that one conditional UPDATE can do", "no lock: `mysql-cas`", per(p.calm("mysql-cas").DBStatementsPerRequest) + " statements a request", "losers ask the database, too"},
		{"dear work before the write, one Redis", "`handoff`, and have the write check its token", p.trips("handoff", "uncontended") + " round trips alone", "work that hangs keeps the lock"},
		{"dear work before the write, only a database", "`mysql-getlock` or `mysql-forupdate`", p.trips("mysql-getlock", "uncontended") + " and " + p.trips("mysql-forupdate", "uncontended"), "a connection for each waiter"},
		{"Redisson, redsync or another library", "it, before a conditional UPDATE or a token that the write checks", "the UPDATE", "the lock saves work, and does not decide"},
	} {
		fmt.Fprintf(&p.b, "| %s |\n", strings.Join(row[:], " | "))
	}
}

// breaks is the table of what breaks the locks.
func (p *page) breaks() {
	p.b.WriteString("\n## What breaks it\n\n" +
		"*Grabbed twice*: two drivers won an order. *Two inside*: the lock let two holders in at once, and the write or the\n" +
		"token stopped the second, or it found the order taken. *Stuck*: an order that nobody can grab any more. A fault that\n" +
		"is not named did nothing. Those that did harm are links to what happened, step by step.\n\n" +
		"| lock | grabbed twice under | no more than two inside under | stuck under | failure modes seen |\n|---|---|---|---|---|\n")
	for _, name := range p.all() {
		run, folder := p.Matrix, matrixFolder
		if len(cellsOf(run, name)) == 0 {
			run, folder = p.Libraries, librariesFolder
		}
		cells := cellsOf(run, name)
		if c := under(cells, unknown); len(c) > 0 {
			p.fail("%s: the verdict of %s is unknown under %s", folder, name, faults(c))
		}
		twoInside := func(c experiment.Cell) bool { return letIn(c) && !grabbedTwice(c) }
		fmt.Fprintf(&p.b, "| `%s` | %s | %s | %s | %s |\n", name, links(under(cells, grabbedTwice), folder), links(under(cells, twoInside), folder),
			links(under(cells, stuck), folder), modes(report.ModesSeen(run, name)))
	}
}

// costs is the table of what the locks cost.
func (p *page) costs() {
	p.b.WriteString("\n## What it costs\n\n" +
		"*Alone*: acquire and release together, by one worker. *Next*: from one holder to the next, of 16 in two processes that\n" +
		"come at once, the median and the mean; `handoff` hands on within a process without asking Redis, which makes its median.\n" +
		"Both in round trips, with the 95 % interval over rounds. *Commands*: sent for each acquisition, alone and of the 16; several\n" +
		"may share a round trip. *Statements*: of a whole grab under plain load, to the database; what a token adds is there. *Fair*:\n" +
		"Jain's index over workers in a closed loop, 1 where all get the same. The benchmark calls at once again where a\n" +
		"waiter is turned away. `?` was not measured.\n\n" +
		"| lock | a waiter | token | alone | next | next, mean | commands | statements | fair | version |\n|---|---|---|--:|--:|--:|--:|--:|--:|---|\n")
	for _, name := range p.all() {
		s := p.strategy(name)
		statements := per(p.calm(name).DBStatementsPerRequest)
		if s.Excludes == catalog.NoExclusion {
			fmt.Fprintf(&p.b, "| `%s` | no lock | - | - | - | - | - | %s | - | %s |\n", name, statements, p.version(s))
			continue
		}
		fmt.Fprintf(&p.b, "| `%s` | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name, s.Waiter, token(s), p.trips(name, "uncontended"),
			p.trips(name, "waves"), p.meanGap(name), p.commands(name), statements, p.fair(name), p.version(s))
	}
}

// meanGap is the mean time from one holder to the next, in round trips.
func (p *page) meanGap(name string) string {
	row, floor := p.row(name, "waves"), p.row(lockbench.Floor, "waves")
	if row == nil || row.GapMeanUS == nil || floor == nil || floor.P50US == 0 {
		return "?"
	}
	return figure(*row.GapMeanUS / (floor.P50US / 2))
}

// notLooking is the table of what comes of it if a service does not look whether its lock is
// lost.
func (p *page) notLooking() {
	p.b.WriteString("\n## If nobody looks whether the lock is lost\n\n" +
		"With `-on-lost ignore` the service writes without having looked: at how many of the points of a grab at which the\n" +
		"fault can strike the order was then grabbed twice, and at how many if it looks. Faults and locks that are not named\n" +
		"came to the same.\n\n| lock | fault | not looking | looking | points |\n|---|---|--:|--:|--:|\n")
	for _, name := range p.ignorers() {
		for _, d := range p.ignored(name) {
			fmt.Fprintf(&p.b, "| `%s` | %s | %d | %d | %d |\n", name, links([]experiment.Cell{d.cell}, ignoringFolder), d.ignoring, d.looking, len(d.cell.Points))
		}
	}
}

// links are the faults that cells are under, each with what happened there.
func links(cells []experiment.Cell, folder string) string {
	var all []string
	for _, c := range cells {
		text := string(c.Fault)
		if anchor := report.Anchor(c); anchor != "" {
			text = fmt.Sprintf("[%s](../results/%s/report.md#%s)", text, folder, anchor)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func modes(ids []string) string {
	var all []string
	for _, id := range ids {
		all = append(all, fmt.Sprintf("[%s](failure-modes.md#%s)", id, strings.ToLower(id)))
	}
	return strings.Join(all, " ")
}

func token(s lock.Strategy) string {
	switch {
	case s.Guard == "fenced":
		return "checked"
	case s.Fences:
		return "has one, not passed on"
	default:
		return "-"
	}
}

func (p *page) commands(name string) string {
	sent := func(of string) string {
		if row := p.row(name, of); row != nil {
			return per(row.SentPerOp)
		}
		return "?"
	}
	return sent("uncontended") + ", " + sent("waves")
}

func (p *page) fair(name string) string {
	if row := p.row(name, "closed_loop"); row != nil {
		return per(row.Jain)
	}
	return "?"
}

// version is what was run: the release of a library, or the commit of this repository.
func (p *page) version(s lock.Strategy) string {
	if s.Module == "" {
		return p.Matrix.Environment.Commit
	}
	v, ok := p.Versions[s.Module]
	if !ok {
		p.fail("go.mod has no version of %s", s.Module)
	}
	return v
}

// difference is a cell that comes to another number of points at which an order is grabbed
// twice if the service does not look whether its lock is lost.
type difference struct {
	cell              experiment.Cell // with -on-lost ignore
	looking, ignoring int
}

// ignored are those cells of a strategy.
func (p *page) ignored(name string) (all []difference) {
	looking := cellsOf(p.Matrix, name)
	for _, c := range cellsOf(p.Ignoring, name) {
		i := slices.IndexFunc(looking, func(l experiment.Cell) bool { return l.Fault == c.Fault })
		if i < 0 {
			p.fail("%s has %s under %s, and %s has not", ignoringFolder, name, c.Fault, matrixFolder)
			continue
		}
		if d := (difference{c, unsafePoints(looking[i]), unsafePoints(c)}); d.looking != d.ignoring || looking[i].Said() != c.Said() {
			all = append(all, d)
		}
	}
	return all
}

func unsafePoints(c experiment.Cell) (n int) {
	for _, at := range c.Points {
		if at.Verdict == catalog.Unsafe {
			n++
		}
	}
	return n
}

// ignorers are the strategies that have such cells.
func (p *page) ignorers() (names []string) {
	for _, name := range Choices {
		if len(p.ignored(name)) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// Short is the table of the README: what breaks the choices in the ledger, and what they cost.
func Short(matrix *experiment.Run, bench *lockbench.Result) string {
	p := &page{Sources: Sources{Matrix: matrix, Libraries: new(experiment.Run), Bench: bench}}
	var b strings.Builder
	b.WriteString("| strategy | order grabbed twice under | order can no longer be grabbed under | acquire + release, as round trips |\n|---|---|---|--:|\n")
	plain := func(cells []experiment.Cell) string { return strings.ReplaceAll(faults(cells), "`", "") }
	for _, name := range Choices {
		cost := "-"
		if row := p.row(name, "uncontended"); row != nil && row.Ratio != nil {
			cost = figure(2 * *row.Ratio)
		}
		cells := p.cells(name)
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, plain(under(cells, grabbedTwice)), plain(under(cells, stuck)), cost)
	}
	return b.String()
}
