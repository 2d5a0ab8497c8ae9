package whichlock

import (
	"cmp"
	"fmt"
	"regexp"

	"grablab/internal/catalog"
	"grablab/internal/measure/lockbench"
)

// The template which-lock.tmpl calls the exported methods of page in this file and in verdicts.go.

// figure formats x with three significant digits.
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

// figureOf formats a figure with three digits, or returns "?" if the figure is unknown.
func figureOf(x *float64) string {
	if x == nil {
		return "?"
	}
	return figure(*x)
}

// Statements returns the number of SQL statements per request without a fault.
func (p *page) Statements(name string) string {
	return figureOf(p.PlainLoad(name).DBStatementsPerRequest)
}

// Row returns a lock's measurements in one benchmark case, or an empty row if that case was not
// measured.
func (p *page) Row(name, benchCase string) lockbench.Row {
	return catalog.First(p.Bench.Rows, func(r lockbench.Row) bool { return r.Strategy == name && r.Case == benchCase })
}

// Trips returns how many Redis round trips a lock costs in one benchmark case, with the confidence
// interval.
func (p *page) Trips(name, benchCase string) string {
	row := p.Row(name, benchCase)
	if row.Ratio == nil || row.RatioLow == nil || row.RatioHigh == nil {
		return "?"
	}
	// The ratio compares the lock with two PINGs, which take two round trips, so twice the ratio is
	// the number of round trips.
	return fmt.Sprintf("%s [%s, %s]", figure(2**row.Ratio), figure(2**row.RatioLow), figure(2**row.RatioHigh))
}

// RoundTrip returns how long a Redis round trip took in the benchmark.
func (p *page) RoundTrip() string {
	row := p.Row(lockbench.Floor, "uncontended")
	if row.Strategy == "" {
		p.fail("the benchmark has no row of its floor")
		return "?"
	}
	return fmt.Sprintf("%.0f µs", row.P50US/2)
}

// MeanGap returns the mean time from a release until the next client gets the lock, in round trips.
func (p *page) MeanGap(name string) string {
	row, floor := p.Row(name, "waves"), p.Row(lockbench.Floor, "waves")
	if row.GapMeanUS == nil || floor.P50US == 0 {
		return "?"
	}
	return figure(*row.GapMeanUS / (floor.P50US / 2))
}

// Fairness returns Jain's fairness index, which is 1 if all clients get the lock equally often. It
// returns 0 if the index was not measured.
func (p *page) Fairness(name string) float64 {
	return *cmp.Or(p.Row(name, "closed_loop").Jain, new(float64))
}

// Waiter says what a client does while it waits for the lock.
func (p *page) Waiter(name string) string { return p.strategy(name).Waiter }

// Token says whether the lock has a fencing token, and whether the database checks it.
func (p *page) Token(name string) string {
	switch s := p.strategy(name); {
	case s.Guard == "fenced":
		return "checked"
	case s.Fences:
		return "exists, but is not passed on"
	default:
		return "-"
	}
}

// Rate returns how many times per second a lock was acquired in one benchmark case, and how many
// commands each acquire took.
func (p *page) Rate(name, benchCase string) string {
	row := p.Row(name, benchCase)
	if row.Strategy == "" {
		p.fail("%s was not measured in %s", name, benchCase)
		return "?"
	}
	return fmt.Sprintf("%.0f times a second (%s commands each)", row.OpsPerS, figureOf(row.SentPerOp))
}

// IsFaster reports whether the first lock was acquired more often per second than the second one.
func (p *page) IsFaster(name, than, benchCase string) bool {
	a, b := p.Row(name, benchCase), p.Row(than, benchCase)
	return b.Strategy != "" && a.OpsPerS > b.OpsPerS
}

// BenchFolder returns the folder in results/ that contains the benchmark.
func (p *page) BenchFolder() string { return benchFolder }

// ClaimsFile returns the file in results/ that contains the output of .ci/claims.
func (p *page) ClaimsFile() string { return claimsFile }

// Measured returns the part of results/claims.txt that matches the first group in a regular
// expression.
func (p *page) Measured(pattern string) string {
	found := regexp.MustCompile(pattern).FindStringSubmatch(p.Claims)
	if found == nil {
		p.fail("results/%s has no match for %s", claimsFile, pattern)
		return "?"
	}
	return found[1]
}
