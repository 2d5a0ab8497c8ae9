package lockbench

import (
	"fmt"
	"io"
)

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
