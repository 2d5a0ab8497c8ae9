package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/diagram"
	"grablab/internal/testbed/load"
)

// heatMap is the table of verdicts on an HTML page, with strategies as rows and faults as columns.
// Every cell links to its test's details.
type heatMap struct {
	Faults []catalog.Fault
	Rows   []heatRow
	Legend []mark
}

type mark struct{ Sign, Class, Text string }

// marks explains the symbols in the table, in legend order.
var marks = []mark{
	{"✓", "safe", "each order went to one driver"},
	{"✗", "unsafe", "an order was grabbed twice; the number counts the points of a grab, or without a fault the extra grabs"},
	{"∞", "stuck", "an order that no driver can grab any more; the number counts the points, or the orders"},
	{"?", "unknown", "the run could not show whether the order is safe"},
	{"–", "na", "not run, because the fault touches nothing that the strategy uses"},
	{twoInside, "safe let-in", "the lock let two holders in; the number counts the points at which it did"},
	{refusedOne, "", "the database refused the write of a late holder"},
	{unexpected, "surprise", "not as expected for the strategy"},
	{"·", "", "not run yet"},
}

type heatRow struct {
	Strategy string
	Broken   bool        // whether the strategy is known to be broken
	Cells    []*heatCell // one cell for each fault; nil if the cell has not run
}

// heatCell is a cell in the heat map. It shows the verdict on the orders, with the verdict on the
// lock below it.
type heatCell struct {
	ID          string
	N           int // the cell's index in the page's data
	Fault       catalog.Fault
	Class       string
	Order, Lock string
	Label       string // text for screen readers
}

// signs contains a symbol for each verdict, so that readers need not rely on colours.
var signs = map[catalog.Verdict]string{
	catalog.Safe: "✓", catalog.Unsafe: "✗", catalog.Stuck: "∞", catalog.Unknown: "?", catalog.NA: "–",
}

const (
	twoInside  = "⇄"
	refusedOne = "⊘"
	unexpected = "≠"
)

// newHeatMap returns a run's heat map. The known-broken strategies have the last rows.
func newHeatMap(run *experiment.Run) heatMap {
	struck := catalog.Map(run.Cells, func(c experiment.Cell) catalog.Fault { return c.Fault }) // this version of the program may not know all of these faults
	m := heatMap{Faults: catalog.Distinct(append(faultsOf(run.Cells), struck...)), Legend: marks}
	tested := catalog.Distinct(catalog.Map(run.Cells, func(c experiment.Cell) string { return c.Strategy }))
	strategies := slices.Concat(catalog.Filter(tested, isNotBroken), catalog.Filter(tested, isKnownBroken))
	for _, name := range strategies {
		m.Rows = append(m.Rows, heatRow{Strategy: name, Broken: isKnownBroken(name), Cells: make([]*heatCell, len(m.Faults))})
	}
	for n, c := range run.Cells {
		m.Rows[slices.Index(strategies, c.Strategy)].Cells[slices.Index(m.Faults, c.Fault)] = newHeatCell(n, c)
	}
	return m
}

// letsTwoIn reports whether the lock let two clients in at once.
func letsTwoIn(c experiment.Cell) bool { return c.Exclusive != nil && *c.Exclusive == experiment.No }

// newHeatCell returns cell n of the heat map, with the marks that its verdict and findings need.
func newHeatCell(n int, c experiment.Cell) *heatCell {
	h := &heatCell{ID: c.Name().String(), N: n, Fault: c.Fault, Order: cmp.Or(signs[c.Verdict], "?"), Class: class(c), Label: name(c) + ": " + say("cell", c)}
	if n, _ := decidingCount(c); n > 0 {
		h.Order += strconv.Itoa(n)
	}
	if letsTwoIn(c) {
		h.Lock = twoInside + overlapCount(c)
	}
	if orZero(c.NearMisses) > 0 && c.Verdict != catalog.NA {
		h.Lock += refusedOne
	}
	if differs(c) {
		h.Lock += unexpected
	}
	return h
}

// cellData contains one test's details for the page's script.
type cellData struct {
	ID       string                   `json:"id"`
	Verdict  catalog.Verdict          `json:"verdict"`
	Sentence string                   `json:"sentence"`
	Reason   string                   `json:"reason,omitempty"`
	Figures  []string                 `json:"figures"` // the values of runData.Figures, in the same order
	Facts    []string                 `json:"facts,omitempty"`
	Checks   []string                 `json:"checks,omitempty"` // the properties that were violated, with the reasons
	Points   [][]any                  `json:"points,omitempty"` // each point: name, injections of the fault, planned injections, verdict, double, stuck, overlaps, near misses, failure mode
	Latency  [2]*load.Latency         `json:"latency"`          // measured from the planned and from the actual send time
	Over     *load.OverTime           `json:"over,omitempty"`
	Strikes  [][2]*float64            `json:"strikes,omitempty"`
	Sold     *experiment.SoldOverTime `json:"sold,omitempty"`
	Mode     string                   `json:"mode,omitempty"`
	Explains string                   `json:"explains,omitempty"` // what the drawing shows, or why there is no drawing
	Drawing  *diagram.Diagram         `json:"drawing,omitempty"`
	Command  string                   `json:"command"`
}

// runData contains all of a run's results for the page's script.
type runData struct {
	Cells   []cellData          `json:"cells"`
	Figures []string            `json:"figures"`
	Modes   map[string][]string `json:"modes"` // for each failure mode: name, steps, cure, strategies with the cure, ways to see the mode, source
}

