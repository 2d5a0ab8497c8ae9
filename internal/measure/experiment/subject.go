package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
)

// A subject represents the instances under test: instances of this program, a service that the run
// starts, or a service that is already running. Its methods are the steps that differ between these
// three kinds.
type subject interface {
	// open connects to running instances, or prepares instances that will listen on the given port
	// and the following ones. The servers are already running.
	open(ctx context.Context, w *worker, port int) error
	// meet checks before the first test that the instances can be used.
	meet(ctx context.Context, r *runner, w *worker) error

	// excuse explains why a fault cannot hit the instances. It returns "" if the fault can hit
	// them.
	excuse(f fault.Fault) string
	// traits returns what the program can observe and control in the instances.
	traits() traits
	// strike injects the fault and measures the outcome.
	strike(ctx context.Context, in *injection) (measured, error)
	// awaitAble waits for a limited time until the instances work again. It sends test requests for the
	// order spare, which appears in no result. If an instance of the user's service still fails after that
	// time, it returns errNotAble, and the test may continue.
	awaitAble(ctx context.Context, spare int64, instances ...*fleet.Instance) error
}

// traits describes what the program can observe and control in the instances under test.
type traits struct {
	// tellsDrivers means that the program knows which driver makes a call. It can then stop the
	// calls of a single driver, and test several orders at once.
	tellsDrivers bool
	// unknownLock means that the program does not know whether drivers wait for the lock or are
	// refused at once.
	unknownLock bool
	// reconnects means that the instances survive a fault of their servers, but must reconnect.
	// Until then, their clients may retry calls.
	reconnects bool
	// liveLedger means that the program can read the ledger even while the fault is active.
	liveLedger bool
}

func (cfg Config) subject() subject {
	switch {
	case len(cfg.Target.URLs) > 0:
		return runningTargets{foreignSubject{cfg}}
	case cfg.Service != nil:
		return startedService{foreignSubject{cfg}}
	default:
		return ourInstances{cfg}
	}
}

// TestsService reports whether the run tests the user's service instead of its own instances.
func (cfg Config) TestsService() bool { return len(cfg.Target.URLs) > 0 || cfg.Service != nil }

// ourInstances are instances of this program. The run can stop each of their remote calls.
type ourInstances struct{ cfg Config }

func (o ourInstances) open(ctx context.Context, w *worker, port int) (err error) {
	if w.store, err = order.Connect(ctx, w.stack.DSN, order.Options{MaxConns: 4}); err != nil {
		return err
	}
	w.orders, w.ledger, w.fleet = w.store, true, w.newFleet(port)
	return w.store.Migrate(ctx)
}

func (o ourInstances) meet(context.Context, *runner, *worker) error { return nil }

func (o ourInstances) excuse(fault.Fault) string { return "" }

func (o ourInstances) traits() traits { return traits{tellsDrivers: true, liveLedger: true} }

func (o ourInstances) strike(ctx context.Context, in *injection) (m measured, err error) {
	if err := in.readTrail(ctx, in.w.recorder().record); err != nil {
		return m, err
	}
	if err := in.choosePoints(); err != nil {
		return m, err
	}
	return in.strikeAtPoints(ctx)
}

func (o ourInstances) awaitAble(ctx context.Context, _ int64, instances ...*fleet.Instance) error {
	return until(ctx, arrivalTimeout, func() (bool, error) {
		return !slices.ContainsFunc(instances, func(in *fleet.Instance) bool { return !reachesAll(ctx, in) }), nil
	})
}

// reachesAll reports whether an instance reaches all of its servers. The status of the readiness
// endpoint is not enough, because it is good even if only a majority of the Redlock nodes works.
func reachesAll(ctx context.Context, in *fleet.Instance) bool {
	var ready grab.Readiness
	err := in.Call(ctx, http.MethodGet, "/readyz", nil, &ready)
	for _, says := range ready.Checks {
		if says != "ok" {
			return false
		}
	}
	return err == nil
}

// foreignSubject contains what startedService and runningTargets have in common. The program does
// not know how such a service works, because it sees only the responses and possibly the ledger.
type foreignSubject struct{ cfg Config }

func (f foreignSubject) meet(ctx context.Context, r *runner, w *worker) error {
	r.run.Config.Rules = new(w.fleet.Shape.Says())
	r.layOut(w.fleet)
	if err := errors.Join(f.cfg.checkExpectations(w.fleet), f.cfg.checkMoments(w.fleet), r.checkShards()); err != nil {
		return err
	}
	return r.inspectFirst(ctx, w)
}

func (f foreignSubject) excuse(of fault.Fault) string { return of.NotForeign }

// errNotAble means that the user's service has not answered grabs for some time, although no fault is active.
var errNotAble = errors.New("the service did not recover from the fault")

