package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

// under returns a cell under a fault that ended as expected.
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

// swept returns n points. The parameter failed is the number of points with the given verdict. The parameter
// overlapped is the number of points at which the lock let two holders in.
func swept(n, failed int, verdict catalog.Verdict, overlapped int) []experiment.Point {
	points := make([]experiment.Point, n)
	for i := range points {
		p := experiment.Point{
			Point: fmt.Sprintf("before acquire %d", i+1), Strikes: 1, Struck: 1, Verdict: catalog.Safe,
			Overlaps: ptr(0), DoubleGrabs: ptr(0), StuckOrders: ptr(0), NearMisses: ptr(0),
		}
		if i < failed {
			p.Verdict, p.FailureMode = verdict, "F11"
			switch verdict {
			case catalog.Unsafe:
				p.DoubleGrabs = ptr(1)
			case catalog.Stuck:
				p.StuckOrders = ptr(1)
			case catalog.Unknown:
				p.Struck = 0
			}
		}
		if i < overlapped {
			p.Overlaps = ptr(1)
		}
		points[i] = p
	}
	return points
}

// badDay returns a run with several faults that has each kind of cell.
func badDay() *experiment.Run {
	none := cell("none", catalog.Unsafe, 611, 100, 98, 12.52)
	none.Reason = "98 of 100 orders were grabbed more than once"
	paused := under("setnx", catalog.Pause, catalog.Unsafe, 6)
	paused.Overlaps, paused.BeliefGapMS = ptr(6), ptr(412.34)
	paused.Timeline = &check.Timeline{
		Order: 3, Property: "one-winner", Mode: "F11", Name: "the lease runs out under its holder", Cure: "a fencing token",
		Steps: []check.Step{
			{TMS: 0, Instance: "8004", Driver: 1, Event: "gets the lock", Believed: "has the lock", True: "driver 1 inside; order open"},
			{TMS: 1204.25, Instance: "8005", Driver: 2, Event: "writes itself as the winner", Believed: "has won the order", True: "driver 1 and driver 2 inside; order grabbed by driver 2"},
			{TMS: 1500, Instance: "8004", Driver: 1, Event: "writes itself as the winner: <b>|", Believed: "has won the order", True: "order grabbed 2 times: by driver 2 and driver 1"},
		},
		Events: []history.Event{
			{T: 1e9, Instance: "8004", Driver: 1, Kind: history.Invoke, Op: history.Acquire, Order: 3},
			{T: 1001e6, Instance: "8004", Driver: 1, Kind: history.OK, Op: history.Acquire, Order: 3, Lease: 1e9},
			{T: 1002e6, Instance: "8004", Driver: 1, Kind: history.Info, Op: history.Strike, Order: 3, Note: "before <claim> 1"},
			{T: 2002e6, Instance: "8005", Driver: 2, Kind: history.OK, Op: history.Acquire, Order: 3, Lease: 1e9},
			{T: 2205e6, Instance: "8005", Driver: 2, Kind: history.OK, Op: history.Claim, Order: 3},
			{T: 2500e6, Instance: "8004", Driver: 1, Kind: history.OK, Op: history.Strike, Order: 3},
			{T: 2501e6, Instance: "8004", Driver: 1, Kind: history.OK, Op: history.Claim, Order: 3},
		},
		Begins: 1001e6, Further: 2, Rows: []check.Row{{Driver: 2, Instance: "8005"}, {Driver: 1, Instance: "8004"}},
	}
	stuck := under("setnx-nottl", catalog.Crash, catalog.Stuck, 0)
	stuck.StuckOrders, stuck.Reason = ptr(6), "6 of 6 orders can no longer be grabbed"
	surprise := under("watchdog", catalog.Pause, catalog.Unsafe, 1)
	surprise.Expected = ptr(catalog.Safe)
	surprise.Timeline = &check.Timeline{Order: 9, Property: "one-winner", Steps: paused.Timeline.Steps[:1]}
	surprise.Exclusive, surprise.ExpectedExclusive, surprise.Overlaps = ptr(experiment.No), ptr(experiment.Yes), ptr(2)
	surprise.Points = swept(3, 1, catalog.Unsafe, 2)
	fenced := under("setnx-fenced", catalog.RedisRestart, catalog.Safe, 0)
	fenced.NearMisses = ptr(6)
	fenced.Checks = []check.Verdict{
		{Property: "one-winner", Result: check.Pass, Why: "each by one driver"},
		{Property: "fence", Result: check.Fail, Why: "the fencing tokens of order 1 decreased"},
	}
	missed := under("redlock", catalog.Pause, catalog.Unknown, 0)
	missed.Expected, missed.Struck, missed.Reason = ptr(catalog.Safe), ptr(0), "the fault never struck"
	broken := under("watchdog-stray-renewal", catalog.Pause, catalog.Safe, 0)
	broken.Exclusive, broken.ExpectedExclusive, broken.Points = ptr(experiment.No), ptr(experiment.No), swept(3, 0, catalog.Safe, 1)
	unclaimed := under("setnx", catalog.Crash, catalog.Safe, 0)
	unclaimed.Expected = nil
	r := run("rush",
		none, under("none", catalog.Pause, catalog.Unsafe, 18), under("none", catalog.Crash, catalog.Unsafe, 12), notApplicable("none", catalog.RedisRestart),
		cell("setnx", catalog.Safe, 100, 100, 0, 11.2), paused, unclaimed, under("setnx", catalog.RedisRestart, catalog.Unsafe, 6),
		surprise, missed, stuck, fenced, notApplicable("mysql-cas", catalog.RedisRestart), broken,
	)
	r.Config.Args = []string{"-strategies=all", "-out=a folder"}
	return r
}

