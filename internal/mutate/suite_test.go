package mutate

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"grablab/internal/testbed/proc"
)

// longestTest limits how long a test may run without a mistake. Longer tests are left out.
const longestTest = time.Minute

// suite contains the tests of a package.
type suite struct {
	tests []*singleTest // the shortest first
}

// singleTest describes a run of one test without any mistake.
type singleTest struct {
	name    string
	leftOut error // why the test cannot be used; nil if it can
	took    time.Duration
	reached map[int]bool
}

// programs builds the programs that make one mistake.
type programs struct {
	*bench
	mistake numbered
	overlay string // overlay file of a mistake that needs programs of its own; empty for the joined mistakes
}

// setting returns the environment variable that selects the mistake.
func (p programs) setting() string { return mistakeEnv + "=" + strconv.Itoa(p.mistake.number) }

// build builds the tests of a package. It builds those with the joined mistakes only once.
func (p programs) build(ctx context.Context, folder string) (program string, err error) {
	if program = p.built[folder]; program != "" && p.overlay == "" {
		return program, nil
	}
	program = filepath.Join(p.dir, "alone.test")
	if p.overlay == "" {
		program = filepath.Join(p.dir, strconv.Itoa(len(p.built))+".test")
	}
	if out, err := p.command(ctx, "go", "test", "-c", "-vet=off", "-overlay="+cmp.Or(p.overlay, p.bench.overlay), "-ldflags=-s -w", "-o", program, "./"+folder).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the tests of %s: %w: %s", folder, err, out)
	}
	if p.overlay == "" {
		p.built[folder] = program
	}
	return program, nil
}

// changed writes an overlay with one mistake.
func (b *bench) changed(m mistake) (file string, err error) {
	o := overlay{}
	if err := b.replace(o, m.file, m.apply(b.files[m.file].source)); err != nil {
		return "", err
	}
	file = filepath.Join(b.dir, "changed.json")
	return file, o.write(file)
}

// builds reports whether the package with the mistake and the packages whose tests will run compile, and go vet
// accepts them.
func (b *bench) builds(ctx context.Context, c candidate, tests string) (bool, error) {
	if filepath.Ext(c.file) != ".go" {
		return true, nil
	}
	file, err := b.changed(c.mistake)
	if err != nil {
		return false, err
	}
	args := []string{"vet", "-overlay=" + file, importPath(filepath.ToSlash(filepath.Dir(c.file)))}
	for _, folder := range c.group.packages(c.file, tests) {
		args = append(args, importPath(folder))
	}
	if b.explores && len(strategiesFor(c.file)) > 0 {
		args = append(args, importPath("internal/mutate"))
	}
	err = b.command(ctx, "go", args...).Run()
	return err == nil, ctx.Err()
}

// runTests runs some tests of a package. It returns an error if one of them fails or if they take longer
// than the limit.
func (p programs) runTests(ctx context.Context, folder, program string, limit time.Duration, names []string, env ...string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	c := p.command(limited, program, "-test.run=^("+strings.Join(names, "|")+")$", "-test.failfast", "-test.timeout="+limit.String())
	c.Dir = filepath.Join(p.root, folder)
	// Tests that build programs themselves must build them with the mistake too.
	c.Env = append(append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+cmp.Or(p.overlay, p.bench.overlay))), env...)
	out, err := c.CombinedOutput()
	if c.Process != nil {
		_ = proc.Signal(c.Process.Pid, syscall.SIGKILL) // processes that a failed test has left behind
	}
	return out, err
}

// suite builds the tests of a package, and runs each of them without any mistake.
func (b *bench) suite(ctx context.Context, folder string) (*suite, error) {
	if s := b.suites[folder]; s != nil {
		return s, nil
	}
	p := programs{bench: b}
	program, err := p.build(ctx, folder)
	if err != nil {
		return nil, err
	}
	list := p.command(ctx, program, "-test.list=^(Test|Example|Fuzz)")
	list.Dir = filepath.Join(b.root, folder)
	names, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", folder, err)
	}
	s := &suite{}
	var wait sync.WaitGroup
	running := make(chan struct{}, runtime.GOMAXPROCS(0))
	for name := range strings.FieldsSeq(string(names)) {
		t := &singleTest{name: name}
		s.tests = append(s.tests, t)
		running <- struct{}{}
		wait.Go(func() {
			defer func() { <-running }()
			t.leftOut = p.tryOut(ctx, folder, program, t)
		})
	}
	wait.Wait()
	s.tests = slices.DeleteFunc(s.tests, func(t *singleTest) bool {
		if t.leftOut != nil {
			fmt.Fprintf(os.Stderr, "left out: %s %s: %v\n", folder, t.name, t.leftOut)
		}
		return t.leftOut != nil
	})
	slices.SortFunc(s.tests, func(a, b *singleTest) int { return cmp.Compare(a.took, b.took) })
	b.suites[folder] = s
	return s, ctx.Err()
}

// tryOut runs a test without any mistake, and records how long it takes and what it reaches.
func (p programs) tryOut(ctx context.Context, folder, program string, t *singleTest) error {
	record, err := os.MkdirTemp(p.dir, "reached")
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := p.runTests(ctx, folder, program, longestTest, []string{t.name}, reachedEnv+"="+record); err != nil {
		return fmt.Errorf("fails or takes longer than %s without a mistake", longestTest)
	}
	t.took = time.Since(began)
	if t.reached, err = reached(record); err != nil {
		return fmt.Errorf("the record of the mistakes that it reaches cannot be read: %w", err)
	}
	return nil
}

// failedTest matches the name of a test that has failed or that was running at a timeout. Since Go 1.23, the
// names after a timeout are indented by two tabs.
var failedTest = regexp.MustCompile(`(?m)^(?:--- FAIL: |\t+)((?:Test|Example|Fuzz)\w*)`)

// testsFind reports whether a test of the package finds the mistake. The test must fail with the mistake, pass
// without it, and then fail with it again, because a test that sometimes fails without a reason does not count.
func (p programs) testsFind(ctx context.Context, folder string) (bool, error) {
	s, err := p.suite(ctx, folder)
	if err != nil {
		return false, err
	}
	var short, long []string
	var shortTime, longTime time.Duration
	for _, t := range s.tests {
		switch {
		case !p.mistake.alone && !t.reached[p.mistake.number]:
		case shortTime+t.took < 5*time.Second:
			short, shortTime = append(short, t.name), shortTime+t.took
		default:
			long, longTime = append(long, t.name), longTime+t.took
		}
	}
	if len(short)+len(long) == 0 {
		return false, nil
	}
	program, err := p.build(ctx, folder)
	if err != nil {
		return false, err
	}
	unchanged, err := programs{bench: p.bench}.build(ctx, folder)
	if err != nil {
		return false, err
	}
	for i, names := range [][]string{short, long} {
		limit := 20*time.Second + 3*[]time.Duration{shortTime, longTime}[i]
		for len(names) > 0 {
			out, err := p.runTests(ctx, folder, program, limit, names, p.setting())
			if err == nil {
				break
			}
			failed := names
			if name := failedTest.FindSubmatch(out); name != nil && slices.Contains(names, string(name[1])) {
				failed = []string{string(name[1])}
			}
			_, without := programs{bench: p.bench}.runTests(ctx, folder, unchanged, limit, failed)
			var again error
			if without == nil {
				_, again = p.runTests(ctx, folder, program, limit, failed, p.setting())
			}
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			if again != nil {
				return true, nil
			}
			names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(failed, name) })
		}
	}
	return false, nil
}
