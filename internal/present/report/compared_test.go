package report_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/order"
	"grablab/internal/present/compare"
	"grablab/internal/present/report"
)

func measured(n int, median, low, high float64) compare.Measured {
	return compare.Measured{N: n, Median: &median, Low: &low, High: &high}
}

func side(path string, hour int, complete bool) compare.Side {
	return compare.Side{Path: path, StartedAt: time.Date(2026, 11, 28, hour, 0, 0, 0, time.UTC), Commit: path + "1", Complete: complete}
}

// comparedRuns returns a comparison of two runs that differ in every respect.
func comparedRuns() *compare.Comparison {
	few := compare.Measured{N: 2, Median: ptr(7.5)}
	return &compare.Comparison{
		Schema: 2, Old: side("a", 9, true), New: side("b", 11, false), Unlike: []string{"Redis: 7, now 8", "drivers: 10, now 20"}, Cells: 4,
		Changes: []compare.Change{{Cell: "setnx/pause", Old: "safe", New: "unsafe", Why: strings.Repeat("a long reason ", 9)}, {Cell: "redlock", Old: "safe", New: "stuck"}},
		OnlyOld: []string{"mutex", "none/slow"}, OnlyNew: []string{"etcd", "zookeeper"}, Alpha: 0.05,
		Costs: []compare.Cost{
			{Strategy: "setnx", Figure: "p50", Old: measured(6, 7, 6, 8), New: measured(6, 14, 13, 15), Change: ptr(2.0), P: ptr(0.0004), Answer: compare.Slower},
			{Strategy: "setnx", Figure: "p99", Old: measured(6, 9, 8, 10), New: measured(7, 8, 7, 9), Change: ptr(0.887), P: ptr(0.02), Answer: compare.Faster},
			{Strategy: "redlock", Figure: "p50", Old: measured(8, 9, 8, 10), New: measured(8, 9.1, 8, 11), Change: ptr(1.01), P: ptr(0.4), Answer: compare.NotShown},
			{Strategy: "redlock", Figure: "p99", Old: measured(6, 0, 0, 0), New: measured(6, 5, 4, 6), P: ptr(0.001), Answer: compare.Slower},
			{Strategy: "etcd", Figure: "p50", Old: few, New: few, Answer: compare.NotKnown, Why: "too few"},
			{Strategy: "etcd", Figure: "p99", Old: compare.Measured{}, New: compare.Measured{}, Answer: compare.NotKnown, Why: "too few"},
			{Strategy: "zookeeper", Figure: "p50", Old: few, New: compare.Measured{}, Answer: compare.NotKnown, Why: "it was not measured"},
		},
	}
}

func TestCompared(t *testing.T) {
	for _, tt := range []struct {
		file   string
		of     *compare.Comparison
		render func(io.Writer, *compare.Comparison) error
	}{
		{"compared-runs.txt", comparedRuns(), report.ComparedText},
		{"compared-runs.md", comparedRuns(), report.ComparedMarkdown},
		{"compared-runs.json", comparedRuns(), report.ComparedJSON},
		{"compared-nothing.txt", &compare.Comparison{Old: side("a", 9, true), New: side("b", 11, true)}, report.ComparedText},
	} {
		t.Run(tt.file, func(t *testing.T) {
			var got bytes.Buffer
			if err := tt.render(&got, tt.of); err != nil {
				t.Fatal(err)
			}
			golden(t, tt.file, got.String())
		})
	}
}

// endings returns an exploration that has one result for each way in which a search can end.
func endings() report.Exploration {
	e := exploration()
	e.Config.Stock, e.Timing = 2, false
	found := func(strategy string, change func(*explore.Failure)) explore.Result {
		f := late()
		f.Schedule.Strategy, f.Unexpected = strategy, true
		change(&f)
		return explore.Result{Strategy: strategy, Guard: order.Naive, Verdict: catalog.Unsafe, Expected: catalog.Safe, Schedules: 5, States: 4, Failures: []explore.Failure{f}}
	}
	crash := func(frames int) func(*explore.Failure) {
		return func(f *explore.Failure) {
			f.Property, f.Mode, f.Why, f.Moments, f.Stack = catalog.Survives, "", "the process ended: panic: no", nil, strings.Repeat("a frame\n", frames-1)+"a frame"
		}
	}
	slow := explore.Result{Strategy: "slow", Guard: order.Naive, Verdict: catalog.Unknown, Complete: true, Schedules: 5, States: 4}
	e.Parts = []explore.Part{{Name: "waiting", Config: e.Config}}
	slow.Parts = []explore.Result{{Part: "waiting", Verdict: catalog.Unknown, Reason: explore.TimeOver, Schedules: 2, States: 2}}
	several := found("several", func(f *explore.Failure) { f.Unexpected = false })
	more := late()
	more.Property, more.Kind, more.Unexpected = catalog.LeaseExclusive, "pause", true
	several.Failures = append(several.Failures, more)
	e.Results = []explore.Result{
		found("crashes", crash(40)), found("crashes-deep", crash(41)), found("none", func(*explore.Failure) {}),
		found("unexplained", func(f *explore.Failure) { f.Mode = "" }), found("sticks", func(f *explore.Failure) { f.Property = catalog.StuckOrder }),
		several, slow, {Strategy: "safe", Guard: order.Fenced, Verdict: catalog.Safe, Expected: catalog.Safe, Complete: true, Schedules: 9, States: 9},
	}
	return e
}

// replays returns the replays of a schedule that breaks no property and of one that breaks two.
func replays() report.Exploration {
	e := exploration()
	second := late()
	second.Property, second.Why = catalog.LeaseExclusive, "both had it"
	actors := []schedule.Actor{{Name: "A", Instance: 1}, {Name: "B", Instance: 2}}
	e.Results = []explore.Result{
		{Strategy: "setnx", Guard: order.Naive, Verdict: catalog.Safe, Replay: true, Actors: actors, Moments: late().Moments[:4]},
		{Strategy: "setnx", Guard: order.Naive, Verdict: catalog.Unsafe, Replay: true, Actors: actors, Moments: late().Moments, Failures: []explore.Failure{late(), second}},
	}
	return e
}

func TestEndings(t *testing.T) {
	for file, e := range map[string]report.Exploration{"endings": endings(), "replays": replays()} {
		for suffix, render := range map[string]func(io.Writer, report.Exploration) error{
			".txt": report.Explored, ".html": report.ExploredHTML, ".json": report.ExploredJSON,
		} {
			t.Run(file+suffix, func(t *testing.T) {
				var got bytes.Buffer
				if err := render(&got, e); err != nil {
					t.Fatal(err)
				}
				golden(t, file+suffix, got.String())
			})
		}
	}
}
