package mutate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/proc"
)

// bench runs the tests and the explorer against one mistake at a time.
type bench struct {
	dir        string // overlays and programs; removed at the end
	root       string
	explores   bool
	unchanged  string          // this program without any mistake; empty until it is built
	fails      map[string]bool // whether the search of a strategy fails without any mistake
	equivalent map[string]bool // keys of the mistakes that change nothing
}

// testTimeout limits how long the tests of a package run. A mistake that makes them run longer counts as
// found.
const testTimeout = 8 * time.Minute

func newBench(explore bool) (*bench, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	equivalent, err := readEquivalent(root)
	if err != nil {
		return nil, fmt.Errorf("run this in the root of the project: %w", err)
	}
	dir, err := os.MkdirTemp("", "grablab-mutate")
	if err != nil {
		return nil, err
	}
	return &bench{dir: dir, root: root, explores: explore, fails: map[string]bool{}, equivalent: equivalent}, nil
}

// readEquivalent returns the keys of the mistakes that change nothing.
func readEquivalent(root string) (map[string]bool, error) {
	list, err := os.ReadFile(filepath.Join(root, "internal/mutate/equivalent.txt"))
	if err != nil {
		return nil, err
	}
	keys := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		if key, _, ok := strings.Cut(line, " # "); ok {
			keys[key] = true
		}
	}
	return keys, nil
}

func (b *bench) close() { os.RemoveAll(b.dir) }

// command returns a command that runs in its own process group. When ctx ends, the whole group is
// interrupted.
func (b *bench) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = b.root
	proc.NewProcessGroup(c)
	c.Cancel = func() error { return proc.Signal(c.Process.Pid, syscall.SIGINT) }
	c.WaitDelay = 10 * time.Second
	return c
}

// measure makes n mistakes in a group. It prints each mistake with the test that found it.
func (b *bench) measure(ctx context.Context, g group, n int, seed, tests string) ([]result, error) {
	var all []mistake
	sources := map[string][]byte{}
	for _, pattern := range g.files {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if ours, err := build.Default.MatchFile(filepath.Split(file)); strings.HasSuffix(file, "_test.go") || filepath.Ext(file) == ".go" && (err != nil || !ours) {
				continue // no test compiles the files of other systems
			}
			if sources[file], err = os.ReadFile(file); err != nil {
				return nil, err
			}
			found, err := findMistakes(file, sources[file])
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	fmt.Printf("\n== %s: %d possible mistakes\n", g.name, len(all))
	var results []result
	for _, m := range shuffled(all, seed+" "+g.name) {
		if len(results) == n {
			break
		}
		r, err := b.try(ctx, g, m, sources[m.file], tests)
		if errors.Is(err, errNotViable) {
			continue
		}
		if err != nil {
			return results, err
		}
		r.group, r.rule = g.name, m.rule
		results = append(results, r)
		by := cmp.Or(r.byTest, "NOT FOUND")
		switch {
		case r.equivalent:
			by = "changes nothing"
		case r.byExplorer:
			by = "explorer, " + cmp.Or(r.byTest, "no test")
		}
		fmt.Printf("%-22s %s:%d: %s", by, m.file, m.line(sources[m.file]), m.rule)
		if !r.killed() && !r.equivalent { // a developer needs the code only of mistakes that nothing found
			before, after := m.describe(sources[m.file])
			fmt.Printf(": %s => %s", before, after)
		}
		fmt.Println()
	}
	return results, nil
}

var errNotViable = errors.New("it does not compile, go vet rejects it, or nothing could find it")

// try makes one mistake, and runs the explorer and the tests until one of them fails.
func (b *bench) try(ctx context.Context, g group, m mistake, source []byte, tests string) (r result, err error) {
	if b.equivalent[m.key(source)] {
		return result{equivalent: true}, nil
	}
	file, err := b.overlay(m, source)
	if err != nil {
		return r, err
	}
	if filepath.Ext(m.file) == ".go" {
		if err := b.command(ctx, "go", "vet", "-overlay="+file, "grablab/"+filepath.ToSlash(filepath.Dir(m.file))).Run(); err != nil {
			return r, cmp.Or(ctx.Err(), errNotViable)
		}
	}
	if strategies := strategiesFor(m.file); b.explores && len(strategies) > 0 {
		r.explored = true
		if r.byExplorer, err = b.explore(ctx, file, strategies); err != nil {
			return r, err
		}
	}
	if tests == "none" && !r.explored {
		return r, errNotViable
	}
	for _, pkg := range g.packages(m.file, tests) {
		// Tests that build programs themselves must build them with the mistake too.
		test := b.command(ctx, "go", "test", "-count=1", "-vet=off", "-failfast", "-timeout", testTimeout.String(), "./"+pkg)
		test.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+file))
		out, err := test.CombinedOutput()
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		if err != nil {
			if bytes.Contains(out, []byte("[build failed]")) {
				return r, errNotViable
			}
			r.byTest = pkg
			break
		}
	}
	return r, nil
}

// overlay writes the changed file, and returns the file that makes the compiler use it.
func (b *bench) overlay(m mistake, source []byte) (string, error) {
	changed := filepath.Join(b.dir, "changed"+filepath.Ext(m.file))
	if err := os.WriteFile(changed, m.apply(source), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(b.root, m.file): changed}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(b.dir, "overlay.json")
	return file, os.WriteFile(file, overlay, 0o600)
}