func (f foreignSubject) awaitAble(ctx context.Context, spare int64, instances ...*fleet.Instance) (failed error) {
	for _, in := range instances {
		err := in.AwaitGrab(ctx, spare, serviceArrives)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			failed = fmt.Errorf("%w: %w", errNotAble, err)
		}
	}
	return failed
}

// awaitGrab waits until an instance answers grabs. If requests for the spare order get no answer, it
// continues with a new order and one request at a time. The lock of the spare order may never have been
// released.
func (in *injection) awaitGrab(ctx context.Context, at *fleet.Instance, within time.Duration) error {
	err := at.AwaitGrab(ctx, in.spare, within/2)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		return at.AwaitGrab(ctx, in.spare, within/2)
	}
	if in.spare, err = in.w.orders.Create(ctx, 1, 1); err != nil {
		return err
	}
	rest, cancel := context.WithTimeout(ctx, within/2)
	defer cancel()
	_ = until(rest, within/2, func() (bool, error) {
		_, err = at.Grab(rest, in.spare, 0)
		return err == nil, nil
	})
	return err
}

// startedService is a service that the run starts behind proxies.
type startedService struct{ foreignSubject }

func (s startedService) traits() traits {
	// Without a ledger query, the ledger must be read through the instance that the fault hits,
	// which is impossible while the fault is active.
	return traits{unknownLock: true, reconnects: true, liveLedger: s.cfg.Target.Database.Query != ""}
}

func (s startedService) strike(ctx context.Context, in *injection) (m measured, err error) {
	if err := in.w.fleet.Equip(ctx, s.cfg.setup()); err != nil { // orders are opened through the service, so it must be running
		return m, err
	}
	if err := in.readTrail(ctx, in.w.recorder().recordService); err != nil {
		return m, err
	}
	if err := s.choosePoints(in); err != nil {
		return m, err
	}
	if err := in.trail.service.shortLease; err != nil && in.fault.EndsBeforeLease() {
		return m, err
	}
	if in.spare, err = in.w.orders.Create(ctx, 1, 1); err != nil {
		return m, err
	}
	in.repeats = repeatedStrikes
	return in.strikeAtPoints(ctx)
}

// errUnreachable means that a request to the service makes none of the remote calls that the fault
// can hit.
var errUnreachable = errors.New("this fault affects only some kinds of calls, and this service's grabs make none of them")

// errUntouched means that the service does not use the servers that the fault hits.
var errUntouched = errors.New("this fault has no effect, because the service's grabs make no calls that it affects")

// unusedRedis returns a hint if a Redis fault has no effect on a service whose command names Redis. It
// returns none if the fault also hits locks in the database, because the service may need no lock at all.
func (cfg Config) unusedRedis(f fault.Fault) string {
	if cfg.Service == nil || !cfg.Service.Uses("redis") || f.Hits&lock.Redis == 0 || f.Hits&lock.SQLLocks != 0 {
		return ""
	}
	return ", although the command has {redis}: if this strategy should use Redis, check that the service uses this address"
}

// rowRelease returns a hint if the fault delays releases, but not those of locks in the database of the user's service.
// Otherwise, it returns "".
func (cfg Config) rowRelease(f fault.Fault) string {
	if cfg.Service == nil || f.Course != fault.Released || cfg.serviceNeeds()&lock.SQLLocks == 0 {
		return ""
	}
	return ". It cannot delay the release of a lock in the database: if the lock is a row of a table, check yourself that its release compares the owner"
}

func (s startedService) choosePoints(in *injection) error {
	if err := in.w.recorder().checkReadable(in.trail); err != nil {
		return err
	}
	in.strategy.Needs = in.trail.service.needs
	if !in.fault.HitsAny(in.strategy.Needs) {
		return errUntouched
	}
	if table := in.trail.lockedTable(s.cfg.Target.Database.Query); in.fault.LocksLedger && strings.ContainsAny(table, "*#{") {
		return fmt.Errorf("each order has a table of its own, %s, but slow-db can lock only one table: use partition-db instead", table)
	}
	err := in.choosePoints()
	if err != nil && s.cfg.At == nil {
		return fmt.Errorf("%w: %s", errUnreachable, in.fault.Reach.Why)
	}
	return err
}

type runningTargets struct{ foreignSubject }

func (t runningTargets) excuse(of fault.Fault) string {
	if of.NotForeign == "" && of.Name.Entry().Process == catalog.ProcessRuns {
		return "this fault needs proxies around a service, and these targets have none: start the service with -service"
	}
	return of.NotForeign
}

func (t runningTargets) traits() traits { return traits{unknownLock: true, liveLedger: true} }

// strike injects the fault into the second instance. The first instance must stay alive, because it
// opens orders and may return the ledger.
func (t runningTargets) strike(ctx context.Context, in *injection) (measured, error) {
	in.swapInstances()
	return in.strikeInMoments(ctx)
}
