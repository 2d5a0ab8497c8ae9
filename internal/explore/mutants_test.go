package explore_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
)

const (
	mutantsDir = "testdata/mutants"
	// unseenDir holds the mutants that the explorer does not find.
	unseenDir = mutantsDir + "/unseen"
	// mutantsEnv is an environment variable that tells a mutated program which mutants it contains.
	mutantsEnv = "GRABLAB_MUTANTS"
	root       = "../.."
	// searchSeconds is the time limit for each search. No search needs so long.
	searchSeconds = 300
)

// everyTime lists the mutants that every test run looks for in one common program. Each changes a
// different strategy, so they do not affect each other.
var everyTime = []string{"watchdog-compares-itself", "handoff-retry-takes", "cas-unconditional"}

// A mutant is a small, plausible mistake, stored as a patch to the real files. The head of
// the patch describes the mistake and names the strategy, the property that finds it and the
// search.
type mutant struct {
	name, mistake string
	search        explore.Config // a search of one strategy for one property
	steps         int            // the length of the schedule to find, or 0 if unknown
	diff          string

	// A mutant in unseenDir has one of these: the package and test that find it, or why no test does.
	test, equivalent, survives string
}

func readMutant(dir, name string) (mutant, error) {
	text, err := os.ReadFile(filepath.Join(dir, name+".patch"))
	if err != nil {
		return mutant{}, err
	}
	head, diff, ok := strings.Cut(string(text), "\n\n")
	m := mutant{name: name, diff: diff, search: explore.Config{Seconds: searchSeconds}}
	if !ok {
		return m, fmt.Errorf("%s: no empty line after the head", name)
	}
	for lines := bufio.NewScanner(strings.NewReader(head)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		if err := m.set(key, value); err != nil {
			return m, fmt.Errorf("%s: %s: %w", name, key, err)
		}
	}
	ends := []bool{len(m.search.Properties) > 0, m.test != "", m.equivalent != "", m.survives != ""}
	ends = slices.DeleteFunc(ends, func(is bool) bool { return !is })
	switch {
	case m.mistake == "" || len(m.search.Strategies) == 0:
		return m, fmt.Errorf("%s: the head must name mistake and strategy", name)
	case len(ends) != 1 || (len(m.search.Properties) > 0) != (dir == mutantsDir):
		return m, fmt.Errorf("%s: the head must name the property that finds it; in %s, its test, or say that it is equivalent or survives", name, unseenDir)
	}
	return m, nil
}

