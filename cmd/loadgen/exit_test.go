package main

import (
	"bytes"
	"context"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/lockbench"
	"grablab/internal/present/report"
	"grablab/internal/testbed/target"
)

// TestBadResultAnywhere checks the exit code for every combination of good and bad results among three.
// One bad result is enough to determine the code. An error or an interruption takes precedence.
func TestBadResultAnywhere(t *testing.T) {
	names := []string{"none", "mutex", "setnx"}
	const rush = references + "reference-rush-local"
	worse := changed(t, "reference-rush-local/run.json", `"verdict": "unsafe"`, `"verdict": "unknown"`)
	cells := func(bad int, change func(*experiment.Cell)) *experiment.Run {
		run := new(experiment.Run)
		for i, name := range names {
			none := 0
			c := experiment.Cell{Strategy: name, Fault: catalog.NoFault, Verdict: catalog.Safe, DoubleGrabs: &none, Environment: new(experiment.Environment)}
			if bad&(1<<i) != 0 {
				change(&c)
			}
			run.Cells = append(run.Cells, c)
		}
		return run
	}
	unsafe := func(c *experiment.Cell) { *c.DoubleGrabs, c.Verdict = 1, catalog.Unsafe }
	unknown := func(c *experiment.Cell) { c.DoubleGrabs, c.Verdict = nil, catalog.Unknown }
	runOf := func(s *runSettings, run *experiment.Run, err error) error {
		return s.conclude(run, err, &folder{begun: true}, io.Discard, io.Discard)
	}
	asserting := func(claims ...string) *runSettings {
		s := new(runSettings)
		for _, text := range claims {
			a, err := parseAssert(text)
			if err != nil {
				t.Fatal(err)
			}
			s.asserts = append(s.asserts, a)
		}
		return s
	}
	comparing := func(with catalog.Verdict) *runSettings {
		var before []target.Expectation
		for _, name := range names {
			before = append(before, target.Expectation{Strategy: name, Fault: catalog.NoFault, Verdict: with})
		}
		return &runSettings{baseline: report.NewBaseline(before)}
	}
	both := func(s, other *runSettings) *runSettings {
		s.asserts = other.asserts
		return s
	}
	benched := func(res *lockbench.Result, err error) error {
		s := newBenchSettings()
		s.check, s.format, res.Slices = true, "json", make([]lockbench.Slice, 1)
		return s.conclude(res, err, new(folder), io.Discard, io.Discard)
	}
	for _, tt := range []struct {
		name     string
		conclude func(bad int, err error) error
		want     exitCode // the code if any result is bad
		all      exitCode // the code if all results are bad; 0 means the same as want
		stops    bool     // whether an error can end the command early
	}{
		{"a claim about every cell", func(bad int, err error) error { return runOf(asserting("double_grabs==0"), cells(bad, unsafe), err) }, exitAssert, 0, true},
		{"a claim about each cell", func(bad int, err error) error {
			return runOf(asserting("none:double_grabs==0", "mutex:double_grabs==0", "setnx:double_grabs==0"), cells(bad, unsafe), err)
		}, exitAssert, 0, true},
		{"a baseline that was safe", func(bad int, err error) error { return runOf(comparing(catalog.Safe), cells(bad, unsafe), err) }, exitAssert, 0, true},
		{"a baseline that was known", func(bad int, err error) error { return runOf(comparing(catalog.Safe), cells(bad, unknown), err) }, exitAssert, exitFailed, true},
		{"a claim that does not hold, and a baseline that is kept", func(bad int, err error) error {
			return runOf(both(comparing(catalog.Unsafe), asserting("double_grabs==0")), cells(bad, unsafe), err)
		}, exitAssert, 0, true},
		{"a claim that holds, and a baseline that was safe", func(bad int, err error) error {
			return runOf(both(comparing(catalog.Safe), asserting("double_grabs<=1")), cells(bad, unsafe), err)
		}, exitAssert, 0, true},
		{"cells that cannot be measured", func(bad int, err error) error { return runOf(new(runSettings), cells(bad, unknown), err) }, exitDone, exitFailed, true},
		{"lost shards", func(bad int, _ error) error {
			return incomplete(nil, make([]string, bits.OnesCount(uint(bad))), io.Discard)
		}, exitFailed, 0, false},
		{"a bound of the benchmark", func(bad int, err error) error {
			res := new(lockbench.Result)
			for i := range names {
				res.Bounds = append(res.Bounds, lockbench.BoundRow{AtMost: new(float64), Verdict: []string{lockbench.Kept, lockbench.Missed}[bad>>i&1]})
			}
			return benched(res, err)
		}, exitAssert, 0, true},
		{"overlaps in the benchmark", func(bad int, err error) error {
			res := new(lockbench.Result)
			for i := range names {
				n := bad >> i & 1
				res.Rows = append(res.Rows, lockbench.Row{Figures: lockbench.Figures{Violations: &n}})
			}
			return benched(res, err)
		}, exitAssert, 0, true},
		{"compared results", func(bad int, _ error) error {
			s := showSettings{names: []string{rush}}
			for i := range names {
				s.names = append(s.names, []string{rush, worse}[bad>>i&1])
			}
			return s.compare(t.Context(), io.Discard, io.Discard)
		}, exitAssert, 0, false},
	} {
		for bad := range 1 << len(names) {
			for _, end := range []error{nil, context.Canceled, io.ErrUnexpectedEOF} {
				want := exitDone
				switch {
				case end != nil && !tt.stops:
					continue
				case end == context.Canceled:
					want = exitInterrupted
				case end != nil:
					want = exitFailed
				case bad == 1<<len(names)-1 && tt.all != 0:
					want = tt.all
				case bad != 0:
					want = tt.want
				}
				if got := conclude(tt.conclude(bad, end), io.Discard); got != int(want) {
					t.Errorf("%s: bad results %03b, ends with %v: exit %d, want %d", tt.name, bad, end, got, want)
				}
			}
		}
	}
}

