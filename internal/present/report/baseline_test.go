package report_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
	"grablab/internal/testbed/target"
)

// TestBaselineIsReadAgain writes the baseline of two runs and reads it back in the same way as the run
// command. It checks that all verdicts are still the same.
func TestBaselineIsReadAgain(t *testing.T) {
	unsafe := measuredCell(catalog.Pause, catalog.Unsafe, nil)
	unsafe.Reason = "1 of 6 orders was grabbed more than once: before\nclaim 1 # {x}"
	odd := measuredCell(catalog.NoFault, catalog.Stuck, nil)
	odd.Strategy = `true: "#1"`
	left := measuredCell(catalog.Crash, catalog.Unknown, nil)
	left.Interrupted = true
	first := run("rush", measuredCell(catalog.NoFault, catalog.Safe, nil), unsafe, left, odd)
	second := run("rush", measuredCell(catalog.NoFault, catalog.Safe, nil), measuredCell(catalog.Pause, catalog.Safe, nil), measuredCell(catalog.Cancel, catalog.NA, nil))
	var text bytes.Buffer
	if err := report.WriteBaseline(&text, []*experiment.Run{second, first}); err != nil {
		t.Fatal(err)
	}
	if want := `# The worst verdicts of 2 runs, for loadgen run -baseline.
"rlock":
  none: safe
  pause: unsafe  # depends on chance (safe, unsafe): 1 of 6 orders was grabbed more than once: before claim 1 # {x}
"true: \"#1\"":
  none: stuck
`; text.String() != want {
		t.Errorf("wrote\n%s\nwant\n%s", &text, want)
	}
	path := filepath.Join(t.TempDir(), "baseline.yaml")
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	verdicts, err := target.ReadExpectations(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := report.NewBaseline(verdicts), report.BaselineOf(first); !reflect.DeepEqual(got, want) || len(got) != 3 {
		t.Errorf("read %v, want %v", got, want)
	}
}

// TestBaselineKeepsTheWorst gives one cell three verdicts, in every order. The baseline must contain the worst one, with its
// reason.
func TestBaselineKeepsTheWorst(t *testing.T) {
	ranks := []catalog.Verdict{catalog.Safe, catalog.Unknown, catalog.Stuck, catalog.Unsafe}
	for n := range len(ranks) * len(ranks) * len(ranks) {
		var runs []*experiment.Run
		worst := 0
		for _, rank := range []int{n % len(ranks), n / len(ranks) % len(ranks), n / len(ranks) / len(ranks)} {
			c := measuredCell(catalog.Pause, ranks[rank], nil)
			c.Reason = fmt.Sprintf("because it is %s", ranks[rank])
			runs, worst = append(runs, run("rush", c)), max(worst, rank)
		}
		var text bytes.Buffer
		if err := report.WriteBaseline(&text, runs); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("  pause: %s  # ", ranks[worst])
		if reason := fmt.Sprintf("because it is %s\n", ranks[worst]); !strings.Contains(text.String(), line) || !strings.HasSuffix(text.String(), reason) {
			t.Errorf("the verdicts %d: wrote %s, want %s… %s", n, &text, line, reason)
		}
	}
}

func TestBaselineFailsOnlyOnWorse(t *testing.T) {
	at := experiment.CellName{Strategy: "rlock", Fault: catalog.Pause}
	for _, tt := range []struct {
		before, now catalog.Verdict // before is empty if the baseline lacks the cell
		want        report.Result
	}{
		{catalog.Safe, catalog.Safe, report.Passed},
		{catalog.Safe, catalog.Unknown, report.Unknown},
		{catalog.Safe, catalog.Stuck, report.Failed},
		{catalog.Safe, catalog.NA, report.NotRun},
		{catalog.Unknown, catalog.Unknown, report.Passed},
		{catalog.Unknown, catalog.Unsafe, report.Failed},
		{catalog.Stuck, catalog.Unsafe, report.Failed},
		{catalog.Stuck, catalog.Unknown, report.Passed},
		{catalog.Unsafe, catalog.Unsafe, report.Passed},
		{catalog.Unsafe, catalog.Safe, report.Passed},
		{"", catalog.Safe, report.Passed},
		{"", catalog.Unsafe, report.Failed},
		{"", catalog.Unknown, report.Unknown},
	} {
		b := report.Baseline{{Strategy: "other", Fault: catalog.NoFault}: catalog.Safe}
		if tt.before != "" {
			b[at] = tt.before
		}
		cases := report.Cases(run("rush", measuredCell(catalog.Pause, tt.now, nil)), b, nil)
		if cases[0].Result != tt.want {
			t.Errorf("%q in the baseline, now %s: %s, want %s", tt.before, tt.now, cases[0].Result, tt.want)
		}
		missing := []string{"other/none"}
		if tt.want == report.NotRun {
			missing = append(missing, at.String())
		}
		if got := b.NotRun(cases); !reflect.DeepEqual(got, missing) {
			t.Errorf("%q in the baseline, now %s: the cells that were not run are %q, want %q", tt.before, tt.now, got, missing)
		}
	}
}
