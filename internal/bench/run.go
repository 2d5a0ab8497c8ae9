package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"grablab/internal/grab/lock"

	"golang.org/x/sync/errgroup"
)

// Execute runs every cell of cfg. It hands what it has to save after each of them;
// when ctx ends it winds up, and returns what it has with the cause. Any other
// error is one of the harness: a backend that fails under load is a finding,
// and stands in its cell.
func Execute(ctx context.Context, cfg Config, save func(*Run) error) (_ *Run, err error) {
	r := newRunner(cfg, save)
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(ctx); err != nil {
		return r.run, err
	}
	return r.run, r.runAll(ctx)
}

// runner runs the cells of one run: those without a fault one after the other
// and alone on the machine, for their figures are measurements; then those with
// one, in lanes side by side.
type runner struct {
	cfg      Config
	progress *progress
	play     func(*lane, context.Context, *spot) Cell // (*lane).run

	journal *journal
	spots   []*spot
	needs   lock.Backend // of all that are to be filled
	lanes   []*lane      // nil: not open

	mu    sync.Mutex // guards what follows, and what a spot holds
	run   *Run
	save  func(*Run) error
	began time.Time
	ran   float64 // seconds that the run took before it was resumed
}

func newRunner(cfg Config, save func(*Run) error) *runner {
	r := &runner{
		cfg: cfg, progress: newProgress(cfg), play: (*lane).run,
		journal: &journal{dir: cfg.Out}, lanes: make([]*lane, max(1, cfg.Lanes)),
		save: save, began: time.Now(),
	}
	r.run = &Run{
		Schema: Schema, ID: filepath.Base(cfg.Out), StartedAt: r.began.UTC(), Cells: []Cell{},
		Environment: NewEnvironment(cfg.Stack.Kind),
		Config: RunConfig{
			Scenario: cfg.Scenario, Orders: cfg.Orders, Drivers: cfg.Drivers,
			Rate: cfg.Rate, Instances: cfg.Instances, Seed: cfg.Seed, Args: cfg.Args,
		},
	}
	if cfg.Resume != nil {
		r.run.StartedAt, r.ran = cfg.Resume.StartedAt, cfg.Resume.DurationS
	}
	return r
}

// open makes ready whatever the first cell needs, and then room for the results.
func (r *runner) open(ctx context.Context) error {
	r.lay(false)
	if err := r.openFirst(ctx); err != nil {
		return err
	}
	if r.cfg.Begin != nil {
		if err := r.cfg.Begin(); err != nil {
			return err
		}
	}
	return r.journal.open(r.cfg.Resume != nil)
}

// lay lays out the table, with the cells that need not be run.
func (r *runner) lay(foreign bool) {
	r.spots = r.cfg.spots(foreign)
	for _, s := range r.spots {
		if s.cell = r.cfg.excuse(s); s.cell == nil {
			s.cell = r.cfg.Resume.finished(s.CellName)
		}
	}
	r.publish()
}

// finished is the cell of that name, if the run has it from beginning to end.
func (r *Run) finished(name CellName) *Cell {
	if r == nil {
		return nil
	}
	i := slices.IndexFunc(r.Cells, func(c Cell) bool {
		return c.Strategy == name.Strategy && c.Fault == name.Fault && !c.Interrupted
	})
	if i < 0 {
		return nil
	}
	return ptr(r.Cells[i])
}

// left are the spots that have still to be filled, with a fault or without.
func (r *runner) left(faulty bool) []*spot {
	var left []*spot
	for _, s := range r.spots {
		if s.cell == nil && (s.Fault != lock.NoFault) == faulty {
			left = append(left, s)
		}
	}
	return left
}

// openFirst opens the first lane, if there is anything for it to do, and
// describes what it runs on.
func (r *runner) openFirst(ctx context.Context) error {
	all := append(r.left(false), r.left(true)...)
	if len(all) == 0 && len(r.cfg.Targets) == 0 {
		if r.cfg.Resume != nil {
			r.run.Environment, r.run.Config = r.cfg.Resume.Environment, r.cfg.Resume.Config
		}
		return nil
	}
	for _, s := range all {
		r.needs |= s.strategy.Needs
	}
	if len(r.cfg.Targets) == 0 {
		r.progress.say("starting the %s stack", r.cfg.Stack.Kind)
	}
	l, err := r.lane(ctx, 0)
	if err != nil {
		return err
	}
	if l.fleet.foreign {
		r.lay(true)
	}
	if err := r.describe(ctx, l); err != nil {
		return err
	}
	// What keeps instances from running at all is no cell's finding.
	return l.fleet.equip(ctx, r.cfg.setup())
}

