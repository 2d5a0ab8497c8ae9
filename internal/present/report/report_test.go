package report_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/measure/experiment"
	"grablab/internal/order"
	"grablab/internal/present/report"
	"grablab/internal/testbed/load"
)

var update = flag.Bool("update", false, "write the golden files anew")

func ptr[T any](v T) *T { return &v }

func run(scenario string, cells ...experiment.Cell) *experiment.Run {
	return &experiment.Run{
		Schema: experiment.Schema, ID: "20261120T213000Z-" + scenario, Complete: true,
		StartedAt: time.Date(2026, 11, 20, 21, 30, 0, 0, time.UTC), DurationS: 41.26,
		Environment: experiment.Environment{
			Go: "go1.26.8", OS: "linux", Arch: "amd64", CPUs: 2, Stack: "local",
			Redis: "Redis 7.0.15", Database: "MariaDB 10.11.19", Vegeta: "v12.13.0", Commit: "abc1234",
		},
		Config: experiment.RunConfig{Scenario: scenario, Orders: 100, Drivers: 20, Rate: 500, Instances: 2, Seed: 7},
		Cells:  cells,
	}
}

// cell returns a cell in which every figure is known. The parameters give the number of ledger rows, of
// grabbed orders and of orders with more than one row.
func cell(strategy string, verdict catalog.Verdict, grabs, orders, doubled int, p99 float64) experiment.Cell {
	return experiment.Cell{
		Strategy: strategy, Fault: catalog.NoFault, Verdict: verdict, Expected: ptr(verdict), Guard: order.Naive, OnLost: grab.Abort,
		TTLMS: ptr(30000.0), LeaseMS: ptr(30000.0), WorkMS: ptr(5.0), WaitMS: ptr(2000.0), Orders: 100, Requests: 2000,
		Outcomes: map[grab.Outcome]int{grab.Grabbed: grabs, grab.Taken: 2000 - grabs}, CountedFrom: "ledger",
		Grabs: &grabs, OrdersGrabbed: &orders, DoubleGrabs: ptr(grabs - orders), OrdersDoubleGrabbed: &doubled,
		StuckOrders: ptr(0), PhantomGrabs: ptr(0), UnacknowledgedGrabs: ptr(0), NearMisses: ptr(0),
		Latency: &load.Latency{P50: 7.314, P99: p99}, LatencySent: &load.Latency{P50: 7.201, P99: p99 / 1.01}, LoadHeld: ptr(true),
		OfferedRPS: ptr(500.0), CompletedRPS: ptr(499.1), DurationS: ptr(4.01), RedisCommands: ptr(4820), RedisCommandsPerRequest: ptr(2.41),
	}
}

func rush() *experiment.Run {
	none := cell("none", catalog.Unsafe, 611, 100, 98, 12.52)
	none.Reason = "98 of 100 orders were grabbed more than once"
	none.RedisCommands, none.RedisCommandsPerRequest = ptr(0), ptr(0.0)
	mutex := cell("mutex", catalog.Unsafe, 200, 100, 100, 9.87)
	mutex.Reason = "100 of 100 orders were grabbed more than once"
	watchdog := cell("watchdog", catalog.Safe, 100, 100, 0, 2003.4)
	watchdog.LatencySent.P99, watchdog.LoadHeld = 1200, ptr(false)
	redlock := cell("redlock", catalog.Unknown, 99, 99, 0, 57.06)
	redlock.Expected, redlock.Reason = ptr(catalog.Safe), "1 of 100 orders were never tried, because no driver got the lock"
	redlock.Outcomes = map[grab.Outcome]int{grab.Grabbed: 98, grab.Taken: 1001, grab.Busy: 800, grab.Failed: 89, grab.Timeout: 12}
	redlock.Errors = map[string]int{"timeout": 12, "dependency": 80, "reset": 9}
	redlock.UnacknowledgedGrabs, redlock.NearMisses, redlock.Overlaps = ptr(1), ptr(2), ptr(1)
	dead := experiment.Cell{
		Strategy: "setnx", Fault: catalog.NoFault, Verdict: catalog.Unknown, Reason: "not measured: could not open orders: connection refused", OnLost: grab.Abort,
	}
	return run("rush", none, mutex, cell("setnx", catalog.Safe, 100, 100, 0, 11.2), watchdog, redlock, dead)
}

// repeated returns the run from the function rush, with some cells that ran more than once.
func repeated() *experiment.Run {
	r := rush()
	r.Config.Repeat = 6
	for i, n := range []int{6, 6, 2, 1} {
		c := &r.Cells[i]
		for k := range n {
			f := 1 + float64(k)/10
			c.Repetitions = append(c.Repetitions, experiment.Repetition{
				Verdict: c.Verdict, Latency: &load.Latency{P50: 7 * f, P99: 70 * f}, LatencySent: &load.Latency{P50: 6 * f, P99: 60 * f},
				CompletedRPS: ptr(500 - f), GrabsPerS: ptr(24 + f), RedisCommandsPerRequest: ptr(2.41),
			})
		}
	}
	r.Cells[0].Repetitions[2].RedisCommandsPerRequest = nil
	return r
}

