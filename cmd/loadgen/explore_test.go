package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
)

func TestExploreBadUsage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"broken.txt":   "strategy setnx\nactors A@1\nnodes redis\nttl 3s\nA acquires\n",
		"property.txt": "strategy setnx\nactors A@1\nnodes redis\nttl 3s\nproperty fances\nA begins\n",
		"mode.txt":     "strategy setnx\nactors A@1\nnodes redis\nttl 3s\nmode F999\nA begins\n",
		"other.go":     "package main\n",
		"nothing.go":   "package lock\n\nvar x = 1\n",
		"noname.go":    "package lock\n\nvar x = Strategy{Title: \"x\"}\n",
		"syntax.go":    "package lock\n\nvar x = Strategy{\n",
		"taken.go":     "package lock\n\nvar x = Strategy{Name: \"setnx\"}\n",
		"twice.go":     "package lock\n\nvar x, y = Strategy{Name: \"x\"}, Strategy{Name: \"x\"}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for args, want := range map[string]string{
		"stray":              "stray: this is not a flag",
		"-strategy setnx":    "did you mean -strategies?",
		"-strategies setnxx": "did you mean setnx?",
		"-strategies setnx,": "separated by commas",
		"-faults expirey":    "must be one of slow, pause",
		"-property winner":   "must be one of one-winner",
		"-actors 5":          "must be a whole number from 1 to 4",
		"-preemptions -1":    "must be a whole number from 0",
		"-seconds soon":      "must be a duration",
		"-guard none":        "must be one of naive",
		"-format dot":        "must be one of text, mermaid, json",
		"-format mermaid -strategies setnx,mutex": "choose it with -strategies",
		"-replay none.txt":                        "no such file",
		"-replay broken.txt":                      `broken.txt: line 5: "A acquires"`,
		"-replay property.txt":                    `property.txt: there is no property "fances"; did you mean fence?`,
		"-replay mode.txt":                        `mode.txt: there is no failure mode "F999"`,
		"-replay broken.txt -faults pause":        "-faults pause: with -replay, the schedule file determines every step",
		"-shortest -everything":                   "use only one of these flags",
		"-nodes 2":                                "must be a whole number from 3",
		"-file none.go":                           "no such file",
		"-file taken.go":                          `there is already a strategy "setnx"`,
		"-file twice.go":                          `there is already a strategy "x"`,
		"-file broken.txt":                        "broken.txt:1:1: expected 'package'",
		"-file other.go":                          "change its first line to package lock",
		"-file nothing.go":                        "declares no strategy",
		"-file noname.go":                         "declares no strategy",
		"-file syntax.go":                         "syntax.go:3:19",
	} {
		var out, errs bytes.Buffer
		code := exitOf(context.Background(), append([]string{"explore"}, strings.Fields(args)...), &out, &errs)
		if code != int(exitUsage) || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit %d, %q, want %q", args, code, errs.String(), want)
		}
		if out.Len() > 0 {
			t.Errorf("%s: printed %q", args, &out)
		}
	}
}

