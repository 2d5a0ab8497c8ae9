package lockbench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Text writes a table for each case, the bounds, and what the words mean.
func Text(w io.Writer, r *Result) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s; %s; %d CPUs; %d of %d rounds of %g ms, seed %d\n",
		r.Environment.Redis, r.Environment.Database, r.Environment.CPUs, r.Rounds, r.Config.Rounds, r.Config.SliceMS, r.Config.Seed)
	for _, c := range r.cases {
		fmt.Fprintf(w, "\n%s: %s\n", c.Name, c.About)
		if c.contended() {
			fmt.Fprintln(tw, "\tops/s\tgap p50 µs\tp99\tx floor\t95 %\tsent/op\tin scripts\tself\tJain\twait p99.9 ms\tlongest\tgave up\toverlaps\t")
		} else {
			fmt.Fprintln(tw, "\tops/s\tp50 µs\tp99\tx floor\t95 %\tsent/op\tin scripts\twait p99.9 ms\tlongest\tgave up\toverlaps\t")
		}
		for _, row := range r.Rows {
			if row.Case == c.Name {
				fmt.Fprintln(tw, strings.Join(columns(row, c), "\t")+"\t")
			}
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	if len(r.Bounds) > 0 {
		fmt.Fprintln(w, "\nBounds (median of the rounds [95 % interval]; missed: the whole interval lies beyond)")
		tw = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, b := range r.Bounds {
			fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%.3f [%.3f, %.3f]\t%s\n", b.Verdict, b.Case, b.Strategy, b.What, b.Figure, b.Low, b.High, b.limit())
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	acquisitions, overlaps := r.overlaps()
	fmt.Fprintf(w, "\noverlaps: %d in %d acquisitions\n", overlaps, acquisitions)
	for _, l := range r.LeftOut {
		fmt.Fprintf(w, "\nleft out: %s: %s\n", l.Strategy, l.Reason)
	}
	_, err := fmt.Fprint(w, `
p50 and p99: of an acquire and its release, without the time between them; gap: from one holder's release call to the next one's
acquire return, while somebody waited, whether in the same process or in the other. Figures are medians of the rounds' own; overlaps
and waits are of all rounds together. x floor compares, within each round, with two PINGs on the same client: p50 alone, 1/ops where
there are many keys, the gap where many want one lock. sent/op: commands or statements sent; in scripts: what Redis ran beyond those.
self: acquisitions taken straight back by the one that had just released. gave up: it returned without the lock, and was called again
at once. overlaps: holders that came in while another was inside.
`)
	return err
}

func columns(row Row, c Case) []string {
	cols := []string{fmt.Sprintf("%-18s", row.Strategy), fmt.Sprintf("%.0f", row.OpsPerS)}
	if c.contended() && row.Strategy != Floor {
		cols = append(cols, show("%.0f", row.GapP50US), show("%.0f", row.GapP99US))
	} else {
		cols = append(cols, show("%.0f", &row.P50US), show("%.0f", &row.P99US))
	}
	interval := "-"
	if row.Ratio != nil {
		interval = fmt.Sprintf("%.2f–%.2f", *row.RatioLow, *row.RatioHigh)
	}
	cols = append(cols, show("%.2f", row.Ratio), interval, show("%.2f", row.SentPerOp), show("%.2f", row.InsidePerOp))
	if c.contended() {
		cols = append(cols, percent(row.SelfRetake), show("%.3f", row.Jain))
	}
	return append(cols, show("%.1f", row.WaitP999MS), show("%.1f", row.LongestMS), show("%d", row.GaveUp), show("%d", row.Violations))
}

// show is "-" for what is not known.
func show[T any](format string, x *T) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf(format, *x)
}

func percent(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", *x*100)
}
