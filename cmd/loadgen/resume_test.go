package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

// startUntil starts cmd, and returns once cmd has printed a line that contains awaited.
func startUntil(t *testing.T, cmd *exec.Cmd, awaited string) {
	t.Helper()
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	giveUp := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { giveUp.Stop() })
	said := bufio.NewReader(pipe)
	for {
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatalf("the command ended before it printed %q: %v", awaited, err)
		}
		if strings.Contains(line, awaited) {
			break
		}
	}
	go io.Copy(io.Discard, said)
}

// TestResume checks that a resumed run has the same cells as an uninterrupted one. Cells that were
// already complete must not change.
func TestResume(t *testing.T) {
	args := []string{"-strategies", "none,setnx,mutex", "-orders", "20", "-rate", "400", "-seed", "7"}
	cmd := loadgen(t, append(args, "-out", "x")...)
	startUntil(t, cmd, "[2/3] setnx")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != int(exitInterrupted) {
		t.Fatalf("exit %d", code)
	}
	first := fits(t, read(t, cmd.Dir, "x", report.File))
	if first.Complete || len(first.Cells) != 2 || first.Cells[0].Interrupted || !first.Cells[1].Interrupted {
		t.Fatalf("the interrupted run has the cells %+v", first.Cells)
	}

	again := loadgen(t, "-resume", "x", "-strategies", "none,setnx,mutex", "-assert", "expected", "-format", "json")
	again.Dir = cmd.Dir
	code, stdout, stderr := output(t, again)
	if code != int(exitDone) {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	run := fits(t, []byte(stdout))
	if !run.Complete || run.Config.Seed != 7 || !run.StartedAt.Equal(first.StartedAt) || run.DurationS <= first.DurationS {
		t.Errorf("the resumed run is %s", stdout)
	}
	var got []string
	for _, c := range run.Cells {
		got = append(got, c.Strategy)
	}
	if want := []string{"none", "setnx", "mutex"}; !slices.Equal(got, want) {
		t.Errorf("its cells are %q, want %q", got, want)
	}
	before, _ := json.Marshal(first.Cells[0])
	after, _ := json.Marshal(run.Cells[0])
	if !bytes.Equal(before, after) {
		t.Errorf("a finished cell was\n%s\nand is\n%s", before, after)
	}
	if strings.Contains(stderr, "[1/2] none") || !strings.Contains(stderr, "[1/2] setnx") {
		t.Errorf("the resumed run did not begin with setnx: %s", stderr)
	}

	// The run is complete now, so another call has nothing to do.
	more := loadgen(t, "-resume", "x", "-format", "json")
	more.Dir = cmd.Dir
	if code, stdout, stderr := output(t, more); code != int(exitDone) || len(fits(t, []byte(stdout)).Cells) != 3 || strings.Contains(stderr, "starting") {
		t.Errorf("once more: exit %d\n%s\n%s", code, stdout, stderr)
	}
}

// TestResumeContradicted checks that -resume refuses flags, versions and machines that differ from those
// of the recorded run. It must also refuse recorded flags that run commands.
func TestResumeContradicted(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, commit string, args ...string) {
		var b bytes.Buffer
		err := report.JSON(&b, &experiment.Run{
			Schema: experiment.Schema, ID: name, Environment: experiment.Environment{Commit: commit}, Config: experiment.RunConfig{Args: args},
		})
		if err == nil {
			err = os.Mkdir(name, 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(name, report.File), b.Bytes(), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	commit := experiment.NewEnvironment("").Commit
	write("x", commit, "-strategies=none", "-orders=5", "-seed=3")
	write("old", commit)
	write("other", "abc1234", "-seed=3")
	write("changed", commit, "-orders=many")
	for _, flag := range []string{"service", "open-orders", "ledger-query", "migrate", "target-file"} {
		write(flag, commit, "-orders=5", "-"+flag+"=touch x/owned")
	}
	elsewhere := func(name string, change func(*experiment.Environment)) {
		env := experiment.NewEnvironment("")
		change(&env)
		var b bytes.Buffer
		run := experiment.Run{Schema: experiment.Schema, ID: name, Environment: env, Config: experiment.RunConfig{Args: []string{"-orders=5"}}}
		if err := errors.Join(report.JSON(&b, &run), os.Mkdir(name, 0o755), os.WriteFile(filepath.Join(name, report.File), b.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere("cpus", func(e *experiment.Environment) { e.CPUs += 7 })
	elsewhere("go", func(e *experiment.Environment) { e.Go = "go1.2" })
	for args, want := range map[string]string{
		"-resume x -orders 6":         "-orders=6: the run in x began with other flags",
		"-resume x -drivers 6":        "-drivers=6: the run in x began with other flags",
		"-resume x -seed 4":           "-seed=4: the run in x began with other flags",
		"-resume x -out y":            "-out y: a resumed run writes to its own folder",
		"-resume nowhere":             "nowhere has no run.json",
		"-resume old":                 "does not record the flags",
		"-resume other":               "loadgen commit abc1234 began this run",
		"-resume changed":             `loadgen: the flags recorded in changed: -orders many`,
		"-resume x -assert setnx:x<1": "no field",
		"-resume service":             `-service "touch x/owned", which runs commands or SQL: if you trust it`,
		"-resume open-orders":         `-open-orders "touch x/owned", which runs commands or SQL: if you trust it`,
		"-resume ledger-query":        `-ledger-query "touch x/owned", which runs commands or SQL: if you trust it`,
		"-resume migrate":             `-migrate "touch x/owned", which runs commands or SQL: if you trust it`,
		"-resume target-file":         `-target-file "touch x/owned", which runs commands or SQL: if you trust it`,
		"-resume cpus":                "was measured with cpus ",
		"-resume go":                  "was measured with go go1.2, but here it is go",
	} {
		var stdout, stderr bytes.Buffer
		code := exitOf(context.Background(), strings.Fields(args), &stdout, &stderr)
		if code != int(exitUsage) || !strings.Contains(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: exit %d, %q, want 2, …%s…", args, code, &stderr, want)
		}
	}
	s, err := parseRun(strings.Fields("-resume x -orders 5 -quiet"))
	if err != nil || s.Orders != 5 || s.Seed != 3 || !s.quiet || s.Out != filepath.Join(dir, "x") {
		t.Errorf("resumed as %+v, %v", s, err)
	}
	if want := []string{"-strategies=none", "-orders=5", "-seed=3"}; err == nil && !slices.Equal(s.Args, want) {
		t.Errorf("the resumed run records the flags %q, want %q", s.Args, want)
	}
}

// TestResumeWithChangedFile checks that a run is not resumed if the file with the expected verdicts has changed since it
// began. Runs that recorded no sums of their files are resumed.
func TestResumeWithChangedFile(t *testing.T) {
	t.Chdir(t.TempDir())
	file := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file("e.yaml", "none: unsafe\n")
	began, err := parseRun(strings.Fields("-strategies none -expectations e.yaml"))
	if err != nil || len(began.Files) != 1 {
		t.Fatalf("parseRun: %v, %v", began, err)
	}
	for name, sums := range map[string]map[string]string{"x": began.Files, "old": nil} {
		run := experiment.Run{Schema: experiment.Schema, ID: name, Environment: experiment.NewEnvironment(""), Config: experiment.RunConfig{Args: began.Args, Files: sums}}
		var b bytes.Buffer
		if err := errors.Join(report.JSON(&b, &run), os.Mkdir(name, 0o755)); err != nil {
			t.Fatal(err)
		}
		file(filepath.Join(name, report.File), b.String())
	}
	for text, want := range map[string]string{"none: unsafe\n": "", "none: safe\n": "the file e.yaml of -expectations has changed"} {
		file("e.yaml", text)
		if _, err := parseRun(strings.Fields("-resume old")); err != nil {
			t.Errorf("without sums: %v", err)
		}
		if _, err := parseRun(strings.Fields("-resume x")); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: parseRun: %v, want %q", text, err, want)
		}
	}
}

// TestExpectationsFromPipe checks that the file with the expected verdicts may be a pipe, as in
// -expectations <(command).
func TestExpectationsFromPipe(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if _, err := to.WriteString("none: unsafe\n"); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := parseRun([]string{"-strategies", "none", "-expectations", fmt.Sprintf("/dev/fd/%d", from.Fd())})
	if err != nil || len(s.Expect) != 1 {
		t.Errorf("parseRun: %+v, %v", s, err)
	}
}

// TestHowToContinue checks that an interrupted run prints how many of its tests are kept, and the
// complete command to continue.
func TestHowToContinue(t *testing.T) {
	s := new(runSettings)
	s.Args = []string{"-target-file=it's.yaml", "-seed=3", "-ledger-query=SELECT 1"}
	s.unrecordedArgs = []string{"-out=x", "-db=u:secret@tcp(h:1)/d", "-baseline=b.yaml"}
	run := &experiment.Run{Cells: []experiment.Cell{{Environment: new(experiment.Environment)}, {Environment: new(experiment.Environment), Interrupted: true}}, Planned: 3}
	var stderr bytes.Buffer
	err := s.conclude(run, context.Canceled, &folder{begun: true, path: "/r/x"}, io.Discard, &stderr)
	want := `interrupted: the results of 1 of 3 planned tests are kept; to continue, run: loadgen run -resume /r/x '-target-file=it'\''s.yaml' '-ledger-query=SELECT 1' -db=… -baseline=b.yaml` + "\n"
	if err != exitInterrupted || stderr.String() != want {
		t.Errorf("error %v, stderr %q, want %q", err, &stderr, want)
	}
}

// TestArgs checks that a run records exactly the flags that affect its result, and no secrets.
func TestArgs(t *testing.T) {
	s, err := parseRun(strings.Fields("-stack external -db u:secret@tcp(h:1)/d -strategies none -orders 5 -out x -format json -assert expected -quiet -seed 3"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"-stack=external", "-strategies=none", "-orders=5", "-seed=3"}; !slices.Equal(s.Args, want) {
		t.Errorf("recorded flags are %q, want %q", s.Args, want)
	}
	if s, err = parseRun(nil); err != nil || len(s.Args) != 1 || !strings.HasPrefix(s.Args[0], "-seed=") {
		t.Errorf("got %q, %v, want only the random seed", s.Args, err)
	}
}