func peak() *experiment.Run {
	c := cell("setnx", catalog.Safe, 240, 240, 0, 88.1)
	c.Orders = 240
	c.Peak = &experiment.Peak{HeldRPS: 2400, GrabsPerS: ptr(119.4), P99MS: 100, Steps: []experiment.PeakStep{
		{RPS: 200, P99MS: ptr(8.04), Held: true}, {RPS: 3200, P99MS: ptr(612.0), Held: false}, {RPS: 2400, P99MS: ptr(88.1), Held: true},
	}}
	none := cell("none", catalog.Unsafe, 0, 0, 0, 140)
	none.Peak = &experiment.Peak{P99MS: 100, Steps: []experiment.PeakStep{{RPS: 200, P99MS: ptr(140.0), Held: false}}}
	none.DoubleGrabs = nil
	none.Peak.LimitedBy, none.Peak.LimitReason = experiment.ByInstances, "the bare endpoint kept up with 3200/s, but the grab without a lock failed at 200/s"
	c.Peak.LimitReason = "there is no run without a lock to compare with"
	r := run("peak", c, none)
	r.Bare = &experiment.Bare{Endpoint: "GET /healthz", Peak: experiment.Peak{HeldRPS: 3200, P99MS: 100, Steps: []experiment.PeakStep{
		{RPS: 3200, P99MS: ptr(3.2), P99SentMS: ptr(3.0), Held: true}, {RPS: 6400, P99MS: ptr(130.0), P99SentMS: ptr(12.0)},
	}, LimitedBy: experiment.ByGenerator, LimitReason: "at 6400/s it sent too late: counted from sending, the p99 was 12.0 ms"}}
	return r
}

// sale returns a run of orders with several units. One cell has sold too many units, one has sold exactly
// the stock, and one has sold too few. The last one has no figures.
func sale() *experiment.Run {
	none := cell("none", catalog.Unsafe, 2000, 1, 1, 842.3)
	none.Reason, none.DoubleGrabs = "1 of 1 orders was sold more than 100 times", ptr(1900)
	none.Sale = &experiment.Sale{Stock: 100, Undersold: ptr(0), LostUpdates: ptr(1997), OverLimit: ptr(0), SoldOutMS: ptr(226.4), InOrder: ptr(0.05)}
	cas := cell("mysql-cas", catalog.Safe, 100, 1, 0, 458.1)
	cas.DoubleGrabs, cas.Guard = ptr(0), order.Guarded
	cas.Sale = &experiment.Sale{Stock: 100, Undersold: ptr(0), LostUpdates: ptr(0), OverLimit: ptr(0), SoldOutMS: ptr(370.2), InOrder: ptr(0.47)}
	under := cell("redis-stock", catalog.Stuck, 97, 1, 0, 60.1)
	under.Expected, under.DoubleGrabs, under.Reason = ptr(catalog.Safe), ptr(0), "3 units were left, and drivers were refused after the last sale"
	under.Sale = &experiment.Sale{Stock: 100, Undersold: ptr(3), LostUpdates: ptr(0), OverLimit: ptr(0), InOrder: ptr(1.0)}
	dead := experiment.Cell{
		Strategy: "setnx", Fault: catalog.NoFault, Verdict: catalog.Unknown, Reason: "not measured: could not open orders: connection refused", OnLost: grab.Abort,
		Sale: &experiment.Sale{Stock: 100},
	}
	r := run("sale", none, cas, under, dead)
	r.Config.Orders, r.Config.Drivers, r.Config.Rate, r.Config.Stock = 1, 2000, 0, 100
	for i := range r.Cells {
		r.Cells[i].Orders = 1
	}
	return r
}

// foreign returns an interrupted run against the user's service, with a fault.
func foreign() *experiment.Run {
	c := cell("foreign", catalog.Unsafe, 0, 100, 1, 12)
	c.Expected, c.CountedFrom, c.Grabs = nil, "answers", nil
	c.DoubleGrabs, c.StuckOrders, c.PhantomGrabs, c.UnacknowledgedGrabs = ptr(1), nil, nil, nil
	c.RedisCommands, c.RedisCommandsPerRequest = nil, nil
	c.Reason = "1 of 100 orders was *grabbed* | more than once"
	na := experiment.Cell{Strategy: "mysql-cas", Fault: catalog.RedisRestart, Verdict: catalog.NA, Reason: "it uses no Redis"}
	crash := c
	crash.Fault, crash.Verdict, crash.Reason = catalog.Crash, catalog.Unknown, "1 answer may hide a grab: reset 1"
	crash.LowerBound, crash.DoubleGrabs, crash.OrdersDoubleGrabbed, crash.Struck = true, ptr(0), ptr(0), ptr(1)
	r := run("rush", c, na, crash)
	r.Complete = false
	r.Environment.Redis, r.Environment.Database, r.Environment.Stack = "", "", "targets"
	r.Config.Rate = 0
	return r
}

