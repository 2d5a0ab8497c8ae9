package whichlock

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// TestSentencesFollowTheRuns checks that Write returns an error if the runs do not support one of its
// sentences, and that the error quotes the sentence.
func TestSentencesFollowTheRuns(t *testing.T) {
	loaded, err := Load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*Sources)
		want   string // in the error; empty if Write succeeds
	}{
		{"as they are", func(*Sources) {}, ""},
		{"an UPDATE that lets two win", verdict("mysql-cas", catalog.Pause, catalog.Unsafe), "take no lock"},
		{"an UPDATE with an unknown verdict", verdict("mysql-cas", catalog.Crash, catalog.Unknown), "take no lock"},
		{"a mutex that excludes other processes", verdict("mutex", catalog.NoFault, catalog.Safe), "A lock inside one process"},
		{"a fence that lets two win", verdict("handoff", catalog.Failover, catalog.Unsafe), "check a fencing token"},
		{"FOR UPDATE that lets two win", verdict("mysql-forupdate", catalog.DBRestart, catalog.Unsafe), "only a database"},
		{"a Redlock that nothing breaks", allVerdicts("redlock", catalog.Safe), "Redlock survives"},
		{"a hang that does no harm", func(s *Sources) {
			for _, run := range []*experiment.Run{s.Matrix, s.Libraries} {
				for i, c := range run.Cells {
					if c.Fault == catalog.Hang {
						run.Cells[i].Verdict = catalog.Safe
					}
				}
			}
		}, "forces a choice"},
		{"a library that nothing breaks", func(s *Sources) {
			for i := range s.Libraries.Cells {
				s.Libraries.Cells[i].Verdict = catalog.Safe
			}
		}, "A library cannot protect your write"},
		{"a strategy that was not run", func(s *Sources) {
			s.Matrix.Cells = slices.DeleteFunc(s.Matrix.Cells, func(c experiment.Cell) bool { return c.Strategy == "setnx" })
		}, "no reference run has setnx"},
		{"a choice with an unknown verdict", verdict("etcd", catalog.Latency, catalog.Unknown), "the verdict of etcd is unknown"},
		{"missing claims", func(s *Sources) { s.Claims = "" }, "claims.txt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := loaded
			for _, run := range []**experiment.Run{&s.Matrix, &s.Libraries} {
				r := **run
				r.Cells = slices.Clone(r.Cells)
				*run = &r
			}
			tt.change(&s)
			text, err := Write(s)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want it to name %q", err, tt.want)
			case (tt.want == "") != (text != ""):
				t.Errorf("%d bytes were written", len(text))
			}
		})
	}
}

// verdict returns a change to one cell's verdict.
func verdict(strategy string, f catalog.Fault, v catalog.Verdict) func(*Sources) {
	return func(s *Sources) {
		for i, c := range s.Matrix.Cells {
			if c.Strategy == strategy && c.Fault == f {
				s.Matrix.Cells[i].Verdict = v
			}
		}
	}
}

// allVerdicts returns a change to all verdicts of a strategy.
func allVerdicts(strategy string, v catalog.Verdict) func(*Sources) {
	return func(s *Sources) {
		for i, c := range s.Matrix.Cells {
			if c.Strategy == strategy {
				s.Matrix.Cells[i].Verdict = v
			}
		}
	}
}

func TestUnknownFigures(t *testing.T) {
	s, err := Load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	p := &page{Sources: s}
	if got := p.Trips("mysql-cas", "uncontended"); got != "?" {
		t.Errorf("mysql-cas has no lock but costs %s", got)
	}
	if got := figureOf(nil); got != "?" {
		t.Errorf("figureOf: got %s", got)
	}
}

// TestTablesAreNarrow checks that the page's tables fit into 120 columns.
func TestTablesAreNarrow(t *testing.T) {
	s, err := Load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := Write(s)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); strings.HasPrefix(line, "|") && n > 120 {
			t.Errorf("a row of %d columns, want at most 120: %s", n, line)
		}
	}
}
