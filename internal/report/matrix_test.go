package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/experiment"
	"grablab/internal/grab/lock"
	"grablab/internal/report"
)

// under is a cell of a scene that ended as expected.
func under(strategy string, fault catalog.Fault, verdict catalog.Verdict, double int) experiment.Cell {
	c := cell(strategy, verdict, 6+double, 6, min(double, 6), 1500)
	c.Fault, c.Orders, c.Requests, c.Struck, c.LeaseMS = fault, 6, 24, ptr(6), ptr(1000.0)
	if verdict == catalog.Unsafe {
		c.Reason = fmt.Sprintf("%d of 6 orders were grabbed more than once", min(double, 6))
	}
	return c
}

func notApplicable(strategy string, fault catalog.Fault) experiment.Cell {
	return experiment.Cell{Strategy: strategy, Fault: fault, Verdict: catalog.NA, Expected: ptr(catalog.NA), Reason: "it uses no Redis"}
}

// badDay is a run under several faults, with each kind of cell.
func badDay() *experiment.Run {
	none := cell("none", catalog.Unsafe, 611, 100, 98, 12.52)
	none.Reason = "98 of 100 orders were grabbed more than once"
	paused := under("setnx", catalog.Pause, catalog.Unsafe, 6)
	paused.Overlaps, paused.BeliefGapMS = ptr(6), ptr(412.34)
	paused.Timeline = &check.Timeline{
		Order: 3, Property: "one-winner", Mode: "F11", Name: "the lease runs out under its holder", Cure: "a fencing token", Picture: "setnx-pause.html",
		Steps: []check.Step{
			{TMS: 0, Instance: "8004", Driver: 1, Event: "gets the lock", Believed: "has the lock", True: "driver 1 inside; order open"},
			{TMS: 1204.25, Instance: "8005", Driver: 2, Event: "writes itself as the winner", Believed: "has won the order", True: "driver 1 and driver 2 inside; order grabbed by driver 2"},
			{TMS: 1500, Instance: "8004", Driver: 1, Event: "writes itself as the winner: <b>|", Believed: "has won the order", True: "order grabbed 2 times: by driver 2 and driver 1"},
		},
	}
	stuck := under("setnx-nottl", catalog.Crash, catalog.Stuck, 0)
	stuck.StuckOrders, stuck.Reason = ptr(6), "6 of 6 orders can no longer be grabbed"
	surprise := under("watchdog", catalog.Pause, catalog.Unsafe, 1)
	surprise.Expected = ptr(catalog.Safe)
	surprise.Timeline = &check.Timeline{Order: 9, Property: "one-winner", Steps: paused.Timeline.Steps[:1]}
	fenced := under("setnx-fenced", catalog.RedisRestart, catalog.Safe, 0)
	fenced.NearMisses = ptr(6)
	fenced.Checks = []check.Verdict{
		{Property: "one-winner", Result: check.Pass, Why: "each by one driver"},
		{Property: "fence", Result: check.Fail, Why: "the tokens of order 1 fall back"},
	}
	missed := under("redlock", catalog.Pause, catalog.Unknown, 0)
	missed.Expected, missed.Struck, missed.Reason = ptr(catalog.Safe), ptr(0), "the fault never struck"
	unclaimed := under("setnx", catalog.Crash, catalog.Safe, 0)
	unclaimed.Expected = nil
	return run("rush",
		none, under("none", catalog.Pause, catalog.Unsafe, 18), under("none", catalog.Crash, catalog.Unsafe, 12), notApplicable("none", catalog.RedisRestart),
		cell("setnx", catalog.Safe, 100, 100, 0, 11.2), paused, unclaimed, under("setnx", catalog.RedisRestart, catalog.Unsafe, 6),
		surprise, missed, stuck, fenced, notApplicable("mysql-cas", catalog.RedisRestart),
	)
}

// Each word of a matrix is the one that its cell calls for, in the right place.
func TestMatrix(t *testing.T) {
	var b bytes.Buffer
	if err := report.Text(&b, badDay()); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"                                                 redis",
		"strategy     none       pause          crash     restart",
		"none         unsafe 511 unsafe 18      unsafe 12 n/a",
		"setnx        safe       unsafe 6       safe °    unsafe 6",
		"watchdog                unsafe 1 ✗safe",
		"redlock                 unknown ✗safe",
		"setnx-nottl                            stuck 6",
		"setnx-fenced                                     safe",
	} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("no line %q in\n%s", line, &b)
		}
	}
}

// Of many cells the terminal shows in detail what is not as expected, the
// documents show all of them.
func TestManyCells(t *testing.T) {
	r := badDay()
	for i := range 30 {
		r.Cells = append(r.Cells, under(fmt.Sprintf("lock-%d", i), catalog.Pause, catalog.Safe, 0))
	}
	for _, tt := range []struct {
		render func(io.Writer, *experiment.Run) error
		all    bool
	}{{report.Text, false}, {report.Markdown, true}, {report.HTML, true}} {
		var b bytes.Buffer
		if err := tt.render(&b, r); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "timeline of order 3"); got != tt.all {
			t.Errorf("an expected timeline is shown: %v, want %v", got, tt.all)
		}
		if !strings.Contains(b.String(), "timeline of order 9") || !strings.Contains(b.String(), "the fault never struck") {
			t.Error("what was not expected is not shown")
		}
		lines := 0
		for line := range strings.Lines(b.String()) {
			if strings.Contains(line, "lock-29") {
				lines++
			}
		}
		if want := map[bool]int{true: 2, false: 1}[tt.all]; lines != want {
			t.Errorf("lock-29 stands on %d lines, want %d", lines, want)
		}
	}
}

// The matrix of everything fits on a wide terminal, in two parts.
func TestFullMatrixFits(t *testing.T) {
	r := run("rush")
	for _, s := range lock.Strategies {
		for _, f := range catalog.RunFaults {
			v := s.Expected(f)
			c := under(s.Name, f, v, 0)
			if v == catalog.Unsafe {
				c.DoubleGrabs = ptr(18)
			}
			r.Cells = append(r.Cells, c)
		}
	}
	var b bytes.Buffer
	if err := report.Text(&b, r); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(b.String(), "\n\n")
	table, _, _ = strings.Cut(table, "\n\nunsafe, and")
	if n := strings.Count(table, "\nnone "); n != 2 {
		t.Errorf("a strategy stands in %d parts, want 2", n)
	}
	for line := range strings.Lines(table) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 200 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// The page is well formed, asks for nothing from elsewhere, and runs nothing.
func TestHTMLStandsAlone(t *testing.T) {
	for _, r := range []*experiment.Run{badDay(), rush(), peak(), foreign(), {ID: "x"}} {
		var b bytes.Buffer
		if err := report.HTML(&b, r); err != nil {
			t.Fatal(err)
		}
		for _, no := range []string{"<script", "http:", "https:", "<link", "@import", "<b>|"} {
			if strings.Contains(b.String(), no) {
				t.Errorf("%s: the page has %q", r.ID, no)
			}
		}
		d := xml.NewDecoder(strings.NewReader(b.String()))
		d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
		open := 0
		for {
			tok, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", r.ID, err)
			}
			switch tok.(type) {
			case xml.StartElement:
				open++
			case xml.EndElement:
				open--
			}
		}
		if open != 0 {
			t.Errorf("%s: %d elements are left open", r.ID, open)
		}
	}
	if err := report.HTML(full{}, badDay()); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("HTML: %v", err)
	}
}
