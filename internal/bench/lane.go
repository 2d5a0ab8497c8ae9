package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"grablab/internal/fault"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/stack"
)

// lane is where cells run one after the other: servers and instances of its
// own, so that the cells of two lanes never meet.
type lane struct {
	cfg      Config
	progress *track
	record   *record

	stack *stack.Stack // nil with -targets
	fleet *fleet
	store *order.SQL // the ledger; nil where it cannot be reached directly
	books books

	// spoiled: a fault has left the servers otherwise than it found them.
	spoiled bool
}

// books is where orders are opened and the ledger is read: the database
// itself, or an instance's API.
type books interface {
	Create(ctx context.Context, count int) (first int64, err error)
	Ledger(ctx context.Context, first int64, count int) ([]order.Grab, error)
}

// setup is what the instances of a cell are started with.
type setup struct {
	work, ttl, wait time.Duration
	timeout         time.Duration           // of one grab
	traps           bool                    // they serve the control API of a scene
	routes          map[int]stack.Addresses // by instance, where one does not reach the stack directly
}

// setup is what the flags ask for.
func (cfg Config) setup() setup {
	return setup{work: cfg.Work, ttl: cfg.TTL, wait: cfg.Wait, timeout: cfg.Timeout}
}

// openLane starts a stack and names the nth lane's instances over it, which
// run once a cell needs them. The lane is to be closed also after an error.
func openLane(ctx context.Context, cfg Config, n int, p *progress, j *journal) (*lane, error) {
	l := &lane{cfg: cfg, progress: &track{progress: p}, record: newRecord(j)}
	if len(cfg.Targets) > 0 {
		return l, l.openTargets(ctx)
	}
	var err error
	if l.stack, err = stack.Start(ctx, cfg.Stack); err != nil {
		return l, err
	}
	if err := l.openStore(ctx, l.stack.DSN); err != nil {
		return l, err
	}
	l.fleet = newOwnFleet(cfg, l.stack, firstPort+n*cfg.Instances, p.say)
	return l, nil
}

// openTargets attaches to instances that somebody else has started.
func (l *lane) openTargets(ctx context.Context) (err error) {
	if l.fleet, err = useTargets(ctx, l.cfg); err != nil {
		return err
	}
	if !l.fleet.foreign {
		l.cfg.asRunning(l.fleet.settings)
	}
	l.books = l.fleet
	if l.cfg.Stack.DB != "" && !l.fleet.foreign {
		return l.openStore(ctx, l.cfg.Stack.DB)
	}
	return nil
}

func (l *lane) openStore(ctx context.Context, dsn string) (err error) {
	if l.store, err = order.Connect(ctx, dsn, order.Options{MaxConns: 4}); err != nil {
		return err
	}
	l.books = l.store
	return l.store.Migrate(ctx)
}

// close ends everything that openLane began, instances first, so that they can
// still release their locks.
func (l *lane) close() error {
	var errs []error
	if l.fleet != nil {
		errs = append(errs, l.fleet.stop())
	}
	if l.store != nil {
		errs = append(errs, l.store.Close())
	}
	if l.stack != nil {
		errs = append(errs, l.stack.Close())
	}
	return errors.Join(errs...)
}

// run fills one spot of the table.
func (l *lane) run(ctx context.Context, s *spot) Cell {
	switch {
	case s.Fault != lock.NoFault:
		return l.bounded(ctx, s)
	case l.cfg.Scenario == "peak":
		return l.peak(ctx, s.strategy)
	default:
		return l.cell(ctx, s.strategy, l.cfg.Load)
	}
}

// errBudget is why a cell was ended.
var errBudget = errors.New("bench: the cell took longer than -budget allows")

// bounded has a fault strike a scene, for no longer than the budget.
func (l *lane) bounded(ctx context.Context, s *spot) Cell {
	f, err := fault.Find(s.Fault)
	if err != nil {
		return *l.cfg.notRun(s, lock.Unknown, err.Error())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.Budget, errBudget)
	defer cancel()
	c := l.scene(ctx, s.strategy, f)
	if c.Verdict == lock.Unknown && errors.Is(context.Cause(ctx), errBudget) {
		c.Reason = fmt.Sprintf("the cell took longer than its budget of %v: %s", l.cfg.Budget, c.Reason)
	}
	return c
}

// switchTo makes the fleet whole, has it run as u says, and switches it to the
// strategy. lease is for how long one lives there, in ms, for the servers may
// have bounds of their own; 0: nobody tells.
func (l *lane) switchTo(ctx context.Context, s lock.Strategy, u setup) (lease float64, err error) {
	if err := l.fleet.equip(ctx, u); err != nil {
		return 0, err
	}
	if l.fleet.foreign {
		return 0, nil
	}
	return l.fleet.use(ctx, s.Name)
}
