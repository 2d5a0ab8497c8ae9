package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

// TestCI checks the annotation, the summary and the JUnit file that loadgen writes in GitHub Actions if
// one of two assertions fails.
func TestCI(t *testing.T) {
	cmd := loadgen(t, "-strategies", "none,setnx", "-orders", "10", "-quiet", "-junit", "sub/junit.xml", "-assert", "expected", "-assert", "none:double_grabs==0")
	summary := filepath.Join(cmd.Dir, "summary.md")
	cmd.Env = append(cmd.Env, "GITHUB_ACTIONS=true", "GITHUB_STEP_SUMMARY="+summary)
	if err := os.WriteFile(summary, []byte("before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := output(t, cmd)
	if annotation := "::error title=assert none%3Adouble_grabs==0::none:double_grabs==0: none/none: double_grabs is "; code != int(exitAssert) || !strings.Contains(stderr, annotation) {
		t.Errorf("exit %d, %s", code, stderr)
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Cases    []struct {
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(read(t, cmd.Dir, "sub/junit.xml"), &suite); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range suite.Cases {
		if c.Failure != nil {
			c.Name += " failed"
		}
		names = append(names, c.Name)
	}
	if got := strings.Join(names, ", "); got != "none/none, setnx/none, assert expected, assert none:double_grabs==0 failed" || suite.Tests != 4 || suite.Failures != 1 {
		t.Errorf("%d cases, %d failures: %s", suite.Tests, suite.Failures, got)
	}
	if got := string(read(t, summary)); !strings.HasPrefix(got, "before\n# ") || !strings.Contains(got, "| unsafe ✓ |") {
		t.Errorf("the summary is\n%s", got)
	}
}

// TestFailuresToTellCI makes each output for a CI system fail by itself. The error must name the output, and the others
// must be written.
func TestFailuresToTellCI(t *testing.T) {
	run := new(experiment.Run)
	cases := []report.Case{{Name: "a/none", Result: report.Failed, Why: "unsafe"}}
	for failing, want := range map[string]string{"": "", "junit": "-junit: ", "summary": "GITHUB_STEP_SUMMARY: ", "full summary": "GITHUB_STEP_SUMMARY: ", "annotations": "no space"} {
		dir := t.TempDir()
		junit, summary := filepath.Join(dir, "junit.xml"), filepath.Join(dir, "summary.md")
		var annotations strings.Builder
		var stderr io.Writer = &annotations
		switch failing {
		case "junit":
			junit = filepath.Join(dir, "summary.md", "junit.xml")
		case "summary":
			summary = dir
		case "full summary":
			summary = "/dev/full"
		case "annotations":
			stderr = fullDisk{}
		}
		if summary == "/dev/full" && runtime.GOOS != "linux" {
			continue
		}
		t.Setenv("GITHUB_STEP_SUMMARY", summary)
		t.Setenv("GITHUB_ACTIONS", "true")
		if failing == "junit" {
			if err := os.WriteFile(summary, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := tellCI(run, cases, junit, stderr)
		if (err == nil) != (failing == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("writing the %s fails: %v, want %q", failing, err, want)
		}
		for name, file := range map[string]string{"junit": junit, "summary": summary} {
			if strings.HasSuffix(failing, name) {
				continue // reading /dev/full would not end
			}
			if text, err := os.ReadFile(file); err != nil || len(text) == 0 {
				t.Errorf("writing the %s fails: the %s is %q, %v", failing, name, text, err)
			}
		}
		if failing != "annotations" && annotations.Len() == 0 {
			t.Errorf("writing the %s fails: no annotation is written", failing)
		}
	}
	t.Setenv("GITHUB_STEP_SUMMARY", "")
	t.Setenv("GITHUB_ACTIONS", "")
	var none strings.Builder
	if err := tellCI(run, cases, "", &none); err != nil || none.Len() > 0 {
		t.Errorf("without a CI system: %v, %q", err, none.String())
	}
}

// fullDisk is a writer that has no space left.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestBaseline checks that a run passes against a baseline with the same verdicts, and fails against one
// with better verdicts.
func TestBaseline(t *testing.T) {
	first := loadgen(t, "-strategies", "none", "-orders", "3", "-quiet", "-out", "first")
	if code, _, stderr := output(t, first); code != int(exitDone) {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	of := loadgen(t, "baseline", filepath.Join(first.Dir, "first"))
	code, text, stderr := output(t, of)
	if code != int(exitDone) || !strings.Contains(text, "\"none\":\n  none: unsafe  # ") {
		t.Fatalf("exit %d, %s%s", code, text, stderr)
	}
	same, better, renamed := filepath.Join(first.Dir, "same.yaml"), filepath.Join(first.Dir, "better.yaml"), filepath.Join(first.Dir, "nightly.json")
	if err := os.WriteFile(renamed, read(t, filepath.Join(first.Dir, "first", report.File)), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{same: text, better: "none: safe\nredlock: safe\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]exitCode{filepath.Join(first.Dir, "first"): exitDone, renamed: exitDone, same: exitDone, better: exitAssert} {
		code, _, stderr := output(t, loadgen(t, "-strategies", "none", "-orders", "3", "-quiet", "-baseline", path))
		worse := strings.Contains(stderr, "this test is worse than the baseline allows: none/none: unsafe, and safe in the baseline: ")
		left := strings.Contains(stderr, "in the baseline, but not run: redlock/none\n")
		if bad := want == exitAssert; code != int(want) || worse != bad || left != bad {
			t.Errorf("%s: exit %d, %s", path, code, stderr)
		}
	}
	for args, want := range map[string]string{
		"run -baseline " + of.Dir: "-baseline: " + of.Dir + " has no run.json",
		"baseline " + of.Dir:      of.Dir + " has no run.json",
		"baseline":                "baseline: no result folder was given",
	} {
		if code, _, stderr := output(t, loadgen(t, strings.Fields(args)...)); code != int(exitUsage) || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %s", args, code, stderr)
		}
	}
}
