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
	// unseenDir has those that the explorer does not find.
	unseenDir = mutantsDir + "/unseen"
	// mutantsEnv tells a program that was built with mistakes which ones.
	mutantsEnv = "GRABLAB_MUTANTS"
	root       = "../.."
	// searchSeconds is more than any of the searches takes.
	searchSeconds = 300
)

// everyTime are the mutants that every test run looks for, in one program: a
// mistake in each of three strategies, which the other two do not run.
var everyTime = []string{"watchdog-compares-itself", "handoff-retry-takes", "cas-unconditional"}

// mutant is a small, plausible mistake, as a patch to the real files. The lines
// before the diff say what is wrong, which strategy it spoils, which property
// finds it and how far one has to look.
type mutant struct {
	name, mistake string
	search        explore.Config // of one strategy, for one property
	steps         int            // of the schedule that is found; 0: not noted
	diff          string

	// Of one in unseenDir: the package and the test that find it, or why none can or does.
	test, equivalent, survives string
}

func readMutant(dir, name string) (mutant, error) {
	text, err := os.ReadFile(filepath.Join(dir, name+".patch"))
	if err != nil {
		return mutant{}, err
	}
	head, diff, ok := strings.Cut(string(text), "\n\n")
	m := mutant{name: name, diff: diff, search: explore.Config{First: true, Seconds: searchSeconds}}
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

// readMutants reads those of a folder.
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

// applied is the tree with the mistakes in it.
func applied(t *testing.T, mutants ...mutant) tree {
	t.Helper()
	changed := tree{root, map[string]string{}}
	for _, m := range mutants {
		if err := changed.apply(m.diff); err != nil {
			t.Fatalf("%s: %v", m.name, err)
		}
	}
	return changed
}

// set takes in one line of the head.
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

// find searches as far as the head says.
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

// replayed says whether a failure came back when its schedule was executed again.
func replayed(f explore.Failure) bool { return len(f.Moments) > 0 }

// TestMutants puts mistakes into the locks, one at a time, and looks for them
// with the explorer; and without them, when there must be nothing to be found.
func TestMutants(t *testing.T) {
	all := readMutants(t, mutantsDir)
	for _, m := range all {
		t.Run("apply "+m.name, func(t *testing.T) { applied(t, m) })
	}
	if raced {
		return // the programs are built without the race detector: nothing would be watched
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

// expectFound builds this test with the mistakes in the files, and lets it look
// for them. The searches are so short that optimising them would take longer.
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
		t.Fatalf("%v: %s", err, out)
	}
	search := exec.CommandContext(t.Context(), program, "-test.run=^TestMutantsWithin$", "-test.v")
	search.Env = append(os.Environ(), mutantsEnv+"="+strings.Join(names, ","))
	out, err := search.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

// overlay writes the changed files, and what tells the compiler to take them.
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

// TestMutantsWithin is what a program with mistakes runs.
func TestMutantsWithin(t *testing.T) {
	names := os.Getenv(mutantsEnv)
	if names == "" {
		t.Skip("there are no mistakes in this program")
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
				t.Errorf("found in %d steps, and the head says %d", steps, m.steps)
			}
		})
	}
}

// TestUnseenMutants puts in the mistakes that the explorer does not find. The test that
// is said to find one fails; that is tried when GRABLAB_PROVE is 1.
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