// figureColumns lists the columns that a result's details may show.
var figureColumns = slices.Concat(
	catalog.Filter(detailColumns, func(c cellColumn) bool { return !c.Left }),
	catalog.Filter(loadColumns, func(c cellColumn) bool {
		return !c.Left && !slices.ContainsFunc(detailColumns, func(d cellColumn) bool { return d.heading == c.heading })
	}),
)

func newRunData(run *experiment.Run) *runData {
	d := &runData{Modes: map[string][]string{}}
	d.Figures = catalog.Map(figureColumns, func(c cellColumn) string { return strings.TrimSpace(c.Group + " " + c.Name) })
	d.Cells = catalog.Map(run.Cells, func(c experiment.Cell) cellData { return d.cell(run, c) })
	return d
}

func (d *runData) mode(id string) {
	if m, ok := catalog.FindMode(id); ok {
		d.Modes[m.ID] = []string{m.Name, m.Steps, m.Cure, m.In, m.ShownBy, m.Source}
	}
}

// cell returns the data from which the page draws one cell.
func (d *runData) cell(run *experiment.Run, c experiment.Cell) cellData {
	data := cellData{
		ID: c.Name().String(), Verdict: c.Verdict, Sentence: catalog.Capital(say("cell", c)) + ".", Reason: c.Reason, Latency: [2]*load.Latency{c.Latency, c.LatencySent},
		Over: c.OverTime, Command: command(run, c), Mode: mode(c),
	}
	if c.Sale != nil {
		data.Sold = c.Sale.OverTime
	}
	data.Figures = catalog.Map(figureColumns, func(col cellColumn) string { return col.value(c) })
	data.Facts = catalog.Map(slices.Concat(findings(c, run.Config), failures(c.Errors)), func(text string) string { return catalog.Capital(text) + "." })
	for _, k := range c.Checks {
		if k.Result == check.Fail {
			data.Checks = append(data.Checks, k.Property+": "+k.Why)
		}
	}
	for _, s := range c.Strikes {
		data.Strikes = append(data.Strikes, [2]*float64{&s.FromMS, s.ToMS})
	}
	for _, p := range c.Points {
		d.mode(p.FailureMode)
		data.Points = append(data.Points, []any{
			p.Point, p.Struck, p.Strikes, p.Verdict, p.DoubleGrabs, p.StuckOrders, p.Overlaps, p.NearMisses, p.FailureMode,
		})
	}
	d.mode(data.Mode)
	data.Explains, data.Drawing = draw(c)
	return data
}

// draw draws the order that went wrong, and says which order it is, or why there is no drawing.
func draw(c experiment.Cell) (explains string, drawing *diagram.Diagram) {
	t := c.Timeline
	switch {
	case t == nil:
		return "There is no drawing, because the instances recorded no order that went wrong.", nil
	case t.Property == "":
		explains = fmt.Sprintf("Order %d, on which the database refused a late write.", t.Order)
	default:
		explains = fmt.Sprintf("Order %d, on which %s was broken.", t.Order, t.Property)
	}
	known, err := lock.Find(c.Strategy)
	if err != nil {
		known.Excludes = catalog.NoExclusion
	}
	return explains, new(diagram.OfRun(diagram.Run{
		Title: fmt.Sprintf("%s: order %d", name(c), t.Order), Timeline: *t,
		Fault: c.Fault, Excludes: known.Excludes, Outlives: known.OutlivesHolder(),
	}))
}

// plain matches words that a shell command can contain without quotes.
var plain = regexp.MustCompile(`^[A-Za-z0-9@%+=:,./_-]+$`)

// Quote puts a word of a shell command in quotes, unless it needs none.
func Quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// command returns the command line that repeats one test. It leaves out flags that only other tests
// of the run need.
func command(run *experiment.Run, c experiment.Cell) string {
	omitted := []string{"-strategies=", "-faults=", "-only=", "-repeat="}
	if c.Fault == catalog.NoFault && !isPeak(run) {
		omitted = []string{"-strategies=", "-faults=", "-only=", "-budget=", "-at=", "-target-pid="}
	}
	words := append([]string{"loadgen", "run"}, slices.DeleteFunc(slices.Clone(run.Config.Args), func(arg string) bool {
		return slices.ContainsFunc(omitted, func(flag string) bool { return strings.HasPrefix(arg, flag) })
	})...)
	if c.Strategy != experiment.Foreign {
		words = append(words, "-strategies="+c.Strategy)
	}
	words = append(words, "-faults="+string(c.Fault))
	return catalog.Join(words, " ", Quote)
}

func runPage(run *experiment.Run) pageOf {
	d := document{Title: run.ID, Answer: answer(run), Head: head(run)}
	plainCells, _ := splitByFault(run)
	d.add(section{Title: "Under no fault", Table: tableOf(columnsOf(run, plainCells), plainCells)})
	d.explain()
	d.add(section{Lines: remarks(run)}, section{Lines: notes(run, plainCells)})
	return pageOf{document: d, Map: newHeatMap(run), data: newRunData(run), script: cellsScript}
}

// Drawings returns all diagrams in the reports on a run and on searches for failing schedules.
func Drawings(run *experiment.Run, explored []explore.Result) (all []diagram.Diagram) {
	add := func(d *diagram.Diagram) {
		if d != nil {
			all = append(all, *d)
		}
	}
	if run != nil {
		for _, c := range newRunData(run).Cells {
			add(c.Drawing)
		}
	}
	e := Exploration{Results: explored, Replay: func(explore.Failure) string { return "" }}
	for _, s := range e.document(true).Sections {
		add(s.Drawing)
	}
	return all
}