// searched lists the strategies that the explorer searches for a mistake, by the beginning of the path of
// the changed file. The first match applies. A file that defines a single strategy needs no entry.
var searched = []struct{ prefix, strategies string }{
	{"handoff/", "handoff"},
	{lockFolder + "etcd", "etcd-fenced"},
	{lockFolder + "zookeeper", "zookeeper-fenced"},
	{lockFolder + "redlock_nodes", "redlock"},
	{lockFolder + "setnx_fenced", "setnx-fenced setnx-fence-write"},
	{lockFolder + "setnx_variants", "setnx-check setnx-del setnx-driverid setnx-expire setnx-getdel setnx-nottl setnx-watch"},
	{lockFolder + "redis_stock", "redis-stock redis-stock-returned"},
	{lockFolder + "watchdog", "watchdog watchdog-fenced"},
	{lockFolder + "notifier", "watchdog"},
	{lockFolder + "renewer", "watchdog redlock"},
	{lockFolder + "fence", "setnx-fenced watchdog-fenced"},
	{lockFolder + "keyedmutex", "mutex"},
	{lockFolder + "mysql_session", "mysql-getlock mysql-forupdate"},
	{lockFolder + "knownbroken", ""}, // nothing is expected of these strategies
	{lockFolder, "setnx watchdog"},
	{"internal/grab/", "setnx-fenced watchdog"},
	{"internal/order/", "mysql-cas mysql-unique setnx-fenced"},
}

const lockFolder = "internal/grab/lock/"

// unreachable lists the files of these packages that the explorer never executes, because it calls
// the code of a grab directly.
var unreachable = []string{"access", "available", "distrlock", "http", "metrics", "mysql", "sql", "sqlite", "session", "tx"}

func strategiesFor(file string) []string {
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	inLocks := strings.HasPrefix(file, lockFolder)
	if !inLocks && slices.Contains(unreachable, name) {
		return nil
	}
	for _, s := range searched {
		if !strings.HasPrefix(file, s.prefix) {
			continue
		}
		strategy := strings.ReplaceAll(name, "_", "-")
		if _, err := lock.Find(strategy); err == nil && s.prefix == lockFolder {
			return []string{strategy}
		}
		return strings.Fields(s.strategies)
	}
	return nil
}

// explore reports whether the explorer finds a failure that the registry does not claim. A strategy
// whose search fails without the mistake too does not count.
func (b *bench) explore(ctx context.Context, overlay string, strategies []string) (bool, error) {
	changed, err := b.build(ctx, "changed", overlay)
	if err != nil {
		return false, err
	}
	for _, s := range strategies {
		if err := b.findFails(ctx, s); err != nil {
			return false, err
		}
		if b.fails[s] {
			continue
		}
		if found, err := b.exploreFails(ctx, changed, s); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// findFails records in b.fails whether a search of the strategy fails without any mistake. It searches
// each strategy only once.
func (b *bench) findFails(ctx context.Context, strategy string) (err error) {
	if _, known := b.fails[strategy]; known {
		return nil
	}
	if b.unchanged == "" {
		if b.unchanged, err = b.build(ctx, "unchanged", ""); err != nil {
			return err
		}
	}
	b.fails[strategy], err = b.exploreFails(ctx, b.unchanged, strategy)
	return err
}

// build builds this test program with the given overlay; an empty one changes nothing. It does not build
// loadgen, which is larger.
func (b *bench) build(ctx context.Context, name, overlay string) (program string, err error) {
	program = filepath.Join(b.dir, name)
	if out, err := b.command(ctx, "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-ldflags=-s -w", "-o", program, "./internal/mutate").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the explorer: %w: %s", err, out)
	}
	return program, nil
}

// searchEnv is an environment variable that names the strategy for TestSearch.
const searchEnv = "GRABLAB_MUTATE_SEARCH"

// exploreFails reports whether a search of the strategy with the default bounds finds a failure that is not
// expected. A search that ends its process counts too.
func (b *bench) exploreFails(ctx context.Context, program, strategy string) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	c := b.command(limited, program, "-test.run=^TestSearch$")
	c.Env = append(os.Environ(), searchEnv+"="+strategy)
	out, err := c.CombinedOutput()
	if err != nil && testing.Verbose() {
		fmt.Printf("%s\n", out)
	}
	return err != nil, ctx.Err()
}

// TestSearch searches a strategy in the same way as the command explore does by default. It stops at the
// first failure that is not expected.
func TestSearch(t *testing.T) {
	strategy := os.Getenv(searchEnv)
	if strategy == "" {
		t.Skip("TestMutate runs this test in a program with a mistake")
	}
	cfg := explore.Usual()
	cfg.Strategies, cfg.Command, cfg.Workers = []string{strategy}, []string{os.Args[0], "-test.run=^TestSearchWorker$", "-test.timeout=0"}, runtime.GOMAXPROCS(0)
	ctx, found := context.WithCancel(t.Context())
	defer found()
	report := func(r explore.Result) {
		for _, f := range r.Failures {
			if f.Unclaimed {
				t.Errorf("%q breaks %s in %d steps after %s: %s", r.Part, f.Property, len(f.Schedule.Steps), r.Elapsed, f.Why)
				found()
			}
		}
	}
	results, err := explore.SearchPortfolio(ctx, nil, cfg, report)
	if t.Failed() {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range append(results, results[0].Parts...) {
		report(r)
	}
	if r := results[0]; r.IsUnexpected() && !t.Failed() {
		t.Errorf("the search has the verdict %s, expected %s", r.Verdict, r.Expected)
	}
}

// TestSearchWorker executes the schedules of TestSearch.
func TestSearchWorker(t *testing.T) {
	if os.Getenv(searchEnv) == "" {
		t.Skip("TestSearch starts this test in a child process")
	}
	if err := explore.Work(func(run func()) { synctest.Test(t, func(*testing.T) { run() }) }); err != nil {
		t.Error(err)
	}
}
