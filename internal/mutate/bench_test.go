package mutate

import (
	"context"
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

// bench runs the tests and the explorer on the mistakes.
type bench struct {
	dir        string // overlays and programs; removed at the end
	root       string
	explores   bool
	files      map[string]*finder
	equivalent map[string]bool // keys of the mistakes that change nothing

	joined   overlay // replaces the files with mistakes by files with a switch over all mistakes
	overlay  string  // the file with the overlay
	suites   map[string]*suite
	built    map[string]string // programs with all joined mistakes, by package
	searches map[string]search
}

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
	return &bench{
		dir: dir, root: root, explores: explore, files: map[string]*finder{}, equivalent: equivalent,
		overlay: filepath.Join(dir, "overlay.json"), built: map[string]string{}, suites: map[string]*suite{}, searches: map[string]search{},
	}, nil
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

// candidate is a mistake that may be part of the sample.
type candidate struct {
	mistake
	group group
	seed  string
	alone bool // whether the mistake is outside every function, so that it needs a program of its own
}

// draw returns candidates for a sample of n mistakes in the group, in the order of the seed. It returns more
// than n, because some of them may not compile.
func (b *bench) draw(g group, n int, seed, tests string) ([]candidate, error) {
	var all []mistake
	for _, pattern := range g.files {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if ours, err := build.Default.MatchFile(filepath.Split(file)); strings.HasSuffix(file, "_test.go") || filepath.Ext(file) == ".go" && (err != nil || !ours) {
				continue // no test compiles the files of other systems
			}
			source, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if b.files[file], err = newFinder(file, source); err != nil {
				return nil, err
			}
			all = append(all, b.files[file].mistakes()...)
		}
	}
	var drawn []candidate
	for _, m := range shuffled(all, seed+" "+g.name) {
		f := b.files[m.file]
		if len(drawn) < 3*n && !b.equivalent[m.key(f.source)] && (tests != "none" || len(strategiesFor(m.file)) > 0) {
			drawn = append(drawn, candidate{m, g, seed, f.tree == nil || f.find(m).body == nil})
		}
	}
	return drawn, nil
}

// sample draws n mistakes for each group and seed that can be built, and joins them into one program.
func (b *bench) sample(ctx context.Context, groups []group, n int, seeds []string, tests string) (sample []numbered, err error) {
	var drawn []candidate
	for _, g := range groups {
		for _, seed := range seeds {
			more, err := b.draw(g, n, seed, tests)
			if err != nil {
				return nil, err
			}
			drawn = append(drawn, more...)
		}
	}
	valid := map[int]mistake{}
	for number, c := range drawn {
		if !c.alone {
			valid[number+1] = c.mistake
		}
	}
	if err := b.dropInvalid(ctx, valid); err != nil {
		return nil, err
	}
	drawnFrom := map[string]int{}
	joined := map[int]mistake{}
	for i, c := range drawn {
		number := i + 1
		if drawnFrom[c.group.name+" "+c.seed] == n {
			continue
		}
		if c.alone {
			if ok, err := b.builds(ctx, c, tests); err != nil {
				return nil, err
			} else if !ok {
				continue
			}
		} else if _, ok := valid[number]; ok {
			joined[number] = c.mistake
		} else {
			continue
		}
		drawnFrom[c.group.name+" "+c.seed]++
		sample = append(sample, numbered{c, number})
	}
	_, err = b.join(joined)
	return sample, err
}

// numbered is a mistake in the sample.
type numbered struct {
	candidate
	number int
}

// measure looks for a test that finds the mistake, and runs the explorer on it.
func (b *bench) measure(ctx context.Context, m numbered, tests string) (r result, err error) {
	r = result{group: m.group.name, seed: m.seed, rule: m.rule}
	p := programs{bench: b, mistake: m}
	if m.alone {
		if p.overlay, err = b.changed(m.mistake); err != nil {
			return r, err
		}
	}
	if strategies := strategiesFor(m.file); b.explores && len(strategies) > 0 {
		if r.explored, r.byExplorer, err = p.explorerFinds(ctx, strategies); err != nil {
			return r, err
		}
	}
	for i, folder := range m.group.packages(m.file, tests) {
		r.tested = true
		found, err := p.testsFind(ctx, folder)
		if err != nil {
			return r, err
		}
		if found {
			r.byTest, r.byOwnTest = folder, i == 0
			break
		}
	}
	return r, nil
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

// search is the result of a search of a strategy without any mistake.
type search struct {
	fails   bool
	reached map[int]bool
}

// explorerFinds reports whether the explorer finds a failure that the registry does not claim. The search must
// fail twice with the mistake. A strategy whose search fails without the mistake too does not count, and
// explored is false if no other strategy is left.
func (p programs) explorerFinds(ctx context.Context, strategies []string) (explored, found bool, err error) {
	program, err := p.build(ctx, "internal/mutate")
	if err != nil {
		return false, false, err
	}
	for _, s := range strategies {
		without, err := p.searchWithout(ctx, s)
		if err != nil {
			return explored, false, err
		}
		if without.fails {
			continue
		}
		explored = true
		if !p.mistake.alone && !without.reached[p.mistake.number] {
			continue
		}
		found, err = p.exploreFails(ctx, program, s, p.setting())
		if found && err == nil {
			found, err = p.exploreFails(ctx, program, s, p.setting())
		}
		if found || err != nil {
			return explored, found, err
		}
	}
	return explored, false, nil
}

// searchWithout returns the result of a search of the strategy without any mistake.
func (b *bench) searchWithout(ctx context.Context, strategy string) (without search, err error) {
	if without, ok := b.searches[strategy]; ok {
		return without, nil
	}
	program, err := programs{bench: b}.build(ctx, "internal/mutate")
	if err != nil {
		return without, err
	}
	folder, err := os.MkdirTemp(b.dir, "reached")
	if err != nil {
		return without, err
	}
	if without.fails, err = b.exploreFails(ctx, program, strategy, reachedEnv+"="+folder); err != nil {
		return without, err
	}
	if without.fails {
		fmt.Fprintf(os.Stderr, "left out, because its search fails without a mistake: %s\n", strategy)
	}
	without.reached, err = reached(folder)
	b.searches[strategy] = without
	return without, err
}

// searchEnv is an environment variable that names the strategy for TestSearch.
const searchEnv = "GRABLAB_MUTATE_SEARCH"

// exploreFails reports whether a search of the strategy with the default bounds finds a failure that is not
// expected. A search that ends its process or that takes longer than three minutes counts too.
func (b *bench) exploreFails(ctx context.Context, program, strategy string, env ...string) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	c := b.command(limited, program, "-test.run=^TestSearch$")
	c.Env = append(append(os.Environ(), searchEnv+"="+strategy), env...)
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
			if f.Unexpected {
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
