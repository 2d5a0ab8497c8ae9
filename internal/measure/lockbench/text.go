package lockbench

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"grablab/internal/catalog"
	"grablab/internal/measure/stat"
)

// legend explains the columns of the tables.
//
//go:embed legend.txt
var legend string

// Text writes a table for each case, and then the limits with an explanation.
func Text(w io.Writer, r *Result) error {
	fmt.Fprintf(w, "%s; %s; %d CPUs; %d of %d rounds of %g ms, seed %d\n",
		r.Environment.Redis, r.Environment.Database, r.Environment.CPUs, r.Rounds, r.Config.Rounds, r.Config.SliceMS, r.Config.Seed)
	fmt.Fprintln(w, catalog.Footnote)
	acquisitions, overlaps := 0, 0
	for _, c := range r.cases {
		rows := catalog.Filter(r.Rows, func(row Row) bool { return row.Case == c.Name })
		if err := printCase(w, c, rows); err != nil {
			return err
		}
		for _, row := range rows {
			if row.Violations != nil {
				acquisitions += row.Acquisitions
				overlaps += *row.Violations
			}
		}
	}
	if err := r.printBounds(w); err != nil {
		return err
	}
	if r.Rounds < stat.Enough {
		fmt.Fprintf(w, "\nWith fewer than %d rounds, the table shows the range of all rounds instead of 95 %% intervals.\n", stat.Enough)
	}
	fmt.Fprintf(w, "\noverlaps: %d in %d acquisitions\n", overlaps, acquisitions)
	for _, l := range r.LeftOut {
		fmt.Fprintf(w, "\nleft out: %s: %s\n", l.Strategy, l.Reason)
	}
	_, err := fmt.Fprintf(w, "\n%s", legend)
	return err
}

func printCase(w io.Writer, c Case, rows []Row) error {
	fmt.Fprintf(w, "\n%s: %s\n", c.Name, c.About)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	heads, _ := columns(Row{}, c)
	fmt.Fprintln(tw, strings.Join(heads, "\t")+"\t")
	for _, row := range rows {
		_, texts := columns(row, c)
		fmt.Fprintln(tw, strings.Join(texts, "\t")+"\t")
	}
	return tw.Flush()
}

func (r *Result) printBounds(w io.Writer) error {
	if len(r.Bounds) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nBounds (each figure is the median of the rounds with its 95 % interval; a bound is missed if the whole interval lies beyond it)")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, b := range r.Bounds {
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%.3f [%.3f, %.3f]\t%s\n", b.Verdict, b.Case, b.Strategy, b.What, b.Figure, b.Low, b.High, b.limit())
	}
	return tw.Flush()
}

// columns returns the headings and figures of a row in the table of case c.
func columns(row Row, c Case) (heads, texts []string) {
	add := func(head, text string) { heads, texts = append(heads, head), append(texts, text) }
	add("", fmt.Sprintf("%-18s", row.Strategy))
	add("ops/s", show("%.0f", &row.OpsPerS))
	latency, median, high := "p50 µs", &row.P50US, &row.P99US
	if c.contended() {
		latency = "gap p50 µs"
		if row.Strategy != Floor {
			median, high = row.GapP50US, row.GapP99US
		}
	}
	add(latency, show("%.0f", median))
	add("p99", show("%.0f", high))
	add("x floor", show("%.2f", row.Ratio))
	interval := "-"
	if row.Ratio != nil {
		interval = fmt.Sprintf("%.2f–%.2f", *row.RatioLow, *row.RatioHigh)
	}
	add("95 %", interval)
	add("sent/op", show("%.2f", row.SentPerOp))
	add("in scripts", show("%.2f", row.InsidePerOp))
	if c.contended() {
		add("mean", show("%.0f", row.GapMeanUS))
		add("across", show("%.0f", row.GapCrossUS))
		self := "-"
		if row.SelfRetake != nil {
			self = fmt.Sprintf("%.0f %%", *row.SelfRetake*100)
		}
		add("self", self)
		add("Jain", show("%.3f", row.Jain))
	}
	add("wait p99.9 ms", show("%.1f", row.WaitP999MS))
	add("longest", show("%.1f", row.LongestMS))
	if c.contended() {
		add("turns", show("%d", row.Turns))
	}
	add("gave up", show("%d", row.GaveUp))
	add("overlaps", show("%d", row.Violations))
	return heads, texts
}

// show formats a figure, or returns "-" if it is unknown.
func show[T any](format string, x *T) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf(format, *x)
}

// Benchstat writes the measurements in Go benchmark format, so that the benchstat tool can compare
// them.
func Benchstat(w io.Writer, r *Result) error {
	fmt.Fprintf(w, "goos: %s\ngoarch: %s\npkg: grablab/internal/measure/lockbench\n", r.Environment.OS, r.Environment.Arch)
	for _, s := range r.Slices {
		fmt.Fprintf(w, "BenchmarkLock/strategy=%s/case=%s-%d\t%d\t%.1f ns/op\t%.1f p50-ns\t%.1f p99-ns",
			s.Strategy, s.Case, r.Environment.CPUs, s.Acquisitions, 1e9/s.OpsPerS, s.P50US*1000, s.P99US*1000)
		if s.GapP50US != nil {
			fmt.Fprintf(w, "\t%.1f gap-p50-ns", *s.GapP50US*1000)
		}
		if s.SentPerOp != nil {
			fmt.Fprintf(w, "\t%.3f commands/op", *s.SentPerOp)
		}
		if s.Jain != nil {
			fmt.Fprintf(w, "\t%.4f jain", *s.Jain)
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	return nil
}