// TestExplore checks that a search prints the same text when it is repeated, and that its saved schedule
// replays the failure.
func TestExplore(t *testing.T) {
	dir := t.TempDir()
	explored := func(want int, args ...string) string {
		t.Helper()
		cmd := loadgen(t, append([]string{"explore", "-no-timing"}, args...)...)
		cmd.Dir = dir
		code, stdout, stderr := output(t, cmd)
		if code != want {
			t.Fatalf("%q: exit %d\n%s%s", args, code, stdout, stderr)
		}
		return stdout
	}
	search := []string{"-strategies", "setnx,mysql-cas", "-faults", "pause", "-preemptions", "1"}
	text := explored(int(exitDone), search...)
	if again := explored(int(exitDone), search...); again != text {
		t.Errorf("first\n%s\nthen\n%s", text, again)
	}
	for _, want := range []string{"unsafe ✓", "safe ✓", "F11", "explore -replay results/explore/setnx-one-winner.txt\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	file := "results/explore/setnx-one-winner.txt"
	if story := explored(int(exitDone), "-replay", file); !strings.Contains(story, "setnx breaks one-winner") {
		t.Errorf("the replay is\n%s", story)
	}
	if story := explored(int(exitDone), "-replay", file, "-strategies", "setnx-fenced"); !strings.Contains(story, "setnx-fenced breaks no property in this schedule") {
		t.Errorf("the replay with the cure is\n%s", story)
	}
	if drawn := explored(int(exitDone), "-replay", file, "-format", "mermaid"); !strings.HasPrefix(drawn, "sequenceDiagram\n") {
		t.Errorf("the diagram is\n%s", drawn)
	}
	cmd := loadgen(t, "explore", "-replay", filepath.Join(dir, file), "-strategies", "setnx-fenced", "-format", "mermaid")
	if code, drawn, stderr := output(t, cmd); code != int(exitDone) || drawn != "" || stderr != "no failure was found, so there is no diagram\n" {
		t.Errorf("without a failure: exit %d, %q, %q", code, drawn, stderr)
	}
	var doc struct {
		Strategies []struct{ Verdict, Expected, Property string }
	}
	if err := json.Unmarshal([]byte(explored(int(exitDone), append(search, "-format", "json")...)), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Strategies) != 2 || doc.Strategies[0].Property != catalog.OneWinner || doc.Strategies[1].Verdict != "safe" {
		t.Errorf("explore -format json printed %+v", doc)
	}
	explored(int(exitUsage), "-strategies", "setnx", "-guard", "fenced") // setnx has no fencing tokens
	edited := strings.Replace(string(read(t, dir, file)), "time to lease end\n", "", 1)
	if err := os.WriteFile(filepath.Join(dir, file), []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	explored(int(exitAssert), "-replay", file) // the edited schedule no longer breaks the property
}

// TestExploreOldNames checks that explore accepts old names of faults and properties.
func TestExploreOldNames(t *testing.T) {
	var errs bytes.Buffer
	cmd := loadgen(t, "explore", "-no-timing", "-quiet", "-out", t.TempDir(), "-strategies", "setnx", "-preemptions", "1",
		"-faults", "expiry,slow", "-property", "live-overlap,one-winner")
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || errs.Len() > 0 || !strings.Contains(string(out), "up to 1 fault of slow\n") {
		t.Errorf("explore with the old name of a fault: %v\n%s%s", err, &errs, out)
	}
	errs.Reset()
	cmd = loadgen(t, "explore", "-replay", "../../internal/explore/testdata/renamed/F5.txt")
	cmd.Dir, cmd.Stderr = ".", &errs
	out, err = cmd.Output()
	if err != nil || errs.Len() > 0 || !strings.Contains(string(out), "breaks lease-exclusive") {
		t.Errorf("explore with the old name of a property: %v\n%s%s", err, &errs, out)
	}
}

// TestSchedulesOfOneProperty checks that different schedules for the same property get different files,
// and that a schedule found by two searches gets only one.
func TestSchedulesOfOneProperty(t *testing.T) {
	found := func(mode string) explore.Failure {
		return explore.Failure{Property: "one-winner", Schedule: schedule.Schedule{Strategy: "setnx", Nodes: []string{"redis"}, Property: "one-winner", Mode: mode}}
	}
	s := &exploreSettings{out: t.TempDir()}
	results := []explore.Result{{Failures: []explore.Failure{found("F11")}, Parts: []explore.Result{
		{Failures: []explore.Failure{found("F11")}}, {Failures: []explore.Failure{found("F12")}}, {Failures: []explore.Failure{found("F17")}},
	}}}
	if err := s.save(results); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(s.out, "*")); len(files) != 3 {
		t.Errorf("files of three schedules: %v", files)
	}
	for _, mode := range []string{"F11", "F12", "F17"} {
		text, err := os.ReadFile(s.fileOf(found(mode)))
		if err != nil || string(text) != found(mode).Schedule.String() {
			t.Errorf("schedule of %s: %v, %s", mode, err, text)
		}
	}
}

// TestExploreInterrupt checks that an interrupted search prints how much it has searched.
func TestExploreInterrupt(t *testing.T) {
	cmd := loadgen(t, "explore", "-strategies", "redlock", "-faults", "all", "-fault-count", "3", "-seconds", "600")
	var out bytes.Buffer
	cmd.Stdout = &out
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun := bufio.NewReader(errs)
	if line, err := begun.ReadString('\n'); err != nil || !strings.HasPrefix(line, "redlock: ") {
		t.Errorf("no progress: %q, %v", line, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(begun)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != int(exitInterrupted) || !strings.Contains(string(rest), "interrupted") {
		t.Errorf("exit %d, %s", code, rest)
	}
	if !strings.Contains(out.String(), " were searched") {
		t.Errorf("the output does not say how much was searched:\n%s", &out)
	}
}

// TestExploreInterruptCompile checks that Ctrl-C during the compilation of a user's lock leaves no
// temporary folder behind.
func TestExploreInterruptCompile(t *testing.T) {
	temp := t.TempDir()
	cmd := loadgen(t, "explore", "-file", example)
	cmd.Dir = "." // in the source tree
	cmd.Env = append(cmd.Env, "TMPDIR="+temp)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for compiling := false; !compiling; time.Sleep(10 * time.Millisecond) {
		begun, err := filepath.Glob(filepath.Join(temp, "loadgen-explore-*", "go-build*"))
		compiling = err != nil || len(begun) > 0
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != int(exitInterrupted) || errs.String() != "interrupted before the first schedule\n" {
		t.Errorf("exit %d, %s", code, &errs)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}

func TestExploreExitCodes(t *testing.T) {
	result := func(v, expected catalog.Verdict) []explore.Result {
		return []explore.Result{{Strategy: "x", Verdict: v, Expected: expected}}
	}
	unexpected := func(at, of int) []explore.Result {
		results := make([]explore.Result, of)
		for i := range results {
			results[i] = explore.Result{Verdict: catalog.Unsafe, Expected: catalog.Unsafe, Failures: []explore.Failure{{Unexpected: i == at}}}
		}
		return results
	}
	withParts := func(parts []explore.Result) []explore.Result {
		return []explore.Result{{Verdict: catalog.Safe, Expected: catalog.Safe}, {Verdict: catalog.Safe, Expected: catalog.Safe, Parts: parts}}
	}
	for _, tt := range []struct {
		name    string
		results []explore.Result
		err     error
		want    int
	}{
		{"as expected", result(catalog.Unsafe, catalog.Unsafe), nil, int(exitDone)},
		{"no verdict is expected", result(catalog.Unsafe, ""), nil, int(exitDone)},
		{"worse", result(catalog.Unsafe, catalog.Safe), nil, int(exitAssert)},
		{"better", result(catalog.Safe, catalog.Unsafe), nil, int(exitAssert)},
		{"the time ran out", result(catalog.Unknown, catalog.Safe), nil, int(exitAssert)},
		{"a failure that is not claimed", unexpected(0, 1), nil, int(exitAssert)},
		{"such a failure in the first of three results", unexpected(0, 3), nil, int(exitAssert)},
		{"such a failure in the second of three results", unexpected(1, 3), nil, int(exitAssert)},
		{"such a failure in the last of three results", unexpected(2, 3), nil, int(exitAssert)},
		{"such a failure in the first of two parts", withParts(unexpected(0, 2)), nil, int(exitAssert)},
		{"such a failure in the last of two parts", withParts(unexpected(1, 2)), nil, int(exitAssert)},
		{"claimed failures in the parts", withParts(unexpected(-1, 2)), nil, int(exitDone)},
		{"a part ran out of time", withParts(result(catalog.Unknown, catalog.Safe)), nil, int(exitDone)},
		{"interrupted", result(catalog.Unknown, catalog.Safe), context.Canceled, int(exitInterrupted)},
		{"makes no sense", nil, explore.ErrConfig, int(exitUsage)},
		{"failed", nil, io.ErrUnexpectedEOF, int(exitFailed)},
	} {
		s := newExploreSettings()
		s.bounded, s.out = true, t.TempDir()
		if got := conclude(s.conclude(tt.results, tt.err, io.Discard, io.Discard), io.Discard); got != tt.want {
			t.Errorf("%s: exit %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestExploreUnwritable checks that a search prints its result even if it cannot save its schedules.
func TestExploreUnwritable(t *testing.T) {
	s := newExploreSettings()
	s.out = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(s.out, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f := explore.Failure{Property: "one-winner", Schedule: schedule.Schedule{Strategy: "none"}}
	var stdout, stderr bytes.Buffer
	code := conclude(s.conclude([]explore.Result{{Strategy: "none", Verdict: catalog.Unsafe, Failures: []explore.Failure{f}}}, nil, &stdout, &stderr), &stderr)
	if code != int(exitFailed) || !strings.Contains(stderr.String(), "loadgen: schedules: ") {
		t.Errorf("exit %d, %q", code, &stderr)
	}
	if !strings.Contains(stdout.String(), "none (no lock) breaks one-winner") {
		t.Errorf("printed %q", &stdout)
	}
}

func TestExploreHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if code := exitOf(context.Background(), []string{"explore", "-h"}, &out, &errs); code != int(exitDone) {
		t.Fatalf("exit %d, %s", code, errs.String())
	}
	for _, o := range newExploreSettings().flags() {
		if !strings.Contains(out.String(), "-"+o.Name+" ") {
			t.Errorf("the help does not list -%s", o.Name)
		}
	}
}

const example = "../../internal/explore/testdata/own/setnx_healing.go"

// TestOwnStrategy checks that declaredStrategies finds the strategy in the example file.
func TestOwnStrategy(t *testing.T) {
	variables, names, err := declaredStrategies(example)
	if err != nil || !slices.Equal(variables, []string{"healing"}) || !slices.Equal(names, []string{"setnx-healing"}) {
		t.Errorf("declaredStrategies: got %v, %v, %v", variables, names, err)
	}
}

// TestReplayIsQuoted checks that a user can paste the printed replay command into a shell, even if file
// names contain spaces and quotes.
func TestReplayIsQuoted(t *testing.T) {
	s := exploreSettings{replay: "it's it.txt", file: "my lock.go"}
	if got, want := s.replayWith(explore.Failure{}), program()+` explore -file 'my lock.go' -replay 'it'\''s it.txt'`; got != want {
		t.Errorf("replayWith: got %s, want %s", got, want)
	}
}

// TestFailures checks that failures lists the failures of all parts of a portfolio, in order.
func TestFailures(t *testing.T) {
	of := func(property string) []explore.Failure { return []explore.Failure{{Property: property}} }
	for want, results := range map[string][]explore.Result{
		"":   {{Strategy: "a"}, {Strategy: "b", Parts: []explore.Result{{}, {}}}},
		"xy": {{Strategy: "a"}, {Strategy: "b", Failures: of("x"), Parts: []explore.Result{{Failures: of("y")}}}},
		"yx": {{Strategy: "a", Parts: []explore.Result{{}, {Failures: of("y")}}}, {Strategy: "b", Failures: of("x")}},
	} {
		if got := catalog.Join(failures(results), "", func(f explore.Failure) string { return f.Property }); got != want {
			t.Errorf("failures of the properties %s, want %s", got, want)
		}
	}
}
