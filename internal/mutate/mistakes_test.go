package mutate

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"grablab/internal/grab/lock"
)

const sample = `package p

func f(a, b int, ok, held bool) (err error) {
	defer g(1)
	a = b
	a++
	g(a)
	h(a, b)
	_ = b
	if err != nil {
		return err
	}
	if ok && held || a < 3 {
		return nil
	}
	for a >= b {
	}
	s.log.Warn("swapped", a, b)
	return nil
}

func number(held bool) (int, bool, error) {
	if err != nil {
		return 1, true, err
	}
	return 1, held, err
}
`

// TestRules checks that the rules make exactly the expected mistakes in a small file, and that the changed
// file still parses.
func TestRules(t *testing.T) {
	f, err := newFinder("p.go", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	all := f.mistakes()
	var got []string
	for _, m := range all {
		before, after := m.describe([]byte(sample))
		got = append(got, m.rule+": "+before+" => "+after)
	}
	want := []string{
		"remove defer: defer g(1) => ",
		"change constant: defer g(1) => defer g(2)",
		"remove statement: a = b => _ = b",
		"remove statement: a++ => ",
		"remove statement: g(a) => ",
		"reorder calls: g(a) h(a, b) => h(a, b) g(a)",
		"remove statement: h(a, b) => ",
		"swap arguments: h(a, b) => h(b, a)",
		"skip error path: if err != nil { => if err != nil && false {",
		"negate condition: if ok && held || a < 3 { => if !(ok && held || a < 3) {",
		"drop condition: if ok && held || a < 3 { => if true || ok && held || a < 3 {",
		"drop condition: if ok && held || a < 3 { => if false && (ok && held || a < 3) {",
		"drop half a condition: if ok && held || a < 3 { => if (false && (ok && held)) || a < 3 {",
		"drop half a condition: if ok && held || a < 3 { => if (true || ok) && held || a < 3 {",
		"drop half a condition: if ok && held || a < 3 { => if ok && (true || held) || a < 3 {",
		"drop half a condition: if ok && held || a < 3 { => if ok && held || (false && (a < 3)) {",
		"move bound: if ok && held || a < 3 { => if ok && held || a <= 3 {",
		"change constant: if ok && held || a < 3 { => if ok && held || a < 4 {",
		"negate condition: for a >= b { => for !(a >= b) {",
		"move bound: for a >= b { => for a > b {",
		"skip error path: if err != nil { => if err != nil && false {",
		"change constant: return 1, held, err => return 2, held, err",
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("missing: %s", w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("unexpected: %s", g)
		}
	}
	for _, m := range all {
		if _, err := parser.ParseFile(token.NewFileSet(), "p.go", m.apply([]byte(sample)), 0); err != nil {
			t.Errorf("%s: ParseFile: %v", m.key([]byte(sample)), err)
		}
	}
}

// joinable prints twice the number of squares up to 20.
const joinable = `package main

import (
	"errors"
	"fmt"
)

var double = func(n int) int { return n * 2 }

func count(limit int) (n int) {
	defer func() { n = double(n) }()
loop:
	for i := 1; ; i++ {
		switch {
		case i*i > limit && i > 0:
			break loop
		}
		n++
	}
	return n
}

func check(n int) error {
	if n > 8 {
		return errors.New("more than 8")
	}
	return nil
}

func main() {
	fmt.Println(count(20), check(8))
}
`

// TestJoin compiles many mistakes into one program. The program must behave like the original if none is
// selected, and like the changed file otherwise.
func TestJoin(t *testing.T) {
	f, err := newFinder("main.go", []byte(joinable))
	if err != nil {
		t.Fatal(err)
	}
	outputs := map[string]string{
		"defer func() { n = double(n) }() => ": "4 <nil>",
		"var double = func(n int) int { return n * 2 } => var double = func(n int) int { return n * 3 }": "12 <nil>",
		"case i*i > limit && i > 0: => case i*i > limit && (true || i > 0):":                             "8 <nil>",
		"for i := 1; ; i++ { => for i := 2; ; i++ {":                                                     "6 <nil>",
		"if n > 8 { => if n >= 8 {":                                                                      "8 more than 8",
		"n++ => ":                                                                                        "0 <nil>",
		"fmt.Println(count(20), check(8)) => ":                                                           "",
		"fmt.Println(count(20), check(8)) => fmt.Println(count(20), check(9))":                           "8 more than 8",
	}
	want := map[int]string{0: "8 <nil>"} // the output by number; 0 makes no mistake
	mistakes := map[int]mistake{}
	for _, m := range f.mistakes() {
		before, after := m.describe(f.source)
		if output, ok := outputs[before+" => "+after]; ok {
			number := len(want)
			mistakes[number], want[number] = m, output
		}
	}
	if len(mistakes) != len(outputs) {
		t.Fatalf("%d mistakes, want %d", len(mistakes), len(outputs))
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"main.go": f.join(mistakes), "selector.go": fmt.Appendf(nil, selector, "main"), "go.mod": []byte("module joined\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", "joined", ".")
	build.Dir = dir // and use the flags of this test, with which the standard library is compiled already
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	for number, output := range want {
		folder := t.TempDir()
		program := exec.Command(filepath.Join(dir, "joined"))
		program.Env = append(os.Environ(), mistakeEnv+"="+strconv.Itoa(number), reachedEnv+"="+folder)
		out, err := program.Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != output {
			t.Errorf("mistake %d: %v: the output is %q, want %q", number, err, got, output)
		}
		if all, err := reached(folder); number == 0 && (err != nil || len(all) != len(mistakes)) {
			t.Errorf("reached %v: %v, want all %d mistakes", all, err, len(mistakes))
		}
	}
}

func TestLuaRules(t *testing.T) {
	const script = "-- comment\nif redis.call('GET', KEYS[1]) == ARGV[1] then\n  redis.call('DEL', KEYS[1])\n  return 1\nend\n"
	var got []string
	for _, m := range luaMistakes("s.lua", []byte(script)) {
		before, _ := m.describe([]byte(script))
		got = append(got, before)
	}
	if want := []string{"redis.call('DEL', KEYS[1])", "return 1"}; !slices.Equal(got, want) {
		t.Errorf("dropped lines: %q, want %q", got, want)
	}
}

// TestEquivalentMistakesExist checks that the rules can still make every mistake in the list of mistakes
// that change nothing. If not, the code has changed, and someone must judge the mistake again.
func TestEquivalentMistakesExist(t *testing.T) {
	const root = "../.."
	keys, err := readEquivalent(root)
	if err != nil {
		t.Fatal(err)
	}
	for key := range keys {
		file, _, _ := strings.Cut(key, ": ")
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Error(err)
			continue
		}
		f, err := newFinder(file, source)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(f.mistakes(), func(m mistake) bool { return m.key(source) == key }) {
			t.Errorf("no rule makes this mistake: %s", key)
		}
	}
}

// TestDrawing checks that the same seed gives the same sample, that another seed gives another sample, and
// that no mistake is drawn twice.
func TestDrawing(t *testing.T) {
	var all []mistake
	for i := range 200 {
		all = append(all, mistake{from: i})
	}
	same, again, other := shuffled(all, "0.3.0 order"), shuffled(all, "0.3.0 order"), shuffled(all, "0.4.0 order")
	if !slices.Equal(same, again) {
		t.Error("one seed gives two samples")
	}
	if slices.Equal(same[:20], other[:20]) {
		t.Error("two seeds give the same sample")
	}
	seen := map[int]bool{}
	for _, m := range same {
		seen[m.from] = true
	}
	if len(seen) != len(all) {
		t.Errorf("%d different mistakes of %d", len(seen), len(all))
	}
}

// TestGroups checks that each group has files, and that every package in its list of tests exists and has
// tests.
func TestGroups(t *testing.T) {
	t.Chdir("../..")
	var named []string
	for _, g := range groups {
		for _, pattern := range g.files {
			files, err := filepath.Glob(pattern)
			if err != nil || len(files) == 0 {
				t.Errorf("%s: no file matches %s: %v", g.name, pattern, err)
			}
			for _, file := range files {
				named = append(named, g.packages(file, "package")...)
			}
		}
		named = append(named, g.packages(g.files[0], "all")...)
	}
	slices.Sort(named)
	args := []string{"list", "-f", "{{.Dir}}{{if not (or .TestGoFiles .XTestGoFiles)}} has no tests{{end}}"}
	for _, pkg := range slices.Compact(named) {
		args = append(args, "./"+pkg)
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "has no tests") {
		t.Errorf("go list: %v: %s", err, out)
	}
}

// TestInterval compares Wilson's interval with values from the literature (Brown, Cai and
// DasGupta, "Interval Estimation for a Binomial Proportion", 2001).
func TestInterval(t *testing.T) {
	for _, tt := range []struct {
		killed, of int
		low, high  int // per cent, rounded
	}{{0, 10, 0, 28}, {10, 10, 72, 100}, {5, 10, 24, 76}, {90, 100, 83, 94}} {
		low, high := interval(tt.killed, tt.of)
		if int(100*low+.5) != tt.low || int(100*high+.5) != tt.high {
			t.Errorf("%d of %d: [%.3f, %.3f], want [%d %%, %d %%]", tt.killed, tt.of, low, high, tt.low, tt.high)
		}
	}
}

// TestSearched checks the table searched. Every strategy in it must exist, no earlier entry may hide a later
// one, and every file of a lock must have strategies to search.
func TestSearched(t *testing.T) {
	files, err := filepath.Glob("../../" + lockFolder + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		file, _ = filepath.Rel("../..", file)
		of := strategiesFor(filepath.ToSlash(file))
		if len(of) == 0 && !strings.HasPrefix(filepath.Base(file), "knownbroken") {
			t.Errorf("%s: no strategy", file)
		}
		for _, name := range of {
			if s, err := lock.Find(name); err != nil || s.Unexplorable != "" {
				t.Errorf("strategy in the entry %s: %s: %v %s", file, name, err, s.Unexplorable)
			}
		}
	}
	for i, s := range searched {
		if len(strategiesFor(s.prefix+"x.go")) == 0 && s.strategies != "" {
			t.Errorf("%s: no strategy", s.prefix)
		}
		for _, earlier := range searched[:i] {
			if strings.HasPrefix(s.prefix, earlier.prefix) {
				t.Errorf("%s is hidden by %s", s.prefix, earlier.prefix)
			}
		}
	}
}
