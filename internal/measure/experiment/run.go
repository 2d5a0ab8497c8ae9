package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/service/version"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"

	"golang.org/x/sync/errgroup"
)

// Execute runs all tests of cfg, and calls save after each one. If ctx ends, it returns the results
// so far and the cause. If a server under test fails, Execute returns that as a result, not as an
// error.
func Execute(ctx context.Context, cfg Config, save func(*Run) error) (_ *Run, err error) {
	r := newRunner(cfg, save)
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(ctx); err != nil {
		return r.run, err
	}
	return r.run, r.runAll(ctx)
}

// runner runs all tests of a run. Tests without a fault run one after the other, so that they do
// not slow each other down. After that, several workers share the tests with a fault.
type runner struct {
	cfg      Config
	progress *progress
	runCell  func(*worker, context.Context, *cellSpec) Cell // tests may replace (*worker).run

	journal *journal
	trails  *trails
	specs   []*cellSpec
	needs   lock.Backend // the servers that the remaining tests need
	workers []*worker    // an entry is nil until that worker is opened

	mu    sync.Mutex // guards the fields below; once workers run, also the results of the tests
	run   *Run
	save  func(*Run) error
	began time.Time
	ran   float64 // seconds that the run took before it was resumed; 0 for a new run
}

// newRunner returns a runner for cfg, with an empty run. The runner calls save to store the run.
func newRunner(cfg Config, save func(*Run) error) *runner {
	cfg.deadline = time.Now().Add(cfg.BudgetTotal)
	r := &runner{
		cfg: cfg, progress: newProgress(cfg), runCell: (*worker).run,
		journal: &journal{dir: cfg.Out}, trails: new(trails), workers: make([]*worker, max(1, cfg.Workers)),
		save: save, began: time.Now(),
	}
	r.run = &Run{
		Schema: Schema, ID: filepath.Base(cfg.Out), StartedAt: r.began.UTC(), Cells: []Cell{},
		Environment: NewEnvironment(cfg.Stack.Kind),
		Config: RunConfig{
			Scenario: cfg.Scenario, Orders: cfg.Orders, Drivers: cfg.Drivers,
			Rate: cfg.Rate, Together: cfg.Together, Instances: cfg.Instances, Seed: cfg.Seed, Args: cfg.Args, Files: cfg.Files,
			Repeat: cfg.Repeat, Stock: moreThanOne(cfg.Stock), PerDriver: moreThanOne(cfg.PerDriver),
		},
	}
	if cfg.Merge != nil {
		r.run.StartedAt = cfg.Merge.Began().UTC()
	}
	if cfg.Resume != nil {
		r.run.StartedAt, r.ran = cfg.Resume.StartedAt, cfg.Resume.DurationS
	}
	return r
}

// moreThanOne returns n, or 0 if n is 1, so that the JSON omits the default.
func moreThanOne(n int) int {
	if n > 1 {
		return n
	}
	return 0
}

// open starts the servers and instances for the first test, and then creates the result folder.
func (r *runner) open(ctx context.Context) error {
	r.layOut(nil)
	if err := r.openFirst(ctx); err != nil {
		return err
	}
	if r.cfg.Begin != nil {
		r.cfg.Begin()
	}
	err := r.journal.open(r.cfg.Resume != nil)
	if err == nil && r.cfg.Shard != nil {
		err = r.save(r.run) // save the run now, so that a merge can name this shard even if the shard is killed
	}
	return err
}

// layOut lists the tests of the run, and sets the result of each test that cannot run. It is called
// again when the strategies of the user's service are known.
func (r *runner) layOut(at *fleet.Fleet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.specs = r.cfg.specs(at)
	r.run.Planned = len(r.specs)
	for _, s := range r.specs {
		if s.cell = r.cfg.excuse(s); s.cell == nil {
			s.cell = r.cfg.Resume.finished(s.CellName)
		}
	}
	r.publishLocked()
}

// finished returns the result of the named test, or nil if the test has not finished.
func (r *Run) finished(name CellName) *Cell {
	if r == nil {
		return nil
	}
	for _, c := range r.Cells {
		single := name.Fault == catalog.NoFault && r.Config.Repeat > 1 && len(c.Repetitions) == 0 // this cell has no list to which a later repetition could be added
		if c.Name() == name && !c.Interrupted && !single {
			return &c
		}
	}
	return nil
}

