package experiment

import (
	"context"
	"errors"

	"grablab/internal/catalog"
	"grablab/internal/order"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/ledger"
	"grablab/internal/testbed/stack"
)

// worker runs tests one after the other. It has its own servers and instances, so that workers do
// not affect each other.
type worker struct {
	cfg      Config
	progress *workerProgress
	journal  *journal
	trails   *trails // shared by all workers

	stack  *stack.Stack // nil if the -targets flag names a running service
	fleet  *fleet.Fleet
	store  *order.SQL // nil if the database belongs to the user
	orders orders
	theirs *ledger.DB // the ledger of the user's service; nil if unknown
	// ledger means that the service under test has a ledger that can be read.
	ledger bool

	// repetition is how often the current test has been started, including this time.
	repetition int
	// dirty means that a fault has changed the servers permanently, so that the next test needs new
	// servers.
	dirty bool
}

// orders opens orders and reads their ledger, either in the database or through an instance's API.
type orders interface {
	Create(ctx context.Context, count, units int) (first int64, err error)
	Ledger(ctx context.Context, first int64, count int) ([]order.Grab, error)
}

func (cfg Config) setup() fleet.Setup {
	return fleet.Setup{Work: cfg.Work, TTL: cfg.TTL, Wait: cfg.Wait, Timeout: cfg.Timeout}
}

// openWorker starts the servers of the nth worker. The caller must close the worker even after an
// error.
func openWorker(ctx context.Context, cfg Config, n int, p *progress, j *journal) (w *worker, err error) {
	w = &worker{cfg: cfg, progress: &workerProgress{progress: p}, journal: j, trails: new(trails)}
	if len(cfg.Target.URLs) == 0 {
		if w.stack, err = stack.Start(ctx, cfg.Stack); err != nil {
			return w, err
		}
	}
	err = cfg.subject().open(ctx, w, fleet.FirstPort+n*cfg.Instances)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return w, err
}

func (w *worker) newFleet(port int) *fleet.Fleet {
	cfg := w.cfg.forInstances()
	cfg.Say = w.progress.say
	return fleet.New(cfg, w.stack, port)
}

// forInstances returns the settings that our own instances start with.
func (cfg Config) forInstances() fleet.Config {
	return fleet.Config{
		Exe: cfg.Exe, Instances: cfg.Instances, Guard: cfg.Guard, OnLost: cfg.OnLost, PerDriver: cfg.PerDriver, ClockOffset: cfg.ClockOffset, OTLP: cfg.OTLP,
	}
}

// close stops everything that the worker has started. It stops the instances first, so that they
// can still release their locks.
func (w *worker) close() (err error) {
	if w.fleet != nil {
		err = w.fleet.Close()
	}
	if w.store != nil {
		err = errors.Join(err, w.store.Close())
	}
	if w.theirs != nil {
		err = errors.Join(err, w.theirs.Close())
	}
	if w.stack != nil {
		err = errors.Join(err, w.stack.Close())
	}
	return err
}

// ended returns the servers that have exited unexpectedly.
func (w *worker) ended() []string {
	if w.stack == nil {
		return nil
	}
	return w.stack.Ended()
}

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