// readMutants reads the mutants of a folder.
func readMutants(t *testing.T, dir string) (all []mutant) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		m, err := readMutant(dir, strings.TrimSuffix(filepath.Base(file), ".patch"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// applied returns the tree with the mutants applied.
func applied(t *testing.T, mutants ...mutant) tree {
	t.Helper()
	changed := tree{root, map[string]string{}}
	for _, m := range mutants {
		if err := changed.apply(m.diff); err != nil {
			t.Fatalf("%s: apply: %v", m.name, err)
		}
	}
	return changed
}

// set parses one line of a patch's head.
func (m *mutant) set(key, value string) (err error) {
	switch key {
	case "mistake":
		m.mistake = value
	case "strategy":
		m.search.Strategies = []string{value}
	case "property":
		m.search.Properties = []string{value}
	case "actors":
		m.search.Actors, err = strconv.Atoi(value)
	case "instances":
		m.search.Instances, err = strconv.Atoi(value)
	case "nodes":
		m.search.Nodes, err = strconv.Atoi(value)
	case "preemptions":
		m.search.Preemptions, err = strconv.Atoi(value)
	case "faults": // "1 of pause slow"
		count, kinds, _ := strings.Cut(value, " of ")
		for kind := range strings.FieldsSeq(kinds) {
			m.search.Faults = append(m.search.Faults, catalog.Fault(kind))
		}
		m.search.FaultCount, err = strconv.Atoi(count)
	case "ttl":
		m.search.TTL, err = time.ParseDuration(value)
	case "wait":
		m.search.Wait, err = time.ParseDuration(value)
	case "work":
		m.search.Work, err = time.ParseDuration(value)
	case "steps":
		m.steps, err = strconv.Atoi(value)
	case "test": // "internal/grab/lock TestRenewer"
		m.test = value
	case "equivalent":
		m.equivalent = value
	case "survives":
		m.survives = value
	default:
		err = fmt.Errorf("no such line of a head")
	}
	return err
}

// find runs the search that the head describes.
func (m mutant) find(t *testing.T) explore.Result {
	t.Helper()
	results, err := explore.Search(t.Context(), bubbleOf(t), m.search, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := results[0]
	for _, f := range r.Failures {
		t.Logf("%s: %s after %d steps, %d schedules in %v: %s", m.name, f.Property, len(f.Schedule.Steps), r.Schedules, r.Elapsed.Round(time.Millisecond), f.Why)
	}
	return r
}

// replayed reports whether a failure occurred again when its schedule was replayed.
func replayed(f explore.Failure) bool { return len(f.Moments) > 0 }

// TestMutants checks that the explorer finds each mutant, and that the same searches find nothing without
// the mutants.
func TestMutants(t *testing.T) {
	all := readMutants(t, mutantsDir)
	for _, m := range all {
		t.Run("apply "+m.name, func(t *testing.T) { applied(t, m) })
	}
	if raced {
		return // the mutated programs are built without the race detector, so it has nothing to check
	}
	if os.Getenv("GRABLAB_PROVE") != "1" {
		all = slices.DeleteFunc(all, func(m mutant) bool { return !slices.Contains(everyTime, m.name) })
		t.Run("every time", func(t *testing.T) { expectFound(t, all...) })
	} else {
		for _, m := range all {
			t.Run(m.name, func(t *testing.T) { expectFound(t, m) })
		}
	}
	searched := map[string]bool{}
	for _, m := range all {
		if key := fmt.Sprint(m.search); !searched[key] {
			searched[key] = true
			t.Run("without "+m.name, func(t *testing.T) { expectNothing(t, m) })
		}
	}
}

// expectFound builds this test program with the mutants and runs their searches in it. It builds without
// optimisation, because optimising would take longer than the searches.
func expectFound(t *testing.T, mutants ...mutant) {
	t.Parallel()
	dir := t.TempDir()
	changed := applied(t, mutants...)
	var names []string
	for _, m := range mutants {
		names = append(names, m.name)
	}
	program := filepath.Join(dir, "mutant.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-gcflags=grablab/...=-N -l", "-ldflags=-s -w",
		"-overlay="+changed.overlay(t, dir), "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c failed: %v: %s", err, out)
	}
	search := exec.CommandContext(t.Context(), program, "-test.run=^TestMutantsWithin$", "-test.v")
	search.Env = append(os.Environ(), mutantsEnv+"="+strings.Join(names, ","))
	out, err := search.CombinedOutput()
	if err != nil {
		t.Errorf("the mutated program failed: %v: %s", err, out)
	}
	t.Logf("%s", out)
}

// overlay writes the changed files, and the file that makes the compiler use them.
func (t tree) overlay(tb testing.TB, dir string) string {
	tb.Helper()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range t.changed {
		original, err := filepath.Abs(filepath.Join(t.root, path))
		if err != nil {
			tb.Fatal(err)
		}
		overlay.Replace[original] = filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(overlay.Replace[original], []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

func expectNothing(t *testing.T, m mutant) {
	if r := m.find(t); len(r.Failures) > 0 || !r.Complete {
		t.Errorf("without any mistake: %s, complete: %v %s", r.Verdict, r.Complete, r.Reason)
	}
}

// TestMutantsWithin runs in a program that was built with mutants. It checks that each mutant's search
// finds the mutant after the expected number of steps.
func TestMutantsWithin(t *testing.T) {
	names := os.Getenv(mutantsEnv)
	if names == "" {
		t.Skip("this program contains no mutants")
	}
	for name := range strings.SplitSeq(names, ",") {
		t.Run(name, func(t *testing.T) {
			m, err := readMutant(mutantsDir, name)
			if err != nil {
				t.Fatal(err)
			}
			r := m.find(t)
			if !slices.ContainsFunc(r.Failures, replayed) {
				t.Fatalf("not found in %d schedules: %s, complete: %v %s", r.Schedules, m.mistake, r.Complete, r.Reason)
			}
			if steps := len(r.Failures[0].Schedule.Steps); m.steps > 0 && steps != m.steps {
				t.Errorf("found in %d steps, but the head of the patch says %d", steps, m.steps)
			}
		})
	}
}

// TestUnseenMutants checks that the patches of the mutants that the explorer does not find still apply. If
// GRABLAB_PROVE is 1, it also checks that the named test fails.
func TestUnseenMutants(t *testing.T) {
	for _, m := range readMutants(t, unseenDir) {
		t.Run(m.name, func(t *testing.T) {
			changed := applied(t, m)
			if m.test == "" || raced || os.Getenv("GRABLAB_PROVE") != "1" {
				return
			}
			folder, name, _ := strings.Cut(m.test, " ")
			test := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-overlay="+changed.overlay(t, t.TempDir()), "-run", "^"+name+"$", "./"+folder)
			test.Dir = root
			out, err := test.CombinedOutput()
			if failed := strings.Contains(string(out), "--- FAIL: "+name) || strings.Contains(string(out), "\npanic: "); err == nil || !failed {
				t.Errorf("%s does not fail: %v\n%s", m.test, err, out)
			}
		})
	}
}