// left returns the remaining tests, first those without a fault and then those with one. A repeated
// test occurs once for each repetition.
func (r *runner) left() (faultless, faulty []*cellSpec) {
	for _, s := range r.specs {
		switch {
		case !r.isLeft(s):
		case s.Fault == catalog.NoFault:
			faultless = append(faultless, s)
		default:
			faulty = append(faulty, s)
		}
	}
	return rounds(faultless, r.cfg.Repeat, r.cfg.Seed), faulty
}

func (r *runner) isLeft(s *cellSpec) bool {
	if s.cell == nil || s.cell.Interrupted {
		return true
	}
	return s.Fault == catalog.NoFault && s.times() < r.cfg.Repeat
}

// openFirst opens the first worker if any test is left to run, and records the environment.
func (r *runner) openFirst(ctx context.Context) error {
	all := slices.Concat(r.left())
	if len(all) == 0 && !r.cfg.TestsService() {
		if r.cfg.Resume != nil {
			r.run.Environment, r.run.Config = r.cfg.Resume.Environment, r.cfg.Resume.Config
		}
		return nil
	}
	r.needs = r.cfg.serviceNeeds()
	for _, s := range all {
		r.needs |= s.strategy.Needs
	}
	if len(r.cfg.Target.URLs) == 0 {
		r.progress.say("starting the %s stack", r.cfg.Stack.Kind)
	}
	w, err := r.worker(ctx, 0)
	if err != nil {
		return err
	}
	if err := r.describe(ctx, w); err != nil {
		return err
	}
	// Without working instances, the run fails instead of returning a verdict, because their
	// failure says nothing about any strategy.
	if err := w.fleet.Equip(ctx, r.cfg.setup()); err != nil {
		return err
	}
	return r.cfg.subject().meet(ctx, r, w)
}

// describe records the environment of the run. It returns an error if a resumed run began in
// another environment.
func (r *runner) describe(ctx context.Context, w *worker) (err error) {
	env := &r.run.Environment
	if w.stack != nil {
		env.Redis, env.Database = w.stack.RedisVersion, w.stack.DatabaseVersion
		env.ZooKeeper, env.Etcd = w.stack.ZooKeeperVersion, w.stack.EtcdVersion
		r.progress.say("%s; %s", cmp.Or(env.Redis, "no Redis"), env.Database)
	} else {
		env.Stack = "targets"
		r.run.Config.Instances = len(w.fleet.Instances)
		if w.theirs != nil {
			if env.Database, err = w.theirs.Version(ctx); err != nil {
				return err
			}
		}
	}
	if before := r.cfg.Resume; before != nil {
		for _, d := range before.Environment.Differences(*env) {
			return fmt.Errorf("%w: the finished part of this run was measured with %s: continue on the same system, or start a new run", stack.ErrRefused, d)
		}
		env.Redis, env.Database = cmp.Or(env.Redis, before.Environment.Redis), cmp.Or(env.Database, before.Environment.Database)
		env.ZooKeeper, env.Etcd = cmp.Or(env.ZooKeeper, before.Environment.ZooKeeper), cmp.Or(env.Etcd, before.Environment.Etcd)
	}
	return nil
}

// worker returns the nth worker, which it opens if necessary. If a fault has changed the servers of
// that worker permanently, it opens a new one.
func (r *runner) worker(ctx context.Context, n int) (_ *worker, err error) {
	if w := r.workers[n]; w != nil {
		if !w.dirty {
			return w, nil
		}
		r.workers[n] = nil
		if err := w.close(); err != nil {
			return nil, err
		}
	}
	cfg := r.cfg
	cfg.Stack.Needs = r.serves(n)
	w, err := openWorker(ctx, cfg, n, r.progress, r.journal)
	w.trails = r.trails
	r.workers[n] = w
	return w, err
}

// serves returns the kinds of servers that the nth worker starts. Only the first worker starts all
// of them.
func (r *runner) serves(n int) lock.Backend {
	if n == 0 {
		return r.needs
	}
	return r.needs &^ coordinators
}

// runAll runs all cells that are left. The cells without a fault come first, one after the other.
// The cells with a fault then run in parallel.
func (r *runner) runAll(ctx context.Context) error {
	faultless, faulty := r.left()
	if len(faultless)+len(faulty) == 0 && r.cfg.Resume == nil {
		return r.save(r.run) // no test is possible, so no later call saves the run
	}
	r.progress.total = len(faultless) + len(faulty)
	if err := r.runBare(ctx, len(faultless)); err != nil {
		return err
	}
	if err := r.runWorker(ctx, 0, &queue{left: faultless}); err != nil {
		return err
	}
	q := newQueue(faulty)
	if r.cfg.BudgetTotal > 0 {
		r.orderByRisk(faulty)
		q = &queue{left: faulty}
	}
	g, inWorker := errgroup.WithContext(ctx)
	for n := range min(len(r.workers), len(faulty)) {
		g.Go(func() error { return r.runWorker(inWorker, n, q) })
	}
	err := g.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, r.leaveOut())
}

