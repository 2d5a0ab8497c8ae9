package report

import (
	"fmt"
	"strconv"
	"strings"

	"grablab/internal/bench"
)

// column is one column of a table of cells.
type column struct {
	group string // neighbours of one group share a heading; "": none
	name  string
	left  bool // aligned to the left
	value func(bench.Cell) string
}

// loadColumns tell what became of a load. The fault's comes in where there was any.
var loadColumns = []column{
	{"", "strategy", true, func(c bench.Cell) string { return c.Strategy }},
	{"", "verdict", true, verdict},
	{"ledger", "grabs", false, func(c bench.Cell) string { return count(c, c.Grabs) }},
	{"ledger", "double", false, func(c bench.Cell) string { return count(c, c.DoubleGrabs) }},
	{"ledger", "orders", false, func(c bench.Cell) string { return count(c, c.OrdersGrabbed) }},
	{"ledger", "stuck", false, func(c bench.Cell) string { return count(c, c.StuckOrders) }},
	{"answers", "grabbed", false, outcome("grabbed")},
	{"answers", "taken", false, outcome("taken")},
	{"answers", "busy", false, outcome("busy")},
	{"answers", "error", false, outcome("error")},
	{"answers", "timeout", false, outcome("timeout")},
	{"ms, schedule", "p50", false, func(c bench.Cell) string { return latency(c, c.Latency, p50) }},
	{"ms, schedule", "p99", false, func(c bench.Cell) string { return latency(c, c.Latency, p99) + heldMark(c) }},
	{"ms, sent", "p50", false, func(c bench.Cell) string { return latency(c, c.LatencySent, p50) }},
	{"ms, sent", "p99", false, func(c bench.Cell) string { return latency(c, c.LatencySent, p99) }},
	{"per second", "done", false, func(c bench.Cell) string { return float(c, c.CompletedRPS, rate) }},
	{"per second", "grabs", false, func(c bench.Cell) string { return float(c, grabsPerSecond(c), rate) }},
	{"redis", "/req", false, func(c bench.Cell) string { return float(c, c.RedisCommandsPerRequest, ratio) }},
}

// peakColumns tell how a search for the highest rate went.
var peakColumns = []column{
	{"", "strategy", true, func(c bench.Cell) string { return c.Strategy }},
	{"", "verdict", true, verdict},
	{"highest rate held", "req/s", false, func(c bench.Cell) string { return peak(c, func(p *bench.Peak) *float64 { return &p.HeldRPS }) }},
	{"highest rate held", "grabs/s", false, func(c bench.Cell) string { return peak(c, func(p *bench.Peak) *float64 { return p.GrabsPerS }) }},
	{"ms, schedule", "p50", false, func(c bench.Cell) string { return latency(c, c.Latency, p50) }},
	{"ms, schedule", "p99", false, func(c bench.Cell) string { return latency(c, c.Latency, p99) + heldMark(c) }},
	{"ledger", "double", false, func(c bench.Cell) string { return count(c, c.DoubleGrabs) }},
	{"redis", "/req", false, func(c bench.Cell) string { return float(c, c.RedisCommandsPerRequest, ratio) }},
	{"", "rates tried, p99 in ms", true, steps},
}

var faultColumn = column{"", "fault", true, func(c bench.Cell) string { return string(c.Fault) }}

// columnsOf these cells of a run.
func columnsOf(run *bench.Run, cells []bench.Cell) []column {
	columns := loadColumns
	if isPeak(run) {
		columns = peakColumns
	}
	for _, c := range cells {
		if c.Fault != noFault {
			return append([]column{columns[0], faultColumn}, columns[1:]...)
		}
	}
	return columns
}

const (
	noFault       = "none"
	notApplicable = "n/a"
	unknown       = "unknown"
)

func isPeak(run *bench.Run) bool {
	for _, c := range run.Cells {
		if c.Peak != nil {
			return true
		}
	}
	return false
}

const (
	asExpected  = "✓"
	notExpected = "✗"
	notHeld     = "*"
	notClaimed  = "°"
)

func verdict(c bench.Cell) string {
	switch {
	case c.Expected == nil:
		return string(c.Verdict)
	case *c.Expected == c.Verdict:
		return string(c.Verdict) + " " + asExpected
	default:
		return string(c.Verdict) + " " + notExpected
	}
}

func heldMark(c bench.Cell) string {
	if c.LoadHeld != nil && !*c.LoadHeld {
		return notHeld
	}
	return ""
}

// missing is what stands in place of a figure that could not be counted.
func missing(c bench.Cell) string {
	if c.Verdict == notApplicable {
		return "-"
	}
	return "?"
}

func count(c bench.Cell, n *int) string {
	if n == nil {
		return missing(c)
	}
	return strconv.Itoa(*n)
}

func outcome(name string) func(bench.Cell) string {
	return func(c bench.Cell) string {
		if c.Requests == 0 {
			return missing(c)
		}
		for o, n := range c.Outcomes {
			if string(o) == name {
				return strconv.Itoa(n)
			}
		}
		return "0"
	}
}

func p50(l *bench.Latency) float64 { return l.P50 }
func p99(l *bench.Latency) float64 { return l.P99 }

func latency(c bench.Cell, l *bench.Latency, at func(*bench.Latency) float64) string {
	if l == nil {
		return missing(c)
	}
	return millis(at(l))
}

func peak(c bench.Cell, of func(*bench.Peak) *float64) string {
	switch {
	case c.Peak == nil:
		return missing(c)
	case c.Peak.HeldRPS == 0:
		return "none"
	}
	return float(c, of(c.Peak), rate)
}

func float(c bench.Cell, x *float64, format func(float64) string) string {
	if x == nil {
		return missing(c)
	}
	return format(*x)
}

func grabsPerSecond(c bench.Cell) *float64 {
	if c.Grabs == nil || c.DurationS == nil {
		return nil
	}
	perSecond := float64(*c.Grabs) / *c.DurationS
	return &perSecond
}

func steps(c bench.Cell) string {
	if c.Peak == nil {
		return missing(c)
	}
	tried := make([]string, len(c.Peak.Steps))
	for i, s := range c.Peak.Steps {
		mark := asExpected
		if !s.Held {
			mark = notExpected
		}
		p99 := missing(c)
		if s.P99MS != nil {
			p99 = millis(*s.P99MS)
		}
		tried[i] = fmt.Sprintf("%s:%s%s", rate(s.RPS), p99, mark)
	}
	return strings.Join(tried, " ")
}

// millis has three digits, or as many as there are.
func millis(ms float64) string {
	switch {
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 2, 64)
	case ms < 100:
		return strconv.FormatFloat(ms, 'f', 1, 64)
	default:
		return strconv.FormatFloat(ms, 'f', 0, 64)
	}
}

func rate(perSecond float64) string {
	if perSecond < 100 {
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return strconv.FormatFloat(perSecond, 'f', 0, 64)
}

func ratio(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }
