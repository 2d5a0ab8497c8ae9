package mutate

import (
	"os"
	"path/filepath"
	"testing"
)

// fakeBench returns a bench whose programs are a shell script instead of tests of the folders.
func fakeBench(t *testing.T, script string, folders ...string) *bench {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	b := &bench{dir: dir, root: dir, built: map[string]string{}, suites: map[string]*suite{}, searches: map[string]search{}}
	for _, folder := range folders {
		b.built[folder] = program
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// failing are scripts of tests and searches that fail with or without mistake 1.
var failing = map[string]string{
	"always":              "exit 1",
	"never":               "exit 0",
	"with the mistake":    `[ "$GRABLAB_MISTAKE" != 1 ]`,
	"only the first time": `if [ -e "$0.ran" ]; then exit 0; fi; : >"$0.ran"; exit 1`,
	"without the mistake": `[ "$GRABLAB_MISTAKE" = 1 ]`,
}

// TestConfirmedFailures checks that a failure counts only if it needs the mistake and occurs twice.
func TestConfirmedFailures(t *testing.T) {
	for name, script := range failing {
		t.Run(name, func(t *testing.T) {
			want := name == "with the mistake"
			m := numbered{number: 1}
			b := fakeBench(t, script, "x", "internal/mutate")
			b.suites["x"] = &suite{folder: "x", tests: []*singleTest{{name: "TestX", reached: map[int]bool{1: true}}}}
			if found, err := (programs{bench: b, mistake: m}).testsFind(t.Context(), "x"); err != nil || found != want {
				t.Errorf("testsFind: %t, %v, want %t", found, err, want)
			}
			b = fakeBench(t, script, "internal/mutate")
			b.searches["setnx"] = search{fails: name == "always" || name == "without the mistake", reached: map[int]bool{1: true}}
			if found, err := (programs{bench: b, mistake: m}).explorerFinds(t.Context(), []string{"setnx"}); err != nil || found != want {
				t.Errorf("explorerFinds: %t, %v, want %t", found, err, want)
			}
		})
	}
}
