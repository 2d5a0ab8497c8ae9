package whichlock

import (
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// The page stands on what the runs have shown: where a run shows something else, the
// sentence is named and nothing is written.
func TestSentencesStandOnTheRuns(t *testing.T) {
	loaded, err := Load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*Sources)
		want   string // of the error; "": there is none
	}{
		{"as they are", func(*Sources) {}, ""},
		{"an UPDATE that lets two win", verdict("mysql-cas", catalog.Pause, catalog.Unsafe), "take no lock"},
		{"an UPDATE of which nothing is known", verdict("mysql-cas", catalog.Crash, catalog.Unknown), "take no lock"},
		{"a mutex that reaches further", verdict("mutex", catalog.NoFault, catalog.Safe), "A lock of one process"},
		{"a fence that lets two win", verdict("handoff", catalog.Failover, catalog.Unsafe), "check a fencing token"},
		{"FOR UPDATE that lets two win", verdict("mysql-forupdate", catalog.DBRestart, catalog.Unsafe), "Nothing but a database"},
		{"a Redlock that nothing breaks", all("redlock", catalog.Safe), "Redlock survives"},
		{"a hang that harms nobody", func(s *Sources) {
			for _, run := range []*experiment.Run{s.Matrix, s.Libraries} {
				for i, c := range run.Cells {
					if c.Fault == catalog.Hang {
						run.Cells[i].Verdict = catalog.Safe
					}
				}
			}
		}, "Accept one of two"},
		{"a library that nothing breaks", func(s *Sources) {
			for i := range s.Libraries.Cells {
				s.Libraries.Cells[i].Verdict = catalog.Safe
			}
		}, "The libraries"},
		{"a strategy that was not run", func(s *Sources) {
			s.Matrix.Cells = slices.DeleteFunc(s.Matrix.Cells, func(c experiment.Cell) bool { return c.Strategy == "setnx" })
		}, "no reference run has setnx"},
		{"a choice of which a verdict is unknown", verdict("etcd", catalog.Latency, catalog.Unknown), "the verdict of etcd is unknown"},
		{"claims that were not measured", func(s *Sources) { s.Claims = "" }, "claims.txt"},
		{"a library without a version", func(s *Sources) { s.Versions = nil }, "go.mod has no version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := loaded
			for _, run := range []**experiment.Run{&s.Matrix, &s.Libraries} {
				r := **run
				r.Cells = slices.Clone(r.Cells)
				*run = &r
			}
			tt.change(&s)
			var b strings.Builder
			err := Write(&b, s)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want it to name %q", err, tt.want)
			case (tt.want == "") != (b.Len() > 0):
				t.Errorf("%d bytes were written", b.Len())
			}
		})
	}
}

// verdict has a cell come to something else.
func verdict(strategy string, f catalog.Fault, v catalog.Verdict) func(*Sources) {
	return func(s *Sources) {
		for i, c := range s.Matrix.Cells {
			if c.Strategy == strategy && c.Fault == f {
				s.Matrix.Cells[i].Verdict = v
			}
		}
	}
}

func all(strategy string, v catalog.Verdict) func(*Sources) {
	return func(s *Sources) {
		for i, c := range s.Matrix.Cells {
			if c.Strategy == strategy {
				s.Matrix.Cells[i].Verdict = v
			}
		}
	}
}

// What was not measured is said to be unknown.
func TestUnknownFigures(t *testing.T) {
	s, err := Load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	p := &page{Sources: s}
	if got := p.trips("mysql-cas", "uncontended"); got != "?" {
		t.Errorf("mysql-cas has no lock, and cost %s", got)
	}
	if got := per(nil); got != "?" {
		t.Errorf("got %s", got)
	}
}
