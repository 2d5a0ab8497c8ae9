package report_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

// measuredCell returns a cell that was run, with a strategy of the user's service.
func measuredCell(f catalog.Fault, is catalog.Verdict, expected *catalog.Verdict) experiment.Cell {
	c := cell("rlock", is, 100, 100, 0, 12)
	c.Fault, c.Expected, c.Environment = f, expected, new(experiment.Environment)
	return c
}

func TestCases(t *testing.T) {
	interrupted := measuredCell(catalog.Crash, catalog.Unknown, nil)
	interrupted.Interrupted = true
	refused := measuredCell(catalog.Crash, catalog.Unknown, nil)
	refused.Environment = nil
	twoInside := measuredCell(catalog.Pause, catalog.Safe, ptr(catalog.Safe))
	twoInside.Exclusive, twoInside.ExpectedExclusive = ptr(experiment.No), ptr(experiment.Yes)
	for _, tt := range []struct {
		about string
		cell  experiment.Cell
		want  report.Result
	}{
		{"safe", measuredCell(catalog.NoFault, catalog.Safe, nil), report.Passed},
		{"unsafe as expected", measuredCell(catalog.Pause, catalog.Unsafe, ptr(catalog.Unsafe)), report.Passed},
		{"unknown as expected", measuredCell(catalog.Pause, catalog.Unknown, ptr(catalog.Unknown)), report.Passed},
		{"unsafe", measuredCell(catalog.Pause, catalog.Unsafe, nil), report.Failed},
		{"stuck", measuredCell(catalog.Hang, catalog.Stuck, nil), report.Failed},
		{"safe, but expected unsafe", measuredCell(catalog.Pause, catalog.Safe, ptr(catalog.Unsafe)), report.Failed},
		{"safe with a lock that let two in", twoInside, report.Failed},
		{"unknown", measuredCell(catalog.Pause, catalog.Unknown, nil), report.Unknown},
		{"unknown, but expected safe", measuredCell(catalog.Pause, catalog.Unknown, ptr(catalog.Safe)), report.Unknown},
		{"interrupted", interrupted, report.NotRun},
		{"refused", refused, report.NotRun},
		{"n/a", measuredCell(catalog.Cancel, catalog.NA, nil), report.NotRun},
	} {
		got := report.Cases(run("rush", tt.cell), nil, nil)
		if len(got) != 1 || got[0].Result != tt.want {
			t.Errorf("%s: Cases: %+v, want %s", tt.about, got, tt.want)
		}
	}
}

// TestClaimCases checks that each claim is a case of its own, after the cells, and that it passes only if it holds.
func TestClaimCases(t *testing.T) {
	want := map[string]report.Result{"rlock/none:double_grabs==0": report.Passed, "rlock/none:double_grabs>0": report.Failed, "rlock:double_grabs<1": report.Passed}
	var claims []experiment.Assert
	for text := range want {
		claim, err := experiment.ParseAssert(text)
		if err != nil {
			t.Fatal(err)
		}
		claims = append(claims, claim)
	}
	cases := report.Cases(run("rush", measuredCell(catalog.NoFault, catalog.Safe, nil)), nil, claims)
	if len(cases) != 1+len(claims) {
		t.Fatalf("%d cases, want %d", len(cases), 1+len(claims))
	}
	for i, c := range cases[1:] {
		text := claims[i].String()
		if c.Name != "assert "+text || c.Result != want[text] || (c.Why != "") != (c.Result == report.Failed) {
			t.Errorf("case of the assertion %s: %+v, want %s", text, c, want[text])
		}
	}
}

// ciRun returns a run that has a case with each result, and the cases.
func ciRun(t *testing.T) (*experiment.Run, []report.Case) {
	t.Helper()
	r := badDay()
	for i := range r.Cells {
		r.Cells[i].Environment = &r.Environment
	}
	failed := slices.IndexFunc(r.Cells, func(c experiment.Cell) bool { return c.Timeline != nil })
	r.Cells[failed].Expected = ptr(catalog.Safe)
	unknown := measuredCell(catalog.Pause, catalog.Unknown, nil)
	unknown.Reason = "2 answers may hide a grab: reset 2\n<&\x1b"
	left := measuredCell(catalog.Crash, catalog.Unknown, nil)
	left.Interrupted, left.Reason = true, "not run"
	r.Cells = append(r.Cells[failed:failed+1], unknown, left, measuredCell(catalog.NoFault, catalog.Safe, nil))
	claim, err := experiment.ParseAssert("rlock/pause:double_grabs>3")
	if err != nil {
		t.Fatal(err)
	}
	return r, report.Cases(r, nil, []experiment.Assert{claim})
}