// TestLostShards checks the exit code of a merge that has lost responses. The loss takes precedence over
// a failed assertion, and the output names every lost shard. All other errors take precedence over the
// loss.
func TestLostShards(t *testing.T) {
	for _, err := range []error{nil, exitAssert, exitFailed, io.ErrUnexpectedEOF, context.Canceled, flags.Usage("no such flag")} {
		for n, lost := range [][]string{nil, {"shard 1"}, {"shard 1", "shard 3"}} {
			var stderr strings.Builder
			want, tells := conclude(err, io.Discard), 0
			if n > 0 && (err == nil || err == exitAssert) {
				want, tells = int(exitFailed), n
			}
			if got := conclude(incomplete(err, lost, &stderr), io.Discard); got != want {
				t.Errorf("%v, and %d shards lost: exit %d, want %d", err, n, got, want)
			}
			for i, shard := range lost {
				if strings.Contains(stderr.String(), shard) != (i < tells) {
					t.Errorf("%v, and %d shards lost: %q", err, n, stderr.String())
				}
			}
		}
	}
}

// TestUsageErrorOfAProcess checks that a usage error is printed on one line, except that the quoted
// output of a process keeps its lines.
func TestUsageErrorOfAProcess(t *testing.T) {
	var stderr bytes.Buffer
	conclude(flags.Usage("a\nb. Its output ends with\n    x\n    y"), &stderr)
	if want := "loadgen: a; b. Its output ends with\n    x\n    y\n"; stderr.String() != want {
		t.Errorf("stderr is %q, want %q", &stderr, want)
	}
}

// TestRelative checks that relative shortens only paths below the working directory. It must change no
// path if the working directory has been removed.
func TestRelative(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	here := filepath.Join(dir, "results")
	for path, want := range map[string]string{here: "results", dir: dir, dir + "2": dir + "2", "/elsewhere": "/elsewhere"} {
		if got := relative(path); got != want {
			t.Errorf("%s becomes %s, want %s", path, got, want)
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if got := relative(here); got != here {
		t.Errorf("without a working directory, %s becomes %s", here, got)
	}
}