// describe notes what the run runs on.
func (r *runner) describe(ctx context.Context, l *lane) (err error) {
	env := &r.run.Environment
	if l.stack == nil {
		env.Stack = "targets"
		r.run.Config.Instances = len(r.cfg.Targets)
		if l.store != nil {
			env.Database, err = l.store.Version(ctx)
		}
		return err
	}
	env.Redis, env.Database = l.stack.RedisVersion, l.stack.DatabaseVersion
	env.ZooKeeper, env.Etcd = l.stack.ZooKeeperVersion, l.stack.EtcdVersion
	r.progress.say("%s; %s", or(l.stack.RedisVersion, "no Redis"), l.stack.DatabaseVersion)
	return nil
}

// lane is the nth one, opened if need be. One whose servers a fault has left
// otherwise than it found them is opened afresh.
func (r *runner) lane(ctx context.Context, n int) (_ *lane, err error) {
	if l := r.lanes[n]; l != nil {
		if !l.spoiled {
			return l, nil
		}
		r.lanes[n] = nil
		if err := l.close(); err != nil {
			return nil, err
		}
	}
	cfg := r.cfg
	cfg.Stack.Needs = r.serves(n)
	r.lanes[n], err = openLane(ctx, cfg, n, r.progress, r.journal)
	return r.lanes[n], err
}

// serves is what the nth lane has servers for.
func (r *runner) serves(n int) lock.Backend {
	if n == 0 {
		return r.needs
	}
	return r.needs &^ coordinators
}

// runAll fills every spot that is not filled yet.
func (r *runner) runAll(ctx context.Context) error {
	calm, faulty := r.left(false), r.left(true)
	lanes := min(len(r.lanes), len(faulty))
	r.progress.expect(len(calm), len(faulty), lanes)
	if err := r.runLane(ctx, 0, &queue{left: calm}); err != nil {
		return err
	}
	q := newQueue(faulty)
	g, inLane := errgroup.WithContext(ctx)
	for n := range lanes {
		g.Go(func() error { return r.runLane(inLane, n, q) })
	}
	err := g.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// runLane fills spots of the queue in the nth lane for as long as there is one
// that it can serve.
func (r *runner) runLane(ctx context.Context, n int, q *queue) error {
	for s := q.take(r.serves(n)); s != nil; s = q.take(r.serves(n)) {
		l, err := r.lane(ctx, n)
		if err != nil {
			return err
		}
		l.progress.begin(s)
		c := r.play(l, ctx, s)
		c.Interrupted = ctx.Err() != nil
		l.progress.end()
		if err := r.finish(s, c); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// finish fills the spot, and saves the run.
func (r *runner) finish(s *spot, c Cell) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.cell = &c
	r.publish()
	return r.save(r.run)
}

// publish brings the run up to date: its cells in the order of the table, in
// whatever order they finished.
func (r *runner) publish() {
	r.run.Cells = []Cell{}
	r.run.Complete = true
	for _, s := range r.spots {
		if s.cell != nil {
			r.run.Cells = append(r.run.Cells, *s.cell)
		}
		r.run.Complete = r.run.Complete && s.cell != nil && !s.cell.Interrupted
	}
	r.run.DurationS = r.ran + time.Since(r.began).Seconds()
}

// close ends everything that open began.
func (r *runner) close() error {
	errs := make([]error, len(r.lanes))
	var wg sync.WaitGroup
	for n, l := range r.lanes {
		if l != nil {
			wg.Go(func() { errs[n] = l.close() })
		}
	}
	wg.Wait()
	r.progress.close()
	return errors.Join(append(errs, r.journal.close())...)
}

// NewEnvironment describes this machine and program, and what it was built from.
// The stack of that kind is to say what its servers are.
func NewEnvironment(stackKind string) Environment {
	e := Environment{
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(),
		Stack: stackKind, Vegeta: "unknown", Commit: commit(),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/tsenart/vegeta/v12" {
				e.Vegeta = m.Version
			}
		}
	}
	return e
}

// commit of the source: what the linker knows of it, else what git says, if
// the working directory is that of this project. A tree with changes is "-dirty".
func commit() string {
	settings := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
	}
	if rev := settings["vcs.revision"]; len(rev) >= 7 {
		if settings["vcs.modified"] == "true" {
			return rev[:7] + "-dirty"
		}
		return rev[:7]
	}
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "unknown"
	}
	mod, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(top)), "go.mod"))
	if err != nil || !strings.HasPrefix(string(mod), "module grablab\n") {
		return "unknown"
	}
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
