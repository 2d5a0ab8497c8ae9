package whichlock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/stat"
)

// sale is what an item of many units comes to: how fast each strategy sells it, and what
// those give up that decide in Redis.
func (p *page) sale() {
	c := p.Sale.Config
	fmt.Fprintf(&p.b, "\n## An item of many units\n\nOne item of %d units and %d drivers at once, work 5 ms, %d times (`loadgen run -scenario sale`). The time until the last\n"+
		"unit was answered for, the p99 of all answers, and the share of the units that went to the first %d to come, as medians\n"+
		"with their intervals; commands to Redis and statements to the database for each request. Each sold exactly %d units every\n"+
		"time. Both times count from when a request was to be sent; * the load generator could not keep up, and part of the time is its own.\n\n", c.Stock, c.Drivers, c.Repeat, c.Stock, c.Stock)
	p.b.WriteString("| strategy | sold out after, ms | p99, ms | first to come | commands | statements |\n|---|--:|--:|--:|--:|--:|\n")
	for _, cell := range p.Sale.Cells {
		if cell.Sale == nil || cell.Verdict != catalog.Safe || cell.Grabs == nil || *cell.Grabs != c.Stock*max(1, len(cell.Repetitions)) {
			p.fail("%s did not sell exactly what there was: %s", cell.Strategy, cell.Reason)
			continue
		}
		mark := ""
		if cell.LoadHeld != nil && !*cell.LoadHeld {
			mark = "*"
		}
		fmt.Fprintf(&p.b, "| `%s`%s | %s | %s | %s | %s | %s |\n", cell.Strategy, mark, soldOut(cell), medianOf(p99s(cell), "%.0f", 1),
			medianOf(experiment.OverSales(cell.Repetitions, func(s *experiment.Sale) *float64 { return s.InOrder }), "%.0f %%", 100), per(cell.RedisCommandsPerRequest), per(cell.DBStatementsPerRequest))
	}
	p.givesUp()
}

// givesUp says how much faster the decision in Redis is, and what it gives up for that.
func (p *page) givesUp() {
	quick, cas := p.sold("redis-stock"), p.sold("mysql-cas")
	lock, least := "", 0.0
	for _, c := range p.Sale.Cells {
		if s := p.strategy(c.Strategy); s.Excludes != catalog.NoExclusion {
			if ms := p.sold(c.Strategy); lock == "" || ms < least {
				lock, least = c.Strategy, ms
			}
		}
	}
	if quick == 0 || cas == 0 || least == 0 {
		return
	}
	fmt.Fprintf(&p.b, "\nTo sell out, `redis-stock` took %s the time of `mysql-cas`, and %s that of the quickest lock, `%s`; until 99 of 100 were\n"+
		"answered, %s and %s (medians; where intervals overlap, no difference is shown). What it gives up, by the same sweep\n"+
		"of faults as above over orders of one unit:\n\n", times(quick/cas), times(quick/least), lock, times(p.p99("redis-stock")/p.p99("mysql-cas")), times(p.p99("redis-stock")/p.p99(lock)))
	for _, name := range []string{"redis-stock", "redis-stock-returned"} {
		cells := cellsOf(p.Stock, name)
		unsafe, stuck := verdictUnder(cells, catalog.Unsafe), verdictUnder(cells, catalog.Stuck)
		if len(unsafe) == 0 || len(stuck) == 0 {
			p.fail("nothing breaks %s any more", name)
		}
		fmt.Fprintf(&p.b, "- `%s` sold more than there was under %s ([F43](failure-modes.md#f43)), and left a unit that nobody could have under %s ([F42](failure-modes.md#f42)).\n",
			name, codes(unsafe), codes(stuck))
	}
	var both []string
	for _, f := range verdictUnder(cellsOf(p.Stock, "redis-stock"), catalog.Unsafe, catalog.Stuck) {
		if slices.ContainsFunc(p.cells("mysql-cas"), func(c experiment.Cell) bool {
			return string(c.Fault) == f && c.Verdict != catalog.Safe && c.Verdict != catalog.NA
		}) {
			both = append(both, f)
		}
	}
	if len(both) > 0 {
		p.fail("mysql-cas breaks under %v as well", both)
	}
	p.b.WriteString("- `redis-stock-returned` can also sell twice by giving back a unit whose write arrives later ([F44](failure-modes.md#f44)); no fault of this sweep does that.\n" +
		"- `mysql-cas` did neither under those of these faults that touch it; the others do not: it asks no Redis, and holds nothing that could be released late.\n" +
		"- To sell no more than there is, put the script in front of the conditional UPDATE (`redis-stock-returned` with `-guard guarded`): the database then refuses\n" +
		"  what Redis has given out twice. A unit that was set aside and never sold stays lost. No run here has measured this.\n")
}

// sold is the median time until a strategy had sold out, in milliseconds.
func (p *page) sold(name string) float64 {
	for _, c := range cellsOf(p.Sale, name) {
		if c.Sale != nil && c.Sale.SoldOutMS != nil {
			return *c.Sale.SoldOutMS
		}
	}
	p.fail("%s was not sold out in every repetition", name)
	return 0
}

// p99 is the median of a strategy's, in milliseconds.
func (p *page) p99(name string) float64 {
	for _, c := range cellsOf(p.Sale, name) {
		if values := p99s(c); len(values) > 0 {
			return stat.Median(values).Median
		}
	}
	p.fail("the p99 of %s was not measured", name)
	return 0
}

func soldOut(c experiment.Cell) string {
	return medianOf(experiment.OverSales(c.Repetitions, func(s *experiment.Sale) *float64 { return s.SoldOutMS }), "%.0f", 1)
}

func p99s(c experiment.Cell) []float64 {
	return experiment.Over(c.Repetitions, func(r experiment.Repetition) *float64 {
		if r.Latency == nil {
			return nil
		}
		return &r.Latency.P99
	})
}

// medianOf is a median with its interval; "?" where there is none.
func medianOf(values []float64, format string, times float64) string {
	if len(values) == 0 {
		return "?"
	}
	x := stat.Median(values)
	show := func(v float64) string { return fmt.Sprintf(format, v*times) }
	return fmt.Sprintf("%s [%s, %s]", show(x.Median), show(x.Low), show(x.High))
}

func times(ratio float64) string { return strconv.FormatFloat(ratio, 'f', 2, 64) + " times" }

// verdictUnder are the faults under which the cells came to one of the verdicts.
func verdictUnder(cells []experiment.Cell, verdicts ...catalog.Verdict) (names []string) {
	for _, c := range under(cells, func(c experiment.Cell) bool { return slices.Contains(verdicts, c.Verdict) }) {
		names = append(names, string(c.Fault))
	}
	return names
}

func codes(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }
