package lockbench

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"slices"
	"text/template"
)

// Plot draws the rows as one SVG that needs nothing else: for each case a dot
// for every contestant, at its ratio to the floor, with its interval.
func Plot(w io.Writer, r *Result) error {
	p := plot{Width: plotWidth, Title: fmt.Sprintf("%s, %d CPUs, %d rounds of %g ms", r.Environment.Redis, r.Environment.CPUs, r.Rounds, r.Config.SliceMS)}
	y := 70.0
	for _, c := range r.cases {
		panel := newPanel(r, c, y)
		p.Panels = append(p.Panels, panel)
		y = panel.Bottom + 60
	}
	p.Height = y
	return plotTemplate.Execute(w, p)
}

//go:embed plot.svg.tmpl
var plotText string

var plotTemplate = template.Must(template.New("plot").Funcs(template.FuncMap{"add": func(a, b float64) float64 { return a + b }}).Parse(plotText))

// Where things stand, in pixels.
const (
	plotWidth = 900.0
	plotLeft  = 170.0
	plotRight = 690.0
	plotLine  = 20.0
)

type plot struct {
	Width, Height float64
	Title         string
	Panels        []panel
}

// panel is one case.
type panel struct {
	Name, About, Axis string
	Top, Bottom       float64
	Left, Right       float64
	Ticks             []tick
	Dots              []dot
}

type tick struct {
	X    float64
	Text string
}

// dot is one contestant: its ratio, from low to high.
type dot struct {
	Name       string
	Peer       bool
	Wrong      bool // it let two holders in
	X, Low, Hi float64
	Y          float64
	Text       string
}

// newPanel has the cheapest at the top, on an axis that multiplies.
func newPanel(r *Result, c Case, top float64) panel {
	p := panel{Name: c.Name, About: c.About, Axis: "time, of two PINGs", Top: top, Left: plotLeft, Right: plotRight}
	if c.contended() {
		p.Axis = "hand-off gap, of two PINGs"
	}
	rows := slices.DeleteFunc(slices.Clone(r.Rows), func(row Row) bool { return row.Case != c.Name || row.Ratio == nil })
	slices.SortStableFunc(rows, func(a, b Row) int { return int(math.Copysign(1, *a.Ratio-*b.Ratio)) })
	low, high := 1.0, 2.0
	for _, row := range rows {
		low, high = min(low, *row.RatioLow), max(high, *row.RatioHigh)
	}
	low = max(low, 1e-3)
	at := func(ratio float64) float64 {
		return plotLeft + (plotRight-plotLeft)*math.Log(max(ratio, low)/low)/math.Log(high/low)
	}
	for i, row := range rows {
		p.Dots = append(p.Dots, dot{
			Name: row.Strategy, Peer: row.Peer, Wrong: row.Violations != nil && *row.Violations > 0,
			X: at(*row.Ratio), Low: at(*row.RatioLow), Hi: at(*row.RatioHigh), Y: top + 30 + plotLine*float64(i),
			Text: caption(row, c),
		})
	}
	p.Bottom = top + 30 + plotLine*float64(len(rows))
	p.Ticks = ticks(low, high, at)
	return p
}

// ticks stand at 1, 2, 5, 10, … where these are not too far apart; at every
// power of ten alone where the axis is long.
func ticks(low, high float64, at func(float64) float64) (ts []tick) {
	steps := []float64{1, 1.2, 1.5, 2, 3, 5, 7}
	switch {
	case high/low > 1000:
		steps = []float64{1}
	case high/low > 20:
		steps = []float64{1, 2, 5}
	}
	for ten := math.Pow(10, math.Floor(math.Log10(low))); ten <= high; ten *= 10 {
		for _, s := range steps {
			if x := ten * s; x >= low && x <= high {
				ts = append(ts, tick{at(x), fmt.Sprintf("%.4g", x)})
			}
		}
	}
	return ts
}

func caption(row Row, c Case) string {
	text := fmt.Sprintf("%.2f", *row.Ratio)
	if c.contended() && row.GapP50US != nil {
		text += fmt.Sprintf(" · %.0f µs", *row.GapP50US)
	}
	text += fmt.Sprintf(" · %.0f/s", row.OpsPerS)
	if row.Jain != nil && c.contended() {
		text += fmt.Sprintf(" · Jain %.2f", *row.Jain)
	}
	return text
}