// runBare measures the highest rate of an endpoint that does no work, for comparison with the
// strategies.
func (r *runner) runBare(ctx context.Context, strategies int) (err error) {
	if r.cfg.Resume != nil {
		r.run.Bare = r.cfg.Resume.Bare
	}
	if r.cfg.Scenario != "peak" || strategies == 0 || r.run.Bare != nil {
		return nil
	}
	w, err := r.worker(ctx, 0)
	if err == nil {
		r.run.Bare, err = w.bare(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// runWorker runs tests from the queue in the nth worker. It returns when this worker can run none
// of the remaining tests, or when time runs out.
func (r *runner) runWorker(ctx context.Context, n int, q *queue) error {
	for s := q.take(r.serves(n)); s != nil && !r.cfg.isOver(); s = q.take(r.serves(n)) {
		w, err := r.worker(ctx, n)
		if err != nil {
			return err
		}
		w.repetition = s.times() + 1
		w.progress.begin(s)
		c := r.runCell(w, ctx, s)
		c.Interrupted = c.Interrupted || ctx.Err() != nil
		ended := w.ended()
		w.dirty = w.dirty || len(ended) > 0 // start new servers for the next test
		if err := r.finish(s, c, ended); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// finish merges a result with earlier repetitions of the same test, and saves the run. ended lists the
// servers that exited during the test.
func (r *runner) finish(s *cellSpec, c Cell, ended []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Ended = append(r.run.Ended, ended...)
	if s.Fault == catalog.NoFault && r.cfg.Repeat > 1 {
		if s.times() > 0 {
			c = s.cell.merge(c)
		} else if !c.Interrupted {
			c = c.first()
		}
	}
	c.Environment = new(r.run.Environment)
	if r.cfg.TestsService() && s.Fault != catalog.NoFault {
		r.compareWithoutFault(s.Strategy, &c)
	}
	s.cell = &c
	r.publishLocked()
	return r.save(r.run)
}

// compareWithoutFault corrects a result under a fault if the same strategy fails without a fault. The fault
// does not explain such a failure, and a result without one does not show that the strategy is safe.
func (r *runner) compareWithoutFault(strategy string, c *Cell) {
	i := slices.IndexFunc(r.specs, func(s *cellSpec) bool { return s.Strategy == strategy && s.Fault == catalog.NoFault && s.cell != nil })
	if i < 0 {
		return
	}
	usual := r.specs[i].cell.Verdict
	if usual == catalog.Unsafe {
		for i := range c.Points {
			c.Points[i].FailureMode = ""
		}
	}
	if c.Verdict == catalog.Safe && usual.IsFailure() {
		c.Verdict, c.Reason = catalog.Unknown, fmt.Sprintf("no order failed under the fault, but this strategy is %s without a fault: correct it first", usual)
	}
}

// publishLocked copies the finished results to the run, in the order of the result table. The
// caller must hold r.mu.
func (r *runner) publishLocked() {
	r.run.Cells = []Cell{}
	r.run.Complete = true
	for _, s := range r.specs {
		if s.cell != nil {
			r.run.Cells = append(r.run.Cells, *s.cell)
		}
		r.run.Complete = r.run.Complete && !r.isLeft(s) && (s.cell.Merged == nil || len(s.cell.Merged.Lost) == 0)
	}
	r.run.limit()
	r.run.DurationS = r.ran + time.Since(r.began).Seconds()
	if cells := r.run.Cells; r.cfg.Merge != nil && len(cells) > 0 && cells[0].DurationS != nil {
		r.run.DurationS = *cells[0].DurationS // the duration of the shards, not that of the merge
	}
}

func (r *runner) close() error {
	errs := make([]error, len(r.workers))
	var wg sync.WaitGroup
	for n, w := range r.workers {
		if w != nil {
			wg.Go(func() { errs[n] = w.close() })
		}
	}
	wg.Wait()
	r.progress.line.Clear()
	return errors.Join(append(errs, r.journal.close())...)
}

// NewEnvironment describes this machine and this build. The caller must add the versions of the
// servers.
func NewEnvironment(stackKind string) Environment {
	return Environment{
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(),
		Stack: stackKind, Vegeta: version.Of("github.com/tsenart/vegeta/v12"), Commit: version.Commit(),
	}
}
