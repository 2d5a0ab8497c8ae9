package report_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

// pageOf returns the HTML page of a run.
func pageOf(t *testing.T, r *experiment.Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.HTML(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestDrawings checks that Drawings returns as many diagrams as the page of a search contains. It must
// combine the diagrams of a run and of searches.
func TestDrawings(t *testing.T) {
	var b bytes.Buffer
	if err := report.ExploredHTML(&b, endings()); err != nil {
		t.Fatal(err)
	}
	searched := strings.Count(b.String(), "data-drawing=")
	ofRun := report.Drawings(badDay(), nil)
	if searched == 0 || len(report.Drawings(nil, endings().Results)) != searched {
		t.Errorf("%d diagrams of searches, want %d", len(report.Drawings(nil, endings().Results)), searched)
	}
	if all := report.Drawings(badDay(), endings().Results); len(all) != len(ofRun)+searched || len(report.Drawings(nil, nil)) != 0 {
		t.Errorf("%d diagrams in all, want %d and %d", len(all), len(ofRun), searched)
	}
}

func TestFound(t *testing.T) {
	text, err := json.MarshalIndent(map[string]report.Found{"endings": endings().Found(), "replays": replays().Found()}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "found.json", string(text)+"\n")
}

// TestLoadFile checks that Load accepts the path of a file instead of a folder.
func TestLoadFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "other.json")
	var b bytes.Buffer
	if err := report.JSON(&b, rush()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := report.Load(file); err != nil || !reflect.DeepEqual(got, rush()) {
		t.Errorf("Load: got %+v, %v", got, err)
	}
}

// TestUnknownIsSaid checks the answer and the page for runs with unknown facts. The texts must neither
// claim that an unknown event happened nor that it did not happen.
func TestUnknownIsSaid(t *testing.T) {
	safe := measuredCell(catalog.Pause, catalog.Safe, ptr(catalog.Safe))
	safe.ExpectedExclusive = ptr(experiment.Yes)
	kept, unseen, twoInside := safe, safe, safe
	kept.Exclusive, twoInside.Exclusive = ptr(experiment.Yes), ptr(experiment.No)
	for about, tt := range map[string]struct {
		cells []experiment.Cell
		want  string
	}{
		"the lock was not seen":        {[]experiment.Cell{unseen}, "1 cell is not as expected, of 1. In 1 cell, each order went to one driver."},
		"the lock let two in":          {[]experiment.Cell{twoInside}, "1 cell is not as expected, of 1. In 1 cell, each order went to one driver (in 1 of these, the lock still let two holders in)."},
		"one is expected":              {[]experiment.Cell{kept}, "The one cell is as expected. In 1 cell, each order went to one driver."},
		"one of two is expected":       {[]experiment.Cell{kept, measuredCell(catalog.NoFault, catalog.Unsafe, nil)}, "1 of 2 cells are as expected, and no verdict was expected for the rest. In 1 cell, an order was grabbed more than once. In 1 cell, each order went to one driver."},
		"all are expected, one is n/a": {[]experiment.Cell{kept, kept, measuredCell(catalog.Cancel, catalog.NA, nil)}, "All 2 cells are as expected. In 2 cells, each order went to one driver."},
	} {
		r := run("rush", tt.cells...)
		r.Complete = true
		if page := pageOf(t, r); !strings.Contains(page, `<p class="answer">`+tt.want+"</p>") {
			t.Errorf("%s: the page does not have the answer %q:\n%s", about, tt.want, page)
		}
	}
	const want = "because the instances recorded no order that went wrong"
	for _, v := range []catalog.Verdict{catalog.Safe, catalog.Unknown, catalog.Unsafe, catalog.Stuck, catalog.NA} {
		c := measuredCell(catalog.Pause, v, nil)
		if page := pageOf(t, run("rush", c)); !strings.Contains(page, want) {
			t.Errorf("%s: no %q in\n%s", v, want, page)
		}
	}
}

// TestCommandOfACell checks that the command to repeat a cell has the flags of the run, but selects only this
// cell.
func TestCommandOfACell(t *testing.T) {
	for _, tt := range []struct {
		strategy string
		fault    catalog.Fault
		want     string
	}{
		{"rlock", catalog.Pause, `"command":"loadgen run -rate=5 -budget=9s '-body={\"id\":{order}}' -strategies=rlock -faults=pause"`},
		{experiment.Foreign, catalog.Pause, `"command":"loadgen run -rate=5 -budget=9s '-body={\"id\":{order}}' -faults=pause"`},
		{"rlock", catalog.NoFault, `"command":"loadgen run -rate=5 -repeat=6 '-body={\"id\":{order}}' -strategies=rlock -faults=none"`},
	} {
		c := measuredCell(tt.fault, catalog.Safe, nil)
		c.Strategy = tt.strategy
		r := run("rush", c)
		r.Config.Args = []string{"-strategies=a,b", "-rate=5", "-repeat=6", "-budget=9s", "-faults=all", "-only=a/none", "-only=b/pause", `-body={"id":{order}}`}
		if page := pageOf(t, r); !strings.Contains(page, tt.want) {
			t.Errorf("no %s in\n%s", tt.want, page)
		}
	}
}
