package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"grablab/internal/fault"
	"grablab/internal/fleet"
	"grablab/internal/grab/lock"
	"grablab/internal/load"
	"grablab/internal/stack"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

const (
	struckOrders     = 6
	injectionOrders  = 1 + struckOrders + 1 // one goes before, and one comes after
	injectionDrivers = 4

	injectionWork = 5 * time.Millisecond
)

// injection is a cell under a fault: no rush, but a few orders whose steps are
// put in order by holds and by what the ledger says, so that it comes out the
// same every time. fault.Fault says how one strikes.
type injection struct {
	*worker
	strategy lock.Strategy
	fault    fault.Fault
	strikes  []fault.Strike
	cell     *Cell
	workload workload

	struck, other *fleet.Instance // where the faulted holders grab, and the other one
	bursts        *load.Bursts
	first         int64 // order

	mu       sync.Mutex
	answered map[load.Request]bool
}

// inject runs a cell under a fault.
func (w *worker) inject(ctx context.Context, s lock.Strategy, f fault.Fault) Cell {
	under := w.under(f)
	c := under.blank(s, f.Name, under.cfg.Load)
	c.Struck = new(0)
	a, invalid := under.prepareAndStrike(ctx, s, f, &c)
	w.dirty = w.dirty || under.dirty
	c.Verdict, c.Reason = judge(c, s, a, invalid)
	return c
}

// under is the worker with the settings that the fault needs, where the user has
// not asked for others.
func (w *worker) under(f fault.Fault) *worker {
	under, asked := *w, w.cfg.Asked
	cfg := &under.cfg
	if !asked.TTL {
		cfg.TTL = f.TTL
	}
	if !asked.Wait { // contenders outlast any lease that was taken before
		cfg.Wait = 2 * cfg.TTL
	}
	if !asked.Work {
		cfg.Work = injectionWork
	}
	timeout := max(w.cfg.Timeout, 4*cfg.TTL+cfg.Wait)
	if f.Course == fault.Never && !asked.Timeout { // only the client's time-out ends what hangs
		timeout = max(cfg.Wait, 2*cfg.TTL) + time.Second
	}
	cfg.Load = Load{Orders: injectionOrders, Drivers: injectionDrivers, Timeout: timeout, MaxWorkers: injectionOrders * injectionDrivers}
	return &under
}

// prepareAndStrike prepares the fault, measures the cell while it strikes, and
// clears up in any case. It returns what measure does.
func (w *worker) prepareAndStrike(ctx context.Context, s lock.Strategy, f fault.Fault, c *Cell) (a *accounting, invalid string) {
	in := &injection{
		worker: w, strategy: s, fault: f, cell: c,
		struck: w.fleet.Instances[0], other: w.fleet.Instances[1],
		bursts: load.NewBursts(), answered: map[load.Request]bool{},
	}
	prepared, err := f.Prepare(ctx, fault.Target{Stack: w.stack, Strategy: s, Faulted: in.struck, Contender: in.other})
	if err != nil {
		return nil, fmt.Sprintf("not measured: %v", err)
	}
	in.strikes = prepared.Strikes
	in.workload.setup = w.cfg.setup()
	in.workload.setup.Control = true
	in.workload.setup.Routes = map[int]stack.Addresses{0: w.stack.Via(prepared.Faulted...), 1: w.stack.Via(prepared.Contender...)}
	in.workload.send = in.send

	a, invalid = w.measure(ctx, s, c, &in.workload)
	if err := in.clear(ctx, prepared); err != nil {
		w.dirty = true
		invalid = cmp.Or(invalid, fmt.Sprintf("the fault was not healed: %v", err))
	}
	return a, invalid
}

// clear ends the instance whose work hangs, and the routes that were opened,
// once they are in use no longer.
func (in *injection) clear(ctx context.Context, prepared fault.Prepared) error {
	var errs []error
	if in.workload.hung > 0 {
		errs = append(errs, in.struck.Process().Stop(0))
	}
	if prepared.Close != nil {
		errs = append(errs, in.fleet.Stop())
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
		defer cancel()
		errs = append(errs, prepared.Close(ctx))
	}
	return errors.Join(errs...)
}

// send strikes while its bursts are sent.
func (in *injection) send(ctx context.Context, first int64) (*accounting, error) {
	in.first = first
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var striking sync.WaitGroup
	striking.Go(func() {
		defer in.bursts.End()
		if err := in.strikeAll(ctx); err != nil {
			// The calls that the instances hold must not go on in an order that is
			// no longer controlled.
			stop(errors.Join(err, in.struck.Process().Stop(0), in.other.Process().Stop(0)))
		}
	})
	a, err := in.worker.send(ctx, in.cell, in.bursts, in.cfg.Load, in.noteAnswer)
	striking.Wait()
	return a, err
}

func (in *injection) noteAnswer(r *vegeta.Result) {
	req, err := load.ParseRequest(r.URL)
	if err != nil {
		return // the accounting reports it
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.answered[req] = true
}

// strikeAll gives each strike its share of the orders. One order goes before,
// because nothing can be learnt where everything fails from the start, and one
// comes after: whatever the fault has left behind, it must go well.
func (in *injection) strikeAll(ctx context.Context) error {
	before := strike{injection: in, contests: in.contests(0, 1)}
	if err := before.withoutFault(ctx); err != nil {
		return err
	}
	share := struckOrders / len(in.strikes)
	for i, of := range in.strikes {
		s := strike{injection: in, contests: in.contests(1+i*share, share)}
		if err := s.run(ctx, of); err != nil {
			return fmt.Errorf("experiment: the injection broke off: %w", err)
		}
	}
	after := strike{injection: in, contests: in.contests(injectionOrders-1, 1)}
	return after.withoutFault(ctx)
}

// contest is the drivers of one order.
type contest struct {
	holder     load.Request   // the faulted holder, at the struck instance
	contenders []load.Request // the other instance first, then alternating
}

func (in *injection) contests(from, count int) []contest {
	contests := make([]contest, count)
	targets := in.fleet.URLs()
	for i := range contests {
		id := in.first + int64(from+i)
		for k, driver := range rand.New(rand.NewPCG(in.cfg.Seed, uint64(id-in.first))).Perm(injectionDrivers) {
			r := load.Request{Target: targets[k%len(targets)], Order: id, Driver: int64(driver) + 1}
			if k == 0 {
				contests[i].holder = r
				continue
			}
			contests[i].contenders = append(contests[i].contenders, r)
		}
	}
	return contests
}