// TestMatrix checks the text of the matrix: each cell must have the right words, in the right column.
func TestMatrix(t *testing.T) {
	var b bytes.Buffer
	if err := report.Text(&b, badDay()); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"                                                     redis",
		"strategy     none       pause              crash     restart",
		"none         unsafe 511 unsafe 18          unsafe 12 n/a",
		"setnx        safe       unsafe 6           safe °    unsafe 6",
		"watchdog                unsafe 1/3·2 ✗safe",
		"redlock                 unknown ✗safe",
		"setnx-nottl                                stuck 6",
		"setnx-fenced                                         safe",
		"Known-broken variants",
		"strategy               pause",
		"watchdog-stray-renewal safe·1",
	} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("no line %q in\n%s", line, &b)
		}
	}
}

// TestManyCells checks that, in a run with many cells, the text report details only the cells that are not as
// expected. The Markdown report must detail all of them.
func TestManyCells(t *testing.T) {
	r := badDay()
	for i := range 30 {
		r.Cells = append(r.Cells, under(fmt.Sprintf("lock-%d", i), catalog.Pause, catalog.Safe, 0))
	}
	asWanted := under("lock-unknown", catalog.Pause, catalog.Unknown, 0)
	asWanted.Expected, asWanted.Reason = ptr(catalog.Unknown), "unknown as expected"
	r.Cells = append(r.Cells, asWanted)
	for _, tt := range []struct {
		render func(io.Writer, *experiment.Run) error
		all    bool
	}{{report.Text, false}, {report.Markdown, true}} {
		var b bytes.Buffer
		if err := tt.render(&b, r); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "timeline of order 3"); got != tt.all {
			t.Errorf("an expected timeline is shown: %v, want %v", got, tt.all)
		}
		if !strings.Contains(b.String(), "timeline of order 9") || !strings.Contains(b.String(), "the fault never struck") || !strings.Contains(b.String(), "unknown as expected") {
			t.Error("a cell that is not as expected, or whose verdict is unknown, is not shown")
		}
		lines := 0
		for line := range strings.Lines(b.String()) {
			if strings.Contains(line, "lock-29") {
				lines++
			}
		}
		if want := map[bool]int{true: 2, false: 1}[tt.all]; lines != want {
			t.Errorf("lock-29 is on %d lines, want %d", lines, want)
		}
	}
}

