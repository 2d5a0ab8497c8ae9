package mutate

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
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

// moduleBench returns a bench in a module with the name of the project and the given files. It is the current
// folder of the test.
func moduleBench(t *testing.T, files map[string]string) *bench {
	t.Helper()
	b := &bench{dir: t.TempDir(), root: t.TempDir(), files: map[string]*finder{}}
	b.overlay = filepath.Join(b.dir, "overlay.json")
	t.Chdir(b.root)
	files["go.mod"] = "module grablab\n"
	for file, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// TestInvalidMistakes checks that a sample leaves out mistakes that do not compile or that go vet rejects, and
// that drawing it writes nothing into the project.
func TestInvalidMistakes(t *testing.T) {
	b := moduleBench(t, map[string]string{"cmd/pair/main.go": `package main

func main() {
	var pair [2]int
	pair[1] = 5
	println(pair[1])
}
`})
	sample, err := b.sample(t.Context(), []group{{"command", []string{"cmd/pair/*.go"}, []string{"cmd/pair"}}}, 10, []string{"seed"}, "package")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range sample {
		_, after := m.describe(b.files[m.file].source)
		got = append(got, after)
	}
	slices.Sort(got)
	if want := []string{"", "_ = 5", "pair[1] = 6", "var pair [3]int"}; !slices.Equal(got, want) { // not pair[2]
		t.Errorf("mistakes in the sample: %q, want %q", got, want)
	}
	if files, err := os.ReadDir("."); err != nil || len(files) != 2 {
		t.Errorf("files in the project: %v, %v, want cmd and go.mod", files, err)
	}
}

// TestMistakeInConstant checks that a sample leaves out a mistake outside every function if another package, whose
// tests will run, does not compile with it.
func TestMistakeInConstant(t *testing.T) {
	b := moduleBench(t, map[string]string{
		"size/size.go": "package size\n\nconst Size = 2\n",
		"pair/pair.go": "package pair\n\nimport \"grablab/size\"\n\nvar Pair [size.Size]int = [2]int{}\n",
	})
	for tests, want := range map[string]int{"package": 1, "all": 0} {
		sample, err := b.sample(t.Context(), []group{{"size", []string{"size/*.go"}, []string{"size", "pair"}}}, 1, []string{"seed"}, tests)
		if err != nil || len(sample) != want {
			t.Errorf("-tests %s: the sample has %d mistakes, want %d: %v", tests, len(sample), want, err)
		}
	}
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
			b.suites["x"] = &suite{tests: []*singleTest{{name: "TestX", reached: map[int]bool{1: true}}}}
			if found, err := (programs{bench: b, mistake: m}).testsFind(t.Context(), "x"); err != nil || found != want {
				t.Errorf("testsFind: %t, %v, want %t", found, err, want)
			}
			b = fakeBench(t, script, "internal/mutate")
			fails := name == "always" || name == "without the mistake"
			b.searches["setnx"] = search{fails: fails, reached: map[int]bool{1: true}}
			explored, found, err := programs{bench: b, mistake: m}.explorerFinds(t.Context(), []string{"setnx"})
			if err != nil || explored == fails || found != want {
				t.Errorf("explorerFinds: %t, %t, %v, want %t, %t", explored, found, err, !fails, want)
			}
		})
	}
}

// TestSuite checks which tests of a package a suite contains.
func TestSuite(t *testing.T) {
	b := fakeBench(t, `
case "$1" in
-test.list=*) printf '%s\n' TestPasses TestFails TestUnread ExampleX FuzzX BenchmarkX | grep -E "${1#*=}" ;;
*TestFails*) exit 1 ;;
*TestUnread*) : >"$GRABLAB_MISTAKES_REACHED/x" ;;
esac`, "x")
	s, err := b.suite(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, test := range s.tests {
		names = append(names, test.name)
	}
	slices.Sort(names)
	if want := []string{"ExampleX", "FuzzX", "TestPasses"}; !slices.Equal(names, want) {
		t.Errorf("tests: %q, want %q", names, want)
	}
}

// TestFailedTest looks for the name of the failed test in what the programs print.
func TestFailedTest(t *testing.T) {
	for out, want := range map[string]string{
		"=== NAME  TestX\n--- FAIL: TestX (0.00s)\n    x_test.go:1: wrong\nFAIL\n":                     "TestX",
		"--- FAIL: ExampleX (0.00s)\ngot:\n1\nwant:\n2\nFAIL\n":                                        "ExampleX",
		"--- FAIL: FuzzX (0.00s)\n    --- FAIL: FuzzX/seed#0 (0.00s)\n        x_test.go:1: wrong\n":    "FuzzX",
		"panic: test timed out after 1s\n\trunning tests:\n\t\tTestX (1s)\n\ngoroutine 8 [running]:\n": "TestX",
	} {
		if got := failedTest.FindStringSubmatch(out); len(got) != 2 || got[1] != want {
			t.Errorf("failedTest finds %q, want %s in: %s", got, want, out)
		}
	}
}
