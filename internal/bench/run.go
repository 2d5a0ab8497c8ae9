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
)

// Execute runs every cell of cfg. It hands what it has to save after each of them;
// when ctx ends it winds up, and returns what it has with the cause. Any other
// error is one of the harness: a backend that fails under load is a finding,
// and stands in its cell.
func Execute(ctx context.Context, cfg Config, save func(*Run) error) (_ *Run, err error) {
	r := &runner{cfg: cfg, progress: newProgress(cfg), save: save}
	defer func() { err = errors.Join(err, r.close()) }()

	r.run = &Run{
		Schema: Schema, ID: filepath.Base(cfg.Out), StartedAt: time.Now().UTC(), Cells: []Cell{},
		Environment: NewEnvironment(cfg.Stack.Kind),
		Config: RunConfig{
			Scenario: cfg.Scenario, Orders: cfg.Orders, Drivers: cfg.Drivers,
			Rate: cfg.Rate, Instances: cfg.Instances, Seed: cfg.Seed,
		},
	}
	if err := r.open(ctx); err != nil {
		return r.run, err
	}
	return r.run, r.runAll(ctx)
}

// runner runs the cells of one run.
type runner struct {
	cfg      Config
	progress *progress
	save     func(*Run) error
	run      *Run

	lane    *lane
	journal *journal
}

// open makes ready whatever the first cell needs, and then room for the results.
func (r *runner) open(ctx context.Context) (err error) {
	if len(r.cfg.Targets) == 0 {
		r.progress.say("starting the %s stack", r.cfg.Stack.Kind)
	}
	if r.lane, err = openLane(ctx, r.cfg, 0, r.progress); err != nil {
		return err
	}
	if err := r.describe(ctx, r.lane); err != nil {
		return err
	}
	if err := r.lane.fleet.equip(ctx, r.cfg.setup()); err != nil {
		return err
	}
	if r.cfg.Begin != nil {
		if err := r.cfg.Begin(); err != nil {
			return err
		}
	}
	if r.journal, err = newJournal(r.cfg.Out); err != nil {
		return err
	}
	r.lane.record = newRecord(r.journal)
	return nil
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

// runAll runs the cells one after the other, and saves after each.
func (r *runner) runAll(ctx context.Context) error {
	all := r.strategies()
	for i, s := range all {
		r.progress.cell(i+1, len(all), s.Name)
		r.run.Cells = append(r.run.Cells, r.lane.run(ctx, s))
		r.run.DurationS = time.Since(r.run.StartedAt).Seconds()
		r.run.Complete = ctx.Err() == nil && len(r.run.Cells) == len(all)
		if err := r.save(r.run); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// strategies of the run. A foreign service has one that we do not know.
func (r *runner) strategies() []lock.Strategy {
	if r.lane.fleet.foreign {
		return []lock.Strategy{{Name: Foreign, Title: "whatever the targets do", Excludes: lock.Nobody}}
	}
	return r.cfg.Strategies
}

// close ends everything that open began.
func (r *runner) close() error {
	var errs []error
	if r.lane != nil {
		errs = append(errs, r.lane.close())
	}
	if r.journal != nil {
		errs = append(errs, r.journal.close())
	}
	r.progress.end()
	return errors.Join(errs...)
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