// TestMatrixCells checks that a cell shows the verdicts on the order and on the lock, and also the expected
// ones if either differs. It uses a run with only one fault.
func TestMatrixCells(t *testing.T) {
	yes, no := ptr(experiment.Yes), ptr(experiment.No)
	safe, unsafe, stuck := ptr(catalog.Safe), ptr(catalog.Unsafe), ptr(catalog.Stuck)
	for _, tt := range []struct {
		want                     string
		verdict                  catalog.Verdict
		expected                 *catalog.Verdict
		exclusive, claimed       *string
		double                   int
		points, failed, overlaps int
	}{
		{"safe", catalog.Safe, safe, yes, yes, 0, 11, 0, 0},
		{"safe·2", catalog.Safe, safe, no, no, 0, 11, 0, 2},
		{"safe·2 ✗safe", catalog.Safe, safe, no, yes, 0, 11, 0, 2},
		{"safe ✗safe·", catalog.Safe, safe, yes, no, 0, 11, 0, 0},
		{"unsafe 3/11", catalog.Unsafe, unsafe, yes, yes, 3, 11, 3, 0},
		{"unsafe 3/11·4", catalog.Unsafe, unsafe, no, no, 3, 11, 3, 4},
		{"unsafe 3/11·4 ✗safe", catalog.Unsafe, safe, no, yes, 3, 11, 3, 4},
		{"unsafe 3/11·4 ✗safe·", catalog.Unsafe, safe, no, no, 3, 11, 3, 4},
		{"unsafe 3/11·? ✗unsafe·", catalog.Unsafe, unsafe, nil, no, 3, 11, 3, 0},
		{"unsafe 1/1·1 °", catalog.Unsafe, nil, no, nil, 1, 1, 1, 1},
		{"stuck 4/26", catalog.Stuck, stuck, yes, yes, 0, 26, 4, 0},
		{"unknown 1/11 ✗safe", catalog.Unknown, safe, nil, yes, 0, 11, 1, 0},
		{"unknown ✗safe", catalog.Unknown, safe, nil, yes, 0, 11, 0, 0},
		{"n/a", catalog.NA, nil, nil, nil, 0, 0, 0, 0},
		{"unsafe 1", catalog.Unsafe, unsafe, yes, yes, 1, 11, 0, 0}, // unsafe, but at no point of the fault
		{"unsafe 6", catalog.Unsafe, unsafe, nil, nil, 6, 0, 0, 0},  // a cell of an older run
		{"safe·", catalog.Safe, safe, no, no, 0, 0, 0, 0},
	} {
		c := under("setnx", catalog.Pause, tt.verdict, tt.double)
		c.Expected, c.Exclusive, c.ExpectedExclusive = tt.expected, tt.exclusive, tt.claimed
		c.Points = swept(tt.points, tt.failed, tt.verdict, tt.overlaps)
		var b bytes.Buffer
		if err := report.Text(&b, run("rush", c)); err != nil {
			t.Fatal(err)
		}
		if want := "\nstrategy pause\nsetnx    " + tt.want + "\n"; !strings.Contains(b.String(), want) {
			t.Errorf("no line %q in\n%s", want, &b)
		}
	}
}

// TestPoints checks the table of strike points. A cell that is safe at all points lists none. Other cells list
// the points at which anything happened, and points with the same result share a row.
func TestPoints(t *testing.T) {
	quiet := under("setnx-fenced", catalog.Pause, catalog.Safe, 0)
	quiet.Exclusive, quiet.ExpectedExclusive, quiet.Points = ptr(experiment.Yes), ptr(experiment.Yes), swept(5, 0, catalog.Safe, 0)
	quiet.Points[0].NearMisses = ptr(1)
	loud := under("setnx", catalog.Pause, catalog.Unsafe, 3)
	loud.Exclusive, loud.ExpectedExclusive, loud.Points = ptr(experiment.No), ptr(experiment.No), swept(5, 3, catalog.Unsafe, 4)
	var b bytes.Buffer
	if err := report.Text(&b, run("rush", cell("setnx", catalog.Safe, 100, 100, 0, 11.2), quiet, loud)); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(b.String(), "Strike points at which anything happened\n")
	text, _, _ = strings.Cut(text, "\n\n")
	for line, want := range map[string]int{
		"pause setnx    unsafe     1/1      1     0        1           0 F11          before acquire 1; before acquire 2; before acquire 3\n": 1,
		"pause setnx    safe       1/1      0     0        1           0              before acquire 4":                                       1,
		"before acquire 5": 0,
		"setnx-fenced":     0,
	} {
		if n := strings.Count(text, line); n != want {
			t.Errorf("%d times, want %d: %q in\n%s", n, want, line, text)
		}
	}
}

