package locktest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFromAnotherModule runs go test in a module that imports this package. The tests of correct locks
// must pass. The tests of the three wrong locks must fail, and each must write its schedule to a file.
func TestFromAnotherModule(t *testing.T) {
	dir := outside(t)
	out, err := goTest(t.Context(), dir)
	if err == nil {
		t.Errorf("three wrong locks pass:\n%s", out)
	}
	conforms := "PASS"
	if _, err := exec.LookPath("redis-server"); err != nil {
		conforms = "SKIP"
	}
	for _, want := range []struct{ test, verdict, says string }{
		{"TestFenced", "PASS", ""},
		{"TestConform", conforms, ""},
		{"TestForever", "FAIL", "Promised: after all leases have expired, a new driver's grab gets a response"},
		{"TestLooks", "FAIL", "breaks one-winner"},
		{"TestBlind", "FAIL", "Promised: no lease is granted while another one is valid"},
		{"TestDocumented", "PASS", ""},
	} {
		section := sectionOf(out, want.test)
		if !strings.Contains(out, "--- "+want.verdict+": "+want.test+" ") || !strings.Contains(section, want.says) {
			t.Errorf("%s: want %s and the text %q, got:\n%s", want.test, want.verdict, want.says, section)
		}
		if want.verdict == "FAIL" {
			schedules, _ := filepath.Glob(filepath.Join(dir, "testdata", "explore", want.test+"*.txt"))
			if len(schedules) == 0 {
				t.Errorf("%s has written no schedule", want.test)
			}
		}
	}
	for _, cwd := range workingIn(dir) {
		t.Errorf("a process is still running in %s", cwd)
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// outside returns a copy of a module that requires this one.
func outside(t *testing.T) (dir string) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "outside"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	documented(t, filepath.Join(root, "docs", "explore.md"), filepath.Join(dir, "documented"))
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	// Use the requirements of this module, so that go downloads nothing.
	_, requirements, _ := strings.Cut(read("go.mod"), "\n")
	requirements = strings.Replace(requirements, "=> ./handoff", "=> "+filepath.Join(root, "handoff"), 1)
	mod := "module example.com/outside\n" + requirements + "\nrequire grablab v0.0.0\n\nreplace grablab => " + root + "\n"
	for name, text := range map[string]string{"go.mod": mod, "go.sum": read("go.sum")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// documented writes the Go files in a document to the folder dir. In the document, each file starts
// with a comment that contains its name.
func documented(t *testing.T, document, dir string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n// (\\S+\\.go)\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 2 {
		t.Fatalf("%s shows %d files, want a lock and its test", document, len(blocks))
	}
	for _, b := range blocks {
		if err := os.WriteFile(filepath.Join(dir, string(b[1])), b[2], 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// workingIn returns the working directories of all processes that run in dir or below it. It works
// only on Linux.
func workingIn(dir string) (left []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range all {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd, dir) {
			left = append(left, cwd)
		}
	}
	return left
}

// goTest runs the tests of the module in dir. It skips vet, because go test would otherwise vet all
// dependencies again.
func goTest(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-v", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(dir, "tmp"), "GOWORK=off", "GOPROXY=off", "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=mod"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// sectionOf returns the part of go test's output that belongs to one test.
func sectionOf(out, test string) string {
	_, after, _ := strings.Cut(out, "=== RUN   "+test+"\n")
	if next := regexp.MustCompile(`(?m)^=== RUN   [^/\n]+$`).FindStringIndex(after); next != nil {
		return after[:next[0]]
	}
	return after
}
