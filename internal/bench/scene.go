package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"grablab/internal/check"
	"grablab/internal/fault"
	"grablab/internal/grab/lock"
	"grablab/internal/stack"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

const (
	struckOrders = 6
	sceneOrders  = 1 + struckOrders + 1 // one goes before, and one comes after
	sceneDrivers = 4

	sceneWork = 5 * time.Millisecond
)

// scene is a cell under a fault: no rush, but a few orders whose steps are put
// in order by traps and by what the ledger says, so that it comes out the same
// every time. How a fault strikes one is told at fault.Fault.
func (l *lane) scene(ctx context.Context, s lock.Strategy, f fault.Fault) Cell {
	on := l.under(f)
	c := on.blank(s, on.cfg.Load)
	c.Fault, c.Expected, c.Struck = f.Name, on.cfg.expected(s, f.Name), ptr(0)
	t, doubt := on.perform(ctx, s, f, &c)
	l.spoiled = l.spoiled || on.spoiled
	c.Verdict, c.Reason = judge(c, s, t, doubt)
	return c
}

// under is the lane with the settings of a scene: what the fault needs, where
// the user has not asked for anything else.
func (l *lane) under(f fault.Fault) *lane {
	on, asked := *l, l.cfg.Asked
	cfg := &on.cfg
	if !asked.TTL {
		cfg.TTL = f.TTL
	}
	if !asked.Wait { // whoever comes outlasts any lease that was taken before
		cfg.Wait = 2 * cfg.TTL
	}
	if !asked.Work {
		cfg.Work = sceneWork
	}
	timeout := max(l.cfg.Timeout, 4*cfg.TTL+cfg.Wait)
	if f.Course == fault.Never && !asked.Timeout { // only the client's patience ends what hangs
		timeout = max(cfg.Wait, 2*cfg.TTL) + time.Second
	}
	cfg.Load = Load{Orders: sceneOrders, Drivers: sceneDrivers, Timeout: timeout, MaxWorkers: sceneOrders * sceneDrivers}
	return &on
}

// perform readies the stage, plays, and clears it whatever has happened. It
// returns the accounts, and why the cell cannot be trusted, "" if it can.
func (l *lane) perform(ctx context.Context, s lock.Strategy, f fault.Fault, c *Cell) (t *tally, doubt string) {
	sc := &scene{
		lane: l, strategy: s, fault: f, cell: c,
		victim: player{l.fleet, 0, s.Name}, rival: player{l.fleet, 1, s.Name},
		waves: newWaves(), answered: map[check.Pair]bool{},
	}
	stage, err := f.Prepare(ctx, fault.Target{Stack: l.stack, Strategy: s, Victim: sc.victim, Rival: sc.rival})
	if err != nil {
		return nil, fmt.Sprintf("not measured: %v", err)
	}
	sc.acts = stage.Acts
	sc.trial.setup = l.cfg.setup()
	sc.trial.setup.traps = true
	sc.trial.setup.routes = map[int]stack.Addresses{0: l.stack.Via(stage.Victim...), 1: l.stack.Via(stage.Rival...)}
	sc.trial.fire = sc.fire

	t, doubt = l.measure(ctx, s, c, &sc.trial)
	if err := sc.clear(ctx, stage); err != nil {
		l.spoiled = true
		doubts := doubts{doubt}
		doubts.note(err, "the fault was not healed")
		doubt = doubts.first
	}
	return t, doubt
}

// scene is one under way.
type scene struct {
	*lane
	strategy lock.Strategy
	fault    fault.Fault
	acts     []fault.Act
	cell     *Cell
	trial    trial

	victim, rival player
	waves         *waves
	first         int64 // order

	mu       sync.Mutex
	answered map[check.Pair]bool
}

// clear ends what the scene has left: the instance whose work hangs, and the
// ways that the stage has opened, once nobody uses them any more.
func (sc *scene) clear(ctx context.Context, stage fault.Stage) error {
	var errs []error
	if sc.trial.hung > 0 {
		errs = append(errs, sc.victim.member().proc.Stop(0))
	}
	if stage.Close != nil {
		errs = append(errs, sc.fleet.stop())
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
		defer cancel()
		errs = append(errs, stage.Close(ctx))
	}
	return errors.Join(errs...)
}

// fire plays the scene while its waves are sent.
func (sc *scene) fire(ctx context.Context, first int64) (*tally, error) {
	sc.first = first
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var playing sync.WaitGroup
	playing.Go(func() {
		defer sc.waves.end()
		if err := sc.play(ctx); err != nil {
			stop(errors.Join(err, sc.dismiss()))
		}
	})
	t, err := sc.lane.fire(ctx, sc.cell, sc.waves, sc.cfg.Load, sc.heard)
	playing.Wait()
	return t, err
}

// dismiss ends the instances of a scene that has broken off: what they hold must
// not go on where nobody keeps the steps in order any more.
func (sc *scene) dismiss() error {
	return errors.Join(sc.victim.member().proc.Stop(0), sc.rival.member().proc.Stop(0))
}

// heard notes who has been answered.
func (sc *scene) heard(r *vegeta.Result) {
	s, err := parseShot(r.URL)
	if err != nil {
		return // the tally says so
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.answered[check.Pair{Order: s.order, Driver: s.driver}] = true
}

// play gives each act its share of the orders. One order goes before, for there
// is nothing to be seen where all is wrong from the start, and one comes after:
// whatever the fault has left behind, it must go well.
func (sc *scene) play(ctx context.Context) error {
	before := act{scene: sc, cast: sc.parts(0, 1)}
	if err := before.calm(ctx); err != nil {
		return err
	}
	share := struckOrders / len(sc.acts)
	for i, of := range sc.acts {
		a := act{scene: sc, cast: sc.parts(1+i*share, share)}
		if err := a.play(ctx, of); err != nil {
			return fmt.Errorf("bench: the scene broke off: %w", err)
		}
	}
	after := act{scene: sc, cast: sc.parts(sceneOrders-1, 1)}
	return after.calm(ctx)
}

// part is who plays for one order.
type part struct {
	victim shot
	rivals []shot // the rival instance first, then alternating
}

func (sc *scene) parts(from, count int) []part {
	parts := make([]part, count)
	targets := sc.fleet.urls()
	for i := range parts {
		id := sc.first + int64(from+i)
		for k, driver := range rand.New(rand.NewPCG(sc.cfg.Seed, uint64(id-sc.first))).Perm(sceneDrivers) {
			s := shot{target: targets[k%len(targets)], order: id, driver: int64(driver) + 1}
			if k == 0 {
				parts[i].victim = s
				continue
			}
			parts[i].rivals = append(parts[i].rivals, s)
		}
	}
	return parts
}
