package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"grablab/internal/present/compare"
)

const references = "../../results/"

// changed copies the saved result at path to a new folder, with the first occurrence of old replaced by
// now. It returns the folder.
func changed(t *testing.T, path, old, now string) string {
	t.Helper()
	text := string(read(t, references+path))
	if !strings.Contains(text, old) {
		t.Fatalf("%s has no %q", path, old)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), []byte(strings.Replace(text, old, now, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCompare(t *testing.T) {
	const rush = references + "reference-rush-local"
	unsafe := changed(t, "reference-rush-local/run.json", `"verdict": "unsafe"`, `"verdict": "unknown"`)
	for name, tt := range map[string]struct {
		args []string
		exit int
		want []string
	}{
		"a run with itself": {[]string{rush, rush}, int(exitDone), []string{"\nno difference\n"}},
		"by its file":       {[]string{rush + "/run.json", rush}, int(exitDone), []string{"\nno difference\n"}},
		"a changed verdict": {[]string{rush, unsafe}, int(exitAssert), []string{"1 of 5 verdicts changed", "none/none unsafe unknown"}},
		"several":           {[]string{rush, rush, unsafe}, int(exitAssert), []string{"\nno difference\n", "1 of 5 verdicts changed"}},
		"unlike": {
			[]string{rush, references + "reference-article-local"}, int(exitDone),
			[]string{"UNLIKE", "scenario: rush, now article", "work ms: 5, now 1000", "it is not known whether there is a change: 1 and 1 measurements"},
		},
		"markdown": {[]string{"-format", "markdown", rush, unsafe}, int(exitAssert), []string{"# Comparison", "| none/none | unsafe | unknown |"}},
	} {
		var out, errs bytes.Buffer
		if code := exitOf(context.Background(), append([]string{"compare"}, tt.args...), &out, &errs); code != tt.exit {
			t.Errorf("%s: exit %d, want %d: %s", name, code, tt.exit, errs.String())
		}
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, out.String())
			}
		}
	}
	var out bytes.Buffer
	var c compare.Comparison
	exitOf(context.Background(), []string{"compare", rush, unsafe, "-format", "json"}, &out, &out)
	if err := json.Unmarshal(out.Bytes(), &c); err != nil || len(c.Changes) != 1 || c.Changes[0].New != "unknown" {
		t.Errorf("compare -format json: %v, changes %+v", err, c.Changes)
	}
}

func TestCompareBadInput(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rush := references + "reference-rush-local"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "two runs are needed"},
		{[]string{rush}, "two runs are needed"},
		{[]string{rush, "nowhere"}, "nowhere has no run.json"},
		{[]string{rush, t.TempDir()}, "has no run.json"},
		{[]string{rush, references + "reference-bench-local"}, "reference-bench-local has no run.json: name a folder that a run has written"},
		{[]string{references + "reference-bench-local/bench.json", rush}, "bench.json has no id and no scenario, so it is not the result of a run"},
		{[]string{rush, file("text.json", "hello")}, "text.json: invalid character"},
		{[]string{rush, file("other.json", "{}")}, "has the format version 0"},
		{[]string{rush, file("old.json", `{"schema":99,"cells":[]}`)}, "has the format version 99, but this version of loadgen reads only 1"},
		{[]string{rush, changed(t, "reference-rush-local/run.json", `"verdict": "unsafe"`, `"verdict": "fine"`)}, `there is no verdict "fine"`},
		{[]string{"-format", "html", rush, rush}, "must be one of text, markdown, json"},
		{[]string{"-formt", "json", rush, rush}, "did you mean -format?"},
	} {
		var out, errs bytes.Buffer
		code := exitOf(context.Background(), append([]string{"compare"}, tt.args...), &out, &errs)
		if code != int(exitUsage) || !strings.Contains(errs.String(), tt.want) || strings.Count(errs.String(), "\n") != 1 || out.Len() > 0 {
			t.Errorf("%q: exit %d, %q, want %q", tt.args, code, errs.String(), tt.want)
		}
	}
}

func TestCompareHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if code := exitOf(context.Background(), []string{"compare", "-h"}, &out, &errs); code != int(exitDone) {
		t.Fatalf("exit %d, %s", code, errs.String())
	}
	for _, want := range []string{"-format NAME", "text, markdown, json", "3  a verdict changed, or something is slower", "2  bad usage"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