// TestEventfulPoints checks that the table lists a point if the fault had any effect there, and no other point.
func TestEventfulPoints(t *testing.T) {
	for effect, add := range map[string]func(*experiment.Point){
		"":          func(*experiment.Point) {},
		"unsafe":    func(p *experiment.Point) { p.Verdict = catalog.Unsafe },
		"stuck":     func(p *experiment.Point) { p.Verdict = catalog.Stuck },
		"unknown":   func(p *experiment.Point) { p.Verdict = catalog.Unknown },
		"overlap":   func(p *experiment.Point) { p.Overlaps = ptr(1) },
		"near miss": func(p *experiment.Point) { p.NearMisses = ptr(1) },
	} {
		p := experiment.Point{Point: "before acquire 7", Strikes: 1, Struck: 1, Verdict: catalog.Safe, DoubleGrabs: ptr(0), StuckOrders: ptr(0), Overlaps: ptr(0), NearMisses: ptr(0)}
		add(&p)
		c := under("setnx", catalog.Pause, catalog.Unsafe, 1)
		c.Points = []experiment.Point{p}
		var b bytes.Buffer
		if err := report.Text(&b, run("rush", c)); err != nil {
			t.Fatal(err)
		}
		if shown := strings.Contains(b.String(), "before acquire 7"); shown != (effect != "") {
			t.Errorf("%q: the point is shown: %v", effect, shown)
		}
	}
}

// TestFullMatrixFits checks that the full matrix fits on a wide terminal, because the faults are divided among
// four tables. The same applies to the known-broken variants.
func TestFullMatrixFits(t *testing.T) {
	r := run("rush")
	for _, s := range slices.Concat(lock.Strategies, lock.KnownBroken) {
		for _, f := range catalog.RunFaults {
			v := s.Expected(f)
			c := under(s.Name, f, v, 0)
			if f != catalog.NoFault && v != catalog.NA {
				c.Points = swept(26, 16, v, 18)
				c.Exclusive, c.ExpectedExclusive = ptr(experiment.No), ptr(experiment.No)
			}
			r.Cells = append(r.Cells, c)
		}
	}
	var b bytes.Buffer
	if err := report.Text(&b, r); err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(b.String(), "\n\n")
	tables, _, found := strings.Cut(tables, "\n\nn/m: ")
	if !found {
		t.Fatal("nothing comes after the tables")
	}
	for _, name := range []string{"setnx", lock.KnownBroken[0].Name} {
		if n := strings.Count(tables, "\n"+name+" "); n != 4 {
			t.Errorf("%s is in %d tables, want 4", name, n)
		}
	}
	for _, f := range catalog.RunFaults {
		// A heading can have several lines. Look for the last one.
		if name := f[strings.LastIndex(string(f), "-")+1:]; !strings.Contains(tables, " "+string(name)) {
			t.Errorf("%s has no column", f)
		}
	}
	for line := range strings.Lines(tables) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 200 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// TestHTMLStandsAlone checks that the page is well formed, loads nothing from other places, and runs only its
// own script.
func TestHTMLStandsAlone(t *testing.T) {
	for _, r := range []*experiment.Run{badDay(), rush(), peak(), foreign(), {ID: "x"}} {
		var b bytes.Buffer
		if err := report.HTML(&b, r); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "@import") || strings.Count(b.String(), "<script") != 2 {
			t.Errorf("%s: the page has other style sheets, or more scripts than its data and its own", r.ID)
		}
		text := asset.ReplaceAllString(b.String(), "$1$2")
		for _, no := range []string{"http:", "https:", " src=", "<b>|", " style=", "javascript:"} {
			if strings.Contains(text, no) {
				t.Errorf("%s: the page has %q", r.ID, no)
			}
		}
		if handler := regexp.MustCompile(`<[^>]* on\w+=`).FindString(text); handler != "" {
			t.Errorf("%s: the page has the handler %s", r.ID, handler)
		}
		d := xml.NewDecoder(strings.NewReader(text))
		d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
		open := 0
		for {
			tok, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("page of the run %s: %v", r.ID, err)
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
