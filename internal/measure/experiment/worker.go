package experiment

import (
	"context"
	"errors"
	"fmt"

	"grablab/internal/catalog"
	"grablab/internal/order"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/ledger"
	"grablab/internal/testbed/stack"
)

// worker runs cells one after the other on a stack and a fleet of its own, so
// that the cells of two workers never meet.
type worker struct {
	cfg      Config
	progress *workerProgress
	journal  *journal
	trails   *trails // of all workers

	stack  *stack.Stack // nil with -targets
	fleet  *fleet.Fleet
	store  *order.SQL // nil where the database is not ours
	orders orders
	theirs *ledger.DB // of targets; nil: it is not known
	// ledger says whether there is one, of the orders of the cell.
	ledger bool

	// repetition of the cell that is being run, from 1.
	repetition int
	// dirty: a fault has left the servers otherwise than it found them.
	dirty bool
}

// orders is where orders are opened and the ledger is read: the database
// itself, or an instance's API.
type orders interface {
	Create(ctx context.Context, count int) (first int64, err error)
	CreateStock(ctx context.Context, count, units int) (first int64, err error)
	Ledger(ctx context.Context, first int64, count int) ([]order.Grab, error)
}

// setup is what the flags ask for.
func (cfg Config) setup() fleet.Setup {
	return fleet.Setup{Work: cfg.Work, TTL: cfg.TTL, Wait: cfg.Wait, Timeout: cfg.Timeout}
}

// openWorker starts a stack and names the nth worker's instances over it, which
// run once a cell needs them. The worker is to be closed also after an error.
func openWorker(ctx context.Context, cfg Config, n int, p *progress, j *journal) (*worker, error) {
	w := &worker{cfg: cfg, progress: &workerProgress{progress: p}, journal: j, trails: newTrails()}
	if len(cfg.Target.URLs) > 0 {
		return w, w.attach(ctx)
	}
	var err error
	if w.stack, err = stack.Start(ctx, cfg.Stack); err != nil {
		return w, err
	}
	if cfg.Service != nil {
		return w, w.startService(ctx, fleet.FirstPort+n*cfg.Instances)
	}
	if err := w.openStore(ctx, w.stack.DSN); err != nil {
		return w, err
	}
	w.fleet = w.newFleet(fleet.FirstPort + n*cfg.Instances)
	return w, nil
}

func (w *worker) newFleet(port int) *fleet.Fleet {
	return fleet.New(fleet.Config{
		Exe: w.cfg.Exe, Instances: w.cfg.Instances, Guard: w.cfg.Guard, OnLost: w.cfg.OnLost, PerDriver: w.cfg.PerDriver, ClockOffset: w.cfg.ClockOffset,
		Say: w.progress.say,
	}, w.stack, port)
}

func (w *worker) openStore(ctx context.Context, dsn string) (err error) {
	if w.store, err = order.Connect(ctx, dsn, order.Options{MaxConns: 4}); err != nil {
		return err
	}
	w.orders, w.ledger = w.store, true
	return w.store.Migrate(ctx)
}

// close ends everything that openWorker began, instances first, so that they can
// still release their locks.
func (w *worker) close() error {
	var errs []error
	if w.fleet != nil {
		errs = append(errs, w.fleet.Close())
	}
	if w.store != nil {
		errs = append(errs, w.store.Close())
	}
	if w.theirs != nil {
		errs = append(errs, w.theirs.Close())
	}
	if w.stack != nil {
		errs = append(errs, w.stack.Close())
	}
	return errors.Join(errs...)
}

// ended lists the servers of the stack that have ended by themselves.
func (w *worker) ended() []string {
	if w.stack == nil {
		return nil
	}
	return w.stack.Ended()
}

// run runs one cell.
func (w *worker) run(ctx context.Context, s *cellSpec) Cell {
	switch {
	case s.Fault != catalog.NoFault:
		return w.bounded(ctx, s)
	case w.cfg.Scenario == "peak":
		return w.peak(ctx, s.strategy)
	default:
		return w.cell(ctx, s.strategy, w.cfg.Load)
	}
}

// errBudget is why a cell was ended.
var errBudget = errors.New("experiment: the cell took longer than -budget allows")

// bounded runs a cell under a fault for no longer than the budget.
func (w *worker) bounded(ctx context.Context, s *cellSpec) Cell {
	f, _ := fault.Find(s.Fault) // excuse has refused an unknown name
	ctx, cancel := context.WithTimeoutCause(ctx, w.cfg.Budget, errBudget)
	defer cancel()
	c := w.inject(ctx, s.strategy, f)
	if c.Verdict == catalog.Unknown && errors.Is(context.Cause(ctx), errBudget) {
		c.Reason = fmt.Sprintf("the cell took longer than its budget of %v: %s", w.cfg.Budget, c.Reason)
	}
	return c
}
