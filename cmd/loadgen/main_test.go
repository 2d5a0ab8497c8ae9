package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"grablab/internal/measure/experiment"
	"grablab/internal/measure/lockbench"
	"grablab/internal/present/report"
	"grablab/internal/service/version"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// asMain is an environment variable. If it is set, the test binary behaves like loadgen.
const asMain = "LOADGEN_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	stack.BeHelper()
	if os.Getenv(asMain) != "" || len(os.Args) > 1 && os.Args[1] == fleet.Command {
		main()
	}
	os.Unsetenv("GITHUB_ACTIONS") // otherwise, the runs in these tests would report to the workflow
	os.Unsetenv("GITHUB_STEP_SUMMARY")
	os.Exit(m.Run())
}

// loadgen returns a command that runs loadgen in a separate process, in an empty folder.
func loadgen(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	cmd.Dir = t.TempDir()
	return cmd
}

// exitOf runs loadgen in this process and returns its exit code.
func exitOf(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return conclude(run(ctx, args, stdout, stderr), stderr)
}

// output runs cmd and returns its exit code and its output.
func output(t *testing.T, cmd *exec.Cmd) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// fits checks a run.json against its schema, and returns the run.
func fits(t *testing.T, text []byte) *experiment.Run {
	t.Helper()
	schema, err := jsonschema.UnmarshalJSON(strings.NewReader(experiment.RunSchema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("run.schema.json", schema); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("run.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if err := s.Validate(doc); err != nil {
		t.Error(err)
	}
	run := new(experiment.Run)
	if err := json.Unmarshal(text, run); err != nil {
		t.Fatal(err)
	}
	return run
}

func awaitHealthy(t *testing.T, url string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		answer, err := http.Get(url + "/healthz")
		if err == nil {
			answer.Body.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, elem ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRun(t *testing.T) {
	cmd := loadgen(t, "-strategies", "none,setnx", "-orders", "10", "-rate", "400", "-seed", "7", "-assert", "setnx:double_grabs==0")
	code, stdout, stderr := output(t, cmd)
	if code != int(exitDone) {
		t.Fatalf("exit %d\n%s\n%s", code, stdout, stderr)
	}
	if !strings.HasPrefix(stdout, "seed 7\n") {
		t.Errorf("the seed is not printed first: %q", stdout)
	}
	if !strings.Contains(stderr, "[2/2] setnx") {
		t.Errorf("no progress: %q", stderr)
	}

	link, err := os.Readlink(filepath.Join(cmd.Dir, "results", "latest"))
	if err != nil || filepath.IsAbs(link) {
		t.Errorf("results/latest points to %q, %v", link, err)
	}
	latest := filepath.Join(cmd.Dir, "results", "latest")
	text := read(t, latest, report.File)
	r := fits(t, text)
	if !r.Complete || len(r.Cells) != 2 || r.Config.Seed != 7 || r.ID != link {
		t.Errorf("run.json is %s", text)
	}
	entries, err := os.ReadDir(latest)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"events.jsonl", "none-none.vegeta.bin", "report.html", "report.md", "run.json", "setnx-none.vegeta.bin"}; !slices.Equal(names, want) {
		t.Errorf("the folder has %q, want %q", names, want)
	}

	// The report command must print the same text again.
	var table, again, stored bytes.Buffer
	if err := report.Text(&table, r); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stdout, table.String()) {
		t.Errorf("the table is not printed: %s", stdout)
	}
	for format, want := range map[string]string{
		"text": table.String(), "markdown": string(read(t, latest, markdownFile)), "html": string(read(t, latest, htmlFile)), "json": string(text),
	} {
		again.Reset()
		if code := exitOf(context.Background(), []string{"report", latest, "-format", format}, &again, &stored); code != int(exitDone) || again.String() != want {
			t.Errorf("report -format %s: exit %d\n%s\nwant\n%s", format, code, &again, want)
		}
	}
	again.Reset()
	if code := exitOf(context.Background(), []string{"report", latest, latest}, &again, &stored); code != int(exitDone) || again.String() != table.String()+"\n"+table.String() {
		t.Errorf("two reports: exit %d\n%s", code, &again)
	}
}

// TestJSONAlone checks that -format json prints run.json and nothing else, even if an assertion fails.
// With -quiet, only failed assertions go to standard error.
func TestJSONAlone(t *testing.T) {
	out := filepath.Join(t.TempDir(), "deep", "out")
	cmd := loadgen(t, "run", "-strategies", "none", "-orders", "2", "-rate", "400", "-format", "json", "-quiet", "-out", out,
		"-assert", "none:requests==40", "-assert", "requests<40", "-assert", "belief_gap_ms>=0")
	code, stdout, stderr := output(t, cmd)
	if code != int(exitAssert) {
		t.Errorf("exit %d, want %d", code, int(exitAssert))
	}
	if stdout != string(read(t, out, report.File)) {
		t.Errorf("printed %s", stdout)
	}
	fits(t, []byte(stdout))
	want := "this assertion does not hold: requests<40: none/none: requests is 40\n" +
		"this assertion does not hold: belief_gap_ms>=0: none/none: belief_gap_ms could not be counted\n"
	if stderr != want {
		t.Errorf("stderr is %q, want %q", stderr, want)
	}
	if _, err := os.Stat(filepath.Join(cmd.Dir, "results")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("-out also created the default folder results: %v", err)
	}
}

// TestOutRefused checks that -out refuses a folder with the results of another run, and changes nothing
// in it.
func TestOutRefused(t *testing.T) {
	for _, name := range []string{report.File, lockbench.File, "events.jsonl", "redlock-none.vegeta.bin"} {
		out := t.TempDir()
		if err := os.WriteFile(filepath.Join(out, name), []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		if code := exitOf(context.Background(), []string{"-strategies", "none", "-quiet", "-out", out}, &stdout, &stderr); code != int(exitUsage) {
			t.Errorf("%s: exit %d", name, code)
		}
		if want := out + " has the results of another run"; !strings.Contains(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: stderr is %q, want %q", name, &stderr, want)
		}
		if resumable := name == report.File; strings.Contains(stderr.String(), "-resume") != resumable {
			t.Errorf("%s: stderr is %q, but whether the run can be resumed is %v", name, &stderr, resumable)
		}
		entries, err := os.ReadDir(out)
		if err != nil || len(entries) != 1 || string(read(t, out, name)) != "old" {
			t.Errorf("%s: the folder now contains %v, %v", name, entries, err)
		}
	}
}

// TestOutInUse checks that a run refuses a result folder that another run uses. The message must name the
// process of the other run.
func TestOutInUse(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	first, err := newFolder(out, "rush", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-strategies", "none", "-quiet", "-out", out}, {"bench", "-strategies", "none", "-quiet", "-out", out}} {
		var stdout, stderr bytes.Buffer
		if code := exitOf(context.Background(), args, &stdout, &stderr); code != int(exitFailed) {
			t.Errorf("%q: exit %d", args, code)
		}
		want := fmt.Sprintf("%s is in use by process %d since ", out, os.Getpid())
		if !strings.Contains(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%q: stderr is %q, want %q", args, &stderr, want)
		}
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	second, err := newFolder(out, "rush", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := second.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unused folder %s still exists: %v", out, err)
	}
}

func TestFoldersOfOneSecond(t *testing.T) {
	t.Chdir(t.TempDir())
	now := time.Date(2026, 11, 20, 21, 30, 0, 0, time.FixedZone("", 3600))
	for _, want := range []string{"20261120T203000Z-rush", "20261120T203000Z-rush-2", "20261120T203000Z-rush-3"} {
		f, err := newFolder("", "rush", now)
		if err != nil || filepath.Base(f.path) != want {
			t.Fatalf("newFolder: got %+v, %v, want %s", f, err, want)
		}
		if err := f.save(&experiment.Run{}); err != nil {
			t.Fatal(err)
		}
		if link, err := os.Readlink("results/latest"); err != nil || link != want {
			t.Errorf("results/latest points to %s, %v, want %s", link, err, want)
		}
	}
}

// TestUnwritable checks that run reports a result folder that it cannot write as a usage error, with
// advice on one line.
func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("results", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"-out", "results/x"}, {"-out", "results"}} {
		var stdout, stderr bytes.Buffer
		if code := exitOf(context.Background(), append(args, "-seed", "1"), &stdout, &stderr); code != int(exitUsage) {
			t.Errorf("%q: exit %d", args, code)
		}
		if !strings.HasPrefix(stderr.String(), "loadgen: result folder: ") || !strings.Contains(stderr.String(), "name another folder with -out") || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%q: stderr is %q", args, &stderr)
		}
	}
}

// TestClosedPipe checks that a run ends as after a signal, without a result folder, if no one reads its
// output any more.
func TestClosedPipe(t *testing.T) {
	for _, closed := range []string{"stdout", "stderr"} {
		cmd := loadgen(t, "run", "-scenario", "article", "-strategies", "none", "-format", map[string]string{"stdout": "text", "stderr": "json"}[closed])
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		cmd.Stdout, cmd.Stderr = w, nil
		if closed == "stderr" {
			cmd.Stdout, cmd.Stderr = nil, w
		}
		err = cmd.Run()
		w.Close()
		if cmd.ProcessState.ExitCode() != int(exitInterrupted) {
			t.Errorf("%s is closed: %v", closed, err)
		}
		if left, err := os.ReadDir(filepath.Join(cmd.Dir, "results")); len(left) > 0 {
			t.Errorf("%s is closed: left %v, %v", closed, left, err)
		}
	}
}

// TestStopTwice checks that the function that untilSignal returns can be called twice.
func TestStopTwice(t *testing.T) {
	ctx, stop := untilSignal(t.Context())
	stop()
	stop()
	if ctx.Err() == nil {
		t.Error("the context has not ended")
	}
}

// TestTargetsThatDoNotAnswer checks that a run leaves no result folder behind if its targets do not
// answer.
func TestTargetsThatDoNotAnswer(t *testing.T) {
	t.Chdir(t.TempDir())
	var stdout, stderr bytes.Buffer
	if code := exitOf(context.Background(), []string{"-targets", "http://127.0.0.1:1"}, &stdout, &stderr); code != int(exitFailed) {
		t.Errorf("exit %d: %s", code, &stderr)
	}
	if !strings.Contains(stderr.String(), "http://127.0.0.1:1 does not answer") {
		t.Errorf("stderr is %q", &stderr)
	}
	if left, err := os.ReadDir("results"); err != nil || len(left) > 0 {
		t.Errorf("result folders are left: %v, %v", left, err)
	}
}

// TestInterrupt checks that an interrupted run keeps its results, prints how to continue, and exits with
// exitInterrupted.
func TestInterrupt(t *testing.T) {
	out := t.TempDir()
	cmd := loadgen(t, "-strategies", "none,setnx", "-orders", "1000", "-drivers", "2", "-rate", "20", "-out", out)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	giveUp := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer giveUp.Stop()

	said := bufio.NewReader(pipe)
	for {
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatalf("ended before the load began: %v", err)
		}
		if strings.Contains(line, "requests") { // the load has begun
			break
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(said)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != int(exitInterrupted) {
		t.Errorf("ended with %v", err)
	}
	if !strings.Contains(string(rest), "interrupted: the results of 0 of 2 planned tests are kept; to continue, run: loadgen run -resume ") {
		t.Errorf("the rest of stderr is %q", rest)
	}
	if !strings.Contains(stdout.String(), "INCOMPLETE") || !strings.Contains(stdout.String(), "\nnone ") {
		t.Errorf("printed %s", &stdout)
	}
	r := fits(t, read(t, out, report.File))
	if r.Complete || len(r.Cells) != 1 || r.Cells[0].Requests == 0 {
		t.Errorf("the saved run is %+v", r)
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"-version", "--version"} {
		var out, errs bytes.Buffer
		if code := exitOf(context.Background(), []string{arg}, &out, &errs); code != int(exitDone) {
			t.Errorf("%s: exit %d, %s", arg, code, errs.String())
		}
		if want := "loadgen " + version.Release + ", module "; !strings.HasPrefix(out.String(), want) || !strings.HasSuffix(out.String(), "\n") {
			t.Errorf("%s prints %q", arg, out.String())
		}
	}
}
