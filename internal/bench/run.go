package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/stack"
)

// Execute runs every cell of cfg. It hands what it has to save after each of them;
// when ctx ends it winds up, and returns what it has with the cause. Any other
// error is one of the harness: a backend that fails under load is a finding,
// and stands in its cell.
func Execute(ctx context.Context, cfg Config, save func(*Run) error) (_ *Run, err error) {
	r := &runner{cfg: cfg, progress: newProgress(cfg)}
	defer func() { err = errors.Join(err, r.close()) }()

	run := &Run{
		Schema: Schema, ID: filepath.Base(cfg.Out), StartedAt: time.Now().UTC(), Cells: []Cell{},
		Config: RunConfig{
			Scenario: cfg.Scenario, Orders: cfg.Orders, Drivers: cfg.Drivers,
			Rate: cfg.Rate, Instances: cfg.Instances, Seed: cfg.Seed,
		},
	}
	if err := r.open(ctx, run); err != nil {
		return run, err
	}
	if err := r.begin(); err != nil {
		return run, err
	}
	for i, s := range r.strategies() {
		r.progress.cell(i+1, len(r.strategies()), s.Name)
		var cell Cell
		if cfg.Scenario == "peak" {
			cell = r.peak(ctx, s)
		} else {
			cell = r.cell(ctx, s, cfg.Load)
		}
		run.Cells = append(run.Cells, cell)
		run.DurationS = time.Since(run.StartedAt).Seconds()
		run.Complete = ctx.Err() == nil && len(run.Cells) == len(r.strategies())
		if err := save(run); err != nil {
			return run, err
		}
		if ctx.Err() != nil {
			return run, context.Cause(ctx)
		}
	}
	return run, nil
}

// runner is what the cells of one run share.
type runner struct {
	cfg      Config
	progress *progress

	stack  *stack.Stack // nil with -targets
	fleet  *fleet
	store  *order.SQL // the ledger; nil where it cannot be reached directly
	books  books
	record *record
}

// books is where orders are opened and the ledger is read: the database
// itself, or an instance's API.
type books interface {
	Create(ctx context.Context, count int) (first int64, err error)
	Ledger(ctx context.Context, first int64, count int) ([]order.Grab, error)
}

func (r *runner) open(ctx context.Context, run *Run) (err error) {
	run.Environment = NewEnvironment(r.cfg.Stack.Kind)
	if len(r.cfg.Targets) > 0 {
		return r.openTargets(ctx, run)
	}
	r.progress.say("starting the %s stack", r.cfg.Stack.Kind)
	if r.stack, err = stack.Start(ctx, r.cfg.Stack); err != nil {
		return err
	}
	run.Environment.Redis, run.Environment.Database = r.stack.RedisVersion, r.stack.DatabaseVersion
	run.Environment.ZooKeeper, run.Environment.Etcd = r.stack.ZooKeeperVersion, r.stack.EtcdVersion
	if err := r.openStore(ctx, r.stack.DSN); err != nil {
		return err
	}
	r.progress.say("%s; %s", or(r.stack.RedisVersion, "no Redis"), r.stack.DatabaseVersion)
	r.fleet, err = startFleet(ctx, r.cfg, r.stack, r.progress.say)
	return err
}

// begin makes room for the results.
func (r *runner) begin() (err error) {
	if r.cfg.Begin != nil {
		if err := r.cfg.Begin(); err != nil {
			return err
		}
	}
	r.record, err = newRecord(r.cfg.Out)
	return err
}

// openTargets attaches to instances that somebody else has started.
func (r *runner) openTargets(ctx context.Context, run *Run) (err error) {
	run.Environment.Stack = "targets"
	run.Config.Instances = len(r.cfg.Targets)
	if r.fleet, err = useTargets(ctx, r.cfg); err != nil {
		return err
	}
	if !r.fleet.foreign {
		r.cfg.asRunning(r.fleet.settings)
	}
	r.books = r.fleet
	if r.cfg.Stack.DB != "" && !r.fleet.foreign {
		if err := r.openStore(ctx, r.cfg.Stack.DB); err != nil {
			return err
		}
		run.Environment.Database, err = r.store.Version(ctx)
	}
	return err
}

func (r *runner) openStore(ctx context.Context, dsn string) (err error) {
	if r.store, err = order.Connect(ctx, dsn, order.Options{MaxConns: 4}); err != nil {
		return err
	}
	r.books = r.store
	return r.store.Migrate(ctx)
}

// close ends everything that open began, instances first, so that they can
// still release their locks.
func (r *runner) close() error {
	var errs []error
	if r.fleet != nil {
		errs = append(errs, r.fleet.stop())
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	if r.stack != nil {
		errs = append(errs, r.stack.Close())
	}
	if r.record != nil {
		errs = append(errs, r.record.close())
	}
	r.progress.end()
	return errors.Join(errs...)
}

// strategies of the run. A foreign service has one that we do not know.
func (r *runner) strategies() []lock.Strategy {
	if r.fleet.foreign {
		return []lock.Strategy{{Name: Foreign, Title: "whatever the targets do", Excludes: lock.Nobody}}
	}
	return r.cfg.Strategies
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