var (
	asset     = regexp.MustCompile(`(?s)(<style>|<script type="module">).*?(</)`)
	assetHash = regexp.MustCompile(`sha256-[^ "]*`)
)

// golden checks that got is equal to the content of a file. It ignores the style sheet and the script of a
// page.
func golden(t *testing.T, file, got string) {
	t.Helper()
	got = assetHash.ReplaceAllString(asset.ReplaceAllString(got, "$1…$2"), "sha256-…")
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the report is\n%s\nwant\n%s", got, want)
	}
}

func TestGolden(t *testing.T) {
	for _, tt := range []struct {
		file   string
		run    *experiment.Run
		render func(io.Writer, *experiment.Run) error
	}{
		{"rush.txt", rush(), report.Text},
		{"rush.md", rush(), report.Markdown},
		{"repeated.txt", repeated(), report.Text},
		{"sale.txt", sale(), report.Text},
		{"peak.txt", peak(), report.Text},
		{"foreign.txt", foreign(), report.Text},
		{"foreign.md", foreign(), report.Markdown},
		{"badday.txt", badDay(), report.Text},
		{"badday.md", badDay(), report.Markdown},
		{"badday.html", badDay(), report.HTML},
		{"badday.json", badDay(), report.JSON}, // the pages of package lab show it in a browser
		{"empty.txt", &experiment.Run{ID: "x", Config: experiment.RunConfig{Scenario: "rush"}}, report.Text},
	} {
		t.Run(tt.file, func(t *testing.T) {
			var got bytes.Buffer
			if err := tt.render(&got, tt.run); err != nil {
				t.Fatal(err)
			}
			golden(t, tt.file, got.String())
		})
	}
}

// TestTableFits checks that the table of a typical run fits on a terminal with 120 columns.
func TestTableFits(t *testing.T) {
	var b bytes.Buffer
	if err := report.Text(&b, rush()); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(b.String(), "\n\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 120 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	want := rush()
	var b bytes.Buffer
	if err := report.JSON(&b, want); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, report.File), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := report.Load(dir)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Load: got %+v, %v, want %+v", got, err, want)
	}
}

func TestLoadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":             "unexpected end",
		"{":            "unexpected end",
		"[]":           "cannot unmarshal",
		`{"schema":2}`: "has the format version 2, but this version of loadgen reads only 1",
		`{}`:           "has the format version 0",
		`{"schema":1}`: "has no id and no scenario",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, report.File), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := report.Load(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: Load: got %v, want …%s…", text, err, want)
		}
	}
	if _, err := report.Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "has no run.json") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := report.Load(filepath.Join(t.TempDir(), "missing")); err == nil || !strings.Contains(err.Error(), "missing has no run.json") {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestWriteErrors checks that every function that writes a report returns the error of its writer.
func TestWriteErrors(t *testing.T) {
	run, cases := ciRun(t)
	for name, write := range map[string]func(io.Writer) error{
		"Text":             func(w io.Writer) error { return report.Text(w, run) },
		"Markdown":         func(w io.Writer) error { return report.Markdown(w, run) },
		"HTML":             func(w io.Writer) error { return report.HTML(w, run) },
		"JSON":             func(w io.Writer) error { return report.JSON(w, run) },
		"JUnit":            func(w io.Writer) error { return report.JUnit(w, run, cases) },
		"StepSummary":      func(w io.Writer) error { return report.StepSummary(w, run, cases) },
		"Annotations":      func(w io.Writer) error { return report.Annotations(w, cases) },
		"WriteBaseline":    func(w io.Writer) error { return report.WriteBaseline(w, []*experiment.Run{run}) },
		"Explored":         func(w io.Writer) error { return report.Explored(w, exploration()) },
		"ExploredJSON":     func(w io.Writer) error { return report.ExploredJSON(w, exploration()) },
		"ExploredHTML":     func(w io.Writer) error { return report.ExploredHTML(w, exploration()) },
		"Mermaid":          func(w io.Writer) error { return report.Mermaid(w, late()) },
		"ComparedText":     func(w io.Writer) error { return report.ComparedText(w, comparedRuns()) },
		"ComparedMarkdown": func(w io.Writer) error { return report.ComparedMarkdown(w, comparedRuns()) },
		"ComparedJSON":     func(w io.Writer) error { return report.ComparedJSON(w, comparedRuns()) },
	} {
		if err := write(full{}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("%s returns %v, want the writer's error", name, err)
		}
	}
}

// TestForeignCause checks that the report does not name a cause of double grabs in the user's service, because
// the cause is unknown.
func TestForeignCause(t *testing.T) {
	var b bytes.Buffer
	c := cell(experiment.Foreign, catalog.Unsafe, 611, 100, 98, 12.52)
	c.Reason = "98 of 100 orders were grabbed more than once"
	if err := report.Text(&b, run("rush", c)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "foreign is unsafe: 98 of 100 orders were grabbed more than once\n") || strings.Contains(b.String(), "one driver reads") {
		t.Errorf("the report is\n%s", &b)
	}
}