func TestJUnit(t *testing.T) {
	r, cases := ciRun(t)
	var got bytes.Buffer
	if err := report.JUnit(&got, r, cases); err != nil {
		t.Fatal(err)
	}
	golden(t, "junit.xml", got.String())
}

func TestGitHub(t *testing.T) {
	r, cases := ciRun(t)
	var summary, annotations bytes.Buffer
	if err := report.StepSummary(&summary, r, cases); err != nil {
		t.Fatal(err)
	}
	golden(t, "summary.md", summary.String())
	if err := report.Annotations(&annotations, cases); err != nil {
		t.Fatal(err)
	}
	golden(t, "annotations.txt", annotations.String())
	for line := range strings.Lines(annotations.String()) {
		if !strings.HasPrefix(line, "::error title=") && !strings.HasPrefix(line, "::warning title=rlock/pause::") {
			t.Errorf("not a workflow command: %q", line)
		}
	}
}

// TestAnnotationsAreEscaped checks that GitHub reads an annotation as one line with its original name and text, whatever
// characters they contain.
func TestAnnotationsAreEscaped(t *testing.T) {
	const name, why = "50 % a:b,c\r\n%25::x", "100 %, a:b,\r\n%0A::error::\r%\nend\n"
	unescaped := func(text string, codes ...string) string {
		return strings.NewReplacer(codes...).Replace(text)
	}
	cases := []report.Case{{Name: name, Result: report.Failed, Why: why}, {Name: why, Result: report.Unknown, Why: name}}
	var b bytes.Buffer
	if err := report.Annotations(&b, cases); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(b.String(), "\n")
	if len(lines) != len(cases)+1 || lines[len(cases)] != "" {
		t.Fatalf("%d annotations have the lines %q", len(cases), lines)
	}
	for i, level := range []string{"error", "warning"} {
		title, text, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(lines[i], "\n"), "::"+level+" title="), "::")
		if got := unescaped(title, "%25", "%", "%0D", "\r", "%0A", "\n", "%3A", ":", "%2C", ","); got != cases[i].Name || strings.ContainsAny(title, ":,\r\n") {
			t.Errorf("GitHub reads the name %q from %q, want %q", got, title, cases[i].Name)
		}
		if got := unescaped(text, "%25", "%", "%0D", "\r", "%0A", "\n"); got != cases[i].Why || strings.ContainsAny(text, "\r\n") {
			t.Errorf("GitHub reads the text %q from %q, want %q", got, text, cases[i].Why)
		}
	}
}

// TestOnlyFailuresAreShown checks that only cases that failed or have no verdict appear in the summary by
// name and with their timelines, and get an annotation. No verdict is expected, as for a user's service.
func TestOnlyFailuresAreShown(t *testing.T) {
	r, cases := ciRun(t)
	cell := r.Cells[slices.IndexFunc(r.Cells, func(c experiment.Cell) bool { return c.Timeline != nil })]
	cell.Expected, cell.ExpectedExclusive = nil, nil
	r.Cells = []experiment.Cell{cell}
	for _, c := range cases {
		c = report.Case{Name: "the case", Why: "the reason", Result: c.Result, Cell: &cell}
		wants := c.Result == report.Failed || c.Result == report.Unknown
		var summary, annotations strings.Builder
		if err := errors.Join(report.StepSummary(&summary, r, []report.Case{c}), report.Annotations(&annotations, []report.Case{c})); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"- the case: the reason\n", ": the timeline of order "} {
			if strings.Contains(summary.String(), text) != wants {
				t.Errorf("%s: want %q in the summary: %v; it is %q", c.Result, text, wants, summary.String())
			}
		}
		if (annotations.Len() > 0) != wants {
			t.Errorf("%s: the annotation is %q", c.Result, annotations.String())
		}
	}
}

// TestLargeSummary checks that a summary with too many timelines omits some, because GitHub drops a
// summary of more than 1 MiB.
func TestLargeSummary(t *testing.T) {
	r, cases := ciRun(t)
	failed := cases[slices.IndexFunc(cases, func(c report.Case) bool { return c.Cell != nil && c.Cell.Timeline != nil })]
	long := *failed.Cell
	story := *long.Timeline
	story.Steps = slices.Repeat(story.Steps, 500)
	long.Timeline, failed.Cell = &story, &long
	var summary strings.Builder
	if err := report.StepSummary(&summary, r, slices.Repeat([]report.Case{failed}, 20)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(summary.String(), ": the timeline of order "); n == 0 || n == 20 || summary.Len() < 1<<19 || summary.Len() > 1<<20 {
		t.Errorf("the summary has %d of 20 timelines and %d bytes", n, summary.Len())
	}
}
